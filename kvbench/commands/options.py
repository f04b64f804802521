"""Options that several commands share, and their translation into plain values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kvbench.errors import UsageError
from kvbench.units import parse_size, split_list

if TYPE_CHECKING:
    from kvbench.record.results import Mix

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
    str | None,
    typer.Option("--connector", help="Whose I/O to make, like vllm-fs; 'logical' is the published method."),
]
EngineVersionOption = Annotated[
    str | None,
    typer.Option("--engine-version", metavar="V", help="vLLM release, like 0.24. [default: the newest known]"),
]
GpuArchOption = Annotated[
    str, typer.Option("--gpu-arch", help="GPU that the engine chooses its kernels for: sm90 or sm100.")
]
MixOption = Annotated[str, typer.Option("--mix", help="What to measure: mixed, read, write, separated by commas.")]
ReadShareOption = Annotated[
    int, typer.Option("--rwmixread", min=1, max=99, help="Share of reads in the mix, in percent.")
]
NumjobsOption = Annotated[
    str | None,
    typer.Option(
        "--numjobs", help="Parallel jobs, separated by commas. [default: 1, 16 and what one request has in flight]"
    ),
]
RuntimeOption = Annotated[
    str,
    typer.Option(
        "--runtime",
        help="Seconds for each point, or auto: 18 to 60 s, in turn with the others, until p99 is known to --precision.",
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
DriverOption = Annotated[
    str | None,
    typer.Option(
        "--driver",
        help="What makes the I/O. replay does the calls of vLLM's file system tier on a directory, in the way of "
        "--engine-version, and needs no fio. [default: fio; replay on network and FUSE mounts for vllm-fs; memory for "
        "dram; s3 for buckets]",
    ),
]
FioLayoutOption = Annotated[
    str,
    typer.Option(
        "--fio-layout",
        help="Files that fio measures: large-files, or file-per-block, which opens, reads once and closes a file for "
        "every block, as the connector does.",
    ),
]
BuffersOption = Annotated[
    str,
    typer.Option(
        "--buffers",
        help="Memory that the I/O lands in: engine, as vLLM's CPU tier has it (a region in /dev/shm); own, of each "
        "job; huge, on huge pages: what a CPU tier on a tmpfs with huge=always would bring.",
    ),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="[NAME=]RATE",
        help="The most that the link or the provisioned volume allows, like 10GB/s or 25Gbit/s; faster is impossible. "
        "Repeatable: one for all tiers, or one by name. [default: the fastest link found, where it can be known]",
    ),
]
BeforeReadOption = Annotated[
    str | None,
    typer.Option(
        "--before-read",
        metavar="CMD",
        help="A command to run before every round that reads, for example to drop a storage server's caches. It is "
        "split into words and run without a shell; when it fails, the point fails.",
    ),
]
ReadCounterOption = Annotated[
    str | None,
    typer.Option(
        "--read-counter",
        metavar="CMD",
        help="A command that prints how many bytes the storage has read so far, like the sum of Ceph's op_r_out_bytes. "
        "Asked before and after every round that reads, where this host sees no device.",
    ),
]
WatchOption = Annotated[
    str | None,
    typer.Option(
        "--watch",
        metavar="CMD",
        help="A command that prints the state of the storage, like 'ceph osd stat'. It is run about once a second "
        "beside every round, without a shell; what changes is an event on the point's series.",
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


def parse_limits(items: list[str] | None, tiers: Sequence[str]) -> dict[str, int]:
    """Bytes per second by tier of ``--limit [NAME=]RATE``; a rate without a name holds for every tier."""
    limits: dict[str, int] = {}
    for item in items or []:
        name, separator, rate = item.rpartition("=")
        if separator and name not in tiers:
            raise UsageError(f"--limit {item!r}: no tier is called {name!r}; they are {', '.join(tiers)}.")
        limits |= dict.fromkeys([name] if separator else tiers, parse_rate(rate))
    return limits


def parse_tier(text: str) -> tuple[str, str]:
    """Name and target of ``[NAME=]T``; the name defaults to the directory's own, or to bucket/prefix."""
    from kvbench.tiers.kinds import name_of

    name, separator, target = text.partition("=")
    if separator and target and "/" not in name:
        return name, target
    return name_of(text), text


def parse_labels(items: list[str] | None) -> dict[str, str]:
    """The ``--label key=value`` options as a mapping."""
    labels = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--label {item!r}: write key=value.")
        labels[key] = value
    return labels
