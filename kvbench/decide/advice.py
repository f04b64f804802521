"""What follows from a decision for the engine's settings, the choice of a tier, and a reader without time (pure).

Every sentence is tied to a number of the decision that it follows from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvbench.decide.crossover import Crossover
from kvbench.prefill.curve import PrefillCurve
from kvbench.record.results import RunResult
from kvbench.tiers.shared import was_shared
from kvbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_duration_ns,
    format_duration_s,
    format_number,
    format_tokens,
)

# Reads that reach this share of the best measured rate are as good as it: beyond it more threads only queue.
SATURATED = 0.95
# Closer than this a factor would round to 1.
_ALIKE = 1.05


@dataclass(frozen=True, slots=True)
class Setting:
    """One number for an engine or a router; ``option`` is None where the engine has no option for it."""

    tier: str
    model: str
    option: str | None
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Threads:
    """The option that says how many reads a connector keeps in flight, with its default and where that is written."""

    option: str
    default: int
    source: str


_THREADS = {
    "vllm-fs": _Threads("n_read_threads", 16, "vLLM kv_offload/tiering/fs/manager.py"),
    "vllm-obj": _Threads("io_threads", 4, "vLLM kv_offload/tiering/obj/manager.py"),
}


def settings_of(crossover: Crossover, rates: Mapping[int, float]) -> list[Setting]:
    """The settings that a decision asks for; ``rates`` are the tier's read bytes per second by number of jobs."""
    use = crossover.use
    model = f"{use.model} TP{use.tp}"
    found = []
    if (reason := _left_out(crossover)) is not None:
        return [Setting(crossover.tier, model, "secondary_tiers", "leave this tier out", reason)]
    if (prefix := _shortest_prefix(crossover)) is not None:
        found.append(Setting(crossover.tier, model, *prefix))
    threads = _THREADS.get(use.connector)
    if threads is not None and (enough := _threads(threads, rates)) is not None:
        found.append(Setting(crossover.tier, model, *enough))
    if threads is not None and crossover.at_target is not None:
        found.append(Setting(crossover.tier, model, *_slots(crossover)))
    return found


def _left_out(crossover: Crossover) -> str | None:
    """Why the tier brings nothing to the target or beyond it; None where it may."""
    request = crossover.request
    if request.kind == "never":
        return request.reason if request.low is None and request.high is None else None
    # From a length beyond the target on it pays: a router can still send longer prefixes there.
    pays_later = request.kind == "from" and request.high is not None
    return crossover.verdict_reason if crossover.verdict == "not viable" and not pays_later else None


def _shortest_prefix(crossover: Crossover) -> tuple[str | None, str, str] | None:
    """From which prefix on loading surely pays; None where the interval does not say."""
    request = crossover.request
    is_certain = request.low is None and request.high is None
    no_option = "vLLM has no option for it: give it to the router, or to what sets kv_transfer_params"
    if request.kind == "never":
        return None
    if request.kind == "always" and is_certain:
        if crossover.verdict != "viable" or crossover.restore is None:
            return None
        shortest = format_tokens(max(crossover.restore.tokens[0], crossover.use.block_tokens))
        return None, f"any prefix from {shortest} tokens on", f"{request.reason}; shorter ones were not measured"
    tokens = request.tokens if is_certain else request.high
    return None if tokens is None else (None, f"load prefixes from {format_tokens(tokens)} tokens on", no_option)


def enough_jobs(rates: Mapping[int, float]) -> int:
    """The fewest jobs that read about as fast as the best number of them; ``rates`` are bytes per second by jobs."""
    return min(jobs for jobs, rate in rates.items() if rate >= SATURATED * max(rates.values()))


def _threads(threads: _Threads, rates: Mapping[int, float]) -> tuple[str, str, str] | None:
    """The option with its value and why; None where fewer than the default look enough and more were not measured."""
    if len(rates) < 2 or max(rates) < threads.default:
        return None
    best = max(rates.values())
    enough = enough_jobs(rates)
    reason = (
        f"{format_bandwidth(rates[enough])} at {format_count(enough)} jobs is {rates[enough] / best:.0%} of the most "
        f"that was measured (default {threads.default}, {threads.source})"
    )
    if enough == max(rates):
        reason += "; more jobs than these were not measured"
    return threads.option, format_count(enough), reason


def _slots(crossover: Crossover) -> tuple[str, str, str]:
    assert crossover.at_target is not None
    count = crossover.concurrent_restores
    needed = crossover.at_target.bytes * count
    requests = "one request holds" if count == 1 else f"{count} requests hold"
    reason = (
        f"every block is promoted through a slot in host memory: at {format_tokens(crossover.at_target.tokens)} tokens "
        f"{requests} so much at once"
    )
    return "cpu_bytes_to_use", f"at least {needed} ({format_bytes(needed)})", reason


