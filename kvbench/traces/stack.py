"""How much a cache must hold for a block to be found: reuse distances of a whole trace, exact (pure).

One LRU stack serves every capacity (Mattson, Gecsei, Slutz, Traiger 1970): a cache holds the top of it. A request looks
its blocks up in the state before it, then all of them move to the top with the first block of the prompt topmost, so
that the end of a prompt is evicted before its beginning, as engines do.

Touches are numbered in stack order ("slots"): a later request has higher slots, and within a request the first block
has the highest. What lies above a block are the slots above its own, less those that were touched again since. Blocks
that are reused together lie side by side, so runs of them are handled as one, and no step loops in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
# Places in a trace are 32-bit numbers: half the memory, and twice the speed of what memory limits.
MOST_REFERENCES = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Touches:
    """For each reference its request, its slot, the slot of its block's previous touch (-1: none), and whether it is
    the one that moves the block (a block that occurs twice in a request moves once, to its first place)."""

    request: Places
    slot: Places
    previous: Places
    moves: npt.NDArray[np.bool_]


def reuse_distances(blocks: Places, first: Ints, weights: Ints | None = None) -> Ints:
    """What a cache must hold for each reference to be found as part of a prefix; 0 where no cache finds it.

    Request r has the blocks ``blocks[first[r] : first[r + 1]]``. A reference is found when it and all before it in its
    request are held. ``weights`` says what each reference's block weighs from that touch on (1 without them).
    """
    if not len(blocks):
        return np.zeros(0, np.int64)
    touches = find_touches(blocks, first)
    above = _weight_from_slot(touches, weights)
    distances = _distances(touches, above, first)
    return _as_prefix(distances, touches, first)


def find_touches(blocks: Places, first: Ints) -> Touches:
    """The touches of a trace's references, in its order."""
    count = len(blocks)
    request = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
    slot = (first[:-1] + first[1:] - 1)[request]
    slot -= np.arange(count)
    slot = slot.astype(np.int32)
    order = _stable_order(blocks)
    same_block = np.empty(count, np.bool_)
    same_block[0] = False
    ordered = blocks[order]
    np.equal(ordered[1:], ordered[:-1], out=same_block[1:])
    again = np.empty(count, np.bool_)
    again[0] = False
    np.equal(request[order[1:]], request[order[:-1]], out=again[1:])
    again &= same_block
    moves = np.ones(count, np.bool_)
    moves[order[again]] = False
    before = np.full(count, -1, np.int32)
    before[1:] = np.where(same_block[1:], slot[order[:-1]], -1)
    if again.any():
        before = _before_request(before, slot[order], again)
    previous = np.empty(count, np.int32)
    previous[order] = before
    return Touches(request, slot, previous, moves)


def _stable_order(numbers: Places) -> Places:
    """The order by number, equal ones as they stand.

    Sorting one packed number is several times faster than a stable argsort.
    """
    count = len(numbers)
    bits = max(1, int(count - 1).bit_length())
    packed = numbers.astype(np.int64)
    packed <<= bits
    packed |= np.arange(count)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed.astype(np.int32)


def _before_request(before: Places, slot: Places, again: npt.NDArray[np.bool_]) -> Places:
    """``before`` (all by block) where a block occurs twice in a request: all of those see its touch before the request.

    The slot that counts of a request is the highest, that of the first occurrence.
    """
    at = np.arange(len(before))
    leader = np.maximum.accumulate(np.where(again, 0, at))
    previous_leader = leader[np.maximum(leader - 1, 0)]
    seen = before[leader] >= 0
    found: Places = np.where(seen, slot[previous_leader], np.int32(-1))
    return found


def _weight_from_slot(touches: Touches, weights: Ints | None) -> Ints:
    """The weight of all slots below each slot; one more entry for the sum of all."""
    count = len(touches.slot)
    by_slot = np.zeros(count + 1, np.int64)
    by_slot[1:][touches.slot] = touches.moves if weights is None else np.where(touches.moves, weights, 0)
    return np.cumsum(by_slot, out=by_slot)


