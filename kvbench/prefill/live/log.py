"""The log of a measurement: one JSON line per request, on disk before the next request of that connection is sent."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from kvbench.border.bounded import json_of
from kvbench.border.schemas import schema_of
from kvbench.errors import InputFileError, UsageError
from kvbench.prefill.live.client import Exchange
from kvbench.prefill.live.plan import Plan

LOG_VERSION = 1

Kind = Literal["calibration", "warm-up", "sample"]


@dataclass(frozen=True, slots=True)
class Record:
    """One request: why it was sent, which prompt, and how it went. ``counted_tokens`` is what /tokenize said."""

    kind: Kind
    index: int
    at: str
    concurrency: int
    asked_tokens: int | None
    counted_tokens: int | None
    words: int
    pads: int
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Saved:
    """What a log holds: the plan that it was begun with, when, and every complete record."""

    plan: Plan
    created: str
    records: tuple[Record, ...]
    complete_bytes: int


@dataclass(frozen=True, slots=True)
class _Head:
    """What the first line says."""

    created: str
    plan: Plan


class Log:
    """A log open for appending, by this process alone."""

    def __init__(self, path: Path, keep_bytes: int | None = None) -> None:
        """Open a new file, or with ``keep_bytes`` an existing one without the torn line behind them."""
        self.path = path
        self._file = _locked(path, "x+b" if keep_bytes is None else "r+b")
        if keep_bytes is not None:
            self._file.truncate(keep_bytes)
            self._file.seek(keep_bytes)

    def begin(self, plan: Plan, created: str) -> None:
        """Write the first line."""
        self._append({"log_version": LOG_VERSION, "created": created, "plan": asdict(plan)})

    def add(self, record: Record) -> None:
        """Write one record through to the disk."""
        self._append(asdict(record))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _append(self, data: dict[str, Any]) -> None:
        self._file.write(json.dumps(data, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def load(path: Path) -> Saved:
    """What the log at ``path`` holds; InputFileError when it is missing or damaged before its last line."""
    from pydantic import ValidationError

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputFileError(f"{path} does not exist, so there is nothing to resume; start without --resume.") from None
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror}); name another -o.") from None
    # A process that was killed while it wrote leaves half a line.
    complete = content[: content.rfind(b"\n") + 1]
    lines = complete.splitlines()
    number = 1
    try:
        if not lines:
            raise ValueError("its first line is missing")
        head = json_of(lines[0], "refuse")
        if head["log_version"] != LOG_VERSION:
            raise ValueError(f"version {head['log_version']} is not known here")
        begun = schema_of(_Head).validate_python(head)
        reader = schema_of(Record)
        records = []
        for number, line in enumerate(lines[1:], start=2):  # noqa: B007 - named in the message below
            records.append(reader.validate_python(json_of(line, "refuse")))
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise InputFileError(f"{path}: line {number} is damaged ({first}); start again with another -o.") from None
    return Saved(begun.plan, begun.created, tuple(records), len(complete))


def _locked(path: Path, mode: str) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: IO[bytes] = path.open(mode)
    except FileExistsError:
        raise UsageError(f"{path} exists; name another -o, or continue that measurement with --resume.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another -o.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(f"another kvbench is writing {path}; wait for it, or name another -o.") from None
    return file
