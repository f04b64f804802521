"""Every place where the program reads what others wrote: real seeds, and how a mutated one is given to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import Any
from zlib import crc32

import yaml

from kvbench.layout.models import profile_paths, read_profile
from kvbench.prefill.live.client import Exchange
from kvbench.prefill.live.log import LOG_VERSION, Record, load
from kvbench.prefill.live.plan import Plan
from kvbench.prefill.live.protocol import BadEvent, read_line
from kvbench.tiers.directory import this_machine
from kvbench.tiers.removal import MARKER_NAME
from tests.factories import ROOT, SHIPPED_CSV, fio_document, fio_job, fio_side, serving_result
from tests.fuzz.mutate import dumped, mutated_data, mutated_text

_METRICS = ROOT / "tests" / "data" / "metrics"
EXAMPLE_RUN = ROOT / "reports" / "example" / "run"
MS = 10**6
_LARGEST_SEED = 60_000
# One page is drawn for so many run directories.
_PAGES_IN = 40


@dataclass(frozen=True)
class Border:
    """One kind of input: its seeds, and the command line for one of them after ``folder`` was filled.

    ``share`` is how often it is drawn, beside those of the others: what takes long, seldom. ``refuses`` says whether
    bad input ends the command.
    ``reads`` stands for the command where one would talk to a server: what it may raise is a refusal.
    """

    name: str
    seeds: Callable[[], tuple[Path, ...]]
    command: Callable[[Path, str, str], list[str]]
    share: int = 4
    refuses: bool = True
    reads: Callable[[Path], object] | None = None


def arguments(border: Border, folder: Path, random: Random) -> list[str]:
    """Fill ``folder`` with a mutated seed of the border; the command line that reads it."""
    seed = random.choice(border.seeds())
    return border.command(folder, seed.name, mutated(seed, random))


def mutated(seed: Path, random: Random) -> str:
    """The seed's text after a mutation of its data or of its characters."""
    data = _data(seed)
    if data is None or random.random() < 0.3:
        return mutated_text(_text(seed), random)
    changed = mutated_data(data, random)
    lines = changed if seed.suffix == ".jsonl" and isinstance(changed, list) else [changed]
    return "\n".join(map(dumped, lines))


@cache
def _text(seed: Path) -> str:
    return seed.read_text(encoding="utf-8-sig", errors="replace")


@cache
def _data(seed: Path) -> Any:
    """The seed as data: an object, the list of a file of JSON lines, or None where it is neither."""
    text = _text(seed)
    try:
        if seed.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines()[:40]]
        return yaml.safe_load(text) if seed.suffix in (".yaml", ".yml") else json.loads(text)
    except (ValueError, yaml.YAMLError):
        return None


def _files(*patterns: str) -> Callable[[], tuple[Path, ...]]:
    @cache
    def found() -> tuple[Path, ...]:
        return tuple(
            path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.stat().st_size < 60_000
        )

    return found


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def _ttft(folder: Path, name: str, text: str) -> list[str]:
    return ["crossover", "--p99-ms", "5", "--ttft-csv", str(_write(folder, "ttft.csv", text))]


def _serving(folder: Path, name: str, text: str) -> list[str]:
    path = _write(folder, name, text)
    return ["crossover", "--p99-ms", "5", "--allow-queued", "--ttft-from", str(path)]


def _fio(folder: Path, name: str, text: str) -> list[str]:
    return ["import", str(_write(folder, "fio.json", text)), "-o", str(folder / "run")]


def _config(folder: Path, name: str, text: str) -> list[str]:
    return ["blocksize", str(_write(folder, "config.json", text)), "--context", "8k", "--tp", "2"]


def _trace(folder: Path, name: str, text: str) -> list[str]:
    path = str(_write(folder, name, text))
    if crc32(text.encode(errors="surrogatepass")) % 2:
        return ["trace", "info", path]
    return ["workingset", path, "--model", "qwen3-8b", "--capacity", "4GiB"]


def _settings(folder: Path, name: str, text: str) -> list[str]:
    return ["settings", "qwen3-8b", "--check", str(_write(folder, name, text))]


def _small_run(folder: Path) -> Path:
    """A copy of a recorded run with a series beside its points."""
    run = folder / "run"
    copytree(_prepared(), run)
    return run