def in_plain_words(crossover: Crossover, curve: PrefillCurve | None) -> str:
    """One paragraph for somebody who has to decide and does not know what a block is; empty when nothing is known."""
    at = crossover.at_target
    if at is None or curve is None:
        return ""
    model = crossover.use.model.rpartition("/")[2]
    count = crossover.concurrent_restores
    among = "" if count == 1 else f" while {count} are restored at once"
    text = (
        f"Bringing a prompt of {format_tokens(at.tokens)} tokens of {model} back from {crossover.tier}{among} moves "
        f"{format_bytes(at.bytes)} and takes {format_duration_s(at.p50_s)} (one in a hundred takes "
        f"{format_duration_s(at.p99_s)} or more)"
    )
    if at.recompute_s:
        text += f", {_compared(at.p50_s / at.recompute_s)} computing it again ({format_duration_s(at.recompute_s)})"
    return f"{text}. {_one_block(crossover)}{_needed(crossover)}".strip()


def _compared(ratio: float) -> str:
    """Words for a ratio of two times, such as ``20 times as long as``."""
    if 1 / _ALIKE < ratio < _ALIKE:
        return "about as long as"
    return f"{format_number(ratio)} times as long as" if ratio > 1 else f"{format_number(1 / ratio)} times less than"


def _one_block(crossover: Crossover) -> str:
    single = crossover.single_block
    if single is None or single.tokens is None or crossover.verdict != "not viable":
        return ""
    pieces = crossover.use.units(crossover.at_target.tokens if crossover.at_target else 0)
    return (
        f"A single piece of it is quick: 99 of 100 take at most {format_duration_ns(single.p99_ns)}, as long as "
        f"computing {format_tokens(single.tokens)} tokens. But the prompt is {format_count(pieces)} such pieces, and "
        "all of them have to arrive. "
    )


def _needed(crossover: Crossover) -> str:
    if crossover.verdict == "viable" or not crossover.break_even:
        return ""
    item = crossover.break_even[-1]
    if item.bytes_per_s is None:
        return (
            f"No storage is fast enough at {format_tokens(item.tokens)} tokens: lookups and copies alone take longer."
        )
    return (
        f"To tie at {format_tokens(item.tokens)} tokens one request would need {format_bandwidth(item.bytes_per_s)} "
        "from the tier."
    )


def is_shared(run: RunResult, tier: str) -> bool | None:
    """Whether other hosts can read a tier of the run, also of an old one; None where that is not known."""
    traits = run.tier_traits.get(tier)
    return was_shared(run.tiers.get(tier, {})) if traits is None else traits.shared


def which_tier(crossovers: Sequence[Crossover], shared: Mapping[str, bool | None]) -> list[str]:
    """Sentences that choose a tier by topology and reject what the study's rules reject, for one model and load.

    ``shared`` says by the tier's name whether other hosts can read it; None is not known.
    """
    known = [item for item in crossovers if item.at_target is not None and item.verdict != "cannot say"]
    if not known:
        return []
    of_all = [item for item in known if shared.get(item.tier)]
    own = [item for item in known if not shared.get(item.tier)]
    unknown = [item.tier for item in own if shared.get(item.tier) is None]
    return [*_single_node(own), *_several(of_all, unknown), *_rejected(known)]


def _single_node(local: Sequence[Crossover]) -> list[str]:
    viable = [item for item in local if item.verdict == "viable"]
    if viable:
        best = min(viable, key=_p99)
        return [f"One node: {best.tier}, which restores {_time_text(best)}."]
    if local:
        best = min(local, key=_p99)
        return [f"One node: none of its own tiers pays; the best, {best.tier}, restores {_time_text(best)}."]
    return []


def _several(shared: Sequence[Crossover], unknown: Sequence[str]) -> list[str]:
    viable = [item for item in shared if item.verdict == "viable"]
    if viable:
        best = min(viable, key=_p99)
        return [
            f"Pods that move and several replicas: {best.tier}, since all of them can read it; it restores "
            f"{_time_text(best)}."
        ]
    if shared:
        best = min(shared, key=_p99)
        return [
            f"Pods that move and several replicas: no shared tier pays; the best, {best.tier}, restores "
            f"{_time_text(best)}, so a pod that moved computes its prompts again."
        ]
    if unknown:
        return [
            "Pods that move and several replicas: no tier is known to be shared; whether other hosts can read "
            f"{' and '.join(unknown)} was not recorded."
        ]
    return ["Pods that move and several replicas: no shared tier was measured, and local ones stay behind."]


def _rejected(known: Sequence[Crossover]) -> list[str]:
    found = []
    for item in known:
        request, budget = item.request, item.budget
        if request.kind == "never":
            found.append(f"Reject {item.tier}: {request.reason}.")
            continue
        if request.kind == "from" and request.tokens is not None:
            found.append(
                f"Reject {item.tier} for contexts below {format_tokens(request.tokens)} tokens: it loses there."
            )
        if budget is not None and not budget.restore_beyond:
            reach = (
                "for every context"
                if budget.restore_tokens is None
                else (f"beyond {format_tokens(budget.restore_tokens)} tokens")
            )
            found.append(f"Reject {item.tier} {reach}: restoring takes more than {format_duration_s(budget.seconds)}.")
    return found


def _p99(item: Crossover) -> float:
    return item.at_target.p99_s if item.at_target else float("inf")


def _time_text(item: Crossover) -> str:
    assert item.at_target is not None
    return (
        f"{format_tokens(item.at_target.tokens)} tokens in {format_duration_s(item.at_target.p50_s)} "
        f"(p99 {format_duration_s(item.at_target.p99_s)})"
    )
