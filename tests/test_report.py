"""The report's data and its views: the same numbers everywhere, and no name that breaks out of its place."""

from __future__ import annotations

import csv
import html as html_lib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.decide.crossover import Goal
from kvbench.decide.decision import Wanted
from kvbench.decide.runs import LoadedRun, load_runs
from kvbench.prefill.curve import fit
from kvbench.prefill.samples import Sample, Samples, read_csv
from kvbench.record import results
from kvbench.record.histogram import Histogram
from kvbench.record.results import PointResult, PointWarning, RunResult
from kvbench.report import drawing, figures, files
from kvbench.report.build import build
from kvbench.report.data import Report, clean, scrubbed, to_json
from kvbench.report.drawing import line_number, pushed_apart, short
from kvbench.report.figures import target_times
from kvbench.report.figures.seconds import SecondsRow, _steadiness
from kvbench.report.html import html
from kvbench.report.sheet import Cell, Head, Sheet
from kvbench.report.tables.references import beside
from tests.conftest import Outcome
from tests.factories import ROOT, SHIPPED_CSV, direction, latency, point, use

EXAMPLE = ROOT / "reports" / "example"
MODEL = "openai/gpt-oss-120b"
NOISY = ((2048, 0.02), (2048, 0.12), (8192, 0.1), (8192, 0.4), (49152, 0.9), (49152, 2.4))
HOSTILE = "<script>alert(1)</script>|`*[x](http://y)&amp;\"'$a$ {{ 7*7 }}\x00\x1b[31m\u202e\ud800=cmd()"
Run = Callable[..., Outcome]


def points(tier: str, iops: float, warnings: tuple[PointWarning, ...] = ()) -> tuple[PointResult, ...]:
    """A mixed and a read point at 16 jobs, and a failed one."""
    mean = 16e9 / iops
    read = direction(6000, iops, latency_ns=latency(mean, p99_low=None))
    write = direction(2000, iops / 3, latency_ns=latency(mean))
    mixed: dict[str, Any] = {"mix": "mixed", "read": read, "write": write, "warnings": warnings}
    return (
        point(id=f"{tier}-mixed-j16", tier=tier, numjobs=16, histogram=f"{tier[:4].strip('<')}.json", **mixed),
        point(id=f"{tier}-read-j16", tier=tier, numjobs=16, read=read),
        point(id=f"{tier}-read-j1", tier=tier, status="failed", reason="fio said no", read=None),
    )