@cache
def _prepared() -> Path:
    """The recorded example with few points, a series for each and events."""
    from tempfile import mkdtemp

    run = Path(mkdtemp(prefix="kvbench-fuzz-")) / "run"
    copytree(
        EXAMPLE_RUN, run, ignore=lambda _, names: [name for name in names if "2359296" in name or name == "fio.json"]
    )
    result = json.loads((run / "result.json").read_text())
    result["uses"] = result["uses"][:1]
    result["points"] = [point for point in result["points"] if point["io_bytes"] == 1179648][:6]
    series = [
        {"second": second, "round": 1 + second // 6, "host": {"load_1m": 1.0, "cpu_steal_percent": 0.0},
         "read": {"bytes_per_s": 10**8, "iops": 90, "mean_latency_ns": 10**7, "bins": {"9000000": 45, "11000000": 45}}}
        for second in range(1, 12)
    ]  # fmt: skip
    series[5] = {**series[5], "events": ["health HEALTH_OK -> HEALTH_WARN"]}
    for point in result["points"]:
        point["series"] = f"points/{point['id']}/series.json"
        point["events"] = [{"second": 6, "text": "health HEALTH_OK -> HEALTH_WARN"}]
        (run / point["series"]).write_text(json.dumps(series))
    (run / "result.json").write_text(json.dumps(result))
    return run


def remove_prepared() -> None:
    """Remove what the run directories were copied from."""
    if _prepared.cache_info().currsize:
        rmtree(_prepared().parent)
        _prepared.cache_clear()


def _run_part(part: str) -> Callable[[], tuple[Path, ...]]:
    def found() -> tuple[Path, ...]:
        return tuple(sorted(_prepared().glob(part)))

    return found


def _judged(part: str) -> Callable[[Path, str, str], list[str]]:
    def command(folder: Path, name: str, text: str) -> list[str]:
        run = _small_run(folder)
        for place in sorted(run.glob(part)):
            place.write_text(text, encoding="utf-8", errors="surrogatepass")
        ttft = ["--ttft-csv", str(SHIPPED_CSV)]
        # The page takes a second to draw: mostly the same judgement is asked for without it.
        which = crc32(text.encode(errors="surrogatepass")) % _PAGES_IN
        if which == 0:
            return ["report", str(run), *ttft, "-o", str(folder / "page.html")]
        if which < 10:
            return ["gate", str(run), *ttft, "--junit", str(folder / "junit.xml")]
        if which < 15:
            return ["diff", str(run), str(run)]
        return ["crossover", str(run), *ttft]

    return command


def _plan(folder: Path, name: str, text: str) -> list[str]:
    run = _small_run(folder)
    _write(run, "measurement.json", text)
    return ["gate", str(run), "--ttft-csv", str(SHIPPED_CSV)]


def _bundle(folder: Path, name: str, text: str) -> list[str]:
    run = folder / "run"
    _write(run, "result.json", text)
    return ["bundle", str(run), "-o", str(folder / "run.tar.gz")]


def _export(folder: Path, name: str, text: str) -> list[str]:
    run = folder / "run"
    _write(run, "result.json", text)
    return ["export", str(run), "--form", "prometheus" if len(text) % 2 else "csv"]


_BESIDE = ("metrics_before.txt", "metrics_after.txt", "metrics.json", "mount.json")
_STORAGE = ("ceph_before.txt", "ceph_after.txt", "ceph_range.json")


def _compare(folder: Path, name: str, text: str) -> list[str]:
    """A configuration as it is, and one with the text: a load generator's result, its server's or storage's metrics."""
    result = _made() / "requests.json"
    control, arm = folder / "none", folder / "cpu"
    _write(control, "run.json", _text(result))
    _write(arm, "run.json", text if name == result.name else _text(result))
    for place in _BESIDE:
        _write(arm, place, text if name == place else _text(_made() / place))
    if name in _STORAGE:
        for place in _STORAGE[:2]:
            _write(arm, place, text if name == place else _text(_METRICS / place))
        if name == _STORAGE[2]:
            _write(arm, "ceph_metrics_range.json", text)
    return ["compare", f"none={control}", f"cpu={arm}"]


def _compared() -> tuple[Path, ...]:
    return (*(_made() / name for name in ("requests.json", *_BESIDE)), *(_METRICS / name for name in _STORAGE))


def _compare_results(folder: Path, name: str, text: str) -> list[str]:
    """The same result of any load generator as two configurations."""
    return ["compare", *(f"{arm}={_write(folder / arm, name, text)}" for arm in ("none", "cpu"))]


