"""Options that several commands share, and their translation into plain values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kvbench.errors import UsageError
from kvbench.units import split_list

if TYPE_CHECKING:
    from kvbench.results import Mix

ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="A shipped profile, a config.json or its folder, or a Hub id; repeatable. "
        "[default: gpt-oss-120b, Qwen3-8B, Llama-3.1-70B]",
    ),
]
TpOption = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel ranks of the server.")]
KvDtypeOption = Annotated[str, typer.Option("--kv-dtype", help="KV cache dtype; auto follows the engine's rule.")]
BlockTokensOption = Annotated[int, typer.Option("--block-tokens", min=1, help="Tokens of one logical KV block.")]
ConnectorOption = Annotated[
    str, typer.Option("--connector", help="Whose I/O to make; 'logical' is the published method.")
]
MixOption = Annotated[str, typer.Option("--mix", help="What to measure: mixed, read, write, separated by commas.")]
ReadShareOption = Annotated[
    int, typer.Option("--rwmixread", min=1, max=99, help="Share of reads in the mix, in percent.")
]
NumjobsOption = Annotated[str, typer.Option("--numjobs", help="Parallel jobs, separated by commas.")]
RuntimeOption = Annotated[
    str,
    typer.Option(
        "--runtime", help="Seconds for each point, or auto: 5 to 60 s, until the p99 is known to --precision."
    ),
]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="With --runtime auto: half-width of the p99 interval to reach, like 10%.")
]
DatasetOption = Annotated[
    str | None,
    typer.Option("--dataset", help="Data set of each tier, like 4GiB. [default: 4GiB or a quarter of the free space]"),
]
AccessOption = Annotated[
    str, typer.Option("--access", help="Order of the pure reads and writes: random or sequential.")
]
PublishedOption = Annotated[
    bool,
    typer.Option(
        "--published",
        help="The study's own fio options and nothing else: sequential pure reads and writes, 225 MiB for each job.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


def parse_mixes(text: str) -> tuple[Mix, ...]:
    """The mixes of ``--mix``, in the order given, each once."""
    known = ("mixed", "read", "write")
    wanted = tuple(dict.fromkeys(split_list(text)))
    unknown = [mix for mix in wanted if mix not in known]
    if unknown or not wanted:
        raise UsageError(f"--mix {text!r}: choose from {', '.join(known)}.")
    return cast("tuple[Mix, ...]", wanted)


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


def parse_precision(text: str) -> float:
    """The share of ``--precision 10%`` as a fraction."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"--precision {text!r}: write a share between 0 and 100 %, like 10%.")
    return share


def parse_tier(text: str) -> tuple[str, str]:
    """Name and target of ``[NAME=]T``; the name defaults to the directory's own."""
    name, separator, target = text.partition("=")
    if separator and target and "/" not in name:
        return name, target
    return Path(text).expanduser().resolve().name or "root", text


def parse_labels(items: list[str] | None) -> dict[str, str]:
    """The ``--label key=value`` options as a mapping."""
    labels = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--label {item!r}: write key=value.")
        labels[key] = value
    return labels
