"""Options that several commands share, and their translation into plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import typer

from kvbench.commands.groups import parsed
from kvbench.engines.vllm.gpu import GpuArch
from kvbench.engines.vllm.releases import find_release
from kvbench.errors import UsageError
from kvbench.units import parse_size, split_list


class NamedTier(NamedTuple):
    """A tier as ``--tier [NAME=]T`` names it."""

    name: str
    target: str


class AskedLimit(NamedTuple):
    """``--limit [NAME=]RATE``: the most that a tier's link allows, that of every tier where ``tier`` is None."""

    tier: str | None
    bytes_per_s: int


class Label(NamedTuple):
    """``--label K=V``."""

    key: str
    value: str


def list_of(parse: Callable[[str], int]) -> Callable[[str], tuple[int, ...]]:
    """The parser of an option that takes several of what ``parse`` takes, separated by commas."""
    return lambda text: tuple(parse(item) for item in split_list(text))


def counts_of(option: str) -> Callable[[str], tuple[int, ...]]:
    """The parser of an option that takes positive whole numbers, separated by commas; each counts once, in order."""
    return lambda text: parse_counts(text, option)


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """The positive whole numbers of a comma-separated option, in the order given, each once."""
    items = split_list(text)
    if not items or not all(item.isascii() and item.isdecimal() and int(item) > 0 for item in items):
        raise UsageError(f"{option} {text!r}: write whole numbers from 1, separated by commas, like 1,16.")
    return tuple(dict.fromkeys(int(item) for item in items))


def parse_runtime(text: str) -> int | None:
    """Seconds of ``--runtime``, or None for ``auto``."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--runtime {text!r}: write whole seconds from 1, or auto.")
    return int(text)


def parse_mix_share(text: str) -> int | None:
    """Percent of ``--rwmixread``, or None for ``auto``."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 99:
        raise UsageError(f"--rwmixread {text!r}: write whole percents from 1 to 99, or auto.")
    return int(text)


def parse_precision(text: str) -> float:
    """The share of ``--precision 10%`` as a fraction."""
    return parse_share(text, "--precision")


def parse_share(text: str, option: str) -> float:
    """A share like ``10%`` or ``0.1`` as a fraction between 0 and 1; UsageError otherwise."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} {text!r}: write a share between 0 and 100 %, like 10%.")
    return share


def parse_engine_version(text: str) -> str:
    """The release that ``--engine-version`` means: its last patch, where it names none."""
    return find_release(text).version


def parse_rate(text: str, option: str = "--limit") -> int:
    """Bytes per second of a rate such as ``10GB/s``, ``800MiB/s`` or ``25Gbit/s`` (also ``25Gbps``)."""
    compact = text.replace(" ", "")
    match = re.fullmatch(r"(?i)([0-9.]+[kmgt]?)(?:bit/s|bps|b/s)", compact)
    # 'b' is a bit in Gb/s and a byte in GB/s: only the capital letter tells, so the small one must say 'bit'.
    if match is not None and not compact.endswith("B/s"):
        if compact.endswith("b/s"):
            raise UsageError(f"{option} {text!r} is ambiguous; write Gbit/s for bits or GB/s for bytes.")
        bits = parse_size(match[1] + "B")
        return bits // 8 if bits >= 8 else _no_rate(text, option)
    if not compact.endswith("/s"):
        return _no_rate(text, option)
    return parse_size(compact.removesuffix("/s")) or _no_rate(text, option)


def _no_rate(text: str, option: str) -> int:
    raise UsageError(f"{option} {text!r} is not a rate; write it like 10GB/s, 800MiB/s or 25Gbit/s.")


def parse_limit(text: str) -> AskedLimit:
    """The rate of ``--limit [NAME=]RATE``, and the tier that it holds for."""
    name, separator, rate = text.rpartition("=")
    return AskedLimit(name if separator else None, parse_rate(rate))


def limits_by_tier(limits: Sequence[AskedLimit] | None, tiers: Sequence[str]) -> dict[str, int]:
    """Bytes per second by tier; a limit without a name holds for every tier, and a later one replaces an earlier."""
    found: dict[str, int] = {}
    for limit in limits or ():
        if limit.tier is not None and limit.tier not in tiers:
            raise UsageError(
                f"--limit {limit.tier}=...: no tier is called {limit.tier!r}; they are {', '.join(tiers)}."
            )
        found |= dict.fromkeys(tiers if limit.tier is None else [limit.tier], limit.bytes_per_s)
    return found


def parse_tier(text: str) -> NamedTier:
    """Name and target of ``[NAME=]T``; the name defaults to the directory's own, or to bucket/prefix."""
    # Sizing names no tier, and loads none of their kinds.
    from kvbench.tiers.kinds import name_of

    name, separator, target = text.partition("=")
    if separator and target and "/" not in name:
        return NamedTier(name, target)
    return NamedTier(name_of(text), text)