def _predict(folder: Path, name: str, text: str) -> list[str]:
    """Two configurations and what was predicted of them."""
    arms = [f"{arm}={serving_result(folder / arm / 'run.json', 0.5)}" for arm in ("none", "cpu")]
    return ["compare", *arms, "--predicted", str(_write(folder, name, text))]


def _arms(folder: Path, name: str, text: str) -> list[str]:
    return ["arms", str(_write(folder, name, text))]


def _simulate(folder: Path, name: str, text: str) -> list[str]:
    place = str(_write(folder, name, text))
    tiers = ["--gpu", "2GiB", "--cpu", "1GiB", "--tier", "nvme=4GiB"]
    return ["workingset", place, "--model", "qwen3-8b", "--capacity", "4GiB", *tiers]


def _only_file(folder: Path, name: str, text: str) -> list[str]:
    return [str(_write(folder, name, text))]


def _read_stream(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        with suppress(BadEvent):
            read_line(b"data: " + line)


def _marker(folder: Path, name: str, text: str) -> list[str]:
    _write(folder, f"tier/kvbench-0123456789abcdef/{MARKER_NAME}", text)
    return ["clean", "--dry-run", "--tier", str(folder / "tier")]


@cache
def _made() -> Path:
    """Seeds that no file of the repository holds."""
    from tempfile import mkdtemp

    folder = Path(mkdtemp(prefix="kvbench-fuzz-"))
    bins = {9 * MS: 300, 11 * MS: 300}
    read = fio_job("read", fio_side(bins, 1 << 20), rw="randread", bs="1m", numjobs="1", size="400g")
    mixed = fio_job("mixed", fio_side(bins, 1 << 20), fio_side(bins, 1 << 20), rw="randrw", bs="1m", rwmixread="50")
    for profile in profile_paths():
        (folder / f"{profile.stem}.config.json").write_text(json.dumps(read_profile(profile).config))
    (folder / "fio.json").write_text(json.dumps(fio_document(read, mixed)))
    marker = {**this_machine(), "pid": 1, "token": "0123456789abcdef"}
    (folder / "marker.json").write_text(json.dumps(marker))
    _make_settings(folder)
    _make_prefill(folder)
    _make_comparison(folder)
    return folder


def _make_settings(folder: Path) -> None:
    """What an engine is given: the bare configuration, and a manifest around it."""
    tier = {"type": "fs", "root_dir": "/mnt/kv", "n_read_threads": 16, "n_write_threads": 16}
    extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 64 << 30, "secondary_tiers": [tier]}
    config = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    (folder / "settings.json").write_text(json.dumps(config))
    served = {"name": "vllm", "args": ["serve", "m", "--block-size", "16", "--kv-transfer-config", json.dumps(config)]}
    manifest = {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [served]}}}}
    (folder / "settings.yaml").write_text(yaml.safe_dump(manifest))


