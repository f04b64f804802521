"""The report as one plain object: what HTML, Markdown, CSV and JSON show, and nothing that they would compute."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kvbench.border.escaping import escaped
from kvbench.report.sheet import Cell, Sheet, sheet_json

if TYPE_CHECKING:
    from kvbench.decide.crossover import Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JudgementWarning:
    """A reason to distrust, beside the number it concerns."""

    point: str
    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of one tier for one use, in words, with its numbers and the reasons to distrust them."""

    tier: str
    model: str
    tp: int
    connector: str
    concurrent_restores: int
    verdict: Verdict
    reason: str
    label: str
    facts: tuple[Cell, ...]
    point: str | None
    warnings: tuple[JudgementWarning, ...]


@dataclass(frozen=True, slots=True)
class FigureData:
    """The numbers of one figure; its title says the finding; its note says how to read it."""

    key: str
    title: str
    note: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Advice:
    """What the verdicts mean for one use: paragraphs in plain words, and sentences that choose a tier."""

    label: str
    words: tuple[str, ...]
    choice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Computation:
    """How one kind of number is computed, and what goes into it."""

    name: str
    formula: str
    inputs: str


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One tier for one model and load: the verdict, from which length on, and restore against recompute.

    ``card`` is the anchor of what is said of it in full.
    """

    verdict: Verdict
    outcome: str
    times: str
    card: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A tier's cells, None where it was not judged."""

    tier: str
    cells: tuple[MatrixCell | None, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Tiers against models and loads."""

    columns: tuple[str, ...] = ()
    rows: tuple[MatrixRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Chip:
    """The answer in a few words, and the verdict whose colour it has."""

    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report says; ``figures`` starts with the one that shows the decision."""

    made_by: str
    title: str
    finding: str
    summary: tuple[str, ...]
    verdict: Verdict
    goal: str
    wanted: str
    judgements: tuple[Judgement, ...]
    missing: tuple[str, ...]
    figures: tuple[FigureData, ...]
    sheets: tuple[Sheet, ...]
    methods: tuple[Computation, ...]
    tiers: tuple[str, ...] = field(default=())
    advice: tuple[Advice, ...] = ()
    matrix: Matrix = Matrix()
    chip: Chip = Chip("cannot say", "cannot say")
    measured: str = ""

    def sheet(self, key: str) -> Sheet:
        """The sheet of that key; KeyError when there is none."""
        found = next((sheet for sheet in self.sheets if sheet.key == key), None)
        if found is None:
            raise KeyError(key)
        return found


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON data: the judgements, the tables by their keys and the numbers behind every figure."""
    return {
        "made_by": report.made_by,
        "title": report.title,
        "finding": report.finding,
        "summary": list(report.summary),
        "verdict": report.verdict,
        "goal": report.goal,
        "measured": report.measured,
        "chip": asdict(report.chip),
        "matrix": asdict(report.matrix),
        "judgements": [asdict(judgement) for judgement in report.judgements],
        "missing": list(report.missing),
        "advice": [asdict(advice) for advice in report.advice],
        "tables": {sheet.key: sheet_json(sheet) for sheet in report.sheets},
        "figures": {figure.key: {"kind": type(figure).__name__, **asdict(figure)} for figure in report.figures},
        "methods": [asdict(method) for method in report.methods],
    }


def clean(text: str) -> str:
    """``text`` on one line, what would act or hide in it spelled out."""
    return escaped(" ".join(text.split()))


def scrubbed(value: T) -> T:
    """The same data with every text in it cleaned: nothing that users wrote gets past this with a control character."""
    scrub: Any = _scrub(value)
    return cast(T, scrub)


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return tuple(_scrub(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: _scrub(getattr(value, item.name)) for item in fields(value)})
    return value
