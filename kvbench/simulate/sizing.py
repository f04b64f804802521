"""How large tiers must be for a share of the hit rate that endless ones reach, and what they must sustain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvbench.simulate.plan import Engine, SecondaryTier, TierSet
from kvbench.simulate.run import Simulated, TierOutcome, sending_of, serve, simulate, summed
from kvbench.traces.trace import Trace

_DAY_S = 86_400.0
# Capacities are told to about two per cent.
_FINE = 1.02
_BEHIND = "secondary"


@dataclass(frozen=True, slots=True)
class Sizing:
    """The least CPU tier that alone finds ``share`` of what is reachable, and the other way: a tier behind this CPU's.

    ``cpu_alone_bytes`` is None where no CPU tier suffices. ``behind`` is a tier without a limit that evicts nothing, as
    an fs tier does: its peak is what the trace leaves there.
    """

    share: float
    reachable_hit_rate: float
    cpu_alone_bytes: int | None
    with_cpu_bytes: int
    with_both: Simulated
    behind: TierOutcome


@dataclass(frozen=True, slots=True)
class Endurance:
    """What a tier's drives are written: times their capacity each day."""

    drive_writes_per_day: float
    written_bytes_per_day: float


def size_for(trace: Trace, engine: Engine, cpu_bytes: int, share: float) -> Sizing:
    """The sizes for a share of the reachable hit rate; ``cpu_bytes`` is the CPU tier of the second answer."""
    endless = TierSet("endless", cpu_bytes, (SecondaryTier(_BEHIND, shared=True),))
    sending = sending_of(trace, engine)
    both = summed(sending, serve(sending, endless))
    wanted = share * both.hit_rate

    def suffices(size: int) -> bool:
        return summed(sending, serve(sending, TierSet("cpu", size))).hit_rate >= wanted

    most = max(engine.chunk_bytes, both.tiers[-1].peak_bytes)
    return Sizing(share, both.hit_rate, _least(engine.chunk_bytes, most, suffices), cpu_bytes, both, both.tiers[-1])


def _least(low: int, high: int, suffices: Callable[[int], bool]) -> int | None:
    """The least size that suffices, found by halving its logarithm; None where the highest does not."""
    if suffices(low):
        return low
    if not suffices(high):
        return None
    while high > max(low + 1, low * _FINE):
        middle = min(max(round((low * high) ** 0.5), low + 1), high - 1)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def endurance(trace: Trace, tier: TierOutcome, capacity_bytes: int | None, copies: int = 1) -> Endurance | None:
    """The writes of a tier by day at the trace's own pace; None without its times or the tier's capacity.

    A tier that each replica has for itself is there in so many ``copies``, and its writes are those of all of them.
    """
    if trace.arrival_s is None or not capacity_bytes or trace.arrival_s[-1] <= trace.arrival_s[0]:
        return None
    per_day = tier.written_bytes / float(trace.arrival_s[-1] - trace.arrival_s[0]) * _DAY_S
    return Endurance(per_day / (capacity_bytes * copies), per_day)


# What a user may ask to be changed, each by its name; adding one is a line here.
SWITCHES: dict[str, Callable[[Engine], Engine]] = {
    "arc": lambda engine: replace(engine, policy="arc"),
    "decode": lambda engine: replace(engine, prompt_only=False),
    "random-routing": lambda engine: replace(engine, routing="random"),
    "lost-replica": lambda engine: replace(engine, lost_at=0.5),
}


def switched(
    trace: Trace, engine: Engine, configurations: list[TierSet], names: tuple[str, ...]
) -> dict[str, list[Simulated]]:
    """The same configurations with one thing changed at a time."""
    return {name: simulate(trace, SWITCHES[name](engine), configurations) for name in names}
