"""The numbers that a run has for a configuration: chunk, threads and host memory, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.connectors import Stored
from kvbench.decide.advice import SATURATED, enough_jobs
from kvbench.decide.reads import Reads
from kvbench.errors import UsageError
from kvbench.record.results import RunResult
from kvbench.settings.fitting import Deployed
from kvbench.settings.places import Peers, Place, recorded_place
from kvbench.settings.writing import Numbers, Reason
from kvbench.units import format_bandwidth, format_count, format_tokens

# Chunks of so many engine blocks are looked for among the sizes that were measured.
_FACTORS = tuple(1 << power for power in range(9))
# The connector whose units an engine's tiers hold, and the defaults of the thread counts that they take.
CONNECTOR_OF: Mapping[str, str] = {"vllm": "vllm-fs", "lmcache": "lmcache-disk", "llm-d": "llm-d-fs"}
THREADS_OF: Mapping[str, tuple[str, int]] = {"fs": ("n_read_threads", 16), "obj": ("io_threads", 4)}
_LLMD_THREADS = ("threads_per_gpu", 64)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Chunks of ``tokens`` tokens: ``rates`` are each place's read bytes per second at the load that is asked for."""

    tokens: int | None
    stored: Stored
    rates: tuple[float, ...]

    @property
    def unit(self) -> int:
        """Bytes of one unit."""
        return max(group.padded_bytes for group in self.stored.groups)


def numbers_of(run_dir: Path, run: RunResult, engine: str, deployed: Deployed, places: Sequence[Place]) -> Numbers:
    """What the run says for these places; UsageError where it did not measure them, or not this model's units."""
    measured = [(number, place) for number, place in enumerate(places) if not isinstance(place, Peers)]
    notes = (
        ["a p2p tier cannot be measured by kvbench: its defaults are written"] if len(measured) < len(places) else []
    )
    if not measured:
        raise UsageError("--run measures directories and buckets, and no --tier is one; leave it out or add one.")
    reads = [_reads_of(run_dir, run, place, notes) for _, place in measured]
    chunk, why = _chunk(engine, deployed, reads, run_dir)
    reasons = []
    if chunk.tokens is None and engine == "vllm":
        notes.append(f"block_size is left out, so a unit is the engine's own block: {why.reason}")
    else:
        reasons.append(why)
    threads: list[int | None] = [None] * len(places)
    for (number, place), read in zip(measured, reads, strict=True):
        found = _threads(engine, place, read, chunk, deployed, number)
        if isinstance(found, Reason):
            threads[number] = int(found.value)
            reasons.append(found)
        elif found:
            notes.append(found)
    needed = deployed.promoted_bytes(chunk.stored)
    return Numbers(needed, chunk.tokens, tuple(threads), tuple(reasons), tuple(notes))


def _reads_of(run_dir: Path, run: RunResult, place: Place, notes: list[str]) -> Reads:
    """The reads of the run's tier for a place: that of the same path, else the only one of its kind."""
    places = {name: found for name in run.tiers if (found := recorded_place(run, name)) is not None}
    same = [name for name, found in places.items() if found.name.rstrip("/") == place.name.rstrip("/")]
    kind = [name for name, found in places.items() if found.kind == place.kind]
    if not same and len(kind) == 1:
        only = places[kind[0]].name
        notes.append(f"{place.name} is taken to be as fast as {only}, the only such tier that was measured")
    chosen = same or (kind if len(kind) == 1 else [])
    if not chosen:
        known = ", ".join(found.name for found in places.values()) or "no place with a path"
        raise UsageError(f"--run {run_dir} did not measure {place.name}; it measured {known}.")
    return Reads(run_dir, run, chosen[0], "auto")


