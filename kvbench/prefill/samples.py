"""TTFT samples, and how they are read from a CSV file that a person or a tool wrote."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from kvbench.errors import InputFileError

_TOKEN_COLUMNS = ("prompt_tokens", "input_tokens", "prompt_token_count", "context_tokens", "input_len", "isl")
_TTFT_NAMES = ("ttft", "time_to_first_token", "mean_ttft", "median_ttft", "p50_ttft")
_UNITS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3
}  # fmt: skip
_TTFT_COLUMNS = {f"{name}_{unit}": factor for name in _TTFT_NAMES for unit, factor in _UNITS.items()}
# Columns that say how many requests were in the server at once, and those of the load that made them.
_AT_ONCE = ("concurrency", "max_concurrency", "concurrent_requests", "num_concurrent", "batch_size", "users")
_LOADS = (*_AT_ONCE, "request_rate", "rate", "qps", "rps")
WAITED = "requests waited for each other"
WAITING_NOTE = "the TTFT includes waiting for other requests, so recomputing looks slower than it is"
_NOTE = re.compile(r"#\s*([A-Za-z_]+)\s*:\s*(.+)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One uncached TTFT: prompt tokens, seconds, and the row's other columns as they stood."""

    prompt_tokens: int
    ttft_s: float
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one file; ``model`` and ``source`` come from its ``# model:`` and ``# source:`` lines.

    ``skipped_rows`` counts what was left out, ``notes`` say what must be known about the rest. ``ttft_column`` is the
    name that a CSV column of that unit should have (None: not from a CSV), ``any_speed`` that the user vouches for the
    speed, ``concurrency`` how many requests the file says ran at once.
    """

    rows: tuple[Sample, ...]
    model: str | None
    source: str
    skipped_rows: int = 0
    notes: tuple[str, ...] = ()
    ttft_column: str | None = None
    any_speed: bool = False
    concurrency: float | None = None


def read_csv(path: Path, *, skip_bad_rows: bool = False) -> Samples:
    """The TTFT samples of a CSV file, in its order; InputFileError that names lines for anything that is not one.

    Needs ``prompt_tokens`` and ``ttft_s`` or ``ttft_ms`` (case and blanks do not matter), rows sorted by length.
    """
    numbered, notes = _content(path)
    if not numbered:
        raise InputFileError(f"{path} is empty; it needs the columns prompt_tokens and ttft_s or ttft_ms.")
    header = _cells(numbered[0][1])
    tokens_at, ttft_at, factor = _columns(header, path)
    rows, bad = [], []
    for number, line in numbered[1:]:
        sample = _sample(_cells(line), header, tokens_at, ttft_at, factor)
        if sample is None:
            bad.append(number)
        else:
            rows.append((number, sample))
    if bad and not skip_bad_rows:
        raise InputFileError(
            f"{path}: {_lines(bad)} {'is' if len(bad) == 1 else 'are'} not a positive whole number of tokens and a "
            "positive time; correct the file or use --skip-bad-rows."
        )
    _require_usable(rows, path)
    samples = tuple(sample for _, sample in rows)
    return Samples(
        rows=samples,
        model=notes.get("model"),
        source=notes.get("source", path.name),
        skipped_rows=len(bad),
        ttft_column="ttft_s" if factor == 1 else "ttft_ms",
        concurrency=_concurrency(samples),
    )


def require_alone(samples: Samples, *, allow_queued: bool) -> Samples:
    """The samples of requests that ran alone; others are refused, or with ``allow_queued`` noted."""
    if samples.concurrency is None or samples.concurrency <= 1:
        return samples
    if not allow_queued:
        raise InputFileError(
            f"{samples.source} was measured with {samples.concurrency:g} requests at once, so its TTFT includes "
            "waiting and is no prefill of one prompt; measure with concurrency 1, or keep it with --allow-queued."
        )
    return replace(samples, source=f"{samples.source} ({WAITED})", notes=(*samples.notes, WAITING_NOTE))


def _content(path: Path) -> tuple[list[tuple[int, str]], dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputFileError(f"{path} cannot be read ({reason}); name a CSV file with TTFT samples.") from None
    numbered, notes = [], {}
    for number, line in enumerate(text.splitlines(), start=1):
        if note := _NOTE.fullmatch(line.strip()):
            notes[note.group(1).lower()] = note.group(2).strip()
        elif line.strip() and not line.lstrip().startswith("#"):
            numbered.append((number, line))
    return numbered, notes


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]))]


def _columns(header: Sequence[str], path: Path) -> tuple[int, int, float]:
    names = [_plain(name) for name in header]
    tokens = [index for index, name in enumerate(names) if name in _TOKEN_COLUMNS]
    ttft = [index for index, name in enumerate(names) if name in _TTFT_COLUMNS]
    unitless = [header[index] for index, name in enumerate(names) if name in _TTFT_NAMES]
    if unitless and not ttft:
        raise InputFileError(
            f"{path}: the column {unitless[0]!r} has no unit, seconds or milliseconds; name it ttft_s or ttft_ms."
        )
    if len(tokens) != 1 or len(ttft) != 1:
        raise InputFileError(
            f"{path} needs exactly one column prompt_tokens and one ttft_s or ttft_ms; it has {', '.join(header)}."
        )
    return tokens[0], ttft[0], _TTFT_COLUMNS[names[ttft[0]]]


def _sample(cells: Sequence[str], header: Sequence[str], tokens_at: int, ttft_at: int, factor: float) -> Sample | None:
    if len(cells) != len(header):
        return None
    try:
        tokens, ttft_s = float(cells[tokens_at]), float(cells[ttft_at]) * factor
    except ValueError:
        return None
    if not (tokens >= 1 and tokens.is_integer() and math.isfinite(ttft_s) and ttft_s > 0):
        return None
    extra = {name: cells[index] for index, name in enumerate(header) if index not in (tokens_at, ttft_at)}
    return Sample(int(tokens), ttft_s, extra)


def _require_usable(rows: Sequence[tuple[int, Sample]], path: Path) -> None:
    if not rows:
        raise InputFileError(f"{path} has no sample; measure TTFT at three prompt lengths or more.")
    for (_, before), (number, sample) in pairwise(rows):
        if sample.prompt_tokens < before.prompt_tokens:
            raise InputFileError(
                f"{path}: line {number} goes back from {before.prompt_tokens} to {sample.prompt_tokens} tokens; "
                "sort the file by prompt_tokens (several runs in one file must not be mixed up)."
            )
    for name in dict.fromkeys(name for _, sample in rows for name in sample.extra if _plain(name) in _LOADS):
        if len({_number(sample.extra[name]) for _, sample in rows}) > 1:
            raise InputFileError(
                f"{path} mixes values of {name.lower()}; keep the rows of one, or of 1 for one request alone."
            )


def _concurrency(samples: Sequence[Sample]) -> float | None:
    """The most requests at once that the rows name, None where no column says."""
    named = [(_plain(name), value) for sample in samples for name, value in sample.extra.items()]
    told = [number for name, value in named if name in _AT_ONCE and isinstance(number := _number(value), float)]
    return max(told, default=None)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
    return f"line{'s' if len(numbers) > 1 else ''} {shown}"
