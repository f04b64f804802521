"""The printed commands of a comparison: order, servers, load, and that the script does what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Outcome
from tests.factories import ROOT
from tests.lab.nanio import free_port

Run = Callable[..., Outcome]
PLAN = (ROOT / "docs" / "compare.md").read_text().partition("```yaml\n")[2].partition("```")[0]


def written(path: Path, **changes: Any) -> Path:
    """The documented plan with some keys changed; None leaves one out."""
    document = yaml.safe_load(PLAN)
    for key, value in changes.items():
        part, _, name = key.rpartition("__")
        inner = document[part] if part else document
        if value is None:
            del inner[name]
        else:
            inner[name] = value
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def test_the_documented_plan(kvbench: Run, tmp_path: Path) -> None:
    outcome = kvbench("arms", written(tmp_path / "plan.yaml"), "--json")
    assert outcome.code == 0
    data = json.loads(outcome.out)
    arms = [one["arm"] for one in data["visits"] if one["concurrency"] == 8]
    assert arms == ["none", "cpu", "cpu+nvme", "cpu+cephfs", "cpu+cephfs", "cpu+nvme", "cpu", "none"]
    assert len({one["folder"] for one in data["visits"]}) == len(data["visits"]) == 16
    script = data["script"]
    configs = [json.loads(text) for text in re.findall(r"--kv-transfer-config '([^']+)'", script)]
    assert len(configs) == 12
    tiers = [config["kv_connector_extra_config"].get("secondary_tiers", []) for config in configs]
    roots = [tier["root_dir"] for found in tiers for tier in found]
    assert len(roots) == len(set(roots)) == 8
    for root in roots:
        assert script.count(f"mkdir {root}\n") == script.count(f"rm -r {root}\n") == 1
    # Everything but the arm is the same: data, seed, duration, and the loads in their order.
    commands = [line for line in script.splitlines() if line.startswith("aiperf ")]
    alike = {re.sub(r"--(concurrency|artifact-dir) \S+", "", command) for command in commands}
    assert len(alike) == 1
    assert "vllm serve Qwen/Qwen3-8B " in script
    for when in ("before", "after"):
        saved = [line for line in script.splitlines() if line.endswith(f"/ceph_{when}.txt")]
        assert len(saved) == 16
    assert script.count("\nsleep 30\n") == 16
    assert script.rstrip().endswith("cpu+cephfs=runs/cpu+cephfs")


def test_as_many_runs_as_a_plan_may_have(kvbench: Run, tmp_path: Path) -> None:
    outcome = kvbench("arms", written(tmp_path / "plan.yaml", repeats=1250), "--json")
    assert len(json.loads(outcome.out)["visits"]) == 10_000


def test_guidellm(kvbench: Run, tmp_path: Path) -> None:
    plan = written(tmp_path / "plan.yaml", generator__tool="guidellm", generator__kind="json_file")
    outcome = kvbench("arms", plan)
    (line, *_) = [line for line in outcome.out.splitlines() if line.startswith("guidellm ")]
    for part in ("--override profile.streams 8", "kind=max_duration,seconds=1800", "kind=json_file,path=agents.jsonl"):
        assert part in line


def test_words_with_blanks_and_quotes_stay_words(kvbench: Run, tmp_path: Path) -> None:
    plan = written(tmp_path / "plan.yaml", results="my runs; touch x", generator__data="it's.jsonl")
    script = kvbench("arms", plan).out
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    assert "mkdir -p 'my runs; touch x/none/c8-1'" in script


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": {"none": {}}}, "one arm has nothing to be compared with"),
        ({"arms": {"none": {}, "x": {"tiers": ["fs=/mnt"]}}}, "arms.x: a tier needs cpu"),
        ({"arms": {"none": {}, "x": {"cpu": "4G"}}}, "ambiguous"),
        ({"arms": {"none": {}, "x": {"cpu": "1GiB", "tiers": ["fs=/mnt"]}}}, "arms.x: --cpu 1 GiB is too little"),
        ({"arms": {"none": {}, "x": {"cpu": "4GiB", "tiers": ["s3://b/p"]}}}, "is no directory"),
        ({"arms": {"none": {}, "../x": {}}}, "arms.../x"),
        ({"generator__concurrency": []}, "generator.concurrency"),
        ({"generator__concurrency": ["8"]}, "generator.concurrency.0"),
        ({"generator__tool": "wrk"}, "generator.tool"),
        ({"generator__kind": "mooncake_trace"}, "--no-fixed-schedule"),
        ({"generator__seeds": 1}, "generator.seeds"),
        ({"pages": {"metrics": "http://x"}}, "pages.metrics"),
        ({"pages": {"../x": "http://x"}}, "pages.../x"),
        ({"repeats": 1251}, "10008 runs are more than 10,000"),
        ({"model": None}, "model: Field required"),
        ({"url": "http://x\n"}, "url"),
        ({"model": "no-such-model-anywhere"}, "no-such-model-anywhere"),
    ],
)
def test_what_is_wrong_with_a_plan_is_a_sentence(
    kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    outcome = kvbench("arms", written(tmp_path / "plan.yaml", **changes))
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "\x00", "a: 1\n---\nb: 2\n"])
def test_what_is_no_plan(kvbench: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    outcome = kvbench("arms", path)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert kvbench("arms", tmp_path / "none.yaml").code == 2


# A server that answers as vLLM does, and a load generator that leaves a result.
VLLM = """#!{python}
import http.server, json, os, sys
arguments = " ".join(sys.argv)
asked = [0]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked[0] += self.path == "/metrics"
        hits = 500 * (asked[0] - 1) if "secondary_tiers" in arguments or "CPUOffloadingSpec" in arguments else 0
        name, queries = "vllm:external_prefix_cache", 1000 * (asked[0] - 1)
        text = f"{{name}}_hits_total {{hits}}\\n{{name}}_queries_total {{queries}}\\n"
        self.send_response(200); self.end_headers(); self.wfile.write(text.encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", {port}), Handler).serve_forever()
"""
AIPERF = """#!{python}
import json, pathlib, sys
sys.path.insert(0, {root!r})
from tests.factories import serving_result
folder = pathlib.Path(sys.argv[sys.argv.index("--artifact-dir") + 1])
concurrency = int(sys.argv[sys.argv.index("--concurrency") + 1])
serving_result(folder / "result.json", 2.0 if folder.parent.name == "none" else 1.0, concurrency=concurrency)
"""


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("findmnt")), reason="curl or findmnt is not installed")
def test_the_script_runs_from_the_servers_to_the_comparison(
    kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, programs, tier = free_port(), tmp_path / "bin", tmp_path / "tier"
    tier.mkdir()
    programs.mkdir()
    for name, text in (("vllm", VLLM), ("aiperf", AIPERF)):
        program = programs / name
        program.write_text(text.format(python=sys.executable, port=port, root=str(ROOT)))
        program.chmod(0o755)
    (programs / "kvbench").symlink_to(Path(sys.executable).with_name("kvbench"))
    plan = written(
        tmp_path / "plan.yaml", url=f"http://127.0.0.1:{port}", pages=None, repeats=1, generator__concurrency=[8],
        arms={"none": {}, "fs": {"cpu": "8GiB", "tiers": [f"fs={tier}"]}},
    )  # fmt: skip
    script = tmp_path / "arms.sh"
    script.write_text(kvbench("arms", plan).out)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    assert script.stat().st_size
    found = subprocess.run(
        ["sh", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert found.returncode in (0, 2), found.stderr
    mount = json.loads((tmp_path / "runs" / "fs" / "c8-1" / "mount.json").read_text())["filesystems"][0]["target"]
    # A temporary directory on the root file system is what "not mounted" means.
    assert (found.returncode, "not-mounted" in found.stdout) == ((2, True) if mount == "/" else (0, False)), (
        found.stderr
    )
    assert "never-engaged" not in found.stdout
    assert list(tier.iterdir()) == []
