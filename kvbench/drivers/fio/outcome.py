"""What one fio process left: its only job, why it failed, and its logs as a series."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path

from kvbench.drivers import SERIES_NAME
from kvbench.drivers.fio import series
from kvbench.drivers.fio.run import Finished
from kvbench.errors import InputFileError
from kvbench.formats.fio import read as fio_format
from kvbench.formats.fio.point import failure_of
from kvbench.formats.fio.read import FioJob
from kvbench.record.results import write_atomically


def keep_series(folder: Path, host: Mapping[int, Mapping[str, float]]) -> None:
    """Turn fio's logs into series.json and remove them: a line for each job, direction and second adds up."""
    logs = {kind: folder / f"{series.LOG_NAME}_{kind}.log" for kind in series.LOGS}
    texts = {kind: path.read_text(errors="replace") for kind, path in logs.items() if path.exists()}
    if texts:
        write_atomically(folder / SERIES_NAME, json.dumps(series.series_of(texts, host)) + "\n")
    drop_series(folder)


def drop_series(folder: Path) -> None:
    """Remove fio's logs."""
    for name in series.log_file_names():
        (folder / name).unlink(missing_ok=True)


def only_job(finished: Finished, name: str) -> tuple[FioJob | None, str | None]:
    """The job called ``name`` in fio's output, and why its numbers must not be used (None: they may be)."""
    try:
        output = fio_format.parse(finished.output, "fio's output")
    except InputFileError as error:
        return None, _why_no_output(finished, error)
    job = next((job for job in output.jobs if job.name == name), None)
    if job is None:
        return None, f"fio's output holds no job {name!r}"
    return job, _failure(job, output, finished)


def _failure(job: FioJob, output: fio_format.FioOutput, finished: Finished) -> str | None:
    if finished.timed_out:
        return "fio did not end in time and was stopped: the tier hangs"
    if failure := failure_of(job, (output.preamble + "\n" + finished.errors).splitlines()):
        return failure
    if output.interrupted:
        return "fio was stopped by a signal"
    return f"fio ended with exit code {finished.code}" if finished.code != 0 else None


def _why_no_output(finished: Finished, error: InputFileError) -> str:
    if finished.timed_out:
        return "fio did not end in time and was stopped: the tier hangs"
    if finished.code < 0:
        return f"fio was killed by {signal.Signals(-finished.code).name}"
    # With --output fio's own complaints go to stderr or stand in the file instead of JSON (fio 3.33).
    said = " ".join((finished.errors or finished.output.partition("{")[0]).split())
    return f"fio ended with exit code {finished.code}: {said[:300]}" if said else str(error)