def _chunk(engine: str, deployed: Deployed, reads: Sequence[Reads], run_dir: Path) -> tuple[_Chunk, Reason]:
    """The smallest measured chunk that every place reads about as fast as its best one."""
    candidates = list(_candidates(engine, deployed, reads))
    if not candidates:
        plain = deployed.stored(CONNECTOR_OF[engine])
        sizes = ", ".join(sorted({f"{group.padded_bytes}" for group in plain.groups}))
        raise UsageError(
            f"--run {run_dir} holds no read of {deployed.sized.model}'s units ({sizes} bytes, "
            f"{_in_flight(deployed, plain)} in flight); measure them with 'kvbench fio --connector "
            f"{CONNECTOR_OF[engine]} --model {deployed.sized.model} --tp {deployed.sized.tp}'."
        )
    best = [max(rates) for rates in zip(*(candidate.rates for candidate in candidates), strict=True)]
    shares = [min(rate / most for rate, most in zip(one.rates, best, strict=True)) for one in candidates]
    enough = [index for index, share in enumerate(shares) if share >= SATURATED]
    index = enough[0] if enough else shares.index(max(shares))
    chosen = candidates[index]
    tokens = chosen.stored.block_tokens
    if len(candidates) == 1:
        reason = f"the only chunk that was measured: units of {chosen.unit:,} bytes"
    else:
        rates = " and ".join(format_bandwidth(rate) for rate in chosen.rates)
        among = ", ".join(format_tokens(candidate.stored.block_tokens) for candidate in candidates)
        reason = f"units of {chosen.unit:,} bytes read at {rates}, {shares[index]:.0%} of the best of {among} tokens"
    if chosen.tokens is not None:
        reason += "; what fills no whole chunk is computed again"
    return chosen, Reason("block_size", tokens, reason)


def _candidates(engine: str, deployed: Deployed, reads: Sequence[Reads]) -> list[_Chunk]:
    connector, found = CONNECTOR_OF[engine], []
    plain = deployed.stored(connector)
    single = len({group.tokens_per_unit for group in plain.groups}) == 1
    for factor in _FACTORS if single else _FACTORS[:1]:
        tokens = None if factor == 1 else factor * plain.block_tokens
        stored = plain if tokens is None else deployed.stored(connector, tokens)
        rates = tuple(rate for read in reads if (rate := _rate(read, stored, deployed)) is not None)
        if len(rates) == len(reads):
            found.append(_Chunk(tokens, stored, rates))
    return found


def _rate(reads: Reads, stored: Stored, deployed: Deployed) -> float | None:
    """Read bytes per second of the units at the load, of a size that was measured; None otherwise."""
    unit = max(group.padded_bytes for group in stored.groups)
    if not reads.rates(unit):
        return None
    measured = reads.at(unit, _in_flight(deployed, stored))
    return None if measured is None or measured.read.bytes_per_s <= 0 else measured.read.bytes_per_s


def _in_flight(deployed: Deployed, stored: Stored) -> int:
    wanted = deployed.restores * stored.parallelism_per_request
    return wanted if stored.threads is None else min(wanted, stored.threads)


def _threads(
    engine: str, place: Place, reads: Reads, chunk: _Chunk, deployed: Deployed, number: int
) -> Reason | str | None:
    """How many threads a tier needs, or why that is not known; None where the engine has no option for it."""
    option = _LLMD_THREADS if engine == "llm-d" else THREADS_OF.get(place.kind)
    if engine == "lmcache" or option is None:
        return None
    name, default = option
    rates = reads.rates(chunk.unit)
    if len(rates) < 2:
        return f"{place.name}: only {format_count(next(iter(rates)))} jobs were measured, so {name} keeps its default"
    enough = enough_jobs(rates)
    text = (
        f"{format_bandwidth(rates[enough])} at {format_count(enough)} jobs is {rates[enough] / max(rates.values()):.0%}"
    )
    text += f" of the most measured on {reads.tier} (default {default})"
    value = threads_for(rates, deployed.restores, default)
    if enough == max(rates):
        text += "; more jobs than these were not measured"
    path = name if engine == "llm-d" else f"secondary_tiers[{number}].{name}"
    return Reason(path, value, text)


def threads_for(rates: Mapping[int, float], restores: int, default: int) -> int:
    """As many threads as read about as fast as any number measured; never below the default without having seen more.

    From 0.27 on a job is one thread, so fewer threads than requests would make requests wait for each other.
    """
    enough = max(enough_jobs(rates), restores)
    return max(enough, default) if enough_jobs(rates) == max(rates) else enough
