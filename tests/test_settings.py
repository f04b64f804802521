"""``kvbench settings``: what it writes, in which forms, where it finds what it checks, and what a run adds."""

from __future__ import annotations

import json
import shlex
import string
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvbench.decide.crossover import Goal, decide
from kvbench.engines.vllm.releases import RELEASES, find_release
from kvbench.errors import InputFileError, UsageError
from kvbench.layout.models import size_model
from kvbench.record import results
from kvbench.record.results import Round, RunResult, Use
from kvbench.settings.checking import check
from kvbench.settings.fitting import Deployed
from kvbench.settings.forms import FORMS, as_json, command_line, kubernetes
from kvbench.settings.measured import numbers_of, threads_for
from kvbench.settings.places import Bucket, Directory, Peers, Place, parse_place, recorded_place
from kvbench.settings.reading import FoundSettings, read_text
from kvbench.settings.viable import line_of
from kvbench.settings.writing import ENGINES, Asked, Numbers, Written, write
from tests.conftest import Outcome
from tests.factories import curve, direction, latency, measured, point, use

Kvbench = Callable[..., Outcome]

GIB = 1 << 30
ROW = 2_359_296
NVME = Directory("/mnt/nvme")
BUCKET = Bucket("kv", "a/b", "127.0.0.1:7480", "http", "us-east-1")
SIZED = size_model("qwen3-8b")


def deployed(version: str | None = None, **changes: Any) -> Deployed:
    """Qwen3-8B on one GPU."""
    return Deployed(SIZED, find_release(version), **changes)


def asked(*places: Place, version: str | None = None, **changes: Any) -> Asked:
    """64 GiB of host memory above these places."""
    values: dict[str, Any] = {"cpu_bytes": 64 * GIB}
    return Asked(deployed(version), places, **(values | changes))


def extra_of(written: Written) -> dict[str, Any]:
    """The inner object of a configuration."""
    inner = written.config["kv_connector_extra_config"]
    assert isinstance(inner, dict)
    return inner


def test_host_memory_alone_is_the_cpu_spec() -> None:
    assert write("vllm", asked()).config == {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "CPUOffloadingSpec", "cpu_bytes_to_use": 64 * GIB},
    }


def test_tiers_are_written_in_the_order_given() -> None:
    written = write("vllm", asked(BUCKET, NVME, Peers("host", 5711)))
    assert extra_of(written) == {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 64 * GIB,
        "secondary_tiers": [
            {
                "type": "obj",
                "store_config": {
                    "bucket": "kv", "endpoint_override": "127.0.0.1:7480", "scheme": "http", "region": "us-east-1",
                },
                "prefix": "a/b",
            },
            {"type": "fs", "root_dir": "/mnt/nvme"},
            {"type": "p2p", "host": "host", "port": 5711},
        ],
    }  # fmt: skip


def test_lmcache_sizes_are_gib_of_each_rank() -> None:
    two = replace(deployed(), sized=size_model("qwen3-8b", tp=2))
    written = write("lmcache", Asked(two, (NVME,), 64 * GIB, 1024 * GIB))
    assert written.config["kv_connector"] == "LMCacheConnectorV1"
    assert extra_of(written) == {
        "lmcache.chunk_size": 256,
        "lmcache.local_cpu": True,
        "lmcache.max_local_cpu_size": 32.0,
        "lmcache.local_disk": "file:///mnt/nvme/",
        "lmcache.max_local_disk_size": 512.0,
    }
    assert written.options == ("--tensor-parallel-size", "2")


def test_llm_d_has_a_directory_and_files_of_its_own() -> None:
    written = write("llm-d", asked(NVME, cpu_bytes=None))
    assert extra_of(written) == {
        "spec_name": "SharedStorageOffloadingSpec",
        "spec_module_path": "llmd_fs_backend.spec",
        "shared_storage_path": "/mnt/nvme",
        "block_size": 256,
    }
    assert written.environment == {"PYTHONHASHSEED": "0"}
    assert written.options == ("--distributed-executor-backend", "mp")


