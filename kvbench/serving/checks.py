"""Whether runs can be compared, and what to know where they can: a check is one function and one line below.

What would make a ratio lie is a refusal; what only limits it is a mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvbench.serving.arm import ArmRun

# What failed was not served: with more of it than this the rest is another load.
_MOST_FAILED = 0.05
# A client that sends what it has until the time is up gets further into its data on a quick server.
_LENGTHS_ALIKE, _LENGTHS_OF_ONE_LOAD = 0.05, 0.25
_AS_MANY, _AS_LONG = 0.02, 0.10
# An open loop that gets no further than this share of the rate that was asked for only grows its queue.
_RATE_REACHED = 0.95
# In a closed loop nothing but a growing queue makes the last third of the requests wait so much longer.
_QUEUE_GROWS, _FEWEST_REQUESTS = 2.0, 30
_KV_FULL, _LITTLE_REUSE = 0.95, 0.10
# Ceph: OSDs report every 5 s, the manager's page is made every 15 s, and Prometheus reads it as seldom.
_COUNTERS_LATE_S, _LATE_SHARE = 30.0, 0.05
# Headers and metadata come on top; below this much they are most of it.
_STORAGE_LEAST, _STORAGE_MOST, _ENOUGH_BYTES = 0.75, 1.5, 64 << 20
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a run, or with comparing it; ``code`` is stable, ``refuses`` when no ratio may be shown."""

    code: str
    message: str
    refuses: bool


def problems_of(run: ArmRun, *, is_control: bool) -> list[Problem]:
    """What is wrong with a run by itself."""
    return [problem for check in OF_ONE for problem in check(run, is_control)]


def problems_between(control: ArmRun, run: ArmRun) -> list[Problem]:
    """Why a run cannot be compared with one of the control's at the same load."""
    return [problem for check in BETWEEN for problem in check(control, run)]


def _failed(run: ArmRun, _: bool) -> Iterator[Problem]:
    failed, completed = run.failed or 0, run.completed or 0
    if failed:
        share = failed / (failed + completed)
        yield Problem(
            "failed-requests",
            f"{failed:,} of {failed + completed:,} requests failed ({share:.1%})",
            share > _MOST_FAILED,
        )


def _engaged(run: ArmRun, is_control: bool) -> Iterator[Problem]:
    hits = run.server.external_tokens
    rate = run.external_hit_rate
    used = hits if hits is not None else rate
    if is_control:
        if used:
            yield Problem("control-offloads", "the control found tokens outside of the engine: it offloads too", True)
    elif used is None:
        yield Problem("engagement-unknown", "nothing says whether its tier was ever engaged: no external hits", False)
    elif not used:
        yield Problem("never-engaged", "no token came from its tier: it was never engaged", True)


def _own_cache(run: ArmRun, is_control: bool) -> Iterator[Problem]:
    if is_control and run.local_hit_rate:
        yield Problem(
            "control-caches",
            f"the control's own cache held {run.local_hit_rate:.0%} of its tokens: the ratios are over that",
            False,
        )


def _saturated(run: ArmRun, _: bool) -> Iterator[Problem]:
    asked, reached = run.load.request_rate, run.requests_per_s
    if asked and reached and math.isfinite(asked) and reached < _RATE_REACHED * asked:
        yield Problem("saturated", f"it served {reached:.3g} of the {asked:.3g} requests/s that were sent", False)
        return
    known = sorted(
        (one.start_s, one.ttft_s) for one in run.requests if one.start_s is not None and one.ttft_s is not None
    )
    third = len(known) // 3
    if len(known) >= _FEWEST_REQUESTS:
        first, last = (sum(ttft for _, ttft in part) / third for part in (known[:third], known[-third:]))
        if last > _QUEUE_GROWS * first:
            yield Problem(
                "saturated",
                f"its queue grew: the last third waited {last / first:.1f} times as long as the first",
                False,
            )


def _mounted(run: ArmRun, is_control: bool) -> Iterator[Problem]:
    mount = run.filesystem
    if mount is not None and not is_control and mount["target"] == "/":
        yield Problem(
            "not-mounted",
            f"its tier lay on the root file system ({mount['fstype']}): what should be there was not mounted",
            True,
        )


def _memory_bound(run: ArmRun, _: bool) -> Iterator[Problem]:
    """The study's Gemma: the GPUs hold so few prompts that none waits long enough for its prefix to be found again."""
    server = run.server
    if server.kv_usage_highest is None or server.kv_usage_highest < _KV_FULL or not server.preemptions:
        return
    reuse, holds = run.external_hit_rate, run.prompts_in_kv
    little = "" if reuse is None or reuse > _LITTLE_REUSE else f" and only {reuse:.0%} came back from a tier"
    room = "" if holds is None else f"; it holds {holds:.3g} prompts at once"
    yield Problem(
        "gpu-memory-bound",
        f"the GPU's KV memory was full ({server.kv_usage_highest:.0%}), {server.preemptions:,.0f} requests were "
        f"preempted{little}{room}: GPU memory is what limits it",
        False,
    )


