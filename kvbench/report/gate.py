"""The verdict for a pipeline: one criterion for every tier and use, an exit code, JUnit and Markdown (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kvbench.decide.crossover import Verdict
from kvbench.errors import EXIT_MEASUREMENT, EXIT_NOT_VIABLE, EXIT_OK
from kvbench.report.columns import Column, narrow, words
from kvbench.report.markdown import markdown

if TYPE_CHECKING:
    from kvbench.report.data import Judgement, Report

EXIT_CODES: dict[Verdict, int] = {"viable": EXIT_OK, "not viable": EXIT_NOT_VIABLE, "cannot say": EXIT_MEASUREMENT}
_OK: dict[Verdict, bool | None] = {"viable": True, "not viable": False, "cannot say": None}


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that must hold: ``ok`` is None where the data cannot say."""

    name: str
    ok: bool | None
    observed: str
    wanted: str


_WORDS = {True: "✅ viable", False: "❌ not viable", None: "❔ cannot say"}
_COLUMNS: tuple[Column[Criterion], ...] = (
    words("name", "tier and model", lambda item: item.name),
    words("verdict", "verdict", lambda item: _WORDS[item.ok]),
    words("observed", "observed", lambda item: item.observed),
    words("wanted", "wanted", lambda item: item.wanted),
)


@dataclass(frozen=True, slots=True)
class Gate:
    """The verdict and every criterion behind it."""

    verdict: Verdict
    criteria: tuple[Criterion, ...]

    @property
    def exit_code(self) -> int:
        """0 viable, 1 not viable, 3 cannot say."""
        return EXIT_CODES[self.verdict]


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """One not viable decides; else one cannot-say, or nothing at all, leaves it open."""
    if "not viable" in verdicts:
        return "not viable"
    return "viable" if verdicts and set(verdicts) == {"viable"} else "cannot say"


Counts = Callable[[Iterable[str]], bool]


def gate(report: Report, counts: Counts = lambda codes: False) -> Gate:
    """The gate of a report; a verdict that rests on a point whose warnings count, by their codes, is "cannot say"."""
    if not report.judgements:
        nothing = Criterion("a model to judge", None, report.finding, "at least one measured tier and model")
        return Gate("cannot say", (nothing,))
    verdicts = [_verdict(judgement, counts) for judgement in report.judgements]
    names = _names(report.judgements)
    criteria = tuple(
        Criterion(name, _OK[verdict], _observed(judgement, verdict), report.wanted)
        for name, judgement, verdict in zip(names, report.judgements, verdicts, strict=True)
    )
    return Gate(overall(verdicts), criteria)


def to_json(result: Gate) -> dict[str, Any]:
    """The JSON contract of ``kvbench gate``."""
    return {"verdict": result.verdict, "criteria": [asdict(criterion) for criterion in result.criteria]}


def line(result: Gate) -> str:
    """The verdict in one line; what decided it first."""
    deciding = {"viable": True, "not viable": False, "cannot say": None}[result.verdict]
    named = [criterion for criterion in result.criteria if criterion.ok is deciding]
    if result.verdict == "viable":
        return f"viable: {len(named)} of {len(result.criteria)} criteria hold"
    more = f" (and {len(named) - 1} more)" if len(named) > 1 else ""
    reason = named[0].observed.partition(";")[0]
    return f"{result.verdict}: {named[0].name}: {reason}{more}"


def summary_markdown(result: Gate) -> str:
    """A summary for a CI page: the verdict and one row for each criterion."""
    table = narrow("Criteria", _COLUMNS, result.criteria)
    return markdown([table], f"kvbench gate: {result.verdict}")


def _verdict(judgement: Judgement, counts: Counts) -> Verdict:
    return "cannot say" if counts(warning.code for warning in judgement.warnings) else judgement.verdict


def _observed(judgement: Judgement, verdict: Verdict) -> str:
    doubted = verdict != judgement.verdict
    reason = f"{judgement.verdict}, but distrusted (--strict): {judgement.reason}" if doubted else judgement.reason
    parts = [reason, *(fact.text for fact in judgement.facts)]
    if judgement.point:
        parts.append(f"rests on {judgement.point}")
    if judgement.warnings:
        parts.append("distrust: " + ", ".join(warning.code for warning in judgement.warnings))
    return "; ".join(parts)


def _names(judgements: Sequence[Judgement]) -> list[str]:
    """A name for each criterion, unique and stable from run to run."""
    several = len({judgement.concurrent_restores for judgement in judgements}) > 1
    names = [
        f"{judgement.tier}: {judgement.label}" + (f", {judgement.concurrent_restores} at once" if several else "")
        for judgement in judgements
    ]
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(f"{name} ({seen[name]})" if names.count(name) > 1 else name)
    return unique
