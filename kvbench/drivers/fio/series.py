"""One second after the other: fio's own logs as one series of rates and latencies (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

LOG_NAME = "series"
# fio's log files with per_job_logs=0, and what their values are (fio 3.33: bandwidth in KiB/s, latency in ns).
LOGS = {"bw": "bytes_per_s", "iops": "iops", "lat": "mean_latency_ns"}
_DIRECTIONS = {"0": "read", "1": "write"}
_KIB = 1024


def log_options() -> dict[str, object]:
    """The job options that make fio write its logs: one line for each job, direction and second."""
    return {
        "write_bw_log": LOG_NAME,
        "write_iops_log": LOG_NAME,
        "write_lat_log": LOG_NAME,
        "log_avg_msec": 1000,
        "per_job_logs": 0,
    }


def log_file_names() -> list[str]:
    """Every file that ``log_options`` makes fio write."""
    return [f"{LOG_NAME}_{kind}.log" for kind in ("bw", "iops", "lat", "slat", "clat")]


def series_of(logs: Mapping[str, str], host: Mapping[int, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Seconds in order, each ``{second, read {iops, bytes_per_s, mean_latency_ns}, write {...}, host {...}}``.

    ``logs`` maps ``bw``, ``iops`` and ``lat`` to the files' texts; jobs are added up, and the latency is the mean over
    jobs of their means. ``host`` holds load and CPU steal by second.
    """
    rates: dict[int, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for kind in ("bw", "iops"):
        for second, direction, value in _lines(logs.get(kind, "")):
            rates[second][direction][LOGS[kind]] += value * (_KIB if kind == "bw" else 1)
    latency: dict[tuple[int, str], list[float]] = defaultdict(list)
    for second, direction, value in _lines(logs.get("lat", "")):
        latency[second, direction].append(value)
    for (second, direction), values in latency.items():
        rates[second][direction][LOGS["lat"]] = sum(values) / len(values)
    return [
        {
            "second": second,
            **{name: _rounded(values) for name, values in sorted(sides.items())},
            "host": dict(host.get(second, {})),
        }
        for second, sides in sorted(rates.items())
        # fio flushes the last, broken second of latency without a bandwidth: it is no second, whatever the other
        # direction's jobs logged.
        if any("bytes_per_s" in values for values in sides.values())
        and (second < max(rates) or all("bytes_per_s" in values for values in sides.values()))
    ]


def _lines(text: str) -> list[tuple[int, str, float]]:
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) >= 3 and fields[0].isdigit() and fields[1].isdigit() and fields[2] in _DIRECTIONS:
            # A second ends at its time stamp, give or take a few ms.
            found.append((max(1, round(int(fields[0]) / 1000)), _DIRECTIONS[fields[2]], float(fields[1])))
    return found


def _rounded(values: Mapping[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in sorted(values.items())}
