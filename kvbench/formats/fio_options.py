"""fio's own spellings of sizes and times in job options, as bytes and seconds."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+)([kmgtp]?)(i?)(b?)", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME = re.compile(r"(\d+)(us|ms|s|m|h|d|)", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def size_bytes(text: str | None, kb_base: int = 1024) -> int | None:
    """Bytes of a fio size option such as ``2304k``, or None when it is absent or not one plain size.

    fio's default kb_base=1024 reads ``1M``, ``1MB`` and ``1Mi`` as 2^20 but ``1MiB`` as 10^6, and kb_base=1000 the
    other way round (axboe/fio#1618, seen with fio 3.33).
    """
    match = _SIZE.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    number, letter, i, b = match.groups()
    inverted = bool(i and b)
    base = kb_base if not inverted else (1000 if kb_base == 1024 else 1024)
    return int(number) * int(base ** _POWER[letter.lower()])


def duration_s(text: str | None) -> float | None:
    """Seconds of a fio time option such as ``60``, ``1m`` or ``500ms``, or None when it is absent or something else."""
    match = _TIME.fullmatch(text.strip()) if text else None
    return int(match.group(1)) * _SECONDS[match.group(2).lower()] if match else None


def is_set(options: dict[str, str], name: str) -> bool:
    """Whether a boolean option is on: fio writes it as an empty value or ``1``."""
    return name in options and options[name].strip().lower() not in ("0", "false", "no")
