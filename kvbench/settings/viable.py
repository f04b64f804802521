"""The command line that follows from a verdict: one for a tier that pays, none for one that does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvbench.decide.crossover import Crossover
from kvbench.engines.vllm.releases import RELEASES, find_release
from kvbench.errors import UsageError
from kvbench.record.results import Use
from kvbench.settings.forms import command_line
from kvbench.settings.measured import THREADS_OF, threads_for
from kvbench.settings.places import Place
from kvbench.settings.writing import Written, environment_of, offloading_config, parallel_options
from kvbench.units import format_bytes, format_tokens, is_one_line

# Those whose tiers need no size that a run does not have.
_CONNECTORS = ("vllm-fs", "vllm-obj")


@dataclass(frozen=True, slots=True)
class Line:
    """The command line, or None, and why."""

    text: str | None
    reason: str


def line_of(crossover: Crossover, place: Place | None, rates: Mapping[int, float]) -> Line:
    """The command line for one judged tier; ``place`` is where it is, ``rates`` its read bytes per second by jobs."""
    if crossover.verdict != "viable":
        return Line(None, crossover.verdict_reason)
    try:
        return _line(crossover, place, rates)
    except UsageError as error:
        return Line(None, str(error).rstrip("."))


def _line(crossover: Crossover, place: Place | None, rates: Mapping[int, float]) -> Line:
    use, at = crossover.use, crossover.at_target
    if use.connector not in _CONNECTORS or use.engine_version not in RELEASES:
        known = " or ".join(_CONNECTORS)
        return Line(None, f"measured with the units of {use.connector}; measure with --connector {known} for a line")
    if place is None or not is_one_line(use.model):
        return Line(None, "the run does not say where the tier is as a directory or bucket; see 'kvbench settings'")
    if at is None:
        return Line(None, "no request of the target length was computed; see 'kvbench settings'")
    restores = crossover.concurrent_restores
    release, cpu_bytes = find_release(use.engine_version), at.bytes * restores
    threads = threads_for(rates, restores, THREADS_OF[place.kind][1]) if len(rates) > 1 else None
    config = offloading_config(release, [place], cpu_bytes, _chunk_tokens(use), [threads])
    parallel = parallel_options(use.tp)
    written = Written("vllm", release.version, config, environment_of(release, [place]), parallel)
    reason = (
        f"vLLM {release.version}; cpu_bytes_to_use is the least ({format_bytes(cpu_bytes)}): "
        f"{restores} x {format_tokens(at.tokens)} tokens on their way"
    )
    return Line(command_line(written, use.model), reason)


def _chunk_tokens(use: Use) -> int | None:
    """The block_size that was measured, where it is not the engine's own block."""
    own = use.engine_block_tokens
    return use.block_tokens if own is not None and use.block_tokens != own else None
