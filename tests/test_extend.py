"""docs/extend.md is true: each example, added from outside the package, works through the program's commands."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT, Outcome
from tests.factories import DATA, SHIPPED_CSV, write_json

Kvbench = Callable[..., Outcome]

PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n# ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE_RUN = ROOT / "reports" / "example" / "run"
CONFIG = {
    "model_type": "toy", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "torch_dtype": "bfloat16",
}  # fmt: skip


def examples() -> dict[str, list[tuple[str, str]]]:
    """The blocks of each section of the page: what the first line says, and the code below it."""
    sections = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)[1:]
    found = {title: BLOCK.findall(text) for title, text in zip(sections[::2], sections[1::2], strict=True)}
    return {title: blocks for title, blocks in found.items() if blocks}


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Adds the example of a section: its file as a module, its line to the registry; both are gone after the test."""

    def run(section: str) -> None:
        (file, code), (registry, line) = examples()[section]
        module = ModuleType(file.removesuffix(".py").replace("/", "."))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile("from __future__ import annotations\n" + code, file, "exec"), module.__dict__)
        name, _, place = registry.partition(" in ")
        extend(monkeypatch, importlib.import_module(_module_name(place)), name, line, toy=module)

    return run


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def extend(monkeypatch: pytest.MonkeyPatch, home: ModuleType, name: str, line: str, **known: Any) -> None:
    """Put the line where the page says that it goes."""
    names = {**vars(home), **known}
    registry = eval(name, names)
    if isinstance(registry, dict):
        ((key, value),) = eval("{" + line + "}", names).items()
        assert key not in registry
        monkeypatch.setitem(registry, key, value)
    elif isinstance(registry, tuple):
        monkeypatch.setattr(home, name, (*eval(f"({line})", names), *registry))
    else:
        parts, key = name.removesuffix('"]').split('["')
        monkeypatch.setitem(getattr(home, parts), key, [*registry, *eval(f"({line})", names)])


def toy_config(tmp_path: Path) -> Path:
    """A model of the toy architecture."""
    return write_json(tmp_path / "config.json", CONFIG)


def test_an_architecture(kvbench: Kvbench, add: Callable[[str], None], tmp_path: Path) -> None:
    before = kvbench("blocksize", toy_config(tmp_path))
    assert before.code == 2
    assert "does not know the architecture 'toy'" in before.err
    add("An architecture")
    (model,) = kvbench("blocksize", toy_config(tmp_path), "--json").json()["models"]
    assert model["bytes_per_token"] == 4 * 2 * 2 * 64 * 2
    del_head = {key: value for key, value in CONFIG.items() if key != "head_dim"}
    refused = kvbench("blocksize", write_json(tmp_path / "config.json", del_head))
    assert refused.code == 2
    assert "head_dim" in refused.err


def test_a_connector(kvbench: Kvbench, add: Callable[[str], None]) -> None:
    before = kvbench("blocksize", "qwen3-8b", "--connector", "toy")
    assert before.code == 2
    assert "unknown connector 'toy'" in before.err
    add("A connector")
    (model,) = kvbench("blocksize", "qwen3-8b", "--connector", "toy", "--json").json()["models"]
    (connector,) = model["connectors"]
    assert connector["name"] == "toy"
    assert connector["stored_bytes_per_block"] == model["server_block_bytes"] == 16 * 147_456


@pytest.mark.slow
def test_a_tier_kind(kvbench: Kvbench, add: Callable[[str], None], tmp_path: Path) -> None:
    options = (
        "--model",
        "qwen3-8b",
        "--mix",
        "read",
        "--numjobs",
        "1",
        "--runtime",
        "1",
        "--dataset",
        "16MiB",
        "--json",
    )
    run = ("fio", "--tier", "lent", *options)
    assert kvbench(*run, "-o", tmp_path / "before").code == 2
    add("A tier kind")
    done = kvbench(*run, "-o", tmp_path / "run")
    assert done.code == 0, done.err
    (point,) = done.json()["points"]
    assert (point["status"], point["driver"], point["tier"]) == ("ok", "memory", "lent")
    assert (
        json.loads((tmp_path / "run" / "result.json").read_text())["tiers"]["lent"]["filesystem"] == "none: lent memory"
    )


