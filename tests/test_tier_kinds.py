"""Kinds of tiers say for themselves what the rest of the program wants to know; a new one is a module and a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kvbench as package
from kvbench.decide.advice import is_shared, which_tier
from kvbench.drivers.registry import PROGRAMS, driver_choice
from kvbench.errors import TierError
from kvbench.record import results
from kvbench.record.results import RunResult, TierTraits
from kvbench.tiers import consent, directory, kinds
from kvbench.tiers.block import BlockDevice
from kvbench.tiers.device_tier import DeviceTier
from kvbench.tiers.directory import DirectoryTier, Workspace
from kvbench.tiers.findings import Diagnosis, Finding
from kvbench.tiers.mounts import Mount
from kvbench.tiers.removal import Kept
from kvbench.tiers.tier import Cleaning, DriverFindings, Kind, Ordinary, Tier
from tests.conftest import FakeFio, Outcome
from tests.test_advice import decided

Kvbench = Callable[..., Outcome]

DEVICE = DeviceTier("disk", BlockDevice(Path("/dev/x"), "x", 1 << 30, 512, 512, None, read_only=False), "8:0", False)


def on(filesystem: str, source: str) -> DirectoryTier:
    """A directory on such a mount."""
    return DirectoryTier("t", Path("/t"), Mount("/t", filesystem, source, "rw", "0:39"), 1 << 40)


def bucket(monkeypatch: pytest.MonkeyPatch) -> Tier:
    """A real S3 tier; nothing is requested."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return kinds.inspect("s3", "s3://bucket/prefix")


