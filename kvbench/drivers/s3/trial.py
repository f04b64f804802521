"""Whether the S3 client is installed."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drivers.s3 import client
from kvbench.errors import ToolError
from kvbench.tiers.directory import Workspace
from kvbench.tiers.findings import Finding


def findings(space: Workspace | None) -> Iterator[Finding]:
    """One finding: its version, or what to install."""
    try:
        yield Finding("s3 driver", "ok", f"obstore {client.require_installed()}")
    except ToolError as error:
        yield Finding("s3 driver", "problem", "missing", str(error))
