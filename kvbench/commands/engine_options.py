"""Options of ``workingset`` that put an engine with tiers in front of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import typer

from kvbench.commands.groups import parsed
from kvbench.commands.options import parse_rate, parse_share
from kvbench.connectors import stored_layout, vllm_fs
from kvbench.connectors.stored import Group
from kvbench.errors import UsageError
from kvbench.layout.sized import SizedModel
from kvbench.prefill.curve import fit
from kvbench.prefill.samples import read_csv
from kvbench.prefill.shipped import find_csv
from kvbench.simulate.plan import Engine, SecondaryTier, TierSet
from kvbench.simulate.sizing import SWITCHES
from kvbench.simulate.timing import Compute, TierRates
from kvbench.traces.trace import Trace
from kvbench.traces.weights import BlockWeight
from kvbench.units import is_one_line, parse_duration_s, parse_size, split_list


class TierSize(NamedTuple):
    """``NAME[=SIZE]``; None is no limit."""

    name: str
    bytes: int | None


def parse_tier_size(text: str) -> TierSize:
    """A tier and its size; UsageError for a name that is none."""
    name, separator, size = text.partition("=")
    if not name or not is_one_line(name) or name in ("gpu", "cpu") or (separator and not size):
        raise UsageError(f"{text!r}: write a name of your own and a size, like nvme=7TB, or a name alone for no limit.")
    return TierSize(name, parse_size(size) if separator else None)


class TierRate(NamedTuple):
    """``NAME=RATE``."""

    name: str
    bytes_per_s: float


def parse_tier_rate(text: str, option: str) -> TierRate:
    """A tier and its bytes per second."""
    name, separator, rate = text.partition("=")
    if not separator or not name or not is_one_line(name):
        raise UsageError(f"{option} {text!r}: write NAME=RATE, like nvme=5GiB/s.")
    return TierRate(name, parse_rate(rate, option))


def parse_switches(text: str) -> tuple[str, ...]:
    """The names of what is to be changed, each once."""
    names = tuple(dict.fromkeys(split_list(text)))
    for name in names:
        if name not in SWITCHES:
            raise UsageError(f"--what-if {name!r}: choose from {', '.join(SWITCHES)}.")
    return names


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The servers that would answer the trace, and the tiers that are tried on them."""

    panel: ClassVar[str] = "An engine with tiers"

    gpu: Annotated[
        int | None,
        parsed(parse_size, "--gpu", metavar="SIZE", help="GPU memory for KV of one replica, all its GPUs together."),
    ] = None
    cpu: Annotated[
        int | None,
        parsed(parse_size, "--cpu", metavar="SIZE", help="CPU memory for KV of one replica (cpu_bytes_to_use)."),
    ] = None
    tier: Annotated[
        list[TierSize] | None,
        parsed(
            parse_tier_size,
            "--tier",
            metavar="NAME[=SIZE]",
            help="A tier behind the CPU's memory that each replica has for itself, like nvme=7TB; repeatable.",
        ),
    ] = None
    shared_tier: Annotated[
        list[TierSize] | None,
        parsed(
            parse_tier_size,
            "--shared-tier",
            metavar="NAME[=SIZE]",
            help="A tier behind it that all replicas share, like cephfs=50TB; repeatable.",
        ),
    ] = None
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=256, help="How many servers there are.")] = 1
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            help="Sessions that are open on each replica, each sending its next request when the last is answered.",
            show_default="requests in the trace's order",
        ),
    ] = None
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            "--chunk-tokens",
            min=1,
            help="Tokens of what a tier stores as one (the connector's block_size), a multiple of the trace's block.",
            show_default="the trace's block",
        ),
    ] = None
    batch_tokens: Annotated[
        int, typer.Option("--max-num-batched-tokens", min=1, help="Tokens that one step of the engine computes.")
    ] = 8192
    policy: Annotated[Literal["lru", "arc"], typer.Option("--eviction-policy", help="How the CPU tier evicts.")] = "lru"
    ttft_csv: Annotated[
        Path | None,
        typer.Option(
            "--ttft-csv",
            metavar="FILE",
            help="Also predict waiting times and throughput: uncached TTFT, as for 'kvbench crossover'.",
        ),
    ] = None
    read_rate: Annotated[
        list[TierRate] | None,
        parsed(
            partial(parse_tier_rate, option="--read-rate"),
            "--read-rate",
            metavar="NAME=RATE",
            help="What a tier reads at most, as measured, like nvme=5GiB/s; one without it takes no time. Repeatable.",
        ),
    ] = None
    write_rate: Annotated[
        list[TierRate] | None,
        parsed(
            partial(parse_tier_rate, option="--write-rate"),
            "--write-rate",
            metavar="NAME=RATE",
            help="What a tier writes at most, as measured. Repeatable.",
        ),
    ] = None
    per_token_s: Annotated[
        float,
        parsed(parse_duration_s, "--per-token", metavar="TIME", help="Time of each token of an answer."),
    ] = 0.02
    what_if: Annotated[
        tuple[str, ...],
        parsed(
            parse_switches,
            "--what-if",
            metavar="|".join(SWITCHES),
            help="Also show what each of these would change, separated by commas.",
            show_default=False,
        ),
    ] = ()
    size_for: Annotated[
        float | None,
        parsed(
            partial(parse_share, option="--size-for"),
            "--size-for",
            metavar="SHARE",
            help="Say how large tiers must be for this share of the reachable hit rate, like 90%.",
        ),
    ] = None

    @property
    def asked(self) -> bool:
        """Whether any tier is to be simulated."""
        return any((self.ttft_csv, self.gpu, self.cpu, self.tier, self.shared_tier, self.size_for, self.what_if))

    def engine(self, sized: SizedModel, weight: BlockWeight, trace: Trace) -> Engine:
        """The engine that the options describe; UsageError where they contradict each other or the trace."""
        if self.gpu is None:
            raise UsageError("an engine's tiers need --gpu, the GPU memory for KV of one replica, like 40GiB.")
        if (self.tier or self.shared_tier) and self.cpu is None:
            raise UsageError("a tier behind the CPU's memory needs --cpu: the engine moves every block through it.")
        tokens = self.chunk_tokens or trace.block_tokens
        if tokens % trace.block_tokens:
            raise UsageError(
                f"--chunk-tokens {tokens} is no multiple of the trace's block of {trace.block_tokens} tokens; "
                f"choose {-(-tokens // trace.block_tokens) * trace.block_tokens}."
            )
        return Engine(
            gpu_bytes=self.gpu,
            # A model of windows and states alone adds nothing for a long prompt.
            block_bytes=max(1, weight.block_bytes),
            chunk_bytes=_chunk_bytes(sized, tokens),
            chunk_blocks=tokens // trace.block_tokens,
            policy=self.policy,
            batch_tokens=self.batch_tokens,
            replicas=self.replicas,
            concurrency=self.concurrency,
        )

    def compute(self) -> Compute | None:
        """How long computing takes, None where no TTFT was given; UsageError for rates without it, or of no tier."""
        named = [*(self.read_rate or ()), *(self.write_rate or ())]
        if self.ttft_csv is None:
            if named:
                raise UsageError("--read-rate and --write-rate are for waiting times; give --ttft-csv as well.")
            return None
        known = {"cpu", *(one.name for one in (*(self.tier or ()), *(self.shared_tier or ())))}
        for rate in named:
            if rate.name not in known:
                raise UsageError(f"{rate.name} is no tier here; choose from {', '.join(sorted(known))}.")
        curve = fit(read_csv(find_csv(self.ttft_csv)))
        return Compute(curve.a_s, curve.b_s_per_token, curve.c_s_per_token2, self.per_token_s)

    @property
    def rates(self) -> TierRates:
        """Bytes per second of each tier that was given a rate."""
        return TierRates(
            {one.name: one.bytes_per_s for one in self.read_rate or ()},
            {one.name: one.bytes_per_s for one in self.write_rate or ()},
        )

    def configurations(self) -> list[TierSet]:
        """No offload, the CPU tier alone, each tier behind it, and all of them."""
        behind = [
            *(SecondaryTier(one.name, one.bytes) for one in self.tier or ()),
            *(SecondaryTier(one.name, one.bytes, shared=True) for one in self.shared_tier or ()),
        ]
        names = [one.name for one in behind]
        if len(set(names)) < len(names):
            raise UsageError("two tiers have one name; give each its own, like nvme=7TB and cephfs=50TB.")
        cpu = self.cpu or 0
        found = [TierSet("none")]
        found += [TierSet("cpu", cpu)] if cpu else []
        found += [TierSet(f"cpu+{one.name}", cpu, (one,)) for one in behind]
        return found + ([TierSet("+".join(["cpu", *names]), cpu, tuple(behind))] if len(behind) > 1 else [])


def _chunk_bytes(sized: SizedModel, tokens: int) -> int:
    """What vLLM's fs tier stores for so many tokens, all groups and ranks together, padding included.

    What a prompt stores once, whatever its length (states, the newest blocks of a window), is no part of it.
    """
    stored = stored_layout(sized, vllm_fs.NAME)
    return max(1, round(sum(_growing_bytes(group) * tokens for group in stored.groups)))


def _growing_bytes(group: Group) -> float:
    """Bytes that a group adds for each token of a long prompt."""
    if group.per_step or group.newest_only:
        return 0.0
    kept, of = group.kept or (1, 1)
    return group.padded_bytes * group.units * kept / of / group.tokens_per_unit