def _distances(touches: Touches, below: Ints, first: Ints) -> Ints:
    """The weight from each reference's block to the top of the stack before its request; 0 for a first touch."""
    seen = np.flatnonzero(touches.previous >= 0)
    if not len(seen):
        return np.zeros(len(touches.slot), np.int64)
    slot, request = touches.previous[seen], touches.request[seen]
    starts = _run_starts(slot, request, seen)
    heads, head_request = slot[starts], request[starts]
    killed = np.where(touches.moves[seen], below[1:][slot] - below[slot], 0)
    gone = np.add.reduceat(killed, starts)
    # Within a request the lower slot comes first: it then never counts what its own request moves.
    order = np.argsort(head_request * np.int64(len(touches.slot)) + heads)
    rank = np.empty(len(heads), np.int32)
    rank[_stable_order(heads[order])] = np.arange(len(heads), dtype=np.int32)
    moved = np.empty(len(heads), np.int64)
    moved[order] = earlier_above(rank, gone[order])
    at_head = below[first[head_request]] - below[heads] - moved
    run = np.repeat(np.arange(len(starts), dtype=np.int32), np.diff(starts, append=len(seen)))
    distances = np.zeros(len(touches.slot), np.int64)
    distances[seen] = (at_head + below[heads])[run] - below[slot]
    return distances


def _run_starts(slot: Places, request: Places, seen: Ints) -> Ints:
    """Where a reference does not lie directly below the one before it in its request."""
    start = np.ones(len(slot), np.bool_)
    start[1:] = (slot[1:] != slot[:-1] - 1) | (request[1:] != request[:-1]) | (seen[1:] != seen[:-1] + 1)
    return np.flatnonzero(start)


def earlier_above(rank: Places, weights: Ints) -> Ints:
    """For each element the weight of the elements before it that have a higher rank; ranks are 0 to n - 1, each once.

    Sorts by rank one bit at a time, from the highest: where two elements part, the one with the bit is the higher.
    Elements that share their leading bits lie in one stretch of the current order, which ends as the order by rank.
    """
    count = len(rank)
    ranks, carried, found = rank, weights, np.zeros(count, np.int64)
    ones = np.zeros(count + 1, np.int64)
    for bit in range(int(count - 1).bit_length() - 1, -1, -1):
        high = ((ranks >> bit) & 1).astype(np.bool_)
        lows, highs = np.flatnonzero(~high), np.flatnonzero(high)
        np.cumsum(carried * high, out=ones[1:])
        starts = np.arange(0, count, 2 << bit)
        lows_in_stretch = np.minimum(1 << bit, count - starts)
        found[lows] += ones[lows] - np.repeat(ones[starts], lows_in_stretch)
        order = _parted(lows, highs, 1 << bit)
        ranks, carried, found = ranks[order], carried[order], found[order]
    return found[rank]


def _parted(lows: Ints, highs: Ints, half: int) -> Ints:
    """The order in which each stretch of ``2 * half`` has its lows first; the last stretch may be short."""
    whole = (len(lows) + len(highs)) // (2 * half)
    end = whole * 2 * half
    order = np.empty(len(lows) + len(highs), np.int64)
    pairs = order[:end].reshape(whole, 2, half)
    pairs[:, 0] = lows[: whole * half].reshape(whole, half)
    pairs[:, 1] = highs[: whole * half].reshape(whole, half)
    order[end:] = np.concatenate((lows[whole * half :], highs[whole * half :]))
    return order


def _as_prefix(distances: Ints, touches: Touches, first: Ints) -> Ints:
    """The distances with the largest before each reference in its request; 0 from the first unknown block on."""
    unknown = np.zeros(len(distances) + 1, np.int64)
    np.cumsum(touches.previous < 0, out=unknown[1:])
    distances[unknown[1:] != unknown[first[touches.request]]] = 0
    # Where hashes are chained, no block lies above one before it, and nothing is left to do.
    falls = (distances[1:] < distances[:-1]) & (distances[1:] > 0) & (touches.request[1:] == touches.request[:-1])
    for request in np.unique(touches.request[1:][falls]):
        own = distances[first[request] : first[request + 1]]
        known = own[own > 0]
        own[: len(known)] = np.maximum.accumulate(known)
    return distances
