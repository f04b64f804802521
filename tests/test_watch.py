"""``--watch`` and events: real commands beside real rounds, standstills found in series, and how both are shown."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvbench.checks import judge
from kvbench.decide.runs import LoadedRun
from kvbench.record.events import complete, events_of, mark, standstills, with_events
from kvbench.record.recorder import Recorder, series_of
from kvbench.record.results import Event, Round, RunResult, load_series, save
from kvbench.report.tables.events import short_events
from kvbench.run.watch import Watch, state_of
from tests.conftest import Outcome
from tests.factories import MS, point

Kvbench = Callable[..., Outcome]
Start = Callable[..., "subprocess.Popen[str]"]

MEMORY = ("--tier", "dram", "--model", "qwen3-8b", "--numjobs", "1", "--dataset", "16MiB")
TOKEN = "no-run"


def script(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A command of one's own."""
    path = tmp_path / "state.py"
    path.write_text(body)
    return (sys.executable, "-I", str(path))


def changing(tmp_path: Path, *states: str) -> tuple[str, ...]:
    """A command that prints the next of these states with every call, and then the last one."""
    return script(
        tmp_path,
        "from pathlib import Path\n"
        f"seen, states = Path({str(tmp_path / 'calls')!r}), {states!r}\n"
        "calls = int(seen.read_text()) if seen.exists() else 0\n"
        "seen.write_text(str(calls + 1))\n"
        "print(states[min(calls, len(states) - 1)])\n",
    )


def watched(command: tuple[str, ...], folder: Path, seconds: float, timeout_s: float = 10) -> list[Event]:
    watch = Watch(command, TOKEN, timeout_s)
    with watch.beside(folder):
        time.sleep(seconds)
    return watch.events()


def seconds_of(*iops: float | None, way: str = "read") -> list[dict[str, Any]]:
    """A series with these operations a second; None is a second that the driver left out."""
    return [
        {"second": second, way: {"iops": rate, "bytes_per_s": rate * 1000, "mean_latency_ns": 10**6}, "host": {}}
        for second, rate in enumerate(iops, start=1)
        if rate is not None
    ]


@pytest.mark.slow
def test_a_change_of_state_is_an_event_with_both_states(tmp_path: Path) -> None:
    command = changing(tmp_path, "2 osds: 2 up (since 5s), 2 in", "2 osds: 2 up (since 6s), 2 in", "2 osds: 1 up")
    (event,) = watched(command, tmp_path, 3.5)
    assert event.text == "2 osds: 2 up, 2 in -> 2 osds: 1 up"
    assert 2 <= event.second <= 4


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("2 osds: 2 up (since 5m), 2 in (since 5m); epoch: e30\n", "2 osds: 2 up, 2 in"),
        ("HEALTH_OK\n", "HEALTH_OK"),
        ("HEALTH_WARN 1 osds down\n  a second line\n", "HEALTH_WARN 1 osds down a second line"),
        ("", ""),
    ],
)
def test_what_changes_every_second_is_no_part_of_the_state(text: str, state: str) -> None:
    assert state_of(text) == state


@pytest.mark.slow
def test_a_state_that_stays_is_no_event(tmp_path: Path) -> None:
    assert watched(("echo", "HEALTH_OK"), tmp_path, 2.5) == []


def test_without_a_command_nothing_runs(tmp_path: Path) -> None:
    assert watched((), tmp_path, 0) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("false",), "--watch false ended with exit code 1 (2 of 2 times)"),
        (("/does/not/exist",), "--watch /does/not/exist cannot be started (No such file or directory) (2 of 2 times)"),
    ],
)
def test_a_command_that_fails_is_said_once(tmp_path: Path, command: tuple[str, ...], said: str) -> None:
    assert [event.text for event in watched(command, tmp_path, 1.6)] == [said]


@pytest.mark.slow
def test_a_command_that_hangs_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    (event,) = watched(("sh", "-c", f"sleep 300 & echo $$ $! >> {pids}; wait"), tmp_path, 1.0, timeout_s=0.3)
    assert event.text.startswith("--watch sh did not end within 0 s")
    assert not any(runs(pid) for pid in pids.read_text().split())


