"""``settings --check``: what is wrong with a configuration, each kind with a near miss beside it.

What the engine itself does (``engine``) was seen with the classes of vLLM 0.32: KVTransferConfig, the specs of
v1/kv_offload and their tiers were made from these very configurations.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.engines.vllm.releases import FEATURES, RELEASES, find_release
from kvbench.layout.models import size_model
from kvbench.settings.checking import check
from kvbench.settings.finding import SettingsFinding
from kvbench.settings.fitting import Deployed
from kvbench.settings.keys import (
    EXTRA,
    FS,
    LLMD,
    LLMD_MODULE,
    LLMD_SPEC,
    LMCACHE,
    OBJ,
    OFFLOADING,
    SCOPES,
    SIMPLE,
    STORE,
    TIERS,
    TRANSFER,
    Key,
    Kind,
    Scope,
)
from kvbench.settings.reading import FoundSettings
from tests.conftest import Outcome

Config = dict[str, Any]
Kvbench = Callable[..., Outcome]

MIB = 1 << 20
TIERING = "TieringOffloadingSpec"
FS_TIER: Config = {"type": "fs", "root_dir": "/mnt/kv"}
OBJ_TIER: Config = {"type": "obj", "store_config": {"bucket": "kv", "endpoint_override": "127.0.0.1:7480"}}
DETECTOR: Config = {"backpressure_cls": "EMABackpressureDetector"}


def transfer(extra: Config | None = None, connector: str = "OffloadingConnector", **top: Any) -> Config:
    """A whole configuration around ``extra``."""
    return {"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra or {}, **top}


def cpu(**extra: Any) -> Config:
    """A CPU tier alone."""
    return transfer({"cpu_bytes_to_use": MIB, **extra})


def tiering(*tiers: Any, **extra: Any) -> Config:
    """Secondary tiers below a CPU tier."""
    return transfer({"spec_name": TIERING, "cpu_bytes_to_use": MIB, "secondary_tiers": list(tiers), **extra})


def fs(**keys: Any) -> Config:
    """One tier of type fs."""
    return tiering({**FS_TIER, **keys})


def found(config: Config, **around: Any) -> FoundSettings:
    """The configuration as it stands in a file."""
    return FoundSettings("a test", config, **around)


def findings(
    config: Config, version: str = "0.32", deployed: Deployed | None = None, **around: Any
) -> list[SettingsFinding]:
    """What is wrong with it, notes left out."""
    every = check(found(config, **around), find_release(version), deployed)
    return [finding for finding in every if finding.severity != "note"]


def told(config: Config, version: str = "0.32") -> list[tuple[str, str, str]]:
    """Code, last part of the path, and what the engine does."""
    return [(one.code, one.where.rpartition(".")[2], one.engine) for one in findings(config, version)]


RIGHT: dict[str, Config] = {
    "cpu": cpu(),
    "fs": tiering(FS_TIER),
    "obj": tiering(OBJ_TIER),
    "several in order": tiering(FS_TIER, {**FS_TIER, "root_dir": "/mnt/other"}, OBJ_TIER, {"type": "p2p"}),
    "a port as text": cpu() | {"kv_port": "14579"},
    "bytes as text": transfer({"cpu_bytes_to_use": "1048576"}),
    "whole float": transfer({"cpu_bytes_to_use": 1048576.0}),
    "arc": cpu(eviction_policy="arc"),
    "threshold of one": tiering(FS_TIER, store_threshold=1),
    "threshold without tiers": cpu(store_threshold=2),
    "no read threads": fs(n_read_threads=0),
    "locality": fs(locality="REMOTE"),
    "backpressure": fs(backpressure=DETECTOR),
    "common backpressure": tiering(FS_TIER, backpressure=DETECTOR),
    "half of the backpressure in each place": tiering({**FS_TIER, "backpressure": {"alpha": 1}}, backpressure=DETECTOR),
    "described events": tiering(FS_TIER, self_describing_kv_events=True),
    "chunk": cpu(blocks_per_chunk=4),
    "null is unset": cpu(block_size=None),
    "an example tier": tiering({"type": "example", "custom_param": 3}),
    "simple disk": transfer({"kv_offload_backend": "disk", "disk_path": "/mnt"}, "SimpleCPUOffloadConnector"),
    "lmcache": transfer(
        {"lmcache.local_disk": "file:///mnt/", "lmcache.max_local_disk_size": "10", "lmcache.local_cpu": "True"},
        "LMCacheConnectorV1",
    ),
    "llm-d": transfer(
        {"spec_name": LLMD_SPEC, "spec_module_path": LLMD_MODULE, "shared_storage_path": "/mnt", "threads_per_gpu": "9"}
    ),
    "several connectors": transfer({"connectors": [cpu(), {"kv_connector": "NixlConnector", "kv_role": "kv_both"}]},
                                   "MultiConnector"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_configuration_has_no_finding(name: str) -> None:
    assert findings(RIGHT[name]) == []


WRONG: dict[str, tuple[Config, list[tuple[str, str, str]]]] = {
    "unknown on top": (cpu() | {"extra": 1}, [("unknown-key", "extra", "refuses")]),
    "gone key": (cpu() | {"kv_rank": 0}, [("other-release", "kv_rank", "refuses")]),
    "bad role": (cpu() | {"kv_role": "both"}, [("wrong-value", "kv_role", "refuses")]),
    "no role": (
        {key: value for key, value in cpu().items() if key != "kv_role"}, [("missing-key", "kv_role", "refuses")],
    ),
    "port in words": (cpu() | {"kv_port": "x"}, [("wrong-type", "kv_port", "refuses")]),
    "bad policy": (
        cpu() | {"kv_load_failure_policy": "ignore"}, [("wrong-value", "kv_load_failure_policy", "refuses")],
    ),
    "permute": (cpu() | {"enable_permute_local_kv": "maybe"}, [("wrong-type", "enable_permute_local_kv", "refuses")]),
    "extra is a list": (
        cpu() | {"kv_connector_extra_config": []}, [("wrong-type", "kv_connector_extra_config", "refuses")],
    ),
    "connector misspelt": (transfer({}, "OffloadConnector"), [("wrong-value", "kv_connector", "refuses")]),
    "no bytes": (transfer({}), [("missing-key", "cpu_bytes_to_use", "refuses")]),
    "zero bytes": (transfer({"cpu_bytes_to_use": 0}), [("wrong-value", "cpu_bytes_to_use", "refuses")]),
    "negative bytes": (transfer({"cpu_bytes_to_use": -5}), [("wrong-value", "cpu_bytes_to_use", "refuses")]),
    "bytes with a unit": (transfer({"cpu_bytes_to_use": "64GiB"}), [("wrong-type", "cpu_bytes_to_use", "refuses")]),
    "bytes of a page": (tiering(FS_TIER, cpu_bytes_to_use=1000), [("cpu-too-small", "cpu_bytes_to_use", "refuses")]),
    "extra key": (cpu(cpu_bytes=1), [("unknown-key", "cpu_bytes", "ignores")]),
    "tiers without the spec": (cpu(secondary_tiers=[{"type": "?"}]), [("ignored-key", "secondary_tiers", "ignores")]),
    "spec misspelt": (cpu(spec_name="TieringOffloadSpec"), [("wrong-value", "spec_name", "refuses")]),
    "bad eviction": (cpu(eviction_policy="mru"), [("wrong-value", "eviction_policy", "refuses")]),
    "threshold of two": (tiering(FS_TIER, store_threshold=2), [("contradiction", "store_threshold", "refuses")]),
    "threshold in words": (cpu(store_threshold="x"), [("wrong-type", "store_threshold", "refuses")]),
    "two chunks": (cpu(block_size=64, blocks_per_chunk=4), [("contradiction", "blocks_per_chunk", "refuses")]),
    "tiers as an object": (
        transfer({"spec_name": TIERING, "cpu_bytes_to_use": MIB, "secondary_tiers": {}}),
        [("wrong-type", "secondary_tiers", "refuses")],
    ),
    "tiers as text": (tiering("fs"), [("wrong-type", "secondary_tiers", "refuses")]),
    "no tiers": (tiering(), [("no-tier", "secondary_tiers", "accepts")]),
    "tier without type": (tiering({"root_dir": "/mnt"}), [("missing-key", "type", "refuses")]),
    "tier of no type": (tiering({"type": "fss", "root_dir": "/mnt"}), [("wrong-value", "type", "refuses")]),
    "fs without root": (tiering({"type": "fs"}), [("missing-key", "root_dir", "refuses")]),
    "fs misspelt": (fs(n_read_thread=4), [("unknown-key", "n_read_thread", "refuses")]),
    "threads as text": (fs(n_read_threads="16"), [("wrong-type", "n_read_threads", "refuses")]),
    "threads as float": (fs(n_read_threads=16.0), [("wrong-type", "n_read_threads", "refuses")]),
    "threads as bool": (fs(n_read_threads=True), [("wrong-type", "n_read_threads", "accepts")]),
    "root as number": (fs(root_dir=5), [("wrong-type", "root_dir", "accepts")]),
    "root with tilde": (fs(root_dir="~/kv"), [("wrong-value", "root_dir", "accepts")]),
    "root relative": (fs(root_dir="kv"), [("relative-path", "root_dir", "accepts")]),
    "root twice": (tiering(FS_TIER, {**FS_TIER, "root_dir": "/mnt/kv/"}), [("twice", "root_dir", "accepts")]),
    "no thread at all": (fs(n_read_threads=0, n_write_threads=0), [("wrong-value", "n_read_threads", "accepts")]),
    "chunk of nothing": (cpu(block_size=0), [("wrong-value", "block_size", "refuses")]),
    "no block in a chunk": (cpu(blocks_per_chunk=0), [("wrong-value", "blocks_per_chunk", "refuses")]),
    "locality in small": (fs(locality="local"), [("wrong-value", "locality", "refuses")]),
    "events as text": (fs(enable_kv_events="false"), [("wrong-type", "enable_kv_events", "accepts")]),
    "backpressure without class": (fs(backpressure={}), [("missing-key", "backpressure_cls", "refuses")]),
    "backpressure misspelt": (fs(backpressure=DETECTOR | {"alfa": 1}), [("unknown-key", "alfa", "refuses")]),
    "alpha": (fs(backpressure=DETECTOR | {"alpha": 2}), [("wrong-value", "alpha", "refuses")]),
    "water": (
        fs(backpressure=DETECTOR | {"low_water_s": 2, "high_water_s": 1}),
        [("contradiction", "low_water_s", "refuses")],
    ),
    "p2p misspelt": (tiering({"type": "p2p", "prot": 1}), [("unknown-key", "prot", "ignores")]),
    "p2p with backpressure": (
        tiering({"type": "p2p"}, backpressure=DETECTOR), [("contradiction", "backpressure", "refuses")],
    ),
    "example misspelt": (tiering({"type": "example", "x": 1}), [("unknown-key", "x", "refuses")]),
    "obj without endpoint": (
        tiering({"type": "obj", "store_config": {"bucket": "kv"}}), [("missing-key", "endpoint_override", "refuses")],
    ),
    "prompt only as text": (cpu(offload_prompt_only="false"), [("wrong-type", "offload_prompt_only", "accepts")]),
    "disk without path": (
        transfer({"kv_offload_backend": "disk"}, "SimpleCPUOffloadConnector"),
        [("missing-key", "disk_path", "refuses")],
    ),
    "disk keys without disk": (
        transfer({"disk_path": "/mnt"}, "SimpleCPUOffloadConnector"), [("ignored-key", "disk_path", "ignores")],
    ),
    "lmcache disk without size": (
        transfer({"lmcache.local_disk": "/mnt"}, "LMCacheConnectorV1"),
        [("missing-key", "max_local_disk_size", "ignores")],
    ),
    "lmcache misspelt": (
        transfer({"lmcache.chunksize": 256}, "LMCacheConnectorV1"), [("unknown-key", "chunksize", "ignores")],
    ),
    "lmcache in words": (
        transfer({"lmcache.chunk_size": "big"}, "LMCacheConnectorV1"), [("wrong-type", "chunk_size", "ignores")],
    ),
    "llm-d without module": (
        transfer({"spec_name": LLMD_SPEC, "shared_storage_path": "/mnt"}),
        [("missing-key", "spec_module_path", "refuses")],
    ),
    "a child": (
        transfer({"connectors": [cpu(), cpu(cpu_byte=1)]}, "MultiConnector"), [("unknown-key", "cpu_byte", "ignores")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_has_exactly_that_finding(name: str) -> None:
    config, expected = WRONG[name]
    assert told(config) == expected


def engine_rows() -> dict[str, tuple[Config, str]]:
    """One change each to a working configuration, and what the running engine (0.32, CPU platform) did with it.

    Left out is what a file cannot show: more bytes than /dev/shm has, a folder that cannot be made, a missing package.
    """
    return {
        "as it is": (tiering(FS_TIER), "starts"),
        "no cpu_bytes_to_use": (transfer({"spec_name": TIERING, "secondary_tiers": [FS_TIER]}), "refuses"),
        "cpu_bytes_to_use 0": (tiering(FS_TIER, cpu_bytes_to_use=0), "refuses"),
        "cpu_bytes_to_use -1": (tiering(FS_TIER, cpu_bytes_to_use=-1), "refuses"),
        "cpu_bytes_to_use 16MiB": (tiering(FS_TIER, cpu_bytes_to_use="16MiB"), "refuses"),
        "cpu_bytes_to_use as text": (tiering(FS_TIER, cpu_bytes_to_use="16777216"), "starts"),
        "cpu_bytes_to_use as float": (tiering(FS_TIER, cpu_bytes_to_use=16777216.0), "starts"),
        "block_size of four blocks": (tiering(FS_TIER, block_size=128), "starts"),
        "block_size as text": (tiering(FS_TIER, block_size="128"), "starts"),
        "block_size 0": (tiering(FS_TIER, block_size=0), "refuses"),
        "blocks_per_chunk 4": (tiering(FS_TIER, blocks_per_chunk=4), "starts"),
        "blocks_per_chunk 0": (tiering(FS_TIER, blocks_per_chunk=0), "refuses"),
        "both": (tiering(FS_TIER, block_size=128, blocks_per_chunk=4), "refuses"),
        "arc": (tiering(FS_TIER, eviction_policy="arc"), "starts"),
        "fifo": (tiering(FS_TIER, eviction_policy="fifo"), "refuses"),
        "store_threshold 2": (tiering(FS_TIER, store_threshold=2), "refuses"),
        "unknown extra key": (tiering(FS_TIER, colour="red"), "ignores"),
        "unknown spec": (tiering(FS_TIER, spec_name="TieredSpec"), "refuses"),
        "described events": (tiering(FS_TIER, self_describing_kv_events=True), "starts"),
        "canonical layout": (tiering(FS_TIER, canonical_layout=True), "starts"),
        "tiers an object": (tiering(FS_TIER) | transfer({"spec_name": TIERING, "cpu_bytes_to_use": MIB,
                                                         "secondary_tiers": {}}), "refuses"),
        "tier a text": (tiering("fs"), "refuses"),
        "tier without type": (tiering({"root_dir": "/mnt"}), "refuses"),
        "tier of unknown type": (tiering({"type": "nvme", "root_dir": "/mnt"}), "refuses"),
        "two fs tiers": (tiering(FS_TIER, {**FS_TIER, "root_dir": "/mnt/b"}), "starts"),
        "fs without root_dir": (tiering({"type": "fs"}), "refuses"),
        "fs with an unknown key": (fs(n_threads=4), "refuses"),
        "threads as text": (fs(n_read_threads="8"), "refuses"),
        "no thread": (fs(n_read_threads=0, n_write_threads=0), "hangs"),
        "locality in small letters": (fs(locality="remote"), "refuses"),
        "backpressure without class": (fs(backpressure={}), "refuses"),
        "no kv_role": ({key: value for key, value in tiering(FS_TIER).items() if key != "kv_role"}, "refuses"),
        "kv_role both": (tiering(FS_TIER) | {"kv_role": "both"}, "refuses"),
        "unknown connector": (tiering(FS_TIER) | {"kv_connector": "OffloadConnector"}, "refuses"),
        "unknown key beside kv_role": (tiering(FS_TIER) | {"kv_roles": 1}, "refuses"),
        "cpu_bytes_to_use beside kv_role": (tiering(FS_TIER) | {"cpu_bytes_to_use": 1}, "refuses"),
        "kv_load_failure_policy retry": (tiering(FS_TIER) | {"kv_load_failure_policy": "retry"}, "refuses"),
    }  # fmt: skip


@pytest.mark.parametrize("name", engine_rows())
def test_what_the_running_engine_refused_is_refused_and_what_it_took_is_not(name: str) -> None:
    config, outcome = engine_rows()[name]
    every = findings(config)
    if outcome == "starts":
        assert every == []
    else:
        assert all(one.severity == "error" for one in every)
        assert {one.engine for one in every} == {"accepts" if outcome == "hangs" else outcome}


def test_a_chunk_that_the_running_engine_refused() -> None:
    # It ran with blocks of 32 tokens: "must be a multiple of the GPU KV cache block size (32 tokens). Use 64 instead".
    refused = findings(roomy(block_size=48), "0.32", QWEN, options={"block-size": "32"})
    assert [(one.code, one.engine, one.hint) for one in refused] == [("chunk", "refuses", "give 64")]


def test_every_finding_ends_with_what_to_do() -> None:
    for config, _ in WRONG.values():
        for finding in findings(config):
            assert finding.message
            assert finding.hint
            assert "\n" not in finding.message + finding.hint + finding.where


VALUES: dict[Kind, list[Any]] = {
    "any": [1, "x", None],
    "text": ["x"],
    "path": ["/x"],
    "whole": [3],
    "count": [3, "3", 3.0],
    "number": [3, 0.5, "0.5"],
    "real": [3, 0.5],
    "flag": [True, False, 1],
    "switch": [True, "true", "False"],
    "mapping": [{}],
    "tiers": [[]],
    "texts": [["x"]],
    "wholes": [[1]],
    "configs": [[]],
}
BAD_VALUES: dict[Kind, list[Any]] = {
    "text": [3, []],
    "path": [3, {}],
    "whole": ["3", 3.0, True, []],
    "count": ["3GiB", 3.5, True, float("nan"), float("inf"), {}],
    "number": ["fast", True, []],
    "real": ["0.5", True, []],
    "flag": ["true", 2, []],
    "switch": ["yes", 2, []],
    "mapping": ["{}", [], 3],
    "tiers": [{}, ["fs"], "fs"],
    "texts": ["x", [1], {}],
    "wholes": [3, ["3"], [True]],
    "configs": [{}, ["x"]],
}
SCOPED = [(scope, key) for scope in SCOPES for key in scope.keys.values()]


def placed(scope: Scope, key: Key, value: Any) -> tuple[Config, str]:
    """A configuration with the key set in its place, all else right, and a release that knows it."""
    version = next(version for version in reversed(RELEASES) if key.known_in(find_release(version)))
    if scope is TRANSFER:
        return cpu() | {key.name: value}, version
    if scope in TIERS.values():
        kind = next(kind for kind, other in TIERS.items() if other is scope)
        needs = {"fs": FS_TIER, "obj": OBJ_TIER, "kvcr": {"router_capabilities": ["x"], "control_ports": [1]}}
        return tiering({"type": kind, **needs.get(kind, {}), key.name: value}), version
    if scope is STORE:
        return tiering({"type": "obj", "store_config": OBJ_TIER["store_config"] | {key.name: value}}), version
    if scope.name.startswith("backpressure"):
        return fs(backpressure=DETECTOR | {key.name: value}), version
    if scope is LLMD:
        return transfer({"spec_name": LLMD_SPEC, "spec_module_path": LLMD_MODULE, key.name: value}), version
    connector = next(name for name, other in EXTRA.items() if other is scope)
    return transfer({"cpu_bytes_to_use": MIB} if scope is OFFLOADING else {}, connector) | {
        "kv_connector_extra_config": {**({"cpu_bytes_to_use": MIB} if scope is OFFLOADING else {}), key.name: value}
    }, version


@pytest.mark.parametrize(("scope", "key"), SCOPED, ids=[f"{scope.name}: {key.name}" for scope, key in SCOPED])
def test_every_known_key_takes_its_kind_and_no_other(scope: Scope, key: Key) -> None:
    about_kind = ("unknown-key", "wrong-type", "other-release")
    for value in VALUES[key.kind]:
        config, version = placed(scope, key, value)
        codes = [one.code for one in findings(config, version) if one.where.endswith(key.name)]
        assert not set(codes) & set(about_kind), (value, codes)
    if key.name in ("spec_name", "type", "kv_connector"):
        # Another name of these is another configuration.
        return
    for value in BAD_VALUES.get(key.kind, []):
        config, version = placed(scope, key, value)
        codes = [one.code for one in findings(config, version) if one.where.endswith(key.name)]
        assert "wrong-type" in codes, value


@pytest.mark.parametrize(("scope", "key"), SCOPED, ids=[f"{scope.name}: {key.name}" for scope, key in SCOPED])
def test_a_typo_of_every_key_is_named_with_the_key(scope: Scope, key: Key) -> None:
    if key.name in ("spec_name", "type", "kv_connector", "backend", "host", "port", "g3") or key.until is not None:
        # Without its name it is another configuration, or too short for a typo to be told from another word.
        return
    typo = key.name[:-2] + key.name[-1] + key.name[-2]
    if typo == key.name:
        typo = key.name + "x"
    config, version = placed(scope, Key(typo, key.kind, since=key.since), VALUES[key.kind][0])
    one = next(one for one in findings(config, version) if one.code == "unknown-key")
    assert one.where.endswith(typo)
    assert one.hint == f"did you mean {key.name!r}?"


@pytest.mark.parametrize(
    ("config", "place"),
    [
        (cpu() | {"cpu_bytes_to_use": 1}, OFFLOADING.name),
        (cpu(n_read_threads=4), FS.name),
        (cpu(store_config={}), OBJ.name),
        (tiering(FS_TIER, kv_role="kv_both"), TRANSFER.name),
        (fs(disk_path="/mnt"), SIMPLE.name),
        (cpu(**{"lmcache.chunk_size": 256}), LMCACHE.name),
    ],
)
def test_a_key_in_the_wrong_place_is_told_its_place(config: Config, place: str) -> None:
    unknown = [one for one in findings(config) if one.code == "unknown-key"]
    assert [one.hint for one in unknown] == [f"it belongs into {place}"]


DATED = [(scope, key) for scope, key in SCOPED if key.since or key.until]


@pytest.mark.parametrize(("scope", "key"), DATED, ids=[f"{scope.name}: {key.name}" for scope, key in DATED])
def test_a_dated_key_is_known_from_its_release_on(scope: Scope, key: Key) -> None:
    since = FEATURES[key.since or key.until or ""].since
    before = RELEASES[RELEASES.index(since) - 1]
    unread, read = (before, since) if key.since else (since, before)
    config, _ = placed(scope, key, VALUES[key.kind][0])
    codes = {version: [one.code for one in findings(config, version) if one.where.endswith(key.name)]
             for version in (unread, read)}  # fmt: skip
    if scope is TIERS["kvcr"] or (scope is TIERS["p2p"] and key.since == "p2p-tier"):
        return
    assert "other-release" in codes[unread]
    assert "other-release" not in codes[read]


@pytest.mark.parametrize(("kind", "since"), [("p2p", "0.25.0"), ("kvcr", "0.30.0")])
def test_a_tier_that_the_release_lacks(kind: str, since: str) -> None:
    config = tiering(
        {"type": kind, "router_capabilities": [], "control_ports": [1]} if kind == "kvcr" else {"type": kind}
    )
    before = RELEASES[RELEASES.index(since) - 1]
    assert told(config, before) == [("other-release", "type", "refuses")]
    assert since in findings(config, before)[0].message
    assert told(config, since) == []


def test_before_0_26_an_object_store_needs_its_keys_in_the_file() -> None:
    assert [part for _, part, _ in told(tiering(OBJ_TIER), "0.25")] == ["access_key", "secret_key"]
    assert told(tiering(OBJ_TIER), "0.26") == []


def test_events_that_describe_themselves_are_refused_below_tiers_before_0_27() -> None:
    config = tiering(FS_TIER, self_describing_kv_events=True)
    assert told(config, "0.26") == [("other-release", "self_describing_kv_events", "refuses")]
    assert told(cpu(self_describing_kv_events=True), "0.26") == []


def test_a_secret_is_told_and_never_printed(kvbench: Kvbench, tmp_path: Path) -> None:
    store = OBJ_TIER["store_config"] | {
        "secret_key": "s3cr3t-one",
        "access_key": ["s3cr3t-two"],
        "sekret": "s3cr3t-three",
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(tiering({"type": "obj", "store_config": store})))
    for arguments in ((), ("--json",)):
        outcome = kvbench("settings", "--check", file, *arguments)
        assert outcome.code == 2
        assert "secret_key" in outcome.out
        assert "s3cr3t" not in outcome.out + outcome.err


def test_what_cannot_be_known_is_a_note_and_no_fault() -> None:
    own = tiering(FS_TIER, spec_name="HostTiering", spec_module_path="host_offload", colour="red")
    every = check(found(own), find_release("0.32"))
    assert [(one.code, one.severity) for one in every] == [("unchecked", "note"), ("no-eviction", "note")]
    nixl = transfer({"backends": ["UCX"]}, "NixlConnector")
    assert [one.code for one in check(found(nixl), find_release("0.32"))] == ["unchecked"]
    assert told(transfer({"x": 1}, "Mine", kv_connector_module_path="mine")) == []
    # Its tiers are vLLM's all the same.
    assert told(tiering({"type": "fs"}, spec_name="HostTiering", spec_module_path="host_offload")) == [
        ("missing-key", "root_dir", "refuses")
    ]


@pytest.mark.parametrize(
    ("config", "version", "around", "severities"),
    [
        (tiering(FS_TIER), "0.28", {}, ["note"]),
        (tiering(FS_TIER), "0.28", {"environment": {}}, ["warning"]),
        (tiering(FS_TIER), "0.28", {"environment": {"PYTHONHASHSEED": "0"}}, []),
        (tiering(FS_TIER), "0.28", {"environment": {"PYTHONHASHSEED": None}}, []),
        (tiering(FS_TIER), "0.29", {"environment": {}}, []),
        (cpu(), "0.28", {"environment": {}}, []),
        (
            tiering(FS_TIER),
            "0.29",
            {"environment": {}, "options": {"prefix-caching-hash-algo": "xxhash"}},
            ["warning"],
        ),
        (tiering(FS_TIER), "0.29", {"environment": {}, "options": {"prefix-caching-hash-algo": "sha256"}}, []),
        (RIGHT["llm-d"], "0.32", {"environment": {}}, ["warning"]),
        (
            transfer({"lmcache.remote_url": "redis://h"}, "LMCacheConnectorV1"),
            "0.32",
            {"environment": {}},
            ["warning"],
        ),
    ],
)
def test_the_hash_seed_that_a_shared_cache_needs(
    config: Config, version: str, around: Config, severities: list[str]
) -> None:
    every = check(found(config, **around), find_release(version))
    assert [one.severity for one in every if one.code == "hash-seed"] == severities


def test_files_that_nobody_deletes_are_noted() -> None:
    def codes(config: Config) -> list[str]:
        return [one.code for one in check(found(config), find_release("0.32"))]

    assert codes(tiering(FS_TIER)) == ["no-eviction"]
    assert codes(RIGHT["llm-d"]) == ["hash-seed", "no-eviction"]
    assert codes(tiering(OBJ_TIER)) == []


def test_a_container_needs_shared_memory_for_its_cpu_tier() -> None:
    def codes(**around: Any) -> list[str]:
        return [one.code for one in findings(tiering(FS_TIER), **around)]

    assert codes(mounts=("/data",)) == ["shared-memory"]
    assert codes(mounts=("/data", "/dev/shm/")) == []
    assert codes() == []


QWEN = Deployed(size_model("qwen3-8b"), find_release("0.32"))
GIB = 1 << 30


def contradictions(config: Config, deployed: Deployed = QWEN, **around: Any) -> list[tuple[str, str, str]]:
    """Code, last part of the path and hint of what contradicts the layout."""
    version = deployed.release.version
    found_ = findings(config, version, deployed, **around)
    return [(one.code, one.where.rpartition(".")[2], one.hint) for one in found_]


def roomy(**extra: Any) -> Config:
    """A fs tier below a CPU tier that is large enough."""
    return tiering(FS_TIER, **{"cpu_bytes_to_use": 64 * GIB, **extra})


def test_a_chunk_is_a_multiple_of_the_gpu_block() -> None:
    assert contradictions(roomy(block_size=100)) == [("chunk", "block_size", "give 112")]
    assert contradictions(roomy(block_size=112)) == []
    # The engine's own --block-size decides where the command line shows it.
    options = {"block-size": "64"}
    assert contradictions(roomy(block_size=112), options=options) == [("chunk", "block_size", "give 128")]
    assert contradictions(roomy(block_size=128), options=options) == []


def test_without_a_model_nothing_is_held_against_a_layout() -> None:
    assert findings(roomy(block_size=100)) == []


def test_the_cpu_tier_holds_the_promotions_in_flight() -> None:
    # 32,768 tokens are 2,048 blocks of 2,359,296 bytes.
    needed = 2048 * 2_359_296
    assert contradictions(roomy(cpu_bytes_to_use=needed)) == []
    assert contradictions(roomy(cpu_bytes_to_use=needed - 1)) == [
        ("cpu-too-small", "cpu_bytes_to_use", f"give {needed} or more")
    ]
    # A CPU tier alone promotes nothing.
    assert contradictions(transfer({"cpu_bytes_to_use": needed - 1})) == []


def test_two_restores_at_once_need_twice_the_room() -> None:
    twice = Deployed(QWEN.sized, QWEN.release, restores=2)
    needed = 2 * 2048 * 2_359_296
    assert contradictions(roomy(cpu_bytes_to_use=needed), twice) == []
    assert contradictions(roomy(cpu_bytes_to_use=needed - 1), twice)[0][2] == f"give {needed} or more"


def test_a_cpu_tier_smaller_than_one_chunk_keeps_nothing() -> None:
    small = transfer({"cpu_bytes_to_use": 4 * 2_359_296 - 1, "blocks_per_chunk": 4})
    assert contradictions(small) == [("cpu-too-small", "cpu_bytes_to_use", f"give {4 * 2_359_296} or more")]
    assert contradictions(transfer({"cpu_bytes_to_use": 4 * 2_359_296, "blocks_per_chunk": 4})) == []


def test_slots_of_a_disk_that_o_direct_does_not_take() -> None:
    def disk(**extra: Any) -> Config:
        return transfer({"kv_offload_backend": "disk", "disk_path": "/mnt", **extra}, "SimpleCPUOffloadConnector")

    # The latent of DeepSeek-V2-Lite: 497,664 bytes for 16 tokens, which 4096 does not divide.
    unaligned = Deployed(size_model("deepseek-ai/DeepSeek-V2-Lite"), find_release("0.32"))
    assert [code for code, _, _ in contradictions(disk(), unaligned)] == ["unaligned"]
    assert contradictions(disk(use_page_cache=True), unaligned) == []
    assert contradictions(disk()) == []


def test_a_model_whose_layout_is_not_known_is_said_and_not_guessed() -> None:
    tp8 = Deployed(size_model("qwen3-8b", pp=5), find_release("0.32"))
    config = RIGHT["llm-d"]
    assert [code for code, _, _ in contradictions(config, tp8)] == ["layout-unknown"]


def test_the_exit_code_is_a_linters(kvbench: Kvbench, tmp_path: Path) -> None:
    def code(config: Config, *arguments: str) -> int:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return kvbench("settings", "--check", file, *arguments).code

    assert code(tiering(FS_TIER)) == code(tiering(FS_TIER), "--strict") == 0
    assert code(fs(root_dir="kv")) == 0
    assert code(fs(root_dir="kv"), "--strict") == 3
    assert code(fs(n_read_thread=4)) == code(fs(n_read_thread=4), "--strict") == 2


@pytest.mark.parametrize("odd", [["fs"], {"fs": 1}, 3, None, True, "", [[]]], ids=repr)
def test_a_tier_whose_type_is_no_text_is_an_error_and_no_traceback(
    kvbench: Kvbench, tmp_path: Path, odd: object
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(fs(type=odd)))
    outcome = kvbench("settings", "qwen3-8b", "--check", file)
    assert outcome.code == 2
    assert "type" in outcome.out


def test_the_json_names_every_finding(kvbench: Kvbench, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(fs(n_read_thread=4)))
    printed = kvbench("settings", "qwen3-8b", "--check", file, "--engine-version", "0.32", "--json").json()
    assert printed["engine_version"] == "0.32.0"
    assert printed["model"] == "Qwen/Qwen3-8B"
    assert (printed["errors"], printed["warnings"], printed["notes"]) == (2, 0, 1)
    first = printed["configurations"][0]
    assert first["connector"] == "OffloadingConnector"
    assert [one["code"] for one in first["findings"]] == ["unknown-key", "cpu-too-small", "no-eviction"]
    assert set(first["findings"][0]) == {"severity", "code", "where", "message", "hint", "engine"}