def _make_prefill(folder: Path) -> None:
    """The log of a measured TTFT, and the events of one answer."""
    plan = Plan("http://127.0.0.1:8000", "m", "m", "auto", (1024,), (1,), 6, 20, 0.1, 1, 60.0, "5eed")
    exchange = Exchange(http_status=200, ttft_ns=90 * MS, total_ns=99 * MS, prompt_tokens=1024, cached_tokens=0)
    record = asdict(Record("sample", 0, "2026-01-01T00:00:00Z", 1, 1024, 1024, 300, 2, exchange))
    head = {"log_version": LOG_VERSION, "created": "2026-01-01T00:00:00Z", "plan": asdict(plan)}
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, (head, record, record))) + "\n")
    delta = {"choices": [{"index": 0, "delta": {"content": "the"}, "finish_reason": None}]}
    usage = {"prompt_tokens": 1024, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    failed = {"error": {"message": "too long", "code": 400}}
    events = (delta, {"choices": [], "usage": usage}, {"content": "x", "timings": {"cache_n": 0}}, failed)
    (folder / "stream.jsonl").write_text("\n".join(map(json.dumps, events)) + "\n")


def _make_comparison(folder: Path) -> None:
    """A load generator's result, its server's metrics and mount, and a plan of such runs."""
    serving_result(folder / "requests.json", 0.5)
    page = """# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {0}
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {1}
vllm:external_prefix_cache_hits_total{{engine="0"}} {0}
vllm:external_prefix_cache_queries_total{{engine="0"}} {1}
vllm:cache_config_info{{engine="0",kv_cache_size_tokens="4096"}} 1.0
vllm:num_preemptions_total{{engine="0"}} {2}
"""
    for when, numbers in (("before", (0, 10, 0)), ("after", (900, 5000, 3))):
        (folder / f"metrics_{when}.txt").write_text(page.format(*numbers))
    sample = {"metric": {"__name__": "vllm:kv_cache_usage_perc", "engine": "0"}, "values": [[1, "0.1"], [2, "0.9"]]}
    ranges = {"status": "success", "data": {"resultType": "matrix", "result": [sample]}}
    (folder / "metrics.json").write_text(json.dumps(ranges))
    gpu = {"name": "gpu", "hit_rate": 0.1, "read_bytes": 0}
    times = {"requests_per_s_ratio": 1.5, "ttft_mean_ratio": 0.5, "ttft_p95_ratio": 0.4}
    predicted = {
        "trace": {"prompt_tokens": 10_000},
        "configurations": [{"name": arm, "external_hit_rate": 0.1, "tiers": [gpu]} for arm in ("none", "cpu")],
        "predicted": [{"name": arm, **times} for arm in ("none", "cpu")],
    }
    (folder / "predicted.json").write_text(json.dumps(predicted))
    mount = {"target": "/mnt/kv", "source": "/dev/nvme0n1", "fstype": "xfs"}
    (folder / "mount.json").write_text(json.dumps({"filesystems": [mount]}))
    generator = {"tool": "aiperf", "data": "a.jsonl", "kind": "weka_trace", "concurrency": [8], "duration_s": 60}
    arms = {"none": {}, "cpu": {"cpu": "64GiB", "tiers": ["fs=/mnt/nvme"]}}
    plan = {"model": "qwen3-8b", "results": "runs", "repeats": 2, "generator": generator, "arms": arms}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))


def remove_made() -> None:
    """Remove the seeds that were made."""
    if _made.cache_info().currsize:
        rmtree(_made())
        _made.cache_clear()


BORDERS: tuple[Border, ...] = (
    Border("serving", _files("tests/data/serving/**/*.json*", "tests/data/serving/**/*.y*ml"), _serving, 60),
    Border("ttft-csv", _files("profiles/prefill/*.csv"), _ttft, 60),
    Border("fio", lambda: (_made() / "fio.json", *_files("tests/data/fio/*.json")()), _fio, 16),
    Border("config", lambda: tuple(sorted(_made().glob("*.config.json"))), _config, 80),
    Border("trace", _files("tests/data/traces/*.json*", "tests/data/traces/*.csv"), _trace, 80),
    Border("settings", lambda: tuple(sorted(_made().glob("settings.*"))), _settings, 80),
    Border("result", _run_part("result.json"), _judged("result.json"), 2),
    Border("histogram", _run_part("points/*-mixed-j16/histogram.json"), _judged("points/*/histogram.json"), 1),
    Border("series", _run_part("points/*-mixed-j16/series.json"), _judged("points/*/series.json"), 1),
    Border("bundle", _run_part("result.json"), _bundle, 8),
    Border("export", _run_part("result.json"), _export, 8),
    Border("compare", _compared, _compare, 30, refuses=False),
    Border(
        "compare-results",
        _files("tests/data/serving/**/*.json*", "tests/data/serving/**/*.y*ml"),
        _compare_results,
        30,
        refuses=False,
    ),
    Border("predicted", lambda: (_made() / "predicted.json",), _predict, 20, refuses=False),
    Border("arms", lambda: (_made() / "plan.yaml",), _arms, 60),
    Border("simulate", _files("tests/data/traces/*.json*", "tests/data/traces/*.csv"), _simulate, 20),
    Border("prefill-log", lambda: (_made() / "log.jsonl",), _only_file, 40, reads=load),
    Border("stream", lambda: (_made() / "stream.jsonl",), _only_file, 120, refuses=False, reads=_read_stream),
    Border("measurement", _run_part("measurement.json"), _plan, 1),
    Border("marker", lambda: (_made() / "marker.json",), _marker, 80, refuses=False),
)


def drawn(random: Random) -> Border:
    """A border, the cheap ones and those with more in them more often."""
    return random.choices(BORDERS, [border.share for border in BORDERS])[0]


def each(inputs: int, seed: int) -> Iterator[tuple[Border, Random]]:
    """A border and a generator of its own for every input, so that any single one can be had again."""
    for number in range(inputs):
        random = Random(f"{seed}-{number}")
        yield drawn(random), random
