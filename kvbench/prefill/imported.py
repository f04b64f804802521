"""TTFT samples from serving results that people already have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from kvbench.errors import InputFileError
from kvbench.formats.serving.folder import collect
from kvbench.formats.serving.record import ServingRun
from kvbench.prefill.samples import MOST_SAMPLES, WAITED, Sample, Samples, selected_note, thinned
from kvbench.prefill.selection import SHARED, Taken, take
from kvbench.prefill.warnings import warnings_about

# A folder of the Hub's cache, as huggingface_hub names it: models--org--name/snapshots/<commit>.
_HUB_CACHE = re.compile(r"(?:^|/)models--([^/]+?)--([^/]+)")
# The requests of a run and its own average may differ by rounding and by what failed, not by this factor: a unit would.
_OTHER_UNIT = 30


def read_serving(paths: Sequence[Path], *, allow_queued: bool = False, model: str | None = None) -> Samples:
    """The uncached TTFT samples of serving results, sorted by length; InputFileError when none can be used.

    Requests that shared the server waited for each other, so their TTFT is no prefill time: they are left out unless
    ``allow_queued``, and then noted. Requests served partly from a cache, failed ones and warm-ups never count.
    Averages count only when no run has its single requests. ``model`` replaces the name in the files.
    """
    found = collect(paths)
    for run in found.runs:
        _require_one_unit(run)
    taken = take(found.runs, allow_queued=allow_queued)
    where = ", ".join(str(path) for path in paths)
    rows = taken.rows
    _require_usable(rows, taken, where)
    _require_one_load(taken, where)
    notes = [
        *warnings_about(rows, taken),
        *(f"a damaged file was passed over: {text.rstrip('.')}" for text in found.damaged),
    ]
    if len(rows) > MOST_SAMPLES:
        notes.append(selected_note(len(rows)))
    return Samples(
        rows=tuple(thinned(rows)),
        model=model or _model([usable.run for usable in taken.runs], where),
        source=_source(taken, paths),
        skipped_rows=taken.left_out.total(),
        notes=tuple(notes),
    )


def _require_one_unit(run: ServingRun) -> None:
    """InputFileError when the requests of a run and its own average are in different units, as a new version may be."""
    times = [request.ttft_s for request in run.requests if request.ok and not request.warm_up and request.ttft_s]
    said_s = run.summary.ttft_mean_s
    if not times or not said_s:
        return
    mean_s = float(np.mean(times))
    if not 1 / _OTHER_UNIT < mean_s / said_s < _OTHER_UNIT:
        raise InputFileError(
            f"in {run.source} the TTFT of the requests is {mean_s:,.3g} s on average where the file's own average is "
            f"{said_s:,.3g} s, so one of them is in another unit; this version of {run.tool} is not understood, give "
            "the samples as a CSV with --ttft-csv."
        )


def _require_usable(rows: Sequence[Sample], taken: Taken, where: str) -> None:
    lost = taken.lost()
    if not rows:
        or_keep = ", or keep what waited with --allow-queued" if taken.left_out[SHARED] else ""
        raise InputFileError(
            f"{where} has no uncached TTFT of a request that ran alone{f': left out {lost}' if lost else ''}; "
            f"measure prompts of several lengths, each new to the server, one at a time (concurrency 1){or_keep}."
        )


def _require_one_load(taken: Taken, where: str) -> None:
    """Samples that waited under different loads lie on no common curve."""
    told = {(usable.run.concurrency, usable.run.request_rate) for usable in taken.runs}
    if (taken.has("shared") or taken.has("unknown")) and len(told) > 1:
        names = sorted(_load_text(*load) for load in told)
        raise InputFileError(f"{where} mixes runs at {' and '.join(names)}; name the files of one load.")


def _load_text(concurrency: int | None, rate: float | None) -> str:
    if concurrency is not None:
        return f"concurrency {concurrency}"
    return "an unknown load" if rate is None else f"{rate:g} requests/s"


def _model(runs: Iterable[ServingRun], where: str) -> str | None:
    """The model that the runs name; a path's last part, since a folder's name is all that says which model it holds."""
    names = {name.lower(): name for run in runs if run.model and (name := _name(run.model))}
    if len(names) > 1:
        raise InputFileError(
            f"{where} holds runs of {' and '.join(sorted(names.values()))}; name the files of one model, or say which "
            "model they all are with --ttft-model."
        )
    return next(iter(names.values()), None)


def _name(model: str) -> str:
    text = model.strip().rstrip("/")
    snapshot = _HUB_CACHE.search(text)
    if snapshot:
        return f"{snapshot[1]}/{snapshot[2]}"
    return text.rpartition("/")[2] if text.startswith(("/", "./", "../", "~")) else text


def _source(taken: Taken, paths: Sequence[Path]) -> str:
    """The tools and files, and the warnings that must go wherever the curve goes."""
    runs = [usable.run for usable in taken.runs]
    tools = " and ".join(
        " ".join([tool, *sorted({run.tool_version for run in runs if run.tool == tool and run.tool_version})])
        for tool in sorted({run.tool for run in runs})
    )
    names = ", ".join(dict.fromkeys(path.name or "." for path in paths))
    files = runs[0].source if len(runs) == 1 else f"{len(runs)} runs in {names}"
    grave = ["averages only"] if taken.averaged else []
    grave += [WAITED] if taken.has("shared") else []
    return f"{tools}, {files}" + (f" ({'; '.join(grave)})" if grave else "")
