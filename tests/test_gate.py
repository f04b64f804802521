"""The gate: exit codes, JUnit, Markdown, and the pipelines in docs/ci.md run for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from kvbench.checks import CODES, VOIDING
from kvbench.commands.options import StrictOptions, parse_left_out
from kvbench.decide.crossover import Verdict
from kvbench.errors import UsageError
from kvbench.record import results
from kvbench.record.results import RunResult
from kvbench.report import gate
from kvbench.report.data import Judgement, JudgementWarning, Report
from kvbench.report.junit import junit
from kvbench.report.sheet import Cell
from tests.conftest import Outcome
from tests.factories import ROOT, SHIPPED_CSV, direction, latency, point, use

EXAMPLE = ROOT / "reports" / "example" / "run"
Run = Callable[..., Outcome]


def judgement(verdict: Verdict, tier: str = "nvme", **changes: Any) -> Judgement:
    """A judgement with that verdict."""
    values: dict[str, Any] = {
        "tier": tier, "model": "m", "tp": 1, "connector": "logical", "concurrent_restores": 1, "verdict": verdict,
        "reason": "because", "label": "m TP1", "facts": (Cell("restores fast", 1.0, "point p"),), "point": "p",
        "warnings": (),
    }  # fmt: skip
    return Judgement(**(values | changes))


def report(*judgements: Judgement) -> Report:
    """A report of those judgements and nothing else."""
    return Report("kvbench", "run", "finding", (), "cannot say", "goal", "wanted", judgements, (), (), (), ())


def run_dir(tmp_path: Path, **changes: Any) -> Path:
    """A run of one tier that restores 16,000 tokens/s at 16 jobs."""
    read = direction(60_000, 1000.0, latency_ns=latency(16e6))
    values: dict[str, Any] = {
        "uses": (use(),),
        "points": (point(id="nvme-1179648-mixed-j16", mix="mixed", numjobs=16, read=read, write=None),),
    }
    results.save(RunResult("2026-01-02T03:04:05+00:00", **(values | changes)), tmp_path / "run")
    return tmp_path / "run"


def ttft(tmp_path: Path, tokens_per_s: float, model: str = "openai/gpt-oss-120b") -> Path:
    """TTFT samples of a server that prefills at a constant speed."""
    lengths = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
    noise = (1.01, 0.99, 1.01, 0.99, 1.01, 0.99, 1.0)
    rows = [f"{tokens},{tokens / tokens_per_s * factor}" for tokens, factor in zip(lengths, noise, strict=True)]
    path = tmp_path / "ttft.csv"
    path.write_text("\n".join([f"# model: {model}", "prompt_tokens,ttft_s", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("verdicts", "expected", "code"),
    [
        (["viable"], "viable", 0),
        (["viable", "viable"], "viable", 0),
        (["viable", "cannot say"], "cannot say", 3),
        (["not viable", "cannot say", "viable"], "not viable", 1),
        (["not viable"], "not viable", 1),
        ([], "cannot say", 3),
    ],
)
def test_the_rule(verdicts: list[Verdict], expected: str, code: int) -> None:
    result = gate.gate(report(*(judgement(verdict, f"tier{at}") for at, verdict in enumerate(verdicts))))
    assert (result.verdict, result.exit_code) == (expected, code)
    assert len(result.criteria) == max(1, len(verdicts))
    assert gate.line(result).startswith(expected)
    assert "\n" not in gate.line(result)


def test_strict_takes_no_verdict_from_a_doubted_point() -> None:
    doubt = JudgementWarning("p", "few-samples", "too few", "more")
    clean, doubted = judgement("not viable", "a"), judgement("not viable", "b", warnings=(doubt,))
    assert gate.gate(report(doubted)).exit_code == 1
    assert "distrust: few-samples" in gate.gate(report(doubted)).criteria[0].observed
    strict = StrictOptions(strict=True).counts
    assert gate.gate(report(doubted), strict).exit_code == 3
    assert gate.gate(report(clean, doubted), strict).exit_code == 1
    assert gate.gate(report(replace(doubted, verdict="viable")), strict).exit_code == 3


def test_a_code_that_is_left_out_does_not_count_and_every_other_still_does() -> None:
    few, events = (
        JudgementWarning("p", "few-samples", "too few", "more"),
        JudgementWarning("p", "events", "a deep scrub", "again"),
    )
    left_out = StrictOptions(strict_except=parse_left_out("few-samples, fits-memory")).counts
    assert gate.gate(report(judgement("viable", "a", warnings=(few,))), left_out).exit_code == 0
    assert gate.gate(report(judgement("viable", "a", warnings=(few, events))), left_out).exit_code == 3
    assert gate.gate(report(judgement("viable", "a")), left_out).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("event", "did you mean events?"),
        ("events,fit-memory", "did you mean fits-memory?"),
        ("", "'nothing' is no code"),
        ("xyzzy", "docs/warnings.md"),
        ("page-cache", "cannot be left out"),
        ("events,too-fast", "cannot be left out"),
    ],
)
def test_what_cannot_be_left_out_is_refused_with_the_next_step(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_left_out(text)


def test_every_code_that_forbids_no_verdict_can_be_left_out() -> None:
    for code in CODES - VOIDING:
        assert parse_left_out(code) == {code}


def test_names_are_unique() -> None:
    names = [item.name for item in gate.gate(report(judgement("viable"), judgement("viable"))).criteria]
    assert names == ["nvme: m TP1 (1)", "nvme: m TP1 (2)"]
    several = report(judgement("viable"), judgement("viable", concurrent_restores=4))
    assert [item.name for item in gate.gate(several).criteria] == ["nvme: m TP1, 1 at once", "nvme: m TP1, 4 at once"]


@pytest.mark.parametrize(("tokens_per_s", "code", "verdict"), [(4_000, 0, "viable"), (64_000, 1, "not viable")])
def test_exit_codes(kvbench: Run, tmp_path: Path, tokens_per_s: float, code: int, verdict: str) -> None:
    done = kvbench("gate", run_dir(tmp_path), "--ttft-csv", ttft(tmp_path, tokens_per_s))
    assert done.code == code
    assert done.out.startswith(f"{verdict}: ")
    assert done.out.count("\n") == 1
    found = kvbench("gate", run_dir(tmp_path), "--ttft-csv", ttft(tmp_path, tokens_per_s), "--json")
    assert found.code == code
    data = found.json()
    assert list(data) == ["verdict", "criteria"]
    assert data["verdict"] == verdict
    criteria: Any = data["criteria"]
    (criterion,) = criteria
    assert list(criterion) == ["name", "ok", "observed", "wanted"]
    assert criterion["ok"] is (code == 0)


def test_cannot_say_is_a_result_of_its_own(kvbench: Run, tmp_path: Path) -> None:
    done = kvbench("gate", run_dir(tmp_path))
    assert (done.code, done.out.partition(":")[0]) == (3, "cannot say")
    assert "--ttft-csv" in done.out
    other = kvbench("gate", run_dir(tmp_path), "--ttft-csv", ttft(tmp_path, 64_000, "someone/else"), "--json")
    assert other.code == 3
    assert [item["ok"] for item in other.json()["criteria"]] == [None]


@pytest.mark.slow
def test_models_can_be_named(kvbench: Run, tmp_path: Path) -> None:
    other = use(model="someone/else")
    run = run_dir(tmp_path, uses=(use(), other))
    samples = ttft(tmp_path, 4_000)
    assert kvbench("gate", run, "--ttft-csv", samples).code == 3
    assert kvbench("gate", run, "--ttft-csv", samples, "--model", "gpt-oss-120b").code == 0
    assert kvbench("gate", run, "--ttft-csv", samples, "--model", "gpt-oss-120b", "--model", "else").code == 3
    unknown = kvbench("gate", run, "--ttft-csv", samples, "--model", "nobody")
    assert unknown.code == 2
    assert "openai/gpt-oss-120b" in unknown.err


def test_a_ttft_budget_can_fail_what_would_win(kvbench: Run, tmp_path: Path) -> None:
    run, samples = run_dir(tmp_path), ttft(tmp_path, 4_000)
    assert kvbench("gate", run, "--ttft-csv", samples, "--ttft-budget", "5s").code == 0
    assert kvbench("gate", run, "--ttft-csv", samples, "--ttft-budget", "1s").code == 1


def test_a_tier_that_was_not_reached_keeps_the_gate_shut(kvbench: Run, tmp_path: Path) -> None:
    run = run_dir(tmp_path, tiers={"nvme": {}, "nfs": {"path": "/x"}})
    done = kvbench("gate", run, "--ttft-csv", ttft(tmp_path, 4_000), "--json")
    assert done.code == 3
    assert [item["ok"] for item in done.json()["criteria"]] == [True, None]


def test_a_run_without_models_or_points(kvbench: Run, tmp_path: Path) -> None:
    assert kvbench("gate", run_dir(tmp_path, uses=())).code == 3
    assert kvbench("gate", run_dir(tmp_path, points=())).code == 3


def test_what_is_no_verdict(kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_dir(tmp_path)
    assert kvbench("gate", tmp_path / "nowhere").code == 2
    assert kvbench("gate").code == 2
    assert kvbench("gate", run, "--mix", "write").code == 2
    assert kvbench("gate", run, "--ttft-csv", tmp_path / "no.csv").code == 2
    assert kvbench("gate", run, "--junit", run).code == 2

    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr("kvbench.commands.gate.build", bug)
    crashed = kvbench("gate", run)
    assert (crashed.code, crashed.out) == (70, "")


def test_junit_is_xml_whatever_the_names(kvbench: Run, tmp_path: Path) -> None:
    run = run_dir(
        tmp_path,
        uses=(use(model="m<&>" + "\x01"), use()),
        points=(point(id="p", tier="ti\x00er<&>\"'", mix="mixed", numjobs=16, read=direction(60_000, 1000.0)),),
    )
    path = tmp_path / "deep" / "gate.xml"
    done = kvbench("gate", run, "--ttft-csv", ttft(tmp_path, 64_000), "--junit", path)
    assert done.code == 1
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert root.attrib == {"name": "kvbench gate", "tests": "2", "failures": "1", "errors": "1"}
    assert [[child.tag for child in case] for case in root.iter("testcase")] == [["error"], ["failure"]]
    assert all("<&>" in case.attrib["name"] for case in root.iter("testcase") if "m<" in case.attrib["name"])


def test_junit_of_what_holds() -> None:
    root = ElementTree.fromstring(junit(gate.gate(report(judgement("viable"))), "run"))
    assert (root.get("failures"), root.get("errors"), root.get("tests")) == ("0", "0", "1")
    assert [child.tag for child in next(root.iter("testcase"))] == ["system-out"]


def test_markdown_is_added_to_what_is_there(kvbench: Run, tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    kvbench("gate", run_dir(tmp_path), "--ttft-csv", ttft(tmp_path, 4_000), "--markdown", path)
    text = path.read_text()
    assert text.startswith("before\n# kvbench gate: viable\n")
    assert "| nvme: openai/gpt-oss-120b TP2 | ✅ viable |" in text


@pytest.mark.slow
def test_the_example_says_what_its_report_says(kvbench: Run) -> None:
    done = kvbench("gate", EXAMPLE, "--ttft-csv", SHIPPED_CSV, "--json")
    assert done.code == 1
    assert [item["ok"] for item in done.json()["criteria"]] == [False, True, None, None]


def pipelines() -> dict[str, dict[str, Any]]:
    """The YAML examples of docs/ci.md by the heading above them."""
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (\w+)[^\n]*\n(?:(?!^## ).)*?```yaml\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    return {heading: yaml.safe_load(block) for heading, block in found}


def shell_lines(heading: str) -> list[str]:
    """The commands of a pipeline that call kvbench."""
    pipeline = pipelines()[heading]
    if heading == "GitHub":
        lines = [step["run"] for step in pipeline["jobs"]["gate"]["steps"] if "run" in step]
    else:
        lines = pipeline["storage-gate"]["before_script"] + pipeline["storage-gate"]["script"]
    assert lines[0] == "pip install ."
    return lines[1:]


@pytest.mark.slow
@pytest.mark.parametrize("heading", ["GitHub", "GitLab"])
def test_the_documented_pipelines_run(heading: str, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    shutil.copytree(EXAMPLE, tmp_path / "reports" / "ci")
    shutil.copy(SHIPPED_CSV, tmp_path / "ttft.csv")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TIER": str(tier),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "step.md"),
    }
    codes = {}
    for line in shell_lines(heading):
        command = line.split()[1]
        # Measuring is another test's matter: here the example stands for what it would have written.
        script = f"{line} --dry-run" if command == "fio" else line
        script = script.replace("kvbench ", f"{sys.executable} -m kvbench ", 1)
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        codes[command] = done.returncode
        assert done.returncode in (0, 1), done.stderr
    assert codes == {"fio": 0, "report": 0, "gate": 1}
    ElementTree.parse(tmp_path / "reports" / "ci" / "gate.xml")
    summary = tmp_path / ("step.md" if heading == "GitHub" else "reports/ci/gate.md")
    assert summary.read_text(encoding="utf-8").startswith("# kvbench gate: not viable\n")
    assert (tmp_path / "reports" / "ci" / "report.html").is_file()


def test_gitlab_shows_cannot_say_as_a_warning() -> None:
    job = pipelines()["GitLab"]["storage-gate"]
    assert job["allow_failure"] == {"exit_codes": [3]}
    assert job["artifacts"]["reports"]["junit"] in job["script"][-1]


def test_the_documented_exit_codes_are_the_real_ones() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for verdict, code in gate.EXIT_CODES.items():
        assert f"| {code} | {verdict}: " in text
