"""Traces of requests, each read once into a Trace: one file per format, listed in FORMATS."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvbench.errors import InputFileError, UsageError
from kvbench.formats.traces import bailian, mooncake, openai, prompt_log, text, weka
from kvbench.formats.traces.format import TraceFormat, TraceReader
from kvbench.formats.traces.head import FileHead, Options
from kvbench.formats.traces.record import Builder
from kvbench.formats.traces.schema import reason_of
from kvbench.traces.trace import Trace

# Broken lines are left out and said; from that share of all lines on, and that many of them, the file is refused.
MOST_BROKEN_SHARE = 0.05
ALWAYS_BORNE = 10
_NAMED = 5
_HOPELESS = 1000
_SUFFIXES = (".json", ".jsonl", ".ndjson")
_PACKED = (".gz", ".zst")


FORMATS: dict[str, TraceFormat] = {
    "bailian": bailian.FORMAT,
    "mooncake": mooncake.FORMAT,
    "weka": weka.FORMAT,
    "openai": openai.FORMAT,
    "prompt-log": prompt_log.FORMAT,
}


@dataclass
class Broken:
    """The lines that could not be used: how many of how many, and the first ones by place and reason."""

    lines: int = 0
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, place: str, reason: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < _NAMED:
            self.first.append(f"{place}: {reason}")

    def check(self, *, at_end: bool) -> None:
        """Refuse a file of which too much is broken."""
        share = MOST_BROKEN_SHARE if at_end else 0.5
        least = ALWAYS_BORNE if at_end else _HOPELESS
        if self.count > least and self.count > share * self.lines:
            raise InputFileError(
                f"{self.count} of {self.lines} lines are broken, first {self.first[0]}; name another file, or its "
                "format with --format."
            )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A trace with where it comes from, and what was left out of it."""

    trace: Trace
    format: str
    broken: Broken


def known() -> str:
    """The formats, for a sentence."""
    return "; ".join(one.title for one in FORMATS.values())


def load(path: Path, options: Options, name: str | None = None) -> Loaded:
    """The trace in a file, or in a folder of agent sessions; InputFileError where there is none.

    ``name`` says the format where the file's beginning does not.
    """
    files = _files(path)
    with text.opened(files[0]) as stream:
        head = FileHead(text.head_of(stream))
    name = require_known(name) if name is not None else _recognised(head, files[0])
    chosen = FORMATS[name]
    if len(files) > 1 and not chosen.session_files:
        raise UsageError(f"{path} is a folder of {name} traces, which are traces of their own; name one of them.")
    if options.block_tokens and chosen.block_tokens is None:
        raise UsageError(f"{name} traces say how many tokens a block has; leave out --block-tokens.")
    builder = Builder(options.block_tokens, chosen.block_tokens, chosen.reuse(head))
    broken = Broken()
    try:
        reader = chosen.reader(options)
        for file in files:
            _take(file, chosen, reader, builder, broken, several=len(files) > 1)
        broken.check(at_end=True)
        if not len(builder):
            told = f" ({broken.first[0]})" if broken.first else ""
            raise InputFileError(f"{path} holds no request of a {name} trace{told}; name another file.")
        return Loaded(builder.trace(), name, broken)
    except MemoryError:
        raise InputFileError(f"{path} does not fit this host's memory; cut it into shorter traces.") from None


def _files(path: Path) -> list[Path]:
    if path.exists() and not path.is_dir() and not path.is_file():
        # Its beginning is read twice, which a pipe gives only once.
        raise InputFileError(f"{path} is a pipe or a device; write the trace to a file and name that.")
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.iterdir() if item.is_file() and _suffix(item) in _SUFFIXES)
    if not found:
        raise InputFileError(f"{path} holds no {', '.join(_SUFFIXES)} file; name a trace.")
    return found


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in _PACKED else path).suffix


def require_known(name: str) -> str:
    """``name`` if a format is called so; UsageError with the choice otherwise."""
    if name not in FORMATS:
        raise UsageError(f"--format {name!r}: choose from {', '.join(FORMATS)}.")
    return name


def _recognised(head: FileHead, path: Path) -> str:
    found = next((name for name, one in FORMATS.items() if one.accepts(head)), None)
    if found is None:
        raise InputFileError(f"{path} is no trace that kvbench knows; it reads {known()}.")
    return found


def _take(
    file: Path, chosen: TraceFormat, reader: TraceReader, builder: Builder, broken: Broken, *, several: bool
) -> None:
    with text.opened(file) as stream:
        for number, line in _parts(stream, chosen):
            broken.lines += 1
            place = f"{file.name} line {number}" if several else f"line {number}"
            try:
                if isinstance(line, text.LineTooLong):
                    raise line
                builder.add(list(reader.read(line)))
            except (ValueError, RecursionError) as error:
                broken.add(place, _reason(error))
                broken.check(at_end=False)


def _parts(stream: io.BufferedReader[Any], chosen: TraceFormat) -> Iterator[tuple[int, bytes | text.LineTooLong]]:
    """The lines, or the whole file where it is one document over many lines."""
    if chosen.session_files and not _first_line(text.head_of(stream)).endswith(b"}"):
        yield 1, text.document(stream)
        return
    yield from text.lines(stream)


def _first_line(head: bytes) -> bytes:
    line, newline, _ = head.lstrip().partition(b"\n")
    return line.rstrip() if newline else b""


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return reason_of(error)
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)
