"""One replica and what it does with a request: its GPU, its CPU tier, and the tiers behind that."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvbench.simulate.caches import POLICIES, Lru, TierCache, missing
from kvbench.simulate.plan import Engine, TierSet

# ARC may push out one chunk of a prompt for another and back, for ever; the engine's waiting request has no such end.
_MOST_PASSES = 8


@dataclass(slots=True)
class RequestMoves:
    """What one request found and moved, in tokens and chunks; the lists have the CPU tier first."""

    gpu_tokens: int = 0
    tier_tokens: list[int] = field(default_factory=list)
    read_chunks: list[int] = field(default_factory=list)
    written_chunks: list[int] = field(default_factory=list)
    recomputed_tokens: int = 0
    without_slot: int = 0
    unstored_chunks: int = 0
    lost_to_full: list[int] = field(default_factory=list)
    waited: bool = False
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: the whole blocks of its prompt and its answer, the tokens of its prompt, and what can be looked up."""

    blocks: Sequence[int]
    answer: Sequence[int]
    prompt_tokens: int
    occupied_blocks: int


class Replica:
    """The state of one server between requests; ``secondary`` may be shared with other replicas."""

    def __init__(self, engine: Engine, tiers: TierSet, secondary: Sequence[TierCache], block_tokens: int) -> None:
        """An idle server with empty tiers."""
        self._engine, self._tokens = engine, block_tokens
        self._gpu = Lru(engine.gpu_bytes // engine.block_bytes)
        self._cpu = POLICIES[engine.policy](tiers.cpu_bytes // engine.chunk_bytes)
        self._secondary = secondary
        self._running: deque[tuple[list[int], int]] = deque()
        self._pinned: Counter[int] = Counter()
        # Blocks of running requests that no later request can name: partial ones, and answers nobody goes on from.
        self._nameless = 0

    def serve(self, sent: Sent) -> RequestMoves:
        """Look up, restore, compute, store; the request then stays in flight until others take its place."""
        tiers = 1 + len(self._secondary)
        moved = RequestMoves(
            tier_tokens=[0] * tiers, read_chunks=[0] * tiers, written_chunks=[0] * tiers, lost_to_full=[0] * tiers
        )
        # The last token of a prompt is always computed (vllm/v1/core/kv_cache_manager.py: max_cache_hit_length).
        usable = min(len(sent.blocks), (sent.prompt_tokens - 1) // self._tokens)
        local = self._prefix(sent.blocks[:usable])
        if not self._admit(sent, local, moved):
            moved.too_long, moved.recomputed_tokens = True, sent.prompt_tokens
            return moved
        chunks = self._chunks(sent.blocks)
        found, reused = self._restore(chunks, local, usable, moved)
        hit = max(local, found)
        moved.gpu_tokens = local * self._tokens
        moved.recomputed_tokens = sent.prompt_tokens - hit * self._tokens
        if self._cpu.capacity:
            named = [*sent.blocks, *([] if self._engine.prompt_only else sent.answer)]
            offered, held = self._store(self._chunks(named), local, found, moved)
            used, again = [*reused, *offered], {*reused, *held}
            for tier in (self._cpu, *self._secondary):
                tier.used(used, again)
        return moved

    @property
    def cpu_chunks(self) -> int:
        """How many chunks its CPU tier holds."""
        return len(self._cpu)

    def lose(self) -> None:
        """The node is gone: its GPU and its CPU tier are empty. What is behind them is the caller's."""
        self._gpu.clear()
        self._cpu.clear()
        self._running.clear()
        self._pinned.clear()
        self._nameless = 0

    def _chunks(self, blocks: Sequence[int]) -> Sequence[int]:
        """A chunk goes by the name of its last block; what fills none is dropped."""
        each = self._engine.chunk_blocks
        return blocks if each == 1 else blocks[each - 1 :: each]

    def _prefix(self, blocks: Sequence[int]) -> int:
        for at, block in enumerate(blocks):
            if block not in self._gpu:
                return at
        return len(blocks)

    def _admit(self, sent: Sent, local: int, moved: RequestMoves) -> bool:
        """Give the request its blocks on the GPU, after as many others as have to end first; False: never fits."""
        if sent.occupied_blocks > self._gpu.capacity:
            return False
        named = [*sent.blocks, *sent.answer]
        nameless = sent.occupied_blocks - len(set(named))
        while self._running and len(self._running) >= (self._engine.concurrency or 1):
            self._end_first()
        while self._running and not self._fits(named, nameless):
            moved.waited = True
            self._end_first()
        fresh = missing(named, self._gpu)
        self._pinned.update(named)
        self._nameless += nameless
        # Nameless blocks take room from what is cached: the pool is shrunk by them while they are in use.
        self._gpu.capacity -= self._nameless
        self._gpu.add(fresh, self._pinned)
        self._gpu.capacity += self._nameless
        self._running.append((named, nameless))
        return True

    def _fits(self, named: Sequence[int], nameless: int) -> bool:
        more = sum(1 for block in set(named) if block not in self._pinned)
        return len(self._pinned) + more + self._nameless + nameless <= self._gpu.capacity

    def _end_first(self) -> None:
        named, nameless = self._running.popleft()
        for block in named:
            self._pinned[block] -= 1
            if not self._pinned[block]:
                del self._pinned[block]
        self._nameless -= nameless
        self._gpu.used(named)

    def _restore(self, chunks: Sequence[int], local: int, usable: int, moved: RequestMoves) -> tuple[int, list[int]]:
        """Blocks of the prompt that are there after loading, and the chunks that were loaded from the CPU tier.

        Lookups begin at the chunk that the GPU's own hits end in, and end at the first miss. What lies behind the CPU
        tier needs a slot there; without one the lookup counts as a miss (tiering/manager.py: _initiate_promotion).
        """
        if not self._cpu.capacity:
            return local, []
        each = self._engine.chunk_blocks
        first = local // each
        wanted = chunks[first : usable // each]
        sources: dict[int, int] = {}
        found, settled, passes = len(wanted), False, 0
        while not settled and passes < _MOST_PASSES:
            (found, settled), passes = self._look_up(wanted[:found], sources, moved), passes + 1
        if not settled:
            found = next((at for at, chunk in enumerate(wanted[:found]) if chunk not in self._cpu), found)
        for at, chunk in enumerate(wanted[:found]):
            # A chunk of which the GPU holds a part gives back the rest only.
            part = 0 if at else local % each
            moved.tier_tokens[sources.get(chunk, 0)] += (each - part) * self._tokens
        moved.read_chunks[0] += found
        return ((first + found) * each if found else local), list(wanted[:found])

    def _look_up(self, wanted: Sequence[int], sources: dict[int, int], moved: RequestMoves) -> tuple[int, bool]:
        """How many chunks in a row are there or come in this pass, and whether none had to come.

        What is on its way keeps its slot. What is there already does not until the load begins, so that a promotion may
        push it out, and the next pass brings it back.
        """
        coming: set[int] = set()
        for at, chunk in enumerate(wanted):
            source = self._source(chunk)
            if source is None or (source and not self._promote(chunk, coming, source, moved)):
                return at, not coming
            if source:
                coming.add(chunk)
                sources.setdefault(chunk, source)
        return len(wanted), not coming

    def _source(self, chunk: int) -> int | None:
        """0 for the CPU tier, else the first tier behind it that holds the chunk, None for none."""
        if chunk in self._cpu:
            return 0
        return next((at for at, tier in enumerate(self._secondary, start=1) if chunk in tier), None)

    def _promote(self, chunk: int, own: set[int], source: int, moved: RequestMoves) -> bool:
        if not self._cpu.add([chunk], own):
            moved.without_slot += 1
            return False
        moved.read_chunks[source] += 1
        moved.written_chunks[0] += 1
        return True

    def _store(self, chunks: Sequence[int], local: int, found: int, moved: RequestMoves) -> tuple[list[int], list[int]]:
        """The chunks that were offered to the CPU tier in order, and those of them that it held already.

        After a load only what follows it is offered, else all from the start (offloading/scheduler.py:
        next_stored_chunk_idx). A step offers what it computes; where that finds no room it is offered again with the
        next step's, all or nothing.
        """
        each, loaded = self._engine.chunk_blocks, found > local
        at = found // each if loaded else 0
        done, step = found // each, max(1, self._engine.batch_tokens // (each * self._tokens))
        offered: list[int] = []
        held: list[int] = []
        while at < len(chunks):
            done = min(len(chunks), done + step)
            batch = chunks[at:done]
            fresh = missing(batch, self._cpu)
            if not fresh or self._cpu.add(fresh, set(batch)):
                new = set(fresh)
                held += [chunk for chunk in batch if chunk not in new]
                offered += batch
                moved.written_chunks[0] += len(fresh)
                self._cascade(fresh, moved)
                at = done
            elif done == len(chunks):
                moved.unstored_chunks += len(fresh)
                break
        return offered, held

    def _cascade(self, fresh: Sequence[int], moved: RequestMoves) -> None:
        """Every stored chunk goes to every tier behind the CPU's, unless it is there already."""
        for at, tier in enumerate(self._secondary, start=1):
            new = missing(fresh, tier)
            before = len(tier)
            took_all = tier.add(new)
            took = len(new) if took_all else max(0, len(tier) - before)
            moved.written_chunks[at] += took
            moved.lost_to_full[at] += len(new) - took
