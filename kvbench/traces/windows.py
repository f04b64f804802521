"""What a trace touches and moves in each stretch of time: working sets and traffic (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvbench.traces.stack import Touches, find_touches
from kvbench.traces.trace import Ints, Places, Trace
from kvbench.traces.weights import BlockWeight

# A trace of which one time is wrong may span decades; nobody reads so many windows.
MOST_WINDOWS = 100_000
# Steps of a time axis, in seconds; the first that leaves at most so many of them is taken.
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_MOST_STEPS = 72


@dataclass(frozen=True, slots=True, eq=False)
class WorkingSets:
    """Distinct blocks in each window of ``window_s`` seconds, one after the other from the first request on.

    ``reused`` are those that at least two requests of the window have; ``touched_bytes`` is what a cache would hold at
    the end of a window if it held all of the window's requests and nothing else.
    """

    window_s: int
    touched: Ints
    reused: Ints
    touched_bytes: Ints | None


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Bytes that a cache of ``capacity`` gives back (hits) and takes in (what it did not hold) in each step."""

    name: str
    capacity: int
    read_bytes: Ints
    written_bytes: Ints


def working_sets(trace: Trace, weight: BlockWeight | None, minutes: tuple[int, ...]) -> tuple[WorkingSets, ...]:
    """The working sets of a trace that has times, for each length of window that is not ``too_short``."""
    if trace.arrival_s is None or not trace.references:
        return ()
    touches = find_touches(trace.blocks, trace.first)
    weights = None if weight is None else weight.of(trace)
    # A touch that does not move its block (a block twice in one prompt) is no use of its own.
    kept = np.flatnonzero(touches.moves)
    before, after = _neighbours(touches, kept)
    skipped = too_short(trace, minutes)
    wanted = [60 * length for length in minutes if length not in skipped]
    return tuple(_working_sets(trace, window_s, kept, before, after, weights) for window_s in wanted)


def too_short(trace: Trace, minutes: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths of window that would cut the trace into more than MOST_WINDOWS."""
    span = 0.0 if trace.arrival_s is None else float(trace.arrival_s[-1])
    return tuple(length for length in minutes if span / (60 * length) > MOST_WINDOWS)


def _neighbours(touches: Touches, kept: Ints) -> tuple[Places, Places]:
    """For each kept reference the request that has its block before, and the one that has it next; -1 for none."""
    by_slot = np.full(len(touches.slot), -1, np.int32)
    by_slot[touches.slot[kept]] = kept
    previous = touches.previous[kept]
    seen = previous >= 0
    earlier = by_slot[previous[seen]]
    before = np.full(len(kept), -1, np.int32)
    before[seen] = touches.request[earlier]
    next_request = np.full(len(touches.slot), -1, np.int32)
    next_request[earlier] = touches.request[kept[seen]]
    return before, next_request[kept]


def _working_sets(
    trace: Trace, window_s: int, kept: Ints, before: Places, after: Places, weights: Ints | None
) -> WorkingSets:
    assert trace.arrival_s is not None
    window_of = (trace.arrival_s // window_s).astype(np.int64)
    windows = int(window_of[-1]) + 1
    own = window_of[trace.request_of()[kept]]
    opens = (before < 0) | (window_of[before] != own)
    closes = (after < 0) | (window_of[after] != own)
    touched = np.bincount(own[opens], minlength=windows)
    reused = np.bincount(own[opens & ~closes], minlength=windows)
    held = None
    if weights is not None:
        held = np.bincount(own[closes], weights=weights[kept[closes]], minlength=windows).astype(np.int64)
    return WorkingSets(window_s, touched, reused, held)


def step_s(trace: Trace) -> int:
    """A round number of seconds that cuts the trace's span into a readable number of steps."""
    assert trace.arrival_s is not None
    span = float(trace.arrival_s[-1])
    return next((step for step in _STEPS_S if span / step < _MOST_STEPS), int(span // _MOST_STEPS) + 1)


def traffic(trace: Trace, distances: Ints, weight: BlockWeight, capacity: int, name: str, step: int) -> Traffic:
    """What one cache moves over time; ``distances`` and ``capacity`` are in the same unit.

    A request reads what its hit weighs as a context of its own, and writes what its whole prompt weighs beyond the
    blocks that were there.
    """
    assert trace.arrival_s is not None
    hit = (distances > 0) & (distances <= capacity)
    hits = np.add.reduceat(np.append(hit, False).astype(np.int64), trace.first[:-1])
    counts = np.diff(trace.first)
    hits[counts == 0] = 0
    read = weight.of_requests(hits)
    written = weight.of_requests(counts) - hits * weight.block_bytes
    steps = (trace.arrival_s // step).astype(np.int64)
    total = int(steps[-1]) + 1

    def by_step(moved: Ints) -> Ints:
        return np.bincount(steps, weights=moved, minlength=total).astype(np.int64)

    return Traffic(name, capacity, by_step(read), by_step(written))
