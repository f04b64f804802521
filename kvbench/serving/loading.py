"""Reads the runs of a configuration: results of a load generator, and what lies beside them in the same folder.

``metrics_before.txt`` and ``metrics_after.txt`` (or ``.prom``) are the server's /metrics page, ``metrics.json`` a range
export, and ``mount.json`` is what ``findmnt --json --target DIR`` said of the tier: 'kvbench arms' prints the commands
that write them. Other servers' pages (storage, GPUs) go into ``NAME_before.txt`` and so on. Where the requests carry
the time of day, a range export is cut to the time of its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.border import bounded
from kvbench.errors import InputFileError
from kvbench.formats.metrics import ranges, snapshots
from kvbench.formats.metrics.record import Metrics, Window, joined
from kvbench.formats.serving.folder import collect
from kvbench.formats.serving.record import ServingRun
from kvbench.serving.arm import ArmRun, Configuration
from kvbench.serving.server import state_of
from kvbench.serving.storage import storage_of

_TEXTS = (".txt", ".prom")
_BEFORE, _AFTER = "_before", "_after"
# From 2001 to 5138: other origins of a client's clock are the start of the host or of the run.
_LEAST_UNIX_S, _MOST_UNIX_S = 1e9, 1e11
# An export that goes on for so much longer than its run has other runs in it.
_LONGER, _LONGER_S = 1.5, 120.0


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """A configuration, and what was passed over while it was read."""

    configuration: Configuration
    notes: tuple[str, ...]


def load(name: str, paths: Sequence[Path]) -> LoadedConfiguration:
    """Every run below the paths; InputFileError where they hold none."""
    runs: list[ArmRun] = []
    notes: list[str] = []
    for path in paths:
        collected = collect([path])
        notes += collected.damaged
        kept = list(_each_once([run for run in collected.runs if _says_something(run)]))
        folders = [_folder(path, run) for run in kept]
        crowded = {folder for folder, count in Counter(folders).items() if count > 1}
        for run, folder in zip(kept, folders, strict=True):
            metrics, found = _beside(folder, ArmRun(run), alone=folder not in crowded)
            notes += found
            runs.append(ArmRun(run, state_of(metrics), _mount(folder), storage_of(metrics)))
    if not runs:
        raise InputFileError(f"{name}={paths[0]} holds no run with latencies; name a result of a load generator.")
    return LoadedConfiguration(Configuration(name, tuple(runs)), tuple(dict.fromkeys(notes)))


def _says_something(run: ServingRun) -> bool:
    """inference-perf's Prometheus reports, read as results, say nothing of their own."""
    summary = run.summary
    return bool(run.requests) or any((summary.ttft_mean_s, summary.e2e_mean_s, summary.requests_per_s))


def _each_once(runs: Sequence[ServingRun]) -> Iterator[ServingRun]:
    """The runs without the summary that repeats another file's requests: AIPerf writes both into one folder."""
    detailed = {_about(run) for run in runs if run.requests}
    return (run for run in runs if run.requests or _about(run) not in detailed)


def _about(run: ServingRun) -> tuple[object, ...]:
    return run.tool, Path(run.source).parent, run.concurrency, run.request_rate, run.summary


def _folder(path: Path, run: ServingRun) -> Path:
    return (path if path.is_dir() else path.parent) / Path(run.source).parent


def _beside(folder: Path, run: ArmRun, *, alone: bool) -> tuple[Metrics, list[str]]:
    """What the metrics of the folder say of the run, and what was left out because it is not of this run alone."""
    if not folder.is_dir():
        return joined([]), []
    files, window = sorted(folder.iterdir()), _window(run)
    parts = [*_snapshots(files), *(ranges.read(file, window) for file in files if _is_export(file))]
    kept = [part for part in parts if _of_this_run(part, run, window, alone=alone)]
    if len(kept) == len(parts):
        return joined(kept), []
    if not alone:
        return joined(kept), [f"{folder} holds several runs, so its metrics are of no single one and were left out"]
    return joined(kept), [f"{folder} has metrics of more than its run, and its times are not known: they were left out"]


def _of_this_run(part: Metrics, run: ArmRun, window: Window | None, *, alone: bool) -> bool:
    if part.watched_s is None or window is None:
        longest = max(_LONGER * (run.duration_s or float("inf")), _LONGER_S)
        return alone and (part.watched_s or 0.0) <= longest
    return True


def _window(run: ArmRun) -> Window | None:
    """When the run was, None where its requests do not carry the time of day."""
    window = run.window_s
    return Window(*window) if window and _LEAST_UNIX_S < window[0] < window[1] < _MOST_UNIX_S else None


def _snapshots(files: Sequence[Path]) -> Iterator[Metrics]:
    for before in files:
        if before.suffix in _TEXTS and before.stem.endswith(_BEFORE):
            after = before.with_name(before.stem.removesuffix(_BEFORE) + _AFTER + before.suffix)
            if not after.is_file():
                raise InputFileError(f"{before} has no {after.name} beside it; save the page after the run as well.")
            yield snapshots.between(before, after)


def _is_export(file: Path) -> bool:
    named = file.stem in ("metrics", "server_metrics_export") or file.stem.endswith("_metrics_range")
    return file.suffix == ".json" and named


def _mount(folder: Path) -> Mapping[str, str] | None:
    """The mount that ``findmnt --json`` named, None where the folder does not say it."""
    path = folder / "mount.json"
    if not path.is_file():
        return None
    try:
        document = bounded.json_of(bounded.read_bytes(path, regular=True))
        found = document["filesystems"][0]
        return {key: str(found[key]) for key in ("target", "source", "fstype")}
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        raise InputFileError(f"{path} is not what 'findmnt --json --target DIR' prints; write it again.") from None
