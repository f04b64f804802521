"""What the README says is true: commands exist, examples run, exit codes are the program's."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench import errors
from kvbench.cli import build_app, main
from kvbench.commands import COMMANDS
from tests.conftest import ROOT, Outcome, install_fake_fio
from tests.factories import SHIPPED_CSV, serving_result

Kvbench = Callable[..., Outcome]

README = (ROOT / "README.md").read_text()
EXAMPLES = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("kvbench ")
]


def test_the_readme_is_short_and_names_what_a_bare_debian_needs_first() -> None:
    assert len(README.splitlines()) < 200
    first = "\n".join(README.splitlines()[:8])
    assert "apt-get install git make python3-venv" in first
    assert "make demo" in first
    assert "make test" in first


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme(name: str) -> None:
    assert re.search(rf"\b{name}\b", README), f"README.md does not mention kvbench {name}"


def test_the_exit_codes_are_documented() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    known = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    used = known - (set() if "gate" in COMMANDS else {errors.EXIT_NOT_VIABLE})
    assert documented == used


def test_local_links_lead_somewhere() -> None:
    for file in [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_the_examples_cover_every_command() -> None:
    assert {shlex.split(example)[1] for example in EXAMPLES} >= set(COMMANDS) - {"measure"}


@pytest.fixture(scope="module")
def presumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the README presumes: two tiers, a config, TTFT samples and earlier runs."""
    folder = tmp_path_factory.mktemp("presumed")
    for name in ("nvme", "cephfs", "tier"):
        (folder / "mnt" / name).mkdir(parents=True)
    (folder / "ttft.csv").write_text(SHIPPED_CSV.read_text())
    (folder / "config.json").write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,'
        ' "num_key_value_heads": 2, "head_dim": 64, "torch_dtype": "bfloat16"}'
    )
    (folder / "serve.yaml").write_text(
        "kv_connector: OffloadingConnector\nkv_role: kv_both\n"
        "kv_connector_extra_config: {cpu_bytes_to_use: 68719476736}\n"
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        install_fake_fio(tmp_path_factory.mktemp("fio"), monkeypatch)
        monkeypatch.chdir(folder)
        measure = ("fio", "--tier", "nvme=mnt/nvme", "--connector", "logical", "--runtime", "1", "--dataset", "128MiB")
        assert main([*measure, "-o", "reports/my-run"]) == 0
        shutil.copy("reports/my-run/points/nvme-1179648-mixed-j16/fio.json", "fio-output.json")
        assert main(["import", "ceph=fio-output.json", "-o", "reports/theirs"]) == 0
        plan = (ROOT / "docs" / "compare.md").read_text().partition("```yaml\n")[2].partition("```")[0]
        (folder / "plan.yaml").write_text(plan)
        for name, ttft_s in (("none", 2.0), ("cpu", 1.0)):
            serving_result(folder / "runs" / name / "result.json", ttft_s)
        assert main(["trace", "make", "-o", "trace.jsonl", "--conversation-num", "20"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("fake_fio")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_readme_works(
    example: str, kvbench: Kvbench, presumed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(presumed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    arguments = [argument.replace("/mnt/", f"{tmp_path}/mnt/") for argument in shlex.split(example)[1:]]
    if "-o" in arguments and "--resume" not in arguments:
        arguments[arguments.index("-o") + 1] += "-new"
    outcome = kvbench(*arguments)
    assert outcome.code in (0, 1, 3) if arguments[0] == "gate" else outcome.code == 0, outcome.err
    assert "Traceback" not in outcome.err


def test_no_option_lacks_help() -> None:
    import typer.main

    group = typer.main.get_command(build_app())
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for own in (command, *getattr(command, "commands", {}).values()):
            for parameter in own.params:
                assert getattr(parameter, "help", None), f"kvbench {name} {own.name}: {parameter.name} has no help"


def test_contributing_points_at_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:kvbench|tests|docs|profiles|benchmarks)/[\w./-]*)`", text))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / re.sub(r"\bx\.\w+$", "", path)).exists()] == []
    folders = (
        "kvbench",
        "kvbench/layout",
        "kvbench/connectors",
        "kvbench/checks",
        "kvbench/report/figures",
        "kvbench/report/tables",
        "kvbench/commands",
    )
    sources = "".join(path.read_text() for folder in folders for path in (ROOT / folder).glob("__init__.py"))
    sources += "".join(path.read_text() for path in (ROOT / "kvbench" / "formats").glob("*/__init__.py"))
    # These two packages are read without libraries, or before their kinds: the registry is a module of its own.
    sources += "".join((ROOT / "kvbench" / name).read_text() for name in ("tiers/kinds.py", "drivers/registry.py"))
    for registry in re.findall(r"one line in(?: its)? `([A-Z]+)`", text):
        assert f"\n{registry}: " in sources, registry
    targets = set(re.findall(r"`make ([a-z-]+)`", text))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert all(f"\n{target}:" in makefile for target in targets)