def runs(pid: str) -> bool:
    """Whether a process runs; a dead one that nobody reaps does not."""
    try:
        return bool(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return False


def test_a_command_that_runs_when_the_round_ends_is_stopped_and_no_failure(tmp_path: Path) -> None:
    began = time.monotonic()
    assert watched(("sleep", "300"), tmp_path, 0.3) == []
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_command_that_never_stops_printing_does_no_harm(tmp_path: Path) -> None:
    (event,) = watched(("yes", "up"), tmp_path, 0.5)
    assert event.text.startswith("--watch yes was killed by SIGPIPE")


@pytest.mark.slow
def test_a_command_that_changes_with_every_call_does_not_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbench.run.watch._PERIOD_S", 0.01)
    events = watched(("date", "+%s.%N"), tmp_path, 2.0)
    assert len(events) == 21
    assert events[-1].text.endswith(" more changes of state")


@pytest.mark.slow
def test_secrets_of_the_environment_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPH_SECRET", "hunter2-hunter2")
    (event,) = watched(changing(tmp_path, "up", "key hunter2-hunter2"), tmp_path, 2.5)
    assert event.text == "up -> key <removed>"


def test_seconds_that_fio_left_out_are_zeros() -> None:
    whole = complete(seconds_of(100, None, None, 90))
    assert [entry["second"] for entry in whole] == [1, 2, 3, 4]
    assert whole[1] == {"second": 2, "read": {"bytes_per_s": 0, "iops": 0}, "host": {}}


@pytest.mark.parametrize(
    ("iops", "found"),
    [
        ((100, 100, None, None, 100, 100), [(3, "no reads for 2 s")]),
        ((100, 100, 0, 3, 100, 100), [(3, "hardly any reads for 2 s")]),
        ((100, 100, 0, 100, 100, 100), [(3, "no reads for 1 s")]),
        ((100, 100, 60, 100, 100, 100), []),
        ((100, 100, 100, 100, 100, 0), [(6, "no reads for 1 s")]),
        # Four a second: none in one second is chance, none in six is not.
        ((4, 4, 0, 4, 4, 4), []),
        ((4, 4, 4, 4, 0, 0, 0, 0, 0, 0), [(5, "no reads for 6 s")]),
        ((100, 0, 0), []),
        ((), []),
    ],
)
def test_standstills(iops: Sequence[float | None], found: list[tuple[int, str]]) -> None:
    assert [(pause.first, pause.text) for pause in standstills(complete(seconds_of(*iops)))] == found


def test_reads_and_writes_that_stop_together_are_one_standstill() -> None:
    pairs = zip(seconds_of(90, 90, 0, 90, 90), seconds_of(30, 30, 0, 30, 30, way="write"), strict=True)
    assert [pause.text for pause in standstills([read | write for read, write in pairs])] == [
        "no reads and no writes for 1 s"
    ]


def test_events_are_kept_on_the_seconds_of_a_series(tmp_path: Path) -> None:
    path = tmp_path / "series.json"
    path.write_text(json.dumps(seconds_of(100, 100, None, None, 100)))
    mark(path, [Event(2, "up -> down"), Event(9, "down -> up")])
    mark(path, [Event(2, "up -> down"), Event(9, "down -> up")])
    assert events_of(json.loads(path.read_text())) == (
        Event(2, "up -> down"),
        Event(3, "no reads for 2 s"),
        Event(5, "down -> up"),
    )


def test_a_round_without_a_series_keeps_its_events(tmp_path: Path) -> None:
    path = tmp_path / "series.json"
    mark(path, [])
    assert not path.exists()
    mark(path, [Event(2, "up -> down")])
    assert json.loads(path.read_text()) == [{"second": 1}, {"second": 2, "events": ["up -> down"]}]


def test_a_disturbed_point_says_so() -> None:
    found = judge(point(events=(Event(5, "no reads for 4 s"), Event(7, "up -> down"))))
    (warning,) = [warning for warning in found.warnings if warning.code == "events"]
    assert warning.message == "2 events, the first in second 5: no reads for 4 s"
    assert not [warning for warning in judge(point()).warnings if warning.code == "events"]


def test_an_event_is_shown_with_rate_and_latency_around_it(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = []
    for second, (rate, mean_ms) in enumerate([(200, 10), (200, 10), (0, 0), (100, 40), (100, 40)], start=1):
        side = {"iops": rate, "bytes_per_s": rate << 20} | ({"mean_latency_ns": mean_ms * 10**6} if rate else {})
        entries.append({"second": second, "read": side})
    found = [Event(3, "no reads for 1 s"), Event(5, "up -> down")]
    (tmp_path / "series.json").write_text(json.dumps(with_events(entries, found)))
    measured = point(series="series.json", events=tuple(found), rounds=(Round(1, 5.0),))
    rows = short_events([LoadedRun("run", tmp_path, RunResult("now", points=(measured,)))]).texts
    assert [row[2:] for row in rows] == [
        ["3", "no reads for 1 s", "reads 200 -> 100 MiB/s, mean latency 10.0 -> 40.0 ms"],
        ["5", "up -> down", "reads 166.7 -> 100 MiB/s, mean latency 16.0 -> 40.0 ms"],
    ]


def test_with_latencies_by_second_the_tail_is_compared_exactly(tmp_path: Path) -> None:
    recorder = Recorder()
    for second in range(40):
        for number in range(100):
            slow = second >= 20 and number >= 90
            recorder.add("read", 50 * MS if slow else MS, second * 10**9 + number * 10**7, 1 << 20)
    path = tmp_path / "series.json"
    path.write_text(json.dumps(series_of([recorder], 40, {})))
    mark(path, [Event(21, "up -> down")])
    measured = point(series="series.json", events=(Event(21, "up -> down"),))
    (row,) = short_events([LoadedRun("run", tmp_path, RunResult("now", points=(measured,)))]).texts
    assert row[-1] == "reads 100 -> 100 MiB/s, mean latency 1.00 -> 5.90 ms, p99 1.00 -> 50.1 ms"
    # The bins of seconds that are compared with nothing are most of a long series' size.
    assert ["bins" in entry["read"] for entry in json.loads(path.read_text())][:12] == [False] * 10 + [True] * 2


@pytest.mark.slow
def test_events_without_rates_are_in_the_table_and_in_no_figure(kvbench: Kvbench, tmp_path: Path) -> None:
    (tmp_path / "series.json").write_text(json.dumps([{"second": 1}, {"second": 2, "events": ["up -> down"]}]))
    save(RunResult("now", points=(point(series="series.json", events=(Event(2, "up -> down"),)),)), tmp_path)
    page = tmp_path / "report.html"
    assert kvbench("report", tmp_path, "-o", page).code == 0
    found = json.loads(page.with_suffix(".json").read_text())
    assert [row["event"]["text"] for row in found["tables"]["events"]["rows"]] == ["up -> down"]
    assert "Seconds" not in [figure["kind"] for figure in found["figures"].values()]


def run_memory(kvbench: Kvbench, tmp_path: Path, command: Sequence[str], *options: str) -> tuple[Outcome, Path]:
    run = tmp_path / "run"
    outcome = kvbench("fio", *MEMORY, *options, "--watch", " ".join(command), "-o", run)
    return outcome, run


def the_point(run: Path) -> dict[str, Any]:
    (found,) = json.loads((run / "result.json").read_text())["points"]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_a_real_run_keeps_and_shows_its_events(kvbench: Kvbench, tmp_path: Path) -> None:
    command = changing(tmp_path, "HEALTH_OK", "HEALTH_OK", "HEALTH_WARN")
    outcome, run = run_memory(kvbench, tmp_path, command, "--mix", "read", "--runtime", "5")
    assert outcome.code == 0
    measured = the_point(run)
    assert [event["text"] for event in measured["events"]] == ["HEALTH_OK -> HEALTH_WARN"]
    (event,) = measured["events"]
    entries = json.loads((run / measured["series"]).read_text())
    assert [entry["second"] for entry in entries if entry.get("events")] == [event["second"]]
    assert [warning["code"] for warning in measured["warnings"]].count("events") == 1
    assert "What happened during the runs" in outcome.out
    assert "HEALTH_OK -> HEALTH_WARN" in (run / "summary.md").read_text()

    page = tmp_path / "report.html"
    assert kvbench("report", run, "-o", page).code == 0
    text = page.read_text()
    assert "What happened during the runs" in text
    assert f"<li>1: second {event['second']}, HEALTH_OK -&gt; HEALTH_WARN</li>" in text
    assert "HEALTH_OK -> HEALTH_WARN" in page.with_suffix(".md").read_text()


@pytest.mark.slow
def test_events_survive_the_joining_of_rounds(kvbench: Kvbench, tmp_path: Path) -> None:
    command = changing(tmp_path, "a", "a", "a", "b")
    options = ("--mix", "read", "--runtime", "3", "--repeat", "2")
    outcome, run = run_memory(kvbench, tmp_path, command, *options)
    assert outcome.code == 0
    measured = the_point(run)
    texts = [event["text"] for event in measured["events"]]
    assert texts == ["a -> b"] or texts == []
    joined = json.loads((run / measured["series"]).read_text())
    assert [entry["second"] for entry in joined] == list(range(1, len(joined) + 1))
    assert [event["second"] for event in measured["events"]] == [
        entry["second"] for entry in joined for _ in entry.get("events", ())
    ]


@pytest.mark.slow
def test_a_watch_that_fails_leaves_the_point_alone(kvbench: Kvbench, tmp_path: Path) -> None:
    outcome, run = run_memory(kvbench, tmp_path, ("false",), "--mix", "read", "--runtime", "2")
    assert outcome.code == 0
    measured = the_point(run)
    assert measured["status"] == "ok"
    assert [event["text"].partition(" (")[0] for event in measured["events"]] == [
        "--watch false ended with exit code 1"
    ]


def test_a_watch_with_a_credential_is_refused(kvbench: Kvbench, tmp_path: Path) -> None:
    outcome = kvbench("fio", *MEMORY, "--watch", "ceph --secret=hunter2secret health", "-o", tmp_path / "run")
    assert outcome.code == 2
    assert "--watch carries what looks like a credential" in outcome.err
    assert "hunter2" not in outcome.err


def endless(tmp_path: Path, pids: Path) -> str:
    """A command that writes its id into ``pids`` and never ends."""
    body = f"import os, time\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(99)\n"
    return " ".join(script(tmp_path, body))


def first_pids(pids: Path) -> list[str]:
    deadline = time.monotonic() + 30
    while not pids.exists() or not pids.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return pids.read_text().split()


def test_an_interrupted_run_ends_its_watch(start: Start, tmp_path: Path) -> None:
    pids, run = tmp_path / "pids", tmp_path / "run"
    child = start("fio", *MEMORY, "--mix", "read", "--runtime", "60", "--watch", endless(tmp_path, pids), "-o", run)
    (pid,) = first_pids(pids)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    assert the_point(run)["status"] == "interrupted"
    assert not runs(pid)


def test_a_killed_run_leaves_no_watch_behind(start: Start, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = start("fio", *MEMORY, "--mix", "read", "--runtime", "60", "--watch", endless(tmp_path, pids), "-o", "run")
    (pid,) = first_pids(pids)
    child.kill()
    deadline = time.monotonic() + 30
    while runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_series_that_is_gone_shows_events_without_numbers(tmp_path: Path) -> None:
    measured = point(series="gone.json", events=(Event(3, "up -> down"),))
    assert load_series(tmp_path, measured) == []
    rows = short_events([LoadedRun("run", tmp_path, RunResult("now", points=(measured,)))]).texts
    assert [row[2:] for row in rows] == [["3", "up -> down", ""]]
