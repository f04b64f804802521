"""Plain builders of results, curves and fio documents for the tests of the pure parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbench.decide.restore import MeasuredReads
from kvbench.prefill.curve import PrefillCurve
from kvbench.record.histogram import Histogram
from kvbench.record.results import Conditions, Direction, LatencyNs, OverTime, PointResult, Use

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
SHIPPED_CSV = ROOT / "profiles" / "prefill" / "gpt-oss-120b-h200.csv"
GPT_OSS_BLOCK = 1_179_648
MS = 10**6
# As many batches of time as a run makes, all alike.
STEADY = {"read": OverTime(6, 0.0), "write": OverTime(6, 0.0)}


def shared_data(folder: str) -> Path:
    """The optional folder of recorded data beside the repository; the test is skipped where it is absent."""
    path = ROOT.parent / "shared" / "data" / folder
    if not path.is_dir():
        pytest.skip(f"the optional recorded data ../shared/data/{folder} are not there")
    return path


def plain(text: str) -> str:
    """``text`` without blanks at the ends of its lines, so that golden tables survive editors."""
    return "\n".join(line.rstrip() for line in text.splitlines())


def latency(mean: float = 1e6, **changes: Any) -> LatencyNs:
    """A latency whose percentiles are all near ``mean``."""
    ns = round(mean)
    values: dict[str, Any] = {
        "mean": mean, "min": ns // 2, "max": ns * 2, "p50": ns, "p90": ns, "p95": ns, "p99": ns, "p99_9": ns,
        "p99_low": ns, "p99_high": ns,
    }  # fmt: skip
    return LatencyNs(**(values | changes))


def direction(ios: int = 6000, iops: float = 100.0, io_bytes: int = GPT_OSS_BLOCK, **changes: Any) -> Direction:
    """A direction that obeys Little's law with one operation in flight."""
    values: dict[str, Any] = {"latency_ns": latency(1e9 / iops) if iops else None}
    values |= changes
    return Direction(ios=ios, bytes=ios * io_bytes, iops=iops, bytes_per_s=iops * io_bytes, **values)


def conditions(**changes: Any) -> Conditions:
    """Conditions under which no check has anything to say."""
    values: dict[str, Any] = {
        "ioengine": "libaio", "direct": True, "iodepth": 1, "requested_runtime_s": 60.0, "dataset_bytes": 64 << 30,
        "memory_bytes": 32 << 30, "filesystem": "xfs", "device_read_bytes": 1 << 60, "cached_fraction": 0.0,
        "cpu_steal_percent": 0.0, "failed_ios": 0,
    }  # fmt: skip
    return Conditions(**(values | changes))


def point(**changes: Any) -> PointResult:
    """A clean pure read point of one job; ``conditions`` may be given whole."""
    values: dict[str, Any] = {
        "id": "nvme-1179648-read-j1", "job": "nvme-1179648-read-j1", "source": "points/x/fio.json", "tier": "nvme",
        "driver": "fio", "io_bytes": GPT_OSS_BLOCK, "mix": "read", "numjobs": 1, "runtime_s": 60.0,
        "latency_source": "lat", "read": direction(), "conditions": conditions(), "over_time": STEADY,
    }  # fmt: skip
    return PointResult(**(values | changes))


def mixed_point(reads: int, writes: int, rwmixread: int = 75, **changes: Any) -> PointResult:
    """A mixed point with those operations in 60 s, both directions together keeping one job busy."""
    total = reads + writes
    mean = 60e9 / total
    sides = {
        name: direction(ios, ios / 60, latency_ns=latency(mean)) for name, ios in (("read", reads), ("write", writes))
    }
    return point(mix="mixed", conditions=conditions(rwmixread=rwmixread), **(sides | changes))


def use(**changes: Any) -> Use:
    """gpt-oss-120b at TP 2 as the published method stores it."""
    values: dict[str, Any] = {
        "model": "openai/gpt-oss-120b", "tp": 2, "kv_dtype": "bfloat16", "connector": "logical",
        "engine_version": None, "io_bytes": GPT_OSS_BLOCK, "block_tokens": 16,
    }  # fmt: skip
    return Use(**(values | changes))