def loaded(tmp_path: Path, name: str = "run", **changes: Any) -> LoadedRun:
    """A run of two tiers with one histogram."""
    warning = PointWarning("few-samples", "p99 comes from 10 reads", "use a longer --runtime", {"read_ios": 10})
    values: dict[str, Any] = {
        "uses": (use(),),
        "points": (*points("fast", 4000.0), *points("slow", 500.0, (warning,))),
        "labels": {"site": "lab"},
        "environment": {"host": "example", "memory_bytes": 1 << 30},
    }
    folder = tmp_path / name
    run = RunResult("2026-01-02T03:04:05+00:00", **(values | changes))
    results.save(run, folder)
    for one in run.points:
        if one.histogram is not None:
            mean = round(16e9 / (4000 if one.tier == "fast" else 500))
            bins = Histogram(((mean * 9 // 10, 3000), (mean, 2500), (mean * 16 // 10, 500)))
            results.save_histograms(folder, one.histogram, {"read": bins, "write": bins})
    return load_runs([folder])[0]


def wanted(**changes: Any) -> Wanted:
    """The shipped prefill curve and the default goal."""
    samples = read_csv(SHIPPED_CSV)
    values: dict[str, Any] = {"curve": fit(samples), "samples": samples, "goal": Goal()}
    return Wanted(**(values | changes))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of two tiers with a prefill curve."""
    return build([loaded(tmp_path_factory.mktemp("report"))], wanted())


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    """Its page."""
    return html(report)


MODELS = (MODEL, "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B-Instruct")


def four_by_three(tmp_path: Path) -> Report:
    """Four tiers and three models, of which the prefill of one is known."""
    tiers = {"fast": 4000.0, "nvme": 500.0, "cephfs": 500.0, "volume": 500.0}
    every = tuple(one for tier, iops in tiers.items() for one in points(tier, iops))
    uses = tuple(replace(use(), model=model) for model in MODELS)
    return build([loaded(tmp_path, uses=uses, points=every)], wanted())


@pytest.mark.slow
def test_the_first_screen_of_one_model(report: Report, page: str) -> None:
    assert (report.chip.verdict, report.chip.text) == ("cannot say", "1 of 2 tiers viable")
    assert report.matrix.columns == (f"{MODEL} TP2",)
    (fast,), (slow,) = (row.cells for row in report.matrix.rows)
    assert fast is not None
    assert slow is not None
    assert (fast.verdict, fast.outcome, slow.outcome) == ("viable", "always wins", "never wins")
    assert slow.times == "restores in 4.12 s, recomputes in 950 ms"
    assert report.measured.startswith("Measured on example, 2026-01-02, ")
    for cell in (fast, slow):
        assert f'id="{cell.card}"' in page
        assert f'href="#{cell.card}"' in page


@pytest.mark.slow
def test_the_first_screen_of_many_names_every_tier(tmp_path: Path) -> None:
    found = four_by_three(tmp_path)
    assert [row.tier for row in found.matrix.rows] == ["fast", "nvme", "cephfs", "volume"]
    assert len(found.matrix.columns) == 3
    assert found.chip.text == "1 of 12 combinations viable"
    single = build([loaded(tmp_path / "one", points=points("fast", 4000.0))], wanted())
    assert (single.chip.verdict, single.chip.text) == ("viable", "viable")
    empty = build([loaded(tmp_path / "none", uses=(), points=())], wanted())
    assert (empty.matrix.rows, empty.chip.text) == ((), "cannot say")


@pytest.mark.slow
def test_the_finding_names_who_wins(report: Report) -> None:
    assert report.finding == f"{MODEL} TP2: restoring from fast beats recomputing, from slow it does not"
    assert report.summary == (f"Viable: fast for {MODEL} TP2", f"Not viable: slow for {MODEL} TP2")
    assert report.verdict == "not viable"
    assert [item.verdict for item in report.judgements] == ["viable", "not viable"]


@pytest.mark.slow
def test_the_numbers_are_those_of_the_formulas(report: Report) -> None:
    row = dict(
        zip([column.key for column in report.sheet("verdicts").columns], report.sheet("verdicts").rows[1], strict=True)
    )
    # 16 tokens a block at 500 reads/s.
    assert row["restore_tokens_per_s"].value == pytest.approx(8000)
    assert row["restore_s"].value == pytest.approx(32768 / 8000, rel=0.1)
    assert row["recompute_s"].value == pytest.approx(0.950, rel=0.01)  # 0.98 s less the constant
    assert row["recompute_tokens_per_s"].value == pytest.approx(32768 / row["recompute_s"].value)  # type: ignore[operator]
    assert row["point"].value == "slow-mixed-j16"
    assert row["distrust"].text == "few-samples"


def test_every_number_has_a_source(report: Report) -> None:
    for sheet in report.sheets:
        for row in sheet.rows:
            for column, cell in zip(sheet.columns, row, strict=True):
                if column.right and cell.value is not None:
                    assert cell.source, (sheet.key, column.key)
    for judgement in report.judgements:
        assert judgement.facts
        assert all(fact.source for fact in judgement.facts)
    assert json.dumps(to_json(report)["figures"]).count('"source": ""') == 0


@pytest.mark.slow
def test_json_holds_exactly_what_the_page_shows(report: Report, page: str) -> None:
    data = json.loads(json.dumps(to_json(report), allow_nan=False))
    text = html_lib.unescape(page)
    for table in data["tables"].values():
        for row in table["rows"]:
            for cell in row.values():
                assert cell["text"] in text
    for judgement in data["judgements"]:
        for fact in judgement["facts"]:
            assert fact["text"] in text
    for figure in data["figures"].values():
        assert figure["title"] in text
    # The matrix of the first screen says what the cards say.
    tables = re.sub(r'<table class="matrix".*?</table>', "", page, flags=re.DOTALL)
    shown = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", tables, flags=re.DOTALL)
    cells = sum(len(sheet.rows) * len(sheet.columns) + len(sheet.columns) for sheet in report.sheets)
    assert len(shown) == cells


@pytest.mark.slow
def test_warnings_stand_beside_what_they_concern(report: Report, page: str) -> None:
    assert [[warning.code for warning in item.warnings] for item in report.judgements] == [[], ["few-samples"]]
    card = page.split('<li class="card')[2].partition("</section>")[0]
    assert "Distrust:" in card
    assert "few-samples" in card
    assert 'title="p99 comes from 10 reads"' in card


@pytest.mark.slow
def test_without_prefill_the_report_says_what_is_missing(tmp_path: Path) -> None:
    built = build([loaded(tmp_path)], Wanted(None, None, Goal()))
    assert {item.verdict for item in built.judgements} == {"cannot say"}
    assert "--ttft-csv" in built.missing[0]
    assert any("prefill is below 64,000 tokens/s" in fact.text for fact in built.judgements[0].facts)
    text = html(built)
    assert "--ttft-csv" in text
    assert "recompute not measured" in text
    assert {sheet.key for sheet in built.sheets} == {
        "verdicts",
        "times",
        "measured",
        "references",
        "distrust",
        "blocks",
        "provenance",
    }


@pytest.mark.slow
def test_a_command_line_for_the_tier_that_pays_and_none_for_the_other(tmp_path: Path) -> None:
    one = use(connector="vllm-fs", engine_version="0.32.0", engine_block_tokens=16)
    tiers = {name: {"path": f"/mnt/{name} <tier>"} for name in ("fast", "slow")}
    built = build([loaded(tmp_path, uses=(one,), tiers=tiers)], wanted())
    sheet = built.sheet("command_lines")
    keys = [column.key for column in sheet.columns]
    rows = {
        row["tier"]: row for row in (dict(zip(keys, (cell.value for cell in row), strict=True)) for row in sheet.rows)
    }
    verdicts = {item.tier: item.verdict for item in built.judgements}
    assert verdicts == {"fast": "viable", "slow": "not viable"}
    words = shlex.split(str(rows["fast"]["command_line"]))
    assert words[:5] == ["vllm", "serve", "openai/gpt-oss-120b", "--tensor-parallel-size", "2"]
    assert json.loads(words[-1])["kv_connector_extra_config"]["secondary_tiers"][0]["root_dir"] == "/mnt/fast <tier>"
    assert rows["slow"]["command_line"] == "none"
    assert "/mnt/slow" not in json.dumps([[cell.value for cell in row] for row in sheet.rows])
    text = html(built)
    assert "--kv-transfer-config" in text
    assert "<tier>" not in text


def test_published_tiers_stand_beside_the_measured_ones_at_the_same_io(report: Report) -> None:
    sheet = report.sheet("references")
    keys = [column.key for column in sheet.columns]
    rows = [dict(zip(keys, (cell.text for cell in row), strict=True)) for row in sheet.rows]
    assert [row["tier"] for row in rows][:2] == ["fast", "slow"]
    assert {row["tier"] for row in rows} >= {"CephFS (published study)", "Micron 7450 NVMe, XFS (published study)"}
    kinds = {(row["mix"], row["direction"]) for row in rows}
    assert kinds == {("mixed", "read"), ("mixed", "write"), ("read", "read")}
    assert all(row["published_in"] for row in rows)
    assert "nothing is interpolated" in sheet.note


def test_io_that_nobody_published_has_no_such_table(tmp_path: Path) -> None:
    runs = [loaded(tmp_path)]
    assert beside(runs, ()).rows == ()


@pytest.mark.slow
def test_a_model_that_the_samples_are_not_of(tmp_path: Path) -> None:
    run = loaded(tmp_path, uses=(use(), use(model="someone/else")))
    built = build([run], wanted())
    assert [item.verdict for item in built.judgements].count("cannot say") == 2
    assert f"The TTFT samples are of {MODEL}; no prefill was given for someone/else." in built.missing


@pytest.mark.slow
def test_two_runs_with_the_same_tier_stay_apart(tmp_path: Path) -> None:
    runs = (loaded(tmp_path / "a", "one"), loaded(tmp_path / "b", "two"))
    built = build(runs, wanted())
    assert [item.tier for item in built.judgements] == ["fast (one)", "slow (one)", "fast (two)", "slow (two)"]
    assert built.judgements[0].point == "one/fast-mixed-j16"
    same = load_runs([runs[0].path, runs[0].path])
    assert [run.name for run in same] == ["one #1", "one #2"]


@pytest.mark.slow
def test_advice_of_several_loads_and_runs_does_not_contradict_itself(tmp_path: Path) -> None:
    runs = [loaded(tmp_path, name, uses=(use(threads=16),)) for name in ("one", "two")]
    built = build(runs, wanted(concurrent=(1, 4)))
    assert len({advice.label for advice in built.advice}) == len(built.advice) > 1
    for advice in built.advice:
        rejected = [text.partition(": ")[0] for text in advice.choice if text.startswith("Reject")]
        assert len(set(rejected)) == len(rejected)
        assert all("(one)" in text or "(two)" in text for text in (*advice.words, *rejected))
    for key in ("settings", "verdicts"):
        assert "concurrent_restores" in {column.key for column in built.sheet(key).columns}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).map(sorted), st.floats(0.01, 0.2))
def test_names_beside_lines_never_cover_each_other(places: list[float], gap: float) -> None:
    found = pushed_apart(places, gap)
    assert all(right - left > gap - 1e-9 for left, right in pairwise(found))
    if gap * (len(places) - 1) <= 1:
        assert found[0] > -1e-9
        assert found[-1] < 1 + 1e-9


def test_a_tier_has_one_colour_whatever_the_load() -> None:
    tiers = ("disk", "nvme", "a ×4")
    assert [line_number(label, tiers) for label in ("nvme", "nvme ×4", "nvme ×16", "a ×4", "a ×4 ×16")] == [
        1,
        1,
        1,
        2,
        2,
    ]


def test_a_short_name_keeps_both_ends() -> None:
    assert short("ceph-rbd-erasure-coded ×16", 18).startswith("ceph-rbd")
    assert short("ceph-rbd-erasure-coded ×16", 18).endswith("×16")
    assert len(short("x" * 99, 18)) == 18
    assert short("nvme", 18) == "nvme"


@pytest.mark.slow
def test_a_title_does_not_promise_what_the_interval_leaves_open(tmp_path: Path) -> None:
    # 2,000 blocks a second are 32,000 tokens a second: within the interval of three samples far from any curve.
    samples = Samples(tuple(Sample(tokens, seconds) for tokens, seconds in NOISY), MODEL, "noisy")
    built = build([loaded(tmp_path, points=points("fast", 2000.0))], wanted(curve=fit(samples), samples=samples))
    (title,) = [figure.title for figure in built.figures if figure.key.startswith("times-")]
    assert built.verdict == "cannot say"
    assert title.endswith("restoring from fast has no clear answer")
    assert "secondary_tiers" not in json.dumps(to_json(built)["tables"].get("settings", {}))


@pytest.mark.slow
def test_loads_are_not_counted_as_tiers(tmp_path: Path) -> None:
    many = [point for tier in "abcdef" for point in points(tier, 100.0)]
    built = build([loaded(tmp_path, points=tuple(many))], wanted(concurrent=(1, 2)))
    assert "of the tiers" not in " ".join((built.finding, *built.summary))
    assert "combinations of tier and load" in " ".join((built.finding, *built.summary))


@pytest.mark.slow
def test_several_loads(tmp_path: Path) -> None:
    built = build([loaded(tmp_path)], wanted(concurrent=(1, 4)))
    assert [item.concurrent_restores for item in built.judgements] == [1, 4, 1, 4]
    first = built.figures[0]
    assert isinstance(first, target_times.TargetTimes)
    assert [bar.tier for bar in first.bars] == ["fast ×1", "fast ×4", "slow ×1", "slow ×4"]
    html(built)


@pytest.mark.parametrize("changes", [{"uses": ()}, {"points": ()}, {"uses": (), "points": ()}])
def test_empty_runs_still_give_a_page(tmp_path: Path, changes: dict[str, Any]) -> None:
    built = build([loaded(tmp_path, **changes)], wanted())
    assert built.verdict == "cannot say"
    assert "<h1>" in html(built)
    assert files.summary_markdown(built).startswith("# ")


class Tags(HTMLParser):
    """Every tag and attribute name of a page."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block_tokens", "mapped"), [(65_536, False), (49_153, False), (49_152, False), (40_000, True), (16, True)]
)
def test_a_model_whose_block_no_measured_prompt_fills_still_gives_a_page(
    tmp_path: Path, block_tokens: int, mapped: bool
) -> None:
    """Nothing is restored of a prompt below a block; without two lengths above there is no line of what it needs."""
    large = use(block_tokens=block_tokens)
    made = build([loaded(tmp_path, uses=(large,))], wanted())
    assert any(type(figure).__name__ == "BreakEvenMap" for figure in made.figures) is mapped
    for figure in made.figures:
        assert "<svg" in drawing.svg(figures.draw(figure, made.tiers), figure.key, figure.title)
    assert "<h1>" in html(made)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report in which every name that a user can choose is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    bad = PointWarning("few-samples", HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    run = RunResult(
        HOSTILE,
        (use(model=HOSTILE, kv_dtype=HOSTILE, connector=HOSTILE, engine_version=HOSTILE), use(model=HOSTILE + "2")),
        tuple(
            point(
                id=f"{HOSTILE}{at}", job=HOSTILE, source=HOSTILE, tier=tier, mix="mixed", numjobs=16,
                read=direction(60_000, 1000.0, latency_ns=latency(16e6)), warnings=(bad,),
            )
            for at, tier in enumerate((HOSTILE, "=1+1", "-2"))
        ),
        labels={HOSTILE: HOSTILE},
        environment={HOSTILE: {HOSTILE: [HOSTILE]}},
        tiers={HOSTILE: {"path": HOSTILE}},
    )  # fmt: skip
    samples = read_csv(SHIPPED_CSV)
    curve = fit(samples.__class__(samples.rows, None, HOSTILE, 0))
    return build([LoadedRun(HOSTILE, folder, run)], Wanted(curve, samples, Goal()))


@pytest.mark.slow
def test_hostile_names_never_become_markup(hostile: Report) -> None:
    page = html(hostile)
    page.encode()
    parsed = Tags()
    parsed.feed(page)
    assert "script" not in parsed.tags
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "{{ 7*7 }}" in page
    assert "<script" not in page
    for name, value in parsed.attributes:
        if name in ("href", "src"):
            assert (value or "").startswith(("#", "data:"))


@pytest.mark.slow
def test_hostile_names_never_break_the_drawings(hostile: Report) -> None:
    kinds = set()
    for figure in hostile.figures:
        text = drawing.svg(figures.draw(figure, hostile.tiers), figure.key, figure.title)
        root = ElementTree.fromstring(text)
        assert {element.tag for element in root.iter()}.isdisjoint({"script", "metadata", "style", "a", "image"})
        kinds.add(type(figure).__name__)
    assert kinds >= {"TargetTimes", "TimeCurves", "CrossoverMap", "Bandwidths"}


def test_hostile_names_stay_in_markdown_cells(hostile: Report) -> None:
    text = files.summary_markdown(hostile)
    assert "<" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.split(r"(?<!\\)(?:\\\\)*\|", line)) for line in rows[:2]} == {11}
    assert re.search(r"(?<!\\)\[x\]", text) is None


