"""Whether the fio on PATH has the http engine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from kvbench.tiers.directory import Workspace
from kvbench.tiers.findings import Finding


def findings(space: Workspace | None) -> Iterator[Finding]:
    """One finding, never a problem: S3 can be measured without fio."""
    program = shutil.which("fio")
    if program is None:
        yield Finding("fio http", "note", "fio is not installed", "S3 can be measured without it")
        return
    done = subprocess.run([program, "--enghelp=http"], capture_output=True, text=True, timeout=30, check=False)
    has_engine = "http_host" in done.stdout
    hint = None if has_engine else "Debian builds fio without libcurl; the published job files need a build with it"
    yield Finding("fio http", "ok" if has_engine else "note", "has the engine" if has_engine else "lacks it", hint)