@pytest.mark.parametrize(
    ("engine", "what", "words"),
    [
        ("vllm", asked(NVME, cpu_bytes=None), "--cpu SIZE is missing"),
        ("vllm", asked(NVME, cpu_bytes=2048 * ROW - 1), "4.5 GiB or more"),
        ("vllm", asked(cpu_bytes=ROW - 1), "one chunk is 2359296 bytes"),
        ("vllm", asked(NVME, disk_bytes=GIB), "--disk is LMCache's"),
        ("vllm", asked(Peers(), version="0.24"), "came in 0.25.0"),
        ("vllm", asked(BUCKET, version="0.25"), "writes no secret"),
        ("vllm", asked(cpu_bytes=None), "nothing to write"),
        ("lmcache", asked(NVME), "--disk SIZE is missing"),
        ("lmcache", asked(NVME, cpu_bytes=None, disk_bytes=GIB), "--cpu SIZE is missing"),
        ("lmcache", asked(BUCKET, disk_bytes=GIB), "a directory only"),
        ("lmcache", asked(Directory("/mnt/a,b"), disk_bytes=GIB), "comma"),
        ("lmcache", asked(NVME, NVME, disk_bytes=GIB), "one directory"),
        ("llm-d", asked(NVME), "leave them out"),
        ("llm-d", asked(Peers(), cpu_bytes=None), "a directory only"),
        ("sglang", asked(NVME), "choose from vllm, lmcache, llm-d"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_next_step(engine: str, what: Asked, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", "\\(")):
        write(engine, what)


def test_just_enough_room_is_written() -> None:
    assert extra_of(write("vllm", asked(NVME, cpu_bytes=2048 * ROW)))["cpu_bytes_to_use"] == 2048 * ROW


SERVED: list[tuple[str, Asked]] = [
    *(("vllm", asked(version=version)) for version in RELEASES),
    *(("vllm", asked(NVME, version=version)) for version in RELEASES),
    *(("vllm", asked(NVME, Peers(), version=version)) for version in RELEASES[1:]),
    *(("vllm", asked(NVME, BUCKET, version=version)) for version in RELEASES if version >= "0.26"),
    ("vllm", asked(NVME, numbers=Numbers(chunk_tokens=64, threads=(4,)))),
    ("lmcache", asked(NVME, disk_bytes=GIB)),
    ("lmcache", asked()),
    ("llm-d", asked(NVME, cpu_bytes=None)),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("engine", "what"), SERVED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_written_passes_the_check(engine: str, what: Asked, form: str) -> None:
    written = write(engine, what)
    found = read_text(FORMS[form](written, "Qwen/Qwen3-8B"), "a test")
    assert [item.config for item in found] == [written.config]
    findings = check(found[0], what.deployed.release, what.deployed)
    assert [one.code for one in findings if one.severity != "note"] == []


HARD = Directory('/mnt/it\'s a "kv" $(id) `x` $$ \\ ; # & ü')


def test_the_command_line_survives_a_shell() -> None:
    written = write("vllm", asked(HARD, version="0.24"))
    words = shlex.split(command_line(written, "my model"))
    assert words[:4] == ["PYTHONHASHSEED=0", "vllm", "serve", "my model"]
    assert json.loads(words[words.index("--kv-transfer-config") + 1]) == written.config
    assert "\n" not in command_line(written, "my model")


def test_a_real_shell_hands_the_engine_the_same_words() -> None:
    written = write("vllm", asked(HARD, version="0.24"))
    script = 'vllm() { printf "%s\\0" "$PYTHONHASHSEED" "$@"; }\n' + command_line(written, "my model")
    shell = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True, encoding="utf-8")
    words = shell.stdout.split("\0")[:-1]
    assert words[:3] == ["0", "serve", "my model"]
    assert json.loads(words[words.index("--kv-transfer-config") + 1]) == written.config


def expanded_by_kubelet(text: str) -> str:
    """Kubernetes' expansion without any variable: ``$$`` is one dollar, everything else stays."""
    return text.replace("$$", "$")


def test_the_manifest_survives_yaml_and_the_kubelet() -> None:
    written = write("vllm", asked(HARD, version="0.24"))
    spec = yaml.safe_load(kubernetes(written, "my model"))
    container = spec["containers"][0]
    words = [expanded_by_kubelet(word) for word in container["args"]]
    assert container["command"] == ["vllm", "serve"]
    assert words[0] == "my model"
    assert json.loads(words[words.index("--kv-transfer-config") + 1]) == written.config
    assert container["env"] == [{"name": "PYTHONHASHSEED", "value": "0"}]
    assert container["volumeMounts"] == [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{64 * 1024 + 1024}Mi"}
    # What the reader finds is what the container gets.
    assert read_text(kubernetes(written, "my model"), "a test")[0].config == written.config


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40))
def test_any_directory_round_trips_through_every_form(name: str) -> None:
    written = write("vllm", asked(Directory(f"/mnt/{name}")))
    for form in FORMS.values():
        assert [item.config for item in read_text(form(written, "m"), "a test")] == [written.config]


@given(st.text(string.printable, max_size=200))
def test_a_file_of_anything_is_read_or_refused_in_a_sentence(text: str) -> None:
    for around in (text, f"vllm serve m --kv-transfer-config {text}", f"args: [{text}"):
        # Anything but a refusal in a sentence fails the test by being raised.
        with suppress(InputFileError):
            for item in read_text(around, "a test"):
                check(item, find_release(None), deployed())


CONFIG = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use": 1},
}
COMPACT = json.dumps(CONFIG, separators=(",", ":"))
SPACED = json.dumps(CONFIG, indent=1)
PLACES = {
    "json": (SPACED, None),
    "yaml": (yaml.safe_dump(CONFIG), None),
    "command": (f"vllm serve m --kv-transfer-config '{COMPACT}'", {}),
    "command over lines": (
        f"#!/bin/sh\n# it's\nvllm serve m \\\n  --kv-transfer-config \\\n  '{SPACED}' \\\n -tp 2\n", {},
    ),
    "equals": (f"vllm serve m --kv-transfer-config='{COMPACT}'", {}),
    "underscores": (f"vllm serve m --kv_transfer_config '{COMPACT}'", {}),
    "assigned": (
        f"A=1 PYTHONHASHSEED=7 vllm serve m --kv-transfer-config '{COMPACT}'", {"A": "1", "PYTHONHASHSEED": "7"},
    ),
    "exported": (f"export PYTHONHASHSEED=7\nvllm serve m --kv-transfer-config '{COMPACT}'", {"PYTHONHASHSEED": "7"}),
    "docker": (
        f"docker run --ipc host -e PYTHONHASHSEED=7 i m --kv-transfer-config '{COMPACT}'", {"PYTHONHASHSEED": "7"},
    ),
    "dotted": (
        "vllm serve m --kv-transfer-config.kv_connector OffloadingConnector --kv-transfer-config.kv_role=kv_both "
        "--kv-transfer-config.kv_connector_extra_config.cpu_bytes_to_use 1",
        {},
    ),
    "args": (yaml.safe_dump({"args": ["m", "--kv-transfer-config", COMPACT]}), {}),
    "args with equals": (yaml.safe_dump({"args": ["m", f"--kv-transfer-config={COMPACT}"]}), {}),
    "script": (
        yaml.safe_dump({"command": ["sh", "-c"], "args": [f"exec vllm serve m --kv-transfer-config '{SPACED}' --x 1"],
                        "env": [{"name": "PYTHONHASHSEED", "value": "7"}]}),
        {"PYTHONHASHSEED": "7"},
    ),
    "from elsewhere": (
        yaml.safe_dump({"args": ["--kv-transfer-config", COMPACT],
                        "env": [{"name": "PYTHONHASHSEED", "valueFrom": {"configMapKeyRef": {"name": "x"}}}]}),
        {"PYTHONHASHSEED": None},
    ),
    "envFrom": (
        yaml.safe_dump({"args": ["--kv-transfer-config", COMPACT], "envFrom": [{"configMapRef": {"name": "x"}}]}), None,
    ),
    "deployment": (
        yaml.safe_dump_all([{"kind": "Service"}, {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [
            {"name": "side", "args": ["x"]}, {"name": "vllm", "args": ["--kv-transfer-config", COMPACT]}]}}}}]),
        {},
    ),
    "vllm's own file": (yaml.safe_dump({"model": "m", "kv-transfer-config": COMPACT}), None),
    "nested values": (yaml.safe_dump({"engine": {"extra": {"kv_transfer_config": CONFIG}}}), None),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_a_configuration_is_found_where_people_keep_it(name: str) -> None:
    text, environment = PLACES[name]
    found = read_text(text, "a test")
    assert [item.config for item in found] == [CONFIG]
    assert found[0].environment == environment


def test_a_manifest_is_read_with_what_surrounds_the_container() -> None:
    container = {
        "args": ["--kv-transfer-config", COMPACT, "--tensor-parallel-size=4", "--block-size", "64"],
        "volumeMounts": [{"name": "a", "mountPath": "/dev/shm"}],
    }
    item = read_text(yaml.safe_dump({"containers": [container]}), "a test")[0]
    assert item.mounts == ("/dev/shm",)
    assert item.options["tensor-parallel-size"] == "4"
    assert item.options["block-size"] == "64"
    assert item.where == "containers[0].args"


def test_the_same_configuration_twice_is_checked_once_and_two_are_two() -> None:
    other = CONFIG | {"kv_role": "kv_producer"}
    text = yaml.safe_dump({"a": CONFIG, "args": ["--kv-transfer-config", COMPACT], "b": other})
    found = read_text(text, "a test")
    assert [item.config for item in found] == [CONFIG, other]
    assert found[0].environment == {}


def test_a_misspelt_connector_key_is_still_a_configuration() -> None:
    found = read_text('{"kv_conector": "OffloadingConnector", "kv_role": "kv_both"}', "a test")
    codes = [(one.code, one.hint) for one in check(found[0], find_release("0.32"))]
    assert ("unknown-key", "did you mean 'kv_connector'?") in codes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no --kv-transfer-config"),
        ("[]", "holds no --kv-transfer-config"),
        ('{"points": []}', "holds no --kv-transfer-config"),
        ("vllm serve m --kv-transfer-config", "nothing follows"),
        ("vllm serve m --kv-transfer-config '{bad'", "not JSON"),
        ("vllm serve m --kv-transfer-config '[]'", "no JSON object"),
        ("vllm serve m --kv-transfer-config '{", "do not close"),
        ("[" * 100_000, "nested too deeply"),
        ("vllm --kv-transfer-config.a 1 --kv-transfer-config.a.b 2", "no object"),
    ],
)
def test_a_file_without_a_configuration_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputFileError, match=words) as caught:
        read_text(text, "a test")
    assert str(caught.value).endswith(".")


