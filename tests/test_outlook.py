"""What is said of a run while it measures: points that are done, and never less time than it can still take."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from kvbench import console
from kvbench.drivers.settings import JobSettings
from kvbench.record.point import Point
from kvbench.record.results import PointResult, Round
from kvbench.run.measurement import Measurement, PointTime, TierPlan
from kvbench.run.outlook import Outlook
from tests.factories import direction, latency, point


def measurement(*, auto: bool = True, repeats: int = 1) -> Measurement:
    """Two points of one tier, at most 60 s each."""
    settings = JobSettings(files=1, file_bytes=1 << 30, runtime_s=60, auto=auto)
    points = tuple(Point(f"nvme-4096-read-j{jobs}", "nvme", "fio", 4096, "read", jobs) for jobs in (1, 16))
    return Measurement((TierPlan("nvme", "/mnt", settings),), (), points, repeats)


def measured(run: Measurement, at: int, *rounds: Round, **changes: object) -> PointResult:
    """What a point of the run measured so far."""
    one = run.points[at]
    return replace(point(id=one.id, tier=one.tier), rounds=rounds, **changes)  # type: ignore[arg-type]


def test_a_point_takes_between_its_first_look_and_its_longest() -> None:
    assert set(measurement().point_times().values()) == {PointTime(18, 60)}
    assert set(measurement(auto=False, repeats=3).point_times().values()) == {PointTime(180, 180)}


def test_rounds_are_counted_and_a_point_that_ends_early_takes_no_more() -> None:
    run = measurement()
    outlook = Outlook(run)
    assert (outlook.points_done, outlook.points, outlook.most_s, outlook.left_s) == (0, 2, 120, 120)
    outlook.heard(measured(run, 0, Round(1, 3.0), Round(1, 3.0)), ended=False)
    assert (outlook.points_done, outlook.left_s) == (0, 114)
    outlook.heard(measured(run, 0, *[Round(1, 3.0)] * 6), ended=True)
    assert (outlook.points_done, outlook.left_s) == (1, 60)


def test_a_repeat_that_ended_leaves_the_other_repeats() -> None:
    run = measurement(auto=False, repeats=3)
    outlook = Outlook(run)
    outlook.heard(measured(run, 1, Round(1, 60.0)), ended=True)
    assert (outlook.points_done, outlook.left_s) == (0, 300)
    outlook.heard(measured(run, 1, Round(1, 60.0), Round(2, 60.0), Round(3, 60.0)), ended=True)
    assert (outlook.points_done, outlook.left_s) == (1, 180)


def test_a_resumed_run_has_less_left_and_what_was_interrupted_counts_in_full() -> None:
    run = measurement()
    done = measured(run, 0, *[Round(1, 3.0)] * 6)
    broken = measured(run, 1, *[Round(1, 3.0)] * 6, status="interrupted", reason="stopped")
    outlook = Outlook(run, (done, broken))
    assert (outlook.points_done, outlook.left_s) == (1, 60)


def test_precision_is_said_as_reached_and_as_wanted() -> None:
    run = measurement()
    outlook = Outlook(run)
    asked = ("nvme", "fio", run.points[0].id)
    assert outlook.precision(*asked) == "p99 not known yet (10 % wanted)"
    wide = direction(latency_ns=latency(p99=1000, p99_low=800, p99_high=1200))
    outlook.heard(measured(run, 0, Round(1, 3.0), read=wide, write=None), ended=False)
    assert outlook.precision(*asked) == "p99 within ±20 % (10 % wanted)"
    assert Outlook(measurement(auto=False)).precision(*asked) == ""


class Terminal(io.StringIO):
    """What a program takes for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_lines_fit_and_say_what_is_left_at_most(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    run = measurement()
    with console.progress(Outlook(run)) as progress:
        progress.laying_out("nvme", 4 << 30)
        progress.measuring(1, 2, run.points[0])
        progress.rate("read 1.2 GiB/s")
        progress.looked(measured(run, 0, *[Round(1, 3.0)] * 2))
        progress.measured(measured(run, 0, *[Round(1, 3.0)] * 6))
        progress.measuring(2, 2, run.points[1])
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", terminal.getvalue()).replace("\r", "\n").split("\n")
    said = {line.strip() for line in lines}
    assert any("1 of 2 points done, at most 01:00 left to measure" in line for line in said)
    assert {"p99 not known yet (10 % wanted)", "point 2: nvme read 4 KiB x 16 jobs"} <= said
    assert max(map(len, lines)) <= width