def parse_label(text: str) -> Label:
    """Key and value of ``--label K=V``."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"--label {text!r}: write key=value.")
    return Label(key, value)


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
TiersOption = Annotated[
    list[NamedTier] | None,
    parsed(
        parse_tier,
        "--tier",
        metavar="[NAME=]T",
        help="A directory on the tier, a block device, s3://bucket/prefix, or dram; repeatable.",
    ),
]
TpOption = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel ranks of the server.")]
KvDtypeOption = Annotated[
    str, typer.Option("--kv-dtype", help="KV cache dtype: bfloat16, fp8, ...; auto follows the engine's rule.")
]
BlockTokensOption = Annotated[int, typer.Option("--block-tokens", min=1, help="Tokens of one logical KV block.")]
EngineVersionOption = Annotated[
    str | None,
    parsed(
        parse_engine_version,
        "--engine-version",
        metavar="V",
        help="vLLM release, like 0.24.",
        show_default="the newest known",
    ),
]
GpuArchOption = Annotated[GpuArch, typer.Option("--gpu-arch", help="GPU that the engine chooses its kernels for.")]
LimitOption = Annotated[
    list[AskedLimit] | None,
    parsed(
        parse_limit,
        "--limit",
        metavar="[NAME=]RATE",
        help="The most that the link or the provisioned volume allows, like 10GB/s or 25Gbit/s; faster is impossible. "
        "Repeatable: one for all tiers, or one by name.",
        show_default="the fastest link found, where it can be known",
    ),
]
LabelOption = Annotated[
    list[Label] | None, parsed(parse_label, "--label", metavar="K=V", help="Kept in the result; repeatable.")
]


def parse_left_out(text: str) -> frozenset[str]:
    """The codes of ``--strict-except``; UsageError for one that no point carries, or that forbids every verdict."""
    from difflib import get_close_matches

    from kvbench.checks import CODES, VOIDING

    codes = frozenset(split_list(text))
    unknown = min(codes - CODES, default=None)
    if unknown is not None or not codes:
        close = get_close_matches(unknown or "", sorted(CODES - VOIDING), n=1)
        guess = f"did you mean {close[0]}? docs/warnings.md lists them" if close else "docs/warnings.md lists them"
        raise UsageError(f"--strict-except {text!r}: {unknown or 'nothing'!r} is no code of a warning; {guess}.")
    void = min(codes & VOIDING, default=None)
    if void is not None:
        raise UsageError(
            f"--strict-except {void}: with it the numbers are not the tier's, so it cannot be left out; measure again."
        )
    return codes


@dataclass(frozen=True, slots=True)
class StrictOptions:
    """Whether a warning counts as a failure, and which warnings do not."""

    panel: ClassVar[str] = "Warnings"

    strict: Annotated[
        bool, typer.Option("--strict", help="Any warning of a point counts: exit 3 (in a gate: cannot say).")
    ] = False
    strict_except: Annotated[
        frozenset[str],
        parsed(
            parse_left_out,
            "--strict-except",
            metavar="CODE,...",
            help="--strict, but these warnings do not count, like events,fits-memory.",
            show_default=False,
        ),
    ] = frozenset()

    def counts(self, codes: Iterable[str]) -> bool:
        """Whether any of the codes counts as a failure."""
        return (self.strict or bool(self.strict_except)) and not self.strict_except.issuperset(codes)


RunDirOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Run directory.", show_default="reports/<UTC time>-<tier>"),
]