def test_hostile_names_are_no_formulas(hostile: Report) -> None:
    for sheet in hostile.sheets:
        for row in csv.reader(io.StringIO(files.csv_text(sheet))):
            for cell in row:
                assert not cell.startswith(("=", "@", "\t", "\r"))
                if cell.startswith(("-", "+")):
                    float(cell)


def test_csv_is_in_base_units_and_says_nothing_of_the_unknown() -> None:
    sheet = Sheet(
        "s", "S", (Head("a_s", "a", True), Head("b", "b")),
        ((Cell("1.00 s", 1.0, "x"), Cell("n", "=x")), (Cell("–"), Cell("–"))),
    )  # fmt: skip
    assert files.csv_text(sheet) == "a_s,b\n1.0,'=x\n,\n"
    assert sheet.only("b").texts == [["n"], ["–"]]


@given(st.text())
def test_clean_text_fits_every_format(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert "\n" not in cleaned
    assert ElementTree.fromstring(f"<a>{html_lib.escape(cleaned)}</a>").text == (cleaned or None)
    assert scrubbed((text, 1, None)) == (cleaned, 1, None)


def test_the_page_refers_to_nothing_outside(page: str) -> None:
    assert re.findall(r"""(?:href|src)=["']?(?!#|data:)[^"' >]+""", page) == []
    assert "http:" not in page.replace("http-equiv", "")
    assert "https:" not in page
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    assert "xmlns" not in page


def test_ids_are_unique_and_references_arrive(page: str) -> None:
    parsed = Tags()
    parsed.feed(page)
    assert len(set(parsed.ids)) == len(parsed.ids)
    wanted_ids = re.findall(r'(?:href="#|url\(#|aria-labelledby=")([^")]+)', page)
    assert set(wanted_ids) <= set(parsed.ids)


def test_the_data_inside_the_page_is_the_file_beside_it(report: Report, page: str) -> None:
    import base64

    links = dict(re.findall(r'base64,([^"]+)" download="([^"]+)"', page))
    by_name = {name: base64.b64decode(text).decode() for text, name in links.items()}
    assert by_name == {f"{sheet.key}.csv": files.csv_text(sheet) for sheet in report.sheets}


@pytest.mark.slow
def test_figures_are_themed_and_named(report: Report) -> None:
    for figure in report.figures:
        text = drawing.svg(figures.draw(figure, report.tiers), figure.key, figure.title)
        root = ElementTree.fromstring(text)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"] == figure.title
        assert "var(--font)" in text
        assert "currentColor" in text
        assert not re.findall(r"#0[123]01[0-9a-f]{2}", text), "a placeholder colour was left"
        assert next(root.iter("text"), None) is not None
        assert next(root.iter("title"), None) is not None


def test_the_same_data_give_the_same_drawing(report: Report) -> None:
    one, two = (drawing.svg(figures.draw(report.figures[0], report.tiers), "k", "l") for _ in range(2))
    assert one == two


def test_bars_start_at_zero_and_log_axes_say_so(report: Report) -> None:
    for figure in report.figures:
        for axes in figures.draw(figure, report.tiers).axes:
            if type(figure).__name__ in ("TargetTimes", "Bandwidths"):
                assert axes.get_xlim()[0] == 0
                assert axes.get_xscale() == "linear"
            for scale, label in ((axes.get_xscale(), axes.get_xlabel()), (axes.get_yscale(), axes.get_ylabel())):
                if scale == "log":
                    assert "log scale" in label


def test_no_matplotlib_state_is_touched(report: Report) -> None:
    import matplotlib

    before = matplotlib.rcParams.copy()
    figures.draw(report.figures[0], report.tiers)
    assert matplotlib.rcParams.copy() == before
    assert "pyplot" not in (ROOT / "kvbench" / "report" / "drawing.py").read_text().replace("(no pyplot)", "")


@pytest.mark.slow
def test_the_command_writes_every_view(kvbench: Run, tmp_path: Path) -> None:
    run = loaded(tmp_path)
    done = kvbench("report", run.path, "--ttft-csv", SHIPPED_CSV)
    assert done.code == 0
    assert done.out.startswith("1 of 2 tiers viable: ")
    assert str(run.path / "report.html") in done.err
    names = sorted(path.name for path in run.path.iterdir() if path.name.startswith("report"))
    assert names == ["report-tables", "report.html", "report.json", "report.md"]
    assert sorted(path.name for path in (run.path / "report-tables").glob("*.csv"))[0] == "blocks.csv"
    as_json = kvbench("report", run.path, "--ttft-csv", SHIPPED_CSV, "--json")
    assert as_json.json() == json.loads((run.path / "report.json").read_text(encoding="utf-8"))
    for path in (run.path / "report-tables").glob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8")) == as_json.json()["tables"][path.stem]


@pytest.mark.slow
def test_the_command_refuses_what_it_cannot_write(kvbench: Run, tmp_path: Path) -> None:
    run = loaded(tmp_path)
    assert kvbench("report", run.path, "-o", tmp_path / "x.json").code == 2
    (tmp_path / "d.html").mkdir()
    assert kvbench("report", run.path, "-o", tmp_path / "d.html").code == 2
    assert kvbench("report", tmp_path).code == 2
    assert kvbench("report", run.path, "--target-context", "big").code == 2


@pytest.mark.slow
def test_bad_rows_are_counted_when_allowed(kvbench: Run, tmp_path: Path) -> None:
    run = loaded(tmp_path)
    path = tmp_path / "bad.csv"
    path.write_text(SHIPPED_CSV.read_text() + "x,y\n")
    assert kvbench("report", run.path, "--ttft-csv", path).code == 2
    done = kvbench("report", run.path, "--ttft-csv", path, "--skip-bad-rows", "--json")
    assert done.code == 0
    rows = done.json()["tables"]["provenance"]["rows"]
    assert ("rows skipped", 1) in [(row["item"]["value"], row["value"]["value"]) for row in rows]


@pytest.mark.slow
def test_the_gate_draws_nothing() -> None:
    script = "import sys; from kvbench.cli import main; main(sys.argv[1:]); assert 'matplotlib' not in sys.modules"
    command = [sys.executable, "-c", script, "gate", str(EXAMPLE / "run"), "--ttft-csv", str(SHIPPED_CSV)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_example_is_what_its_data_give(kvbench: Run, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "run", tmp_path / "run")
    kvbench("report", tmp_path / "run", "--ttft-csv", SHIPPED_CSV, "-o", tmp_path / "report.html")
    for built in sorted([tmp_path / "report.json", *(tmp_path / "report-tables").glob("*.json")]):
        committed = EXAMPLE / built.relative_to(tmp_path)
        same(json.loads(built.read_text(encoding="utf-8")), json.loads(committed.read_text(encoding="utf-8")))
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("report*/*")}
    assert names == {path.relative_to(EXAMPLE) for path in EXAMPLE.rglob("report*/*")}
    assert page_starts_well(tmp_path / "report.html")
    assert (EXAMPLE / "report.md").read_text(encoding="utf-8") == (tmp_path / "report.md").read_text(encoding="utf-8")


def page_starts_well(path: Path) -> bool:
    """Whether a page begins with its doctype, without which browsers fall back to another layout."""
    return path.read_text(encoding="utf-8").startswith("<!doctype html>\n<html lang=")


def same(one: Any, other: Any, where: str = "") -> None:
    """Equal data; floats may differ in the last digits between numpy releases."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            if key != "made_by":
                same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), where
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            same(left, right, f"{where}/{at}")
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-6), where
    else:
        assert one == other, where


def test_the_example_names_no_machine() -> None:
    for path in EXAMPLE.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"/(tmp|home|root|srv|dev/shm)/", text), path
    result = results.load(EXAMPLE / "run")
    assert result.environment["host"] == "example"


def test_no_title_rests_on_the_broken_second_at_an_end_of_a_round() -> None:
    mib = 2.0**20
    row = SecondsRow(
        "read, 1 job", "nvme", (9.0, 400 * mib, 500 * mib, 1.0, 2.0, 450 * mib, 3.0), (None,) * 7, (0, 4), "series"
    )
    assert row.whole() == (400 * mib, 500 * mib, 450 * mib)
    assert _steadiness([row]) == "the least steady point went between 400 MiB/s and 500 MiB/s (nvme, read, 1 job)"
    # A dip inside a round is one, and a series of nothing but ends says nothing.
    dipped = replace(
        row,
        bytes_per_s=(400 * mib, 400 * mib, 100 * mib, 400 * mib, 400 * mib),
        round_starts=(0,),
        steal_percent=(None,) * 5,
    )
    assert "between 100 MiB/s and 400 MiB/s" in _steadiness([row, dipped])
    assert _steadiness([replace(row, bytes_per_s=(400 * mib, 1.0), round_starts=(0,))]) == "bandwidth second by second"
