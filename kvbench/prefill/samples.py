"""TTFT samples, and how they are read from a CSV file that a person or a tool wrote."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from kvbench.errors import InputFileError

_TOKEN_COLUMNS = ("prompt_tokens", "input_tokens", "prompt_token_count", "context_tokens", "input_len", "isl")
_TTFT_NAMES = ("ttft", "time_to_first_token", "mean_ttft", "median_ttft", "p50_ttft")
_UNITS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3
}  # fmt: skip
_TTFT_COLUMNS = {f"{name}_{unit}": factor for name in _TTFT_NAMES for unit, factor in _UNITS.items()}
# Beyond so many samples the curve gets slower, not better; an even selection keeps its shape.
MOST_SAMPLES = 2000
# No prompt is longer, and no prefill is quicker or slower: numbers beyond break the fit, and are no measurement.
_MOST_TOKENS = 10**9
_SHORTEST_S, _LONGEST_S = 1e-6, 1e6
_BATCH = 1 << 20
_LONGEST_LINE = 1 << 16
_NAMED_LINES = 5
_SHOWN_HEADER = 200
# A line that is empty, or begins with a blank or the sign of a note.
_NO_ROW = re.compile(r"^(?:[\s#]|\Z|$)", re.MULTILINE)
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


def is_plausible(tokens: float, ttft_s: float) -> bool:
    """Whether a prompt of so many tokens can have taken so long: whole tokens, a time between 1 us and 11 days."""
    return 1 <= tokens <= _MOST_TOKENS and float(tokens).is_integer() and _SHORTEST_S <= ttft_s <= _LONGEST_S


def thinned(rows: Sequence[Sample]) -> Sequence[Sample]:
    """``MOST_SAMPLES`` of the samples, evenly selected, the first and the last among them; all where they are few."""
    if len(rows) <= MOST_SAMPLES:
        return rows
    return [rows[round(at * (len(rows) - 1) / (MOST_SAMPLES - 1))] for at in range(MOST_SAMPLES)]


def selected_note(total: int) -> str:
    """What must be said where only some samples are used."""
    return f"the curve uses {MOST_SAMPLES:,} of {total:,} TTFT samples, evenly selected"


def read_csv(path: Path, *, skip_bad_rows: bool = False) -> Samples:
    """The TTFT samples of a CSV file, in its order; InputFileError that names lines for anything that is not one.

    Needs ``prompt_tokens`` and ``ttft_s`` or ``ttft_ms`` (case and blanks do not matter), rows sorted by length. Of
    many samples an even selection is kept, and noted.
    """
    reader = _Reader(path)
    for number, text in _batches(path):
        reader.add(number, text)
    if reader.table is None:
        raise InputFileError(f"{path} is empty; it needs the columns prompt_tokens and ttft_s or ttft_ms.")
    if reader.bad and not skip_bad_rows:
        raise InputFileError(
            f"{path}: {_lines(reader.bad, reader.bad_total)} {'is' if reader.bad_total == 1 else 'are'} not a positive "
            "whole number of tokens and a positive time; correct the file or use --skip-bad-rows."
        )
    if not reader.total:
        raise InputFileError(f"{path} has no sample; measure TTFT at three prompt lengths or more.")
    notes = (selected_note(reader.total),) if reader.total > MOST_SAMPLES else ()
    return Samples(
        rows=tuple(thinned(reader.rows())),
        model=reader.notes.get("model"),
        source=reader.notes.get("source", path.name),
        skipped_rows=reader.bad_total,
        notes=notes,
        ttft_column="ttft_s" if reader.table.factor == 1 else "ttft_ms",
        concurrency=reader.concurrency,
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


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns of a CSV file: their names, and where tokens, times (with their unit) and loads stand."""

    header: tuple[str, ...]
    tokens_at: int
    ttft_at: int
    factor: float
    loads_at: tuple[int, ...]