def test_aliases_that_multiply_are_walked_once() -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(InputFileError):
        read_text(bomb, "a test")


def test_quotes_that_do_not_balance_elsewhere_do_not_hide_it() -> None:
    found = read_text(f"echo it's\nvllm serve m --kv-transfer-config '{COMPACT}' --port 1", "a test")
    assert [item.config for item in found] == [CONFIG]


def test_where_a_tier_is() -> None:
    variables = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:7480",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "AWS_ACCESS_KEY_ID": "id",
    }
    home = Path("/nowhere")
    assert parse_place("fs=/mnt/nvme", {}, home) == NVME
    assert parse_place("fs=nvme", {}, home) == Directory(str(Path.cwd() / "nvme"))
    assert parse_place("s3://kv/a/b/", variables, home) == BUCKET
    assert parse_place("obj=s3://kv/a/b", variables, home) == BUCKET
    assert parse_place("p2p", {}, home) == Peers()
    assert parse_place("p2p=h", {}, home) == Peers("h")
    assert parse_place("p2p=[::1]:5710", {}, home) == Peers("[::1]", 5710)


@pytest.mark.parametrize(
    "text",
    ["/mnt/nvme", "fs=", "p2p=", "p2p=h:0", "p2p=h:x", "p2p=:5", "p2p=h:70000", "s3://", "s3://id:s3cr3t@kv/a",
     "id:s3cr3t@h", "fs=/a\nb", "nvme=/mnt", "s3://kv?x=1"],
)  # fmt: skip
def test_no_tier(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_place(text, {}, Path("/nowhere"))
    assert "s3cr3t" not in str(caught.value)


def test_no_secret_is_ever_written(kvbench: Kvbench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "s3cr3t")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:7480")
    for arguments in ((), ("--json",)):
        outcome = kvbench("settings", "qwen3-8b", "--tier", "s3://kv/a", "--cpu", "64GiB", *arguments)
        assert outcome.code == 0
        assert "s3cr3t" not in outcome.out + outcome.err
        assert "127.0.0.1:7480" in outcome.out


def read_points(rates: dict[tuple[int, int], float], tier: str = "nvme") -> list[results.PointResult]:
    """Pure read points of a tier: bytes per second by size and jobs."""
    found = []
    for (size, jobs), rate in rates.items():
        side = direction(6000, rate / size, size, latency_ns=latency(jobs * size / rate * 1e9))
        name = f"{tier}-{size}-read-j{jobs}"
        found.append(point(id=name, job=name, tier=tier, io_bytes=size, numjobs=jobs, read=side))
    return found


def run_of(rates: dict[tuple[int, int], float], path: str = "/mnt/nvme") -> RunResult:
    """A run of one tier with those read points."""
    return RunResult("2026-01-02T03:04:05+00:00", (use(),), tuple(read_points(rates)), tiers={"nvme": {"path": path}})


def numbers(rates: dict[tuple[int, int], float], engine: str = "vllm", version: str | None = None) -> Numbers:
    """What such a run says for Qwen3-8B on /mnt/nvme."""
    return numbers_of(Path("run"), run_of(rates), engine, deployed(version), (NVME,))


def test_threads_are_as_many_as_read_about_as_fast_as_the_best() -> None:
    rates = {(ROW, 1): 1e9, (ROW, 4): 3.9e9, (ROW, 16): 4e9}
    found = numbers(rates)
    assert found.threads == (4,)
    reason = next(one for one in found.reasons if one.key == "secondary_tiers[0].n_read_threads")
    assert reason.value == 4
    assert "3.632 GiB/s at 4 jobs is 98%" in reason.reason
    # Without having seen the end of it the default stays the least.
    assert numbers({(ROW, 1): 1e9, (ROW, 4): 4e9}).threads == (16,)
    assert numbers({(ROW, 1): 1e9, (ROW, 32): 4e9}).threads == (32,)
    assert numbers({(ROW, 1): 1e9}).threads == (None,)
    assert any("only 1 jobs" in note for note in numbers({(ROW, 1): 1e9}).notes)


def test_threads_are_never_fewer_than_the_restores_at_once() -> None:
    rates = {1: 4e9, 4: 4e9, 16: 4e9}
    assert threads_for(rates, 1, 16) == 1
    assert threads_for(rates, 8, 16) == 8


def test_the_chunk_is_the_smallest_that_reads_about_as_fast_as_the_best() -> None:
    rates = {(ROW, 1): 1e9, (4 * ROW, 1): 1.96e9, (16 * ROW, 1): 2e9}
    found = numbers(rates)
    assert found.chunk_tokens == 64
    # 32,768 tokens are 512 chunks of 4 rows.
    assert found.cpu_bytes == 2048 * ROW
    reason = next(one for one in found.reasons if one.key == "block_size")
    assert "98% of the best of 16, 64, 256 tokens" in reason.reason
    assert numbers({(ROW, 1): 1.95e9, (4 * ROW, 1): 2e9}).chunk_tokens is None
    # The engine's own block needs no option.
    assert numbers({(ROW, 1): 1e9}).chunk_tokens is None


def test_the_load_that_decides_is_the_releases() -> None:
    # Up to 0.26 one request has 32 blocks in flight, later one.
    rates = {(ROW, 1): 1e9, (4 * ROW, 1): 2e9, (ROW, 32): 4e9, (4 * ROW, 32): 4e9}
    assert numbers(rates, version="0.26").chunk_tokens is None
    assert numbers(rates, version="0.27").chunk_tokens == 64


def test_numbers_reach_the_configuration_with_their_reasons() -> None:
    rates = {(4 * ROW, 1): 2e9, (4 * ROW, 4): 4e9, (4 * ROW, 16): 4e9}
    written = write("vllm", asked(NVME, cpu_bytes=None, numbers=numbers(rates)))
    assert extra_of(written) == {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 2048 * ROW,
        "block_size": 64,
        "secondary_tiers": [{"type": "fs", "root_dir": "/mnt/nvme", "n_read_threads": 4}],
    }
    assert [one.key for one in written.reasons] == [
        "cpu_bytes_to_use", "block_size", "secondary_tiers[0].n_read_threads",
    ]  # fmt: skip
    for one in written.reasons:
        assert any(character.isdigit() for character in one.reason)


def test_llm_d_threads_are_those_of_one_gpu() -> None:
    file_bytes = 16 * ROW
    two = replace(deployed(), sized=size_model("qwen3-8b", tp=2))
    rates = {(file_bytes // 2, 128): 4e9, (file_bytes // 2, 16): 1e9, (file_bytes // 2, 256): 4e9}
    found = numbers_of(Path("run"), run_of(rates), "llm-d", two, (NVME,))
    assert found.threads == (128,)
    written = write("llm-d", Asked(two, (NVME,), numbers=found))
    assert extra_of(written)["threads_per_gpu"] == 64
    assert [one.key for one in written.reasons] == ["block_size", "threads_per_gpu"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_reason_is_of_a_value_that_is_written(engine: str) -> None:
    sizes = {"vllm": ROW, "lmcache": 16 * ROW, "llm-d": 16 * ROW}
    rates = {(sizes[engine], jobs): 4e9 for jobs in (1, 16, 64)}
    changes: dict[str, Any] = {"cpu_bytes": None} if engine == "llm-d" else {}
    changes |= {"disk_bytes": GIB} if engine == "lmcache" else {}
    written = write(engine, asked(NVME, numbers=numbers(rates, engine), **changes))
    text = as_json(written)
    keys = [one.key for one in written.reasons]
    assert len(keys) == len(set(keys)) > 0
    for one in written.reasons:
        assert f'"{one.key.rpartition(".")[2] if "[" in one.key else one.key}": {json.dumps(one.value)}' in text


def test_a_run_that_did_not_measure_it_is_refused() -> None:
    rates = {(ROW, 1): 1e9}
    with pytest.raises(UsageError, match="units \\(2359296 bytes, 1 in flight\\)"):
        numbers({(4096, 1): 1e9})
    with pytest.raises(UsageError, match="no --tier is one"):
        numbers_of(Path("run"), run_of(rates), "vllm", deployed(), (Peers(),))
    with pytest.raises(UsageError, match="it measured /mnt/nvme"):
        numbers_of(Path("run"), run_of(rates), "vllm", deployed(), (BUCKET,))


def test_another_path_of_the_same_kind_is_taken_and_said() -> None:
    found = numbers_of(Path("run"), run_of({(ROW, 1): 1e9}), "vllm", deployed(), (Directory("/kv"),))
    assert any("as fast as /mnt/nvme" in note for note in found.notes)
    assert not any("as fast as" in note for note in numbers({(ROW, 1): 1e9}).notes)


def test_the_command_takes_a_run(kvbench: Kvbench, tmp_path: Path) -> None:
    results.save(run_of({(ROW, 1): 1e9, (ROW, 4): 4e9, (ROW, 16): 4e9}), tmp_path / "run")
    printed = kvbench(
        "settings", "qwen3-8b", "--tier", "fs=/mnt/nvme", "--run", tmp_path / "run", "--target-context", "8k", "--json"
    ).json()
    assert printed["config"]["kv_connector_extra_config"]["cpu_bytes_to_use"] == 512 * ROW
    assert printed["config"]["kv_connector_extra_config"]["secondary_tiers"][0]["n_read_threads"] == 4
    assert shlex.split(printed["command_line"])[:3] == ["vllm", "serve", "Qwen/Qwen3-8B"]
    assert set(printed) == {
        "engine", "engine_version", "model", "tp", "config", "environment", "command_line", "kubernetes", "reasons",
        "notes",
    }  # fmt: skip


def in_memory(buffers: str, factor: float = 1.0) -> RunResult:
    """A run of three rounds whose reads landed in such memory, ``factor`` times as fast."""
    run = run_of({(ROW, 1): 4e9, (ROW, 4): 4e9})
    points = tuple(
        replace(
            one,
            conditions=replace(one.conditions, buffers=buffers),
            rounds=tuple(Round(number, 5.0, 4e9 * factor * share) for number, share in enumerate((0.98, 1.0, 1.02), 1)),
        )
        for one in run.points
    )
    return replace(run, points=points)


@pytest.mark.parametrize(
    ("factor", "words", "is_told_how"), [(1.5, "reads 1.50 times as fast", True), (1.0, "cannot be told apart", False)]
)
def test_huge_pages_are_written_when_they_were_measured_to_pay(
    kvbench: Kvbench, tmp_path: Path, factor: float, words: str, is_told_how: bool
) -> None:
    results.save(in_memory("engine"), tmp_path / "small")
    results.save(in_memory("huge", factor), tmp_path / "huge")
    call = ("settings", "qwen3-8b", "--tier", "fs=/mnt/nvme", "--run", tmp_path / "small", "--target-context", "8k")
    notes = " ".join(kvbench(*call, "--huge-pages", tmp_path / "huge", "--json").json()["notes"])
    assert words in notes
    assert ("remount,huge=always /dev/shm" in notes and "hostPath" in notes) == is_told_how
    assert "huge" not in " ".join(kvbench(*call, "--json").json()["notes"])


def test_runs_that_do_not_compare_are_refused(kvbench: Kvbench, tmp_path: Path) -> None:
    results.save(in_memory("engine"), tmp_path / "small")
    call = ("settings", "qwen3-8b", "--tier", "fs=/mnt/nvme", "--target-context", "8k", "--huge-pages")
    outcome = kvbench(*call, tmp_path / "small", "--run", tmp_path / "small")
    assert (outcome.code, "no reads to compare" in outcome.err) == (2, True)
    assert kvbench(*call, tmp_path / "small", "--cpu", "64GiB").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("qwen3-8b",),
        ("qwen3-8b", "--cpu", "64GiB", "--strict"),
        ("qwen3-8b", "--cpu", "64GiB", "--form", "xml"),
        ("qwen3-8b", "--cpu", "64GiB", "--form", "json", "--json"),
        ("qwen3-8b", "--cpu", "64GiB", "--engine", "x"),
        ("qwen3-8b", "--tier", "fs=/a", "--engine", "llm-d", "--engine-version", "0.24"),
        ("qwen3-8b", "--cpu", "64GiB", "--engine-version", "9"),
        ("--check", "/nonexistent"),
        ("--check", "/"),
        ("--check", "-", "--cpu", "64GiB"),
    ],
)
def test_bad_calls_end_with_a_sentence(kvbench: Kvbench, arguments: tuple[str, ...]) -> None:
    outcome = kvbench("settings", *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("kvbench: ")
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("form", FORMS)
def test_one_form_alone_is_what_a_program_reads(kvbench: Kvbench, form: str, tmp_path: Path) -> None:
    outcome = kvbench("settings", "qwen3-8b", "--tier", "fs=/mnt/nvme", "--cpu", "64GiB", "--form", form)
    file = tmp_path / "written"
    file.write_text(outcome.out)
    checked = kvbench("settings", "qwen3-8b", "--check", file, "--strict", "--json")
    assert checked.code == 0
    assert len(checked.json()["configurations"]) == 1


def test_the_parallelism_of_a_checked_command_line_is_its_own(kvbench: Kvbench, tmp_path: Path) -> None:
    # With TP 2 in 0.24, a block of the server is as large, and 28 heads do not divide by 8.
    file = tmp_path / "serve.sh"
    file.write_text(f"PYTHONHASHSEED=0 vllm serve m --tensor-parallel-size 3 --kv-transfer-config '{COMPACT}'")
    outcome = kvbench("settings", "qwen3-8b", "--check", file)
    assert outcome.code == 2
    assert "3" in outcome.err
    assert kvbench("settings", "qwen3-8b", "--check", file, "--tp", "1").err == ""


FS_USE: dict[str, Any] = {
    "model": "Qwen/Qwen3-8B", "tp": 1, "connector": "vllm-fs", "engine_version": "0.32.0", "io_bytes": ROW,
    "parallelism_per_request": 1, "threads": 32, "engine_block_tokens": 16,
}  # fmt: skip
FACTS = {"path": "/mnt/nv me"}


def line(
    iops: float, facts: dict[str, object] | None = None, rates: dict[int, float] | None = None, **changes: Any
) -> Any:
    """The line for a tier that gives ``iops`` blocks per second, against 0.5 s of prefill for 16,384 tokens."""
    one: Use = replace(use(), **(FS_USE | changes))
    at = measured(iops, jobs=1)
    crossover = decide(one, "nvme", 1, at, at, curve(0.0, 0.5 / 16384, 0.0), Goal(16384))
    run = RunResult("", tiers={"nvme": dict(FACTS if facts is None else facts)})
    return line_of(crossover, recorded_place(run, "nvme"), rates or {})


def test_a_viable_tier_has_its_command_line() -> None:
    found = line(20_000.0, rates={1: 1e9, 4: 4e9, 16: 4e9})
    words = shlex.split(found.text)
    assert words[:4] == ["vllm", "serve", "Qwen/Qwen3-8B", "--kv-transfer-config"]
    extra = json.loads(words[4])["kv_connector_extra_config"]
    assert extra == {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 1024 * ROW,
        "secondary_tiers": [{"type": "fs", "root_dir": "/mnt/nv me", "n_read_threads": 4}],
    }
    assert (
        check(FoundSettings("x", json.loads(words[4]), {}), find_release("0.32"), deployed("0.32"))[0].code
        == "cpu-too-small"
    )


def test_the_chunk_that_was_measured_is_in_it() -> None:
    found = line(20_000.0, block_tokens=64, io_bytes=4 * ROW)
    assert '"block_size":64' in found.text
    assert "block_size" not in line(20_000.0).text
    assert "block_size" not in line(20_000.0, block_tokens=64, io_bytes=4 * ROW, engine_block_tokens=None).text


def test_an_old_release_gets_its_seed() -> None:
    assert line(20_000.0, engine_version="0.28.0").text.startswith("PYTHONHASHSEED=0 vllm serve")


@pytest.mark.parametrize(
    ("iops", "facts", "changes", "words"),
    [
        (100.0, None, {}, "never wins"),
        (20_000.0, {}, {}, "does not say where"),
        (20_000.0, {"path": "/dev/nvme0n1"}, {}, "does not say where"),
        (20_000.0, {"path": "/mnt/a\nb"}, {}, "does not say where"),
        (20_000.0, {"path": "s3://kv/a"}, {}, "does not say where"),
        (20_000.0, {"path": "s3://kv/a", "endpoint": "http://h:1"}, {"engine_version": "0.25.1"}, "writes no secret"),
        (20_000.0, None, {"connector": "logical", "engine_version": None}, "measured with the units of logical"),
        (20_000.0, None, {"engine_version": "9.9.9"}, "measured with the units"),
    ],
)
def test_a_tier_that_is_advised_against_or_not_known_has_none(
    iops: float, facts: dict[str, object] | None, changes: dict[str, Any], words: str
) -> None:
    found = line(iops, facts, **changes)
    assert found.text is None
    assert words in found.reason


def test_a_bucket_has_its_line_without_a_key() -> None:
    found = line(20_000.0, {"path": "s3://kv/a/", "endpoint": "http://127.0.0.1:7480", "region": "eu"})
    tier = json.loads(shlex.split(found.text)[-1])["kv_connector_extra_config"]["secondary_tiers"][0]
    assert tier == {
        "type": "obj",
        "store_config": {"bucket": "kv", "endpoint_override": "127.0.0.1:7480", "scheme": "http", "region": "eu"},
        "prefix": "a",
    }


def test_every_engine_and_form_is_named_in_the_help(kvbench: Kvbench) -> None:
    text = kvbench("settings", "--help").out
    assert all(name in text for name in (*ENGINES, *FORMS))
    assert as_json(write("vllm", asked())).startswith("{")


def test_a_model_in_larger_blocks_weighs_what_its_tokens_weigh() -> None:
    for name in ("qwen3-8b", "gpt-oss-120b", "deepseek-ai/DeepSeek-V2-Lite"):
        for tp, pp in ((1, 1), (2, 2)):
            assert size_model(name, tp=tp, pp=pp).in_blocks_of(64) == size_model(name, tp=tp, pp=pp, block_tokens=64)