def as_recorded(tiers: Mapping[str, Tier], *, old: bool) -> RunResult:
    """A run with what these tiers say of themselves; an old one kept only what is for people."""
    traits = {} if old else {name: TierTraits(tier.shared) for name, tier in tiers.items()}
    return RunResult("", tiers={name: dict(tier.facts()) for name, tier in tiers.items()}, tier_traits=traits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filesystem", "source", "shared"),
    [
        ("ext4", "/dev/vda", False),
        ("gfs2", "/dev/mapper/shared", True),
        ("zfs", "pool/kv", False),
        ("tmpfs", "tmpfs", False),
        ("overlay", "overlay", False),
        ("nfs4", "server:/kv", True),
        ("ceph", "10.0.0.1:/", True),
        ("lustre", "10.0.0.1@tcp:/fs", True),
        ("fuse.ceph-fuse", "ceph-fuse", True),
        ("fuse.juicefs", "JuiceFS:kv", True),
        ("fuse", "mountpoint-s3", True),
        ("fuseblk", "/dev/sdb1", False),
        ("fuse.somebodys", "program", None),
        ("virtiofs", "share", None),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_a_directory_is_shared_as_its_file_system_is(
    filesystem: str, source: str, shared: bool | None, old: bool
) -> None:
    assert is_shared(as_recorded({"t": on(filesystem, source)}, old=old), "t") is shared


@pytest.mark.parametrize("old", [False, True])
def test_what_is_no_directory_says_it_too(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers = {"s3": bucket(monkeypatch), "memory": kinds.inspect("memory", "dram"), "disk": DEVICE}
    run = as_recorded(tiers, old=old)
    assert [is_shared(run, name) for name in ("s3", "memory", "disk", "elsewhere")] == [True, False, False, None]


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_a_bucket_is_for_many_nodes_and_no_choice_for_one(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers = {"s3": bucket(monkeypatch), "nvme": on("xfs", "/dev/nvme0n1")}
    # The bucket is the quicker one, so that only what it is keeps it from being the node's own.
    rates = {"s3": 40_000.0, "nvme": 20_000.0}

    def advice(*names: str) -> list[str]:
        run = as_recorded({name: tiers[name] for name in names}, old=old)
        shared = {name: is_shared(run, name) for name in names}
        return which_tier([decided(name, rates[name]) for name in names], shared)

    one, several = advice("s3", "nvme")
    assert one.startswith("One node: nvme, which restores ")
    assert several.startswith("Pods that move and several replicas: s3, since all of them can read it")
    (alone,) = advice("s3")
    assert alone.startswith("Pods that move and several replicas: s3, since")
    assert advice("nvme")[1] == (
        "Pods that move and several replicas: no shared tier was measured, and local ones stay behind."
    )


@pytest.mark.slow
def test_what_nobody_recorded_is_not_called_local() -> None:
    said = which_tier([decided("a", 20_000.0), decided("b", 10_000.0)], {"a": None, "b": False})
    assert said[0].startswith("One node: a, ")
    assert said[1].endswith("no tier is known to be shared; whether other hosts can read a was not recorded.")


@pytest.mark.slow
def test_a_run_keeps_it_and_an_old_run_loads(kvbench: Kvbench, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = kvbench(
        "fio", "--tier", "dram", "--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "1",
        "--dataset", "64MiB", "-o", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    data: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert data["tier_traits"] == {"dram": {"shared": False, "place": None}}
    del data["tier_traits"]
    (out / "result.json").write_text(json.dumps(data))
    assert results.load(out).tier_traits == {}
    assert is_shared(results.load(out), "dram") is False


# Drivers


def test_the_kind_of_tier_says_which_program_a_driver_is() -> None:
    assert kinds.program_of("s3://bucket/prefix", "fio") == "fio-http"
    assert kinds.program_of("/mnt/nvme", "fio") == "fio"
    assert kinds.program_of("s3://bucket/prefix", "s3") == "s3"
    assert {program for kind in kinds.KINDS.values() for program in kind.programs.values()} == set(PROGRAMS)


def test_users_ask_for_fio_whatever_program_it_is(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    assert driver_choice() == ["fio", "replay", "memory", "s3"]
    done = kvbench("fio", "--tier", tier, "--driver", "fio-http", "--dry-run")
    assert done.code == 2
    assert "--driver 'fio-http': choose from fio, replay, memory, s3." in done.err


def test_a_run_is_for_the_kind_that_it_was_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    consent.require_fitting(on("xfs", "/dev/x"), "replay", on_device=False)
    consent.require_fitting(bucket(monkeypatch), "fio", on_device=False)
    consent.require_fitting(DEVICE, "fio", on_device=True)
    for tier, driver, on_device in (
        (bucket(monkeypatch), "replay", False),
        (bucket(monkeypatch), "fio-http", False),
        (DEVICE, "fio", False),
        (on("xfs", "/dev/x"), "fio", True),
    ):
        with pytest.raises(TierError, match="is not the kind of tier that this run was planned for"):
            consent.require_fitting(tier, driver, on_device=on_device)


# A kind from outside


@dataclass(frozen=True, slots=True)
class Shelf(Ordinary):
    """A tier that is no path: copies in memory, behind a name of its own, with a bill."""

    name: str

    @property
    def kind(self) -> Kind:
        return SHELF

    @property
    def mount(self) -> Mount | None:
        return None

    @property
    def shared(self) -> bool | None:
        return True

    @property
    def needs_yes(self) -> bool:
        return True

    @property
    def storage(self) -> str:
        return "shelf"

    def facts(self) -> dict[str, str | int | None]:
        return {"path": "shelf", "filesystem": "none: a shelf"}

    def default_dataset_bytes(self) -> int:
        return 64 << 20

    def require_space(self, dataset_bytes: int) -> None:
        if dataset_bytes > 1 << 30:
            raise TierError("the shelf is full; use a smaller --dataset.")

    def workspace(self, run_dir: Path) -> AbstractContextManager[Workspace]:
        return directory.workspace(DirectoryTier(self.name, run_dir.resolve(), None, 0))


def _examine(name: str, target: str, drivers: DriverFindings) -> Diagnosis:
    return Diagnosis(name, target, "a shelf", {}, (Finding("dust", "ok", "none"),))


def _clean(target: str, wanted: Cleaning) -> Sequence[tuple[str, Kept | None]]:
    return [(f"{target}/old", None)]


SHELF = Kind(
    claims=lambda target: target.startswith("shelf:"),
    inspect=lambda name, target, allow_destroy: Shelf(name),
    examine=_examine,
    clean=_clean,
    programs={"memory": "memory"},
    name_of=lambda target: target.removeprefix("shelf:"),
)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setitem(kinds.KINDS, "shelf", SHELF)


@pytest.mark.slow
def test_a_new_kind_is_measured_examined_and_cleaned(shelf: None, kvbench: Kvbench, tmp_path: Path) -> None:
    options = ("--model", "qwen3-8b", "--mix", "read", "--numjobs", "1", "--runtime", "1")
    dry = kvbench("fio", "--tier", "shelf:upper", *options, "--dry-run")
    assert dry.code == 0, dry.err
    assert "upper: would write 64 MiB below shelf:upper and measure 1 points of 1 s" in dry.out
    assert "upper needs --yes" in dry.out
    refused = kvbench("fio", "--tier", "shelf:upper", *options, "-o", tmp_path / "refused")
    assert refused.code == 2
    assert "repeat with --yes" in refused.err

    done = kvbench("fio", "--tier", "shelf:upper", *options, "--yes", "-o", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    found = done.json()
    assert [(point["tier"], point["driver"], point["status"]) for point in found["points"]] == [
        ("upper", "memory", "ok")
    ]
    assert found["tier_traits"] == {"upper": {"shared": True, "place": None}}

    (examined,) = kvbench("doctor", "--tier", "shelf:upper", "--json").json()["tiers"]
    assert (examined["name"], examined["kind"]) == ("upper", "a shelf")
    (cleaned,) = kvbench("clean", "--tier", "shelf:upper", "--json").json()["tiers"]
    assert cleaned["removed"] == ["shelf:upper/old"]
    assert "measured by memory" in kvbench("jobs", "--tier", "shelf:upper", *options).err


def test_without_the_line_it_is_a_directory_that_is_not_there(kvbench: Kvbench) -> None:
    done = kvbench("fio", "--tier", "shelf:upper", "--dry-run")
    assert done.code == 2
    assert "the tier directory shelf:upper does not exist" in done.err


def test_nobody_outside_asks_a_tier_for_its_kind() -> None:
    asked = re.compile(
        r"isinstance\([^()]*(?:\([^()]*\))?[^()]*Tier\b|startswith\(.*(?:SCHEME|s3://|/dev/)|== \"dram\""
    )
    root = Path(package.__file__).parent
    # What an engine calls a place is the engine's language, which the settings are written in.
    elsewhere = (root / "tiers", root / "settings")
    sources = [path for path in root.rglob("*.py") if path.parent not in elsewhere]
    found = [f"{path.relative_to(root)}: {line.strip()}" for path in sources for line in path.read_text().splitlines()
             if asked.search(line)]  # fmt: skip
    assert len(sources) > 100
    assert found == []
    assert asked.search("if isinstance(site.tier, BucketTier):")
    assert asked.search('driver=None if tier.startswith("s3://") else "fio"')
    assert not asked.search("isinstance(item, TierPlan)")