class _Reader:
    """What is known of a CSV file after some of its lines; of the samples so far it keeps every ``_step``-th."""

    def __init__(self, path: Path) -> None:
        self.table: _Table | None = None
        self.notes: dict[str, str] = {}
        self.bad: list[int] = []
        self.bad_total = 0
        self.total = 0
        self._path = path
        self._kept: list[list[str]] = []
        self._step = 1
        self._last: list[str] = []
        self._last_tokens = 0.0
        self._loads: dict[int, float | str] = {}

    def rows(self) -> list[Sample]:
        """The kept samples, the last one of the file among them."""
        at_end = (self.total - 1) % self._step == 0
        return [self._sample(cells) for cells in (*self._kept, *([] if at_end else [self._last]))]

    @property
    def concurrency(self) -> float | None:
        """The most requests at once that the rows name, None where no column says."""
        header = self.table.header if self.table is not None else ()
        told = (value for at, value in self._loads.items() if _plain(header[at]) in _AT_ONCE)
        return max((value for value in told if isinstance(value, float)), default=None)

    def add(self, number: int, text: str) -> None:
        """Take whole lines, the first of which is line ``number`` (from 1)."""
        numbers: Sequence[int] = range(number, number + text.count("\n") + 1)
        lines = text.split("\n")
        if _NO_ROW.search(text):
            kept = [(at, line) for at, line in zip(numbers, lines, strict=True) if not self._is_note(line)]
            numbers, lines = [at for at, _ in kept], [line for _, line in kept]
        rows = [_cells(line) for line in lines] if '"' in text else [line.split(",") for line in lines]
        if self.table is None and rows:
            self.table = _table(rows[0], self._path)
            numbers, rows = numbers[1:], rows[1:]
        if self.table is not None and rows:
            self._take(self.table, numbers, rows)

    def _is_note(self, line: str) -> bool:
        """Whether a line is no row; a note of the whole file is kept."""
        text = line.strip()
        if note := _NOTE.fullmatch(text):
            self.notes[note.group(1).lower()] = note.group(2).strip()
        return not text or text.startswith("#")

    def _take(self, table: _Table, numbers: Sequence[int], rows: list[list[str]]) -> None:
        try:
            tokens = list(map(float, map(itemgetter(table.tokens_at), rows)))
            times = list(map(float, map(itemgetter(table.ttft_at), rows)))
            fine = set(map(len, rows)) == {len(table.header)} and _all_plausible(tokens, times, table.factor)
        except (ValueError, IndexError):
            fine = False
        if not fine:
            usable = [self._is_usable(table, cells) for cells in rows]
            wrong = [number for number, good in zip(numbers, usable, strict=True) if not good]
            self.bad += wrong[: _NAMED_LINES - len(self.bad)]
            self.bad_total += len(wrong)
            rows = [cells for cells, good in zip(rows, usable, strict=True) if good]
            numbers = [number for number, good in zip(numbers, usable, strict=True) if good]
            tokens = [float(cells[table.tokens_at]) for cells in rows]
        self._require_order(numbers, tokens)
        self._require_one_load(table, rows)
        self._keep(rows)

    def _is_usable(self, table: _Table, cells: list[str]) -> bool:
        if len(cells) != len(table.header):
            return False
        try:
            return is_plausible(float(cells[table.tokens_at]), float(cells[table.ttft_at]) * table.factor)
        except ValueError:
            return False

    def _require_order(self, numbers: Sequence[int], tokens: list[float]) -> None:
        before = [self._last_tokens, *tokens]
        if before != sorted(before):
            at = next(at for at, (one, other) in enumerate(pairwise(before)) if other < one)
            raise InputFileError(
                f"{self._path}: line {numbers[at]} goes back from {before[at]:.0f} to {tokens[at]:.0f} tokens; "
                "sort the file by prompt_tokens (several runs in one file must not be mixed up)."
            )
        self._last_tokens = before[-1]

    def _require_one_load(self, table: _Table, rows: list[list[str]]) -> None:
        for at in table.loads_at:
            values = {_number(text) for text in {cells[at].strip() for cells in rows}}
            values |= {self._loads[at]} if at in self._loads else set()
            if len(values) > 1:
                raise InputFileError(
                    f"{self._path} mixes values of {table.header[at].lower()}; keep the rows of one, or of 1 for one "
                    "request alone."
                )
            self._loads.update((at, value) for value in values)

    def _keep(self, rows: list[list[str]]) -> None:
        self._kept += rows[-self.total % self._step :: self._step]
        self.total += len(rows)
        self._last = rows[-1] if rows else self._last
        while len(self._kept) > 2 * MOST_SAMPLES:
            self._kept = self._kept[::2]
            self._step *= 2

    def _sample(self, cells: list[str]) -> Sample:
        table = self.table
        assert table is not None
        numeric = (table.tokens_at, table.ttft_at)
        extra = {name: cells[index].strip() for index, name in enumerate(table.header) if index not in numeric}
        return Sample(int(float(cells[table.tokens_at])), float(cells[table.ttft_at]) * table.factor, extra)


def _all_plausible(tokens: list[float], times: list[float], factor: float) -> bool:
    """is_plausible for many at once."""
    return (
        min(tokens) >= 1
        and max(tokens) <= _MOST_TOKENS
        and min(times) * factor >= _SHORTEST_S
        and max(times) * factor <= _LONGEST_S
        and all(map(float.is_integer, tokens))
        and not any(map(math.isnan, times))
    )


def _batches(path: Path) -> Iterator[tuple[int, str]]:
    """Whole lines of a file, about a MiB at a time, and the number of the first; InputFileError for what is no CSV."""
    number, rest = 1, ""
    try:
        with path.open(encoding="utf-8-sig") as file:
            while chunk := file.read(_BATCH):
                text, whole, rest = (rest + chunk).rpartition("\n")
                if len(rest) > _LONGEST_LINE:
                    raise InputFileError(
                        f"{path} has a line of more than {_LONGEST_LINE:,} characters; name a CSV file of TTFT samples."
                    )
                if whole:
                    yield number, text
                    number += text.count("\n") + 1
            if rest:
                yield number, rest
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputFileError(f"{path} cannot be read ({reason}); name a CSV file with TTFT samples.") from None


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error:
        return []


def _table(cells: Sequence[str], path: Path) -> _Table:
    header = tuple(cell.strip() for cell in cells)
    tokens_at, ttft_at, factor = _columns(header, path)
    loads = tuple(at for at, name in enumerate(header) if _plain(name) in _LOADS)
    return _Table(header, tokens_at, ttft_at, factor, loads)


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
            f"{path} needs exactly one column prompt_tokens and one ttft_s or ttft_ms; it has "
            f"{', '.join(header)[:_SHOWN_HEADER]}."
        )
    return tokens[0], ttft[0], _TTFT_COLUMNS[names[ttft[0]]]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _lines(first: Sequence[int], total: int) -> str:
    shown = ", ".join(map(str, first)) + (f" and {total - len(first)} more" if total > len(first) else "")
    return f"line{'s' if total > 1 else ''} {shown}"
