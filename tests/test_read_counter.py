"""The user's counter of bytes read: compared with fio's, for tiers that have no device on this host."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FakeFio, Outcome

Kvbench = Callable[..., Outcome]

ONE = ("--model", "qwen3-8b", "--numjobs", "1", "--dataset", "16MiB", "--runtime", "1")
READ_BYTES = 3000 * 2359296  # what the fake fio reads in a round


def counter(tmp_path: Path, step: int) -> str:
    """A command that prints a number which grows by ``step`` with every call."""
    script = tmp_path / "counter.py"
    script.write_text(
        "from pathlib import Path\n"
        f"state = Path({str(tmp_path / 'count')!r})\n"
        "value = int(state.read_text()) if state.exists() else 1000\n"
        f"state.write_text(str(value + {step}))\n"
        "print('bytes read so far:')\nprint(value)\n"
    )
    return f"{sys.executable} {script}"


def measured(kvbench: Kvbench, tier: Path, tmp_path: Path, command: str, mix: str = "read") -> tuple[Outcome, Any]:
    run = tmp_path / "run"
    outcome = kvbench("fio", "--tier", tier, *ONE, "--mix", mix, "--read-counter", command, "-o", run)
    (point,) = json.loads((run / "result.json").read_text())["points"]
    return outcome, point


@pytest.mark.slow
def test_a_storage_that_read_everything_is_believed(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    outcome, point = measured(kvbench, tier, tmp_path, counter(tmp_path, READ_BYTES))
    assert outcome.code == 0
    assert point["conditions"]["device_read_bytes"] == READ_BYTES
    assert "reads-not-from-device" not in [warning["code"] for warning in point["warnings"]]


@pytest.mark.slow
def test_reads_that_the_storage_never_saw_came_from_a_cache(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path
) -> None:
    _, point = measured(kvbench, tier, tmp_path, counter(tmp_path, READ_BYTES // 2))
    (found,) = [warning for warning in point["warnings"] if warning["code"] == "reads-not-from-device"]
    assert found["values"] == {"read_bytes": READ_BYTES, "device_read_bytes": READ_BYTES // 2}
    assert point["conditions"]["cache_state"] == "cached"


@pytest.mark.slow
def test_pure_writes_do_not_ask(kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path) -> None:
    outcome, _ = measured(kvbench, tier, tmp_path, counter(tmp_path, 1), mix="write")
    assert outcome.code == 0
    assert not (tmp_path / "count").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/does/not/exist", "--read-counter /does/not/exist cannot be started (No such file or directory)"),
        ("false", "--read-counter false ended with exit code 1"),
        ("echo many", "--read-counter echo must print a whole number of bytes in its last line"),
        ("true", "--read-counter true must print a whole number of bytes in its last line"),
    ],
)
def test_a_counter_that_does_not_count_fails_the_point(
    kvbench: Kvbench, fake_fio: FakeFio, tier: Path, tmp_path: Path, command: str, said: str
) -> None:
    outcome, point = measured(kvbench, tier, tmp_path, command)
    assert (outcome.code, point["status"], point["reason"]) == (3, "failed", said)
    assert list(tier.iterdir()) == []


def test_a_counter_with_a_credential_is_refused(kvbench: Kvbench, fake_fio: FakeFio, tier: Path) -> None:
    outcome = kvbench("fio", "--tier", tier, *ONE, "--read-counter", "counter --password=hunter2secret")
    assert outcome.code == 2
    assert "--read-counter carries what looks like a credential" in outcome.err
    assert "hunter2" not in outcome.err