def curve(
    a: float = 0.0, b: float = 1e-4, c: float = 0.0, first: int = 1024, last: int = 65536, spread: float | None = 0.0
) -> PrefillCurve:
    """A prefill curve with known coefficients; ``spread`` scales its draws evenly around it, None means no draws."""
    factors = np.empty(0) if spread is None else np.linspace(1 - spread, 1 + spread, 41)
    draws = factors[:, np.newaxis] * np.array([a, b, c])[np.newaxis, :]
    return PrefillCurve(a, b, c, first, last, 5, None, "a test", draws)


def measured(
    iops: float, latency_ms: float | None = None, jobs: int = 16, *, histogram: bool = True, **changes: Any
) -> MeasuredReads:
    """``jobs`` busy readers at ``iops``, every operation equally long unless ``latency_ms`` says how long."""
    mean_ns = jobs / iops * 1e9 if latency_ms is None else latency_ms * MS
    read = direction(60 * round(iops), iops, latency_ns=latency(mean_ns, **changes))
    bins = Histogram(((round(mean_ns), 60 * max(1, round(iops))),)) if histogram else None
    return MeasuredReads(point(numjobs=jobs, read=read), read, bins)


def fio_side(
    bins: Mapping[int, int] | None, io_bytes: int = 4096, runtime_ms: int = 60_000, *, kind: str = "lat_ns"
) -> dict[str, Any]:
    """One direction of a fio job, as json+ has it; ``bins`` of None is a direction without I/O (fio 3.19 and later)."""
    if not bins:
        idle = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
        return {"io_bytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0,
                "clat_ns": idle, "lat_ns": idle}  # fmt: skip
    samples = sorted(ns for ns, count in bins.items() for _ in range(count))
    count = len(samples)
    percentile = {
        f"{percent:.6f}": samples[max(0, -(-percent * 100 * count // 10000) - 1)] for percent in (50, 90, 95, 99)
    } | {"99.900000": samples[max(0, -(-999 * count // 1000) - 1)]}
    values = {"min": samples[0], "max": samples[-1], "mean": sum(samples) / count, "stddev": 0.0, "N": count,
              "percentile": percentile, "bins": {str(ns): n for ns, n in bins.items()}}  # fmt: skip
    rate = count * 1000 / runtime_ms
    without = {key: value for key, value in values.items() if key not in ("percentile", "bins")}
    latencies = {"lat_ns": without, "clat_ns": without} | {kind: values}
    return {"io_bytes": count * io_bytes, "bw_bytes": int(rate * io_bytes), "bw": int(rate * io_bytes) // 1024,
            "iops": rate, "runtime": runtime_ms, "total_ios": count, **latencies}  # fmt: skip


def fio_job(
    name: str = "job",
    read: dict[str, Any] | None = None,
    write: dict[str, Any] | None = None,
    error: int = 0,
    **options: str,
) -> dict[str, Any]:
    """One entry of fio's jobs; option values as in a job file."""
    return {"jobname": name, "groupid": 0, "error": error, "job options": options,
            "read": read or fio_side(None), "write": write or fio_side(None)}  # fmt: skip


def fio_document(*jobs: dict[str, Any], version: str = "fio-3.33", **options: str) -> dict[str, Any]:
    """A fio document with the published study's global options unless others are given."""
    usual = {"direct": "1", "ioengine": "libaio", "iodepth": "1", "runtime": "60", "time_based": "1"}
    return {"fio version": version, "timestamp": 1, "global options": usual | options, "jobs": list(jobs)}


def write_json(path: Path, data: object) -> Path:
    """``data`` as a JSON file at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def serving_result(path: Path, ttft_s: float, *, concurrency: int = 8, **changes: Any) -> Path:
    """A result of ``vllm bench serve --save-detailed`` with 40 requests of one TTFT."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "model_id": "m", "num_prompts": 40, "request_throughput": 1 / ttft_s, "completed": 40, "failed": 0,
        "max_concurrency": concurrency, "request_rate": "inf", "duration": 40.0, "total_input_tokens": 40_000,
        "input_lens": [1000] * 40, "ttfts": [ttft_s] * 40, "itls": [[0.5, 0.5]] * 40, "errors": [""] * 40,
        "start_times": [float(at) for at in range(40)],
    }  # fmt: skip
    path.write_text(json.dumps(document | changes))
    return path
