"""What the environment says about itself: known values, and why the others are unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvbench.host import environment
from tests.conftest import FakeFio


def tree(root: Path, files: dict[str, str]) -> Path:
    """A folder with these files, in place of / or /sys."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_every_value_is_known_or_says_why() -> None:
    found = environment.collect("fio-3.33")
    expected = {"fio", "host", "kernel", "virtualisation", "frequency_governor", "numa_nodes", "engines", "aio_max_nr",
                "cgroup_memory_bytes", "cgroup_cpus", "cgroup_io", "clock_source", "io_uring"}  # fmt: skip
    assert expected <= set(found)
    assert not [name for name in expected if found[name] in (None, "")]
    for name, value in found.items():
        if isinstance(value, str) and value.startswith("unknown"):
            assert value.startswith("unknown: "), name
            assert len(value) > len("unknown: "), name
    json.dumps(found, allow_nan=False)


def test_no_variable_of_the_environment_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    assert "hush" not in json.dumps(environment.collect("fio-3.33"))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"proc/cpuinfo": "flags : fpu sse\n"}, "none seen"),
        ({"proc/cpuinfo": "flags\t\t: fpu hypervisor sse\n"}, "virtual (the hypervisor is not named)"),
        (
            {"proc/cpuinfo": "flags : hypervisor\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
             "sys/class/dmi/id/product_name": "m7i.4xlarge\n"},
            "virtual (Amazon EC2 m7i.4xlarge)",
        ),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({}, "unknown: the system has no /proc/cpuinfo"),
    ],
)  # fmt: skip
def test_virtualisation(tmp_path: Path, files: dict[str, str], said: str) -> None:
    assert environment.virtualisation(tree(tmp_path, files)) == said


def test_governors(tmp_path: Path) -> None:
    assert environment.frequency_governor(tmp_path).startswith("unknown: ")
    name = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    tree(tmp_path, {name.format(0): "powersave\n", name.format(1): "performance\n", name.format(10): "performance\n"})
    assert environment.frequency_governor(tmp_path) == "performance, powersave"


def test_numa_nodes(tmp_path: Path) -> None:
    assert str(environment.numa_nodes(tmp_path)).startswith("unknown: ")
    tree(tmp_path, {"sys/devices/system/node/node0/x": "", "sys/devices/system/node/node1/x": ""})
    assert environment.numa_nodes(tmp_path) == 2


def test_limits_of_a_pod(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/kubepods/pod1"
    tree(tmp_path, {
        "proc/self/cgroup": "0::/kubepods/pod1\n", f"{group}/cgroup.controllers": "cpu io memory\n",
        f"{group}/memory.max": "17179869184\n", f"{group}/cpu.max": "250000 100000\n",
        f"{group}/io.max": "259:0 rbps=104857600 wbps=max riops=max wiops=max\n",
    })  # fmt: skip
    assert environment.cgroup_limits(tmp_path) == {
        "cgroup_memory_bytes": 16 << 30,
        "cgroup_cpus": 2.5,
        "cgroup_io": "259:0 rbps=104857600 wbps=max riops=max wiops=max",
    }


def test_limits_of_nobody(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpu\n",
                    "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})  # fmt: skip
    assert environment.cgroup_limits(tmp_path) == {
        "cgroup_memory_bytes": "no limit", "cgroup_cpus": "no limit", "cgroup_io": "no limit seen",
    }  # fmt: skip


def test_limits_of_version_1(tmp_path: Path) -> None:
    tree(tmp_path, {
        "proc/self/cgroup": "4:memory:/docker/x\n3:cpuacct,cpu:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "1073741824\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    })  # fmt: skip
    found = environment.cgroup_limits(tmp_path)
    assert (found["cgroup_memory_bytes"], found["cgroup_cpus"]) == (1 << 30, 0.5)
    assert str(found["cgroup_io"]).startswith("unknown: ")


def test_engines_are_fios_own_list(fake_fio: FakeFio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "fio"
    program.write_text("#!/bin/sh\necho 'Available IO engines:'\necho '\tpsync'\necho '\tlibaio'\n")
    assert environment.fio_engines() == "psync, libaio"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert environment.fio_engines() == "unknown: fio is not on PATH"


def test_differences_are_named_and_what_is_unknown_is_not_the_same() -> None:
    a = {"kernel": "6.1", "cpus": 8, "load_1m": 0.1, "engines": "libaio"}
    assert environment.differences(a, a | {"load_1m": 9.0}) == []
    assert environment.differences(a, a | {"kernel": "6.2"}) == [("kernel", "6.1", "6.2")]
    tier = {"path": "/a", "free_bytes": 1, "scheduler": "none"}
    assert environment.differences(tier, tier | {"path": "/b", "free_bytes": 2}) == []
    assert environment.differences(tier, tier | {"scheduler": "bfq"}) == [("scheduler", "none", "bfq")]
    without = {name: value for name, value in a.items() if name != "engines"}
    assert environment.differences(a, without | {"new": None}) == [
        ("engines", "libaio", "not recorded"), ("new", "not recorded", "None"),
    ]  # fmt: skip
