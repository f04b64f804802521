"""The only place where numbers become text with a unit, and text with a unit becomes numbers.

Sizes and bandwidths are shown in binary units (KiB, MiB, GiB) everywhere, so that one report never mixes MB and MiB.
"""

from __future__ import annotations

import re

from kvbench.errors import UsageError

_BINARY = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_SIZE_UNITS = {"B": 1, **_BINARY, **_DECIMAL}
# What ends a line somewhere, drives a terminal, or cannot be written: C0, C1, line separators, lone surrogates.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SIZE_BY_LOWER = {name.lower(): factor for name, factor in _SIZE_UNITS.items()}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

NS_PER_MS = 10**6
NS_PER_S = 10**9


def parse_size(text: str) -> int:
    """Bytes of a size such as ``64GiB`` (2^30), ``7TB`` (10^12) or ``4096``; UsageError for anything else.

    A bare ``4G`` is refused: fio, Kubernetes and disk vendors each read it differently (axboe/fio#1618).
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a size; write it like 64GiB, 7TB or 1179648.")
    number, unit = match.groups()
    if unit.lower() in ("k", "m", "g", "t", "p"):
        letter = unit.upper()
        raise UsageError(
            f"{text!r} is ambiguous; write {number}{letter}iB (powers of 1024) or {number}{letter}B (1000)."
        )
    factor = _SIZE_BY_LOWER.get(unit.lower() or "b")
    if factor is None:
        raise UsageError(f"{text!r} has an unknown unit; write a size like 64GiB, 7TB or 1179648.")
    return _whole(number, factor, text, "bytes")


def parse_tokens(text: str) -> int:
    """Tokens of a context length such as ``8k`` (8192) or ``32768``; UsageError for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None or match.group(2).lower() not in ("", "k", "m"):
        raise UsageError(f"{text!r} is not a number of tokens; write it like 8192 or 8k (k = 1024).")
    number, unit = match.groups()
    return _whole(number, {"": 1, "k": 1 << 10, "m": 1 << 20}[unit.lower()], text, "tokens")


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as ``2s``, ``500ms``, ``1m`` or ``60``; UsageError for anything else."""
    match = _NUMBER.fullmatch(text)
    factor = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0}.get(match.group(2)) if match else None
    if match is None or factor is None:
        raise UsageError(f"{text!r} is not a duration; write it like 2s, 500ms or 60.")
    return float(match.group(1)) * factor


def split_list(text: str) -> list[str]:
    """The items of a comma-separated option, blanks removed."""
    return [item.strip() for item in text.split(",") if item.strip()]


def format_bytes(count: int | float) -> str:
    """``1179648`` as ``1.125 MiB``: binary units, at most four significant digits, exact where that is short."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    unit, factor = _scale(abs(count))
    return f"{_short(count / factor)} {unit}"


def format_bandwidth(bytes_per_s: float) -> str:
    """Bytes per second as ``202.5 MiB/s``."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_mib_per_s(bytes_per_s: float) -> str:
    """Bytes per second as a plain number of MiB/s, for a column whose head names the unit: ``202.5``, ``1,684``."""
    value = bytes_per_s / _BINARY["MiB"]
    return f"{value:,.0f}" if value >= 999.95 else _short(value)


def format_ms(duration_ns: float) -> str:
    """Nanoseconds as a plain number of ms, for a column whose head names the unit: ``0.812``, ``107``, ``17,100``."""
    value = duration_ns / NS_PER_MS
    return f"{value:,.0f}" if value >= 999.5 else _three(value)


def format_rate(per_s: float) -> str:
    """A rate per second as a plain number: ``1,497`` or ``9.5``."""
    return f"{per_s:,.0f}" if per_s >= 9.95 else f"{per_s:.1f}"


def format_duration_ns(duration_ns: float) -> str:
    """Nanoseconds as ``107 ms``, ``3.97 ms``, ``812 us`` or ``17.1 s``: three significant digits."""
    for factor, unit in ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (1_000, "us")):
        if duration_ns >= factor * 0.9995:
            return f"{_three(duration_ns / factor)} {unit}"
    return f"{duration_ns:.0f} ns"


def format_duration_s(duration_s: float) -> str:
    """Seconds as ``17.1 s`` or ``70.6 ms``: three significant digits."""
    return format_duration_ns(duration_s * NS_PER_S)


def format_tokens(tokens: int | float) -> str:
    """Tokens with thousands separators: ``32,768``."""
    return f"{tokens:,.0f}"


def format_number(number: float) -> str:
    """``1.42``, ``20``, ``1,235``: three digits or whole; from 0.0001 on without an exponent."""
    return f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def format_share(share: float) -> str:
    """``0.25`` as ``25 %``, ``5.281`` as ``528 %``: whole from ten per cent on."""
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.1f} %"


def format_count(count: int | float) -> str:
    """A plain count with thousands separators."""
    return f"{count:,.0f}"


def _whole(number: str, factor: int, text: str, what: str) -> int:
    whole, _, fraction = number.partition(".")
    scaled = int(whole + fraction) * factor
    value, rest = divmod(scaled, int("1" + "0" * len(fraction)))
    if rest:
        raise UsageError(f"{text!r} is not a whole number of {what}; write one that is.")
    return value


def _scale(count: float) -> tuple[str, int]:
    unit, factor = "KiB", _BINARY["KiB"]
    for name, size in _BINARY.items():
        # From 1023.5 on, four digits would read "1024" of the smaller unit.
        if count >= size * (1023.5 / 1024):
            unit, factor = name, size
    return unit, factor


def _short(value: float) -> str:
    text = f"{value:.{max(0, 4 - len(str(int(abs(value)))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _three(value: float) -> str:
    rounded = float(f"{value:.3g}")
    whole_digits = len(str(int(rounded))) if rounded >= 1 else 0
    return f"{rounded:.{max(0, 3 - whole_digits)}f}"


def format_requests(each: float) -> str:
    """Device requests for each operation: 1 and 1.02 are to be told apart."""
    return f"{each:.2f}"


def is_one_line(text: str) -> bool:
    """Whether ``text`` holds nothing that ends a line or drives a terminal."""
    return _CONTROL.search(text) is None
