"""Whether fio works on a tier: one write of 1 MiB with each ioengine, by fio itself."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kvbench.drivers.fio import run as fio_run
from kvbench.drivers.fio.job import fio_path
from kvbench.errors import InputFileError, TierError, ToolError
from kvbench.formats.fio import read as fio_format
from kvbench.tiers.directory import Workspace
from kvbench.tiers.findings import Finding, Status
from kvbench.tiers.guard import TOKEN_VARIABLE

ENGINES = ("libaio", "io_uring", "psync")
_MEGABYTE = 1 << 20


def findings(space: Workspace | None) -> Iterator[Finding]:
    """A finding for each ioengine; none without a work space or without fio, whose absence the host's findings say."""
    if space is None:
        return
    try:
        fio = fio_run.find_fio()
        fio_path(space.path)
    except ToolError:
        return
    except TierError as error:
        yield Finding("path", "problem", "fio cannot express it", str(error))
        return
    for engine in ENGINES:
        failure = _engine_failure(fio, space, engine)
        needed = engine == "libaio"
        hint = None if failure is None else "kvbench measures with libaio" if needed else "kvbench does not need it"
        status: Status = "ok" if failure is None else "problem" if needed else "note"
        yield Finding(f"fio {engine}", status, failure or "works here", hint)


def _engine_failure(fio: fio_run.Fio, space: Workspace, engine: str) -> str | None:
    folder = space.place / f"doctor-{engine}"
    folder.mkdir()
    options = {
        "directory": fio_path(folder),
        "filename": "probe",
        "direct": 1,
        "ioengine": engine,
        "iodepth": 1,
        "thread": 1,
        "rw": "write",
        "bs": _MEGABYTE,
        "size": _MEGABYTE,
        "numjobs": 1,
    }
    job_file = folder / "job.fio"
    job_file.write_text("\n".join(["[doctor]", *(f"{key}={value}" for key, value in options.items()), ""]))
    done = fio_run.run_job(
        fio,
        job_file,
        timeout_s=30,
        environment={TOKEN_VARIABLE: space.token},
        on_rate=lambda text: None,
        inherited=space.inherited,
    )
    if done.timed_out:
        return "no answer within 30 s"
    try:
        (job,) = fio_format.parse(done.output, "fio's output").jobs
    except (InputFileError, ValueError):
        return " ".join((done.errors or done.output).split())[:200] or f"fio ended with exit code {done.code}"
    if job.error or job.write is None:
        return os.strerror(job.error) if job.error else "fio wrote nothing"
    return None