@pytest.mark.slow
def test_an_importer_of_serving_results(kvbench: Kvbench, add: Callable[[str], None], tmp_path: Path) -> None:
    served = [[tokens, 0.01 + tokens / 20_000] for tokens in (1024, 4096, 16384, 65536)]
    path = write_json(tmp_path / "toy.json", {"toy_bench": served})
    options = ("crossover", EXAMPLE_RUN, "--ttft-from", path, "--json")
    before = kvbench(*options)
    assert before.code == 2
    assert "no known format" in before.err
    add("An importer of serving results")
    prefill = kvbench(*options).json()["prefill"]
    assert prefill["b_s_per_token"] == pytest.approx(1 / 20_000)
    assert (prefill["measured_from"], prefill["measured_to"]) == (1024, 65536)


def test_an_importer_of_traces(kvbench: Kvbench, add: Callable[[str], None], tmp_path: Path) -> None:
    path = tmp_path / "toy.txt"
    path.write_text("toy 32 1 2\ntoy 48 1 2 3\n")
    before = kvbench("trace", "info", path)
    assert before.code == 2
    assert "toys" not in before.err
    add("An importer of traces")
    trace = kvbench("trace", "info", path, "--json").json()["trace"]
    assert (trace["requests"], trace["prompt_tokens"], trace["unique_blocks"]) == (2, 80, 3)
    path.write_text("toy 32 1 2\nyot 48 1 2 3\n")
    assert kvbench("trace", "info", path, "--format", "toy", "--json").json()["trace"]["requests"] == 1


@pytest.mark.parametrize(("file", "said"), [("json-plus", ["few-jobs"]), ("two-servers", [])])
def test_a_check(kvbench: Kvbench, add: Callable[[str], None], tmp_path: Path, file: str, said: list[str]) -> None:
    def codes(name: str) -> list[list[str]]:
        done = kvbench("import", DATA / "fio" / f"fio-3.33_{file}.json", "-o", tmp_path / name, "--json")
        return [[warning["code"] for warning in point["warnings"]] for point in done.json()["points"]]

    before = codes("before")
    assert before
    add("A check")
    assert codes("after") == [[*own, *said] for own in before]


@pytest.mark.slow
def test_a_figure_and_a_table(kvbench: Kvbench, add: Callable[[str], None], tmp_path: Path) -> None:
    add("A figure")
    add("A table")
    done = kvbench("report", EXAMPLE_RUN, "--ttft-csv", SHIPPED_CSV, "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    result = json.loads((EXAMPLE_RUN / "result.json").read_text(encoding="utf-8"))
    sizes = {point["io_bytes"] for point in result["points"]}
    drawn = {key: figure for key, figure in report["figures"].items() if key.startswith("operations-")}
    assert set(drawn) == {f"operations-{size}" for size in sizes}
    assert all(figure["title"] in page for figure in drawn.values())
    assert sum(sum(figure["ios"]) for figure in drawn.values()) == sum(
        point[side]["ios"] for point in result["points"] for side in ("read", "write") if point[side]
    )
    (row,) = report["tables"]["contributions"]["rows"]
    assert row["points"]["value"] == len(result["points"])
    assert (tmp_path / "report-tables" / "contributions.csv").read_text().splitlines()[1:] == [
        f"run,{len(result['points'])}"
    ]


def test_an_export(kvbench: Kvbench, add: Callable[[str], None]) -> None:
    assert kvbench("export", EXAMPLE_RUN, "--form", "toy").code == 2
    add("An export")
    lines = kvbench("export", EXAMPLE_RUN, "--form", "toy").out.splitlines()
    result = json.loads((EXAMPLE_RUN / "result.json").read_text())
    sides = [
        (point, way) for point in result["points"] for way in ("read", "write") if point[way] and point[way]["ios"]
    ]
    assert lines == ["toy lines", *(f"{point['id']} {way} {point[way]['bytes_per_s']}" for point, way in sides)]


def test_the_page_names_each_registry_and_every_example_runs() -> None:
    ran = re.findall(r'add\("([^"]+)"\)', Path(__file__).read_text(encoding="utf-8"))
    assert set(ran) == set(examples())
    rows = re.findall(r"^\| [\w ]+ \| `(kvbench/[\w/]+)[^`]*` \| `(\w+)` of `([^`]+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 11
    for folder, registry, home in rows:
        assert (ROOT / folder).parent.is_dir()
        assert hasattr(importlib.import_module(_module_name(home)), registry)


def test_the_page_draws_the_contract_that_is_checked() -> None:
    import tomllib

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    drawn = PAGE.partition("```\n")[2].partition("```")[0].splitlines()
    named = [[name.removeprefix("kvbench.") for name in layer.split(" | ")] for layer in layers]
    assert [line.split()[: len(names)] for line, names in zip(drawn, named, strict=True)] == named
