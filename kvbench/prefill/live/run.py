"""From a plan to files: a fresh measurement or the rest of one that was stopped, saved whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.host.interruption import interruptible
from kvbench.prefill.live import judge, log, output
from kvbench.prefill.live.endpoint import Endpoint
from kvbench.prefill.live.log import Log, Record
from kvbench.prefill.live.output import Files
from kvbench.prefill.live.plan import Plan, same_but_seed
from kvbench.prefill.live.session import Progress, Session


@dataclass(frozen=True, slots=True)
class Opened:
    """A measurement ready to go on: its plan, when it was begun, its open log, and what was recorded so far."""

    plan: Plan
    created: str
    log: Log
    records: tuple[Record, ...]
    files: Files


def planned(path: Path) -> Plan:
    """The plan of the measurement that ``path`` (the -o of it) was begun with."""
    return log.load(path.with_suffix(".jsonl")).plan


def open_new(plan: Plan, path: Path) -> Opened:
    """A fresh measurement; UsageError when any of its files exists."""
    files = output.files_of(path, plan.concurrency)
    output.require_new(files)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    opened = Log(files.log)
    opened.begin(plan, created)
    return Opened(plan, created, opened, (), files)


def open_again(path: Path, wanted: Plan | None) -> Opened:
    """The measurement that was begun at ``path``; UsageError when ``wanted`` asks for another one."""
    if path.suffix.lower() != ".csv":
        raise UsageError(f"-o {path}: name the CSV file of the measurement to continue.")
    saved = log.load(path.with_suffix(".jsonl"))
    if wanted is not None and not same_but_seed(wanted, saved.plan):
        raise UsageError(f"{path} was begun with other options; repeat those, or give only --resume and -o.")
    files = output.files_of(path, saved.plan.concurrency)
    return Opened(saved.plan, saved.created, Log(files.log, saved.complete_bytes), saved.records, files)


def measure(
    opened: Opened, endpoint: Endpoint, key: str | None, display: AbstractContextManager[Progress]
) -> tuple[dict[str, Any], Sequence[judge.LengthResult]]:
    """The summary (see output) and the results by length, both on disk when this returns or is interrupted.

    Interrupted on SIGINT, SIGTERM or SIGHUP; MeasurementError when the server cannot be measured at all.
    """
    session = Session(opened.plan, endpoint, key, opened.log, opened.records)
    # Only a measurement has a log to go on from; see below.
    saved = f"what finished is saved in {opened.files.log}, continue with --resume."
    with interruptible(lambda: "nothing was measured yet." if session.only_calibrated else saved):
        try:
            contact = session.calibrate()
            finished = False
            try:
                with display as progress:
                    session.measure(progress)
                finished = True
            finally:
                results = session.results()
                data = output.summary(
                    opened.plan, endpoint, contact, session.records, results, created=opened.created,
                    counters_after=session.counters_now(), finished=finished, files=opened.files,
                )  # fmt: skip
                output.write(opened.files, results, data)
        finally:
            session.close()
            opened.log.close()
            if session.only_calibrated:
                # The name stays free for the next try.
                opened.files.log.unlink()
    return data, results