def _room(run: ArmRun, _: bool) -> Iterator[Problem]:
    holds, wanted = run.prompts_in_kv, run.load.concurrency
    if holds and wanted and holds < wanted:
        yield Problem(
            "kv-below-load",
            f"the GPUs' KV memory holds {holds:.3g} of its mean prompts, {wanted} were sent at once: the others wait",
            False,
        )


def _storage_late(run: ArmRun, _: bool) -> Iterator[Problem]:
    took = run.duration_s
    if run.storage and took and _LATE_SHARE * took < _COUNTERS_LATE_S:
        yield Problem(
            "storage-late",
            f"the run took {took:,.0f} s and a storage's counters come up to {_COUNTERS_LATE_S:.0f} s late: "
            "a part of its traffic is missing, unless the page was saved so much later",
            False,
        )


def _storage_agrees(run: ArmRun, _: bool) -> Iterator[Problem]:
    """What the engine moved to its tiers must have reached the storage, unless a cache lies between them."""
    if run.storage is None:
        return
    total, server = run.storage.total, run.server
    # The engine counts files that it finds as written, so the storage may well have got less (docs/simulation.md).
    for what, counted, moved, least in (
        ("read", total.read_bytes, sum(server.read_bytes.values()), _STORAGE_LEAST),
        ("wrote", total.written_bytes, sum(server.written_bytes.values()), 0.0),
    ):
        if moved >= _ENOUGH_BYTES and not least * moved <= counted <= _STORAGE_MOST * moved:
            yield Problem(
                "storage-disagrees",
                f"the engine {what} {moved / _MIB:,.0f} MiB of its tiers, the storage counted {counted / _MIB:,.0f} "
                "MiB: a cache lies between them, others use it, or it is another storage",
                False,
            )


def _same_model(control: ArmRun, run: ArmRun) -> Iterator[Problem]:
    ours, theirs = run.run.model, control.run.model
    if ours and theirs and ours != theirs:
        yield Problem("different-model", f"it served {ours}, the control {theirs}", True)


def _same_tool(control: ArmRun, run: ArmRun) -> Iterator[Problem]:
    ours, theirs = run.run, control.run
    if ours.tool != theirs.tool:
        yield Problem("different-tool", f"it was measured by {ours.tool}, the control by {theirs.tool}", True)
    elif ours.tool_version and theirs.tool_version and ours.tool_version != theirs.tool_version:
        versions = f"{ours.tool_version}, the control by {theirs.tool_version}"
        yield Problem("different-version", f"it was measured by {ours.tool} {versions}", False)


def _same_workload(control: ArmRun, run: ArmRun) -> Iterator[Problem]:
    ours, theirs = dict(run.run.workload), dict(control.run.workload)
    for name in ours.keys() & theirs.keys():
        if ours[name] != theirs[name]:
            yield Problem("different-workload", f"its {name} is not that of the control", True)


def _same_lengths(control: ArmRun, run: ArmRun) -> Iterator[Problem]:
    ours, theirs = run.prompt_tokens_mean, control.prompt_tokens_mean
    if not ours or not theirs:
        return
    apart = abs(ours / theirs - 1)
    if apart > _LENGTHS_ALIKE:
        message = f"its prompts have {ours:,.0f} tokens on average, the control's {theirs:,.0f}"
        yield Problem("different-lengths", message, apart > _LENGTHS_OF_ONE_LOAD)


def _same_amount(control: ArmRun, run: ArmRun) -> Iterator[Problem]:
    """Either as many requests (the same data to its end) or as much time: else they are different parts of a load."""
    counts = (run.completed, control.completed)
    times = (run.run.summary.duration_s, control.run.summary.duration_s)
    if all(counts) and all(times) and not _close(counts, _AS_MANY) and not _close(times, _AS_LONG):
        yield Problem(
            "different-amount",
            f"it served {counts[0]:,} requests in {times[0]:,.0f} s, the control {counts[1]:,} in {times[1]:,.0f} s: "
            "neither as many nor as long",
            False,
        )


def _close(pair: tuple[float | None, float | None], within: float) -> bool:
    one, other = (float(value or 0) for value in pair)
    return abs(one - other) <= within * max(one, other)


OF_ONE: tuple[Callable[[ArmRun, bool], Iterator[Problem]], ...] = (
    _failed,
    _engaged,
    _own_cache,
    _saturated,
    _mounted,
    _memory_bound,
    _room,
    _storage_late,
    _storage_agrees,
)
BETWEEN: tuple[Callable[[ArmRun, ArmRun], Iterator[Problem]], ...] = (
    _same_model,
    _same_tool,
    _same_workload,
    _same_lengths,
    _same_amount,
)
