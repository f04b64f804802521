"""Every serving run below a path: a file, or a folder that a benchmark left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from kvbench.errors import InputFileError
from kvbench.formats.serving import documents, format_of, known, read_file
from kvbench.formats.serving.record import ServingRun

_MOST_FILES = 2000
# inference-perf also writes Prometheus' and the sessions' view of a stage, which repeat no summary.
_STAGE = re.compile(r"stage_\d+_lifecycle_metrics\.json")


@dataclass(frozen=True, slots=True)
class Collected:
    """The runs, each once, and the damaged files that were passed over."""

    runs: tuple[ServingRun, ...]
    damaged: tuple[str, ...]


def collect(paths: Sequence[Path]) -> Collected:
    """The runs of files and folders; InputFileError for a file that is none, and for a folder without any.

    A folder's other files are passed over. The same run in two files (a sweep's summary, YAML beside JSON) counts once.
    """
    runs: list[ServingRun] = []
    damaged: list[str] = []
    for path in paths:
        if path.is_dir():
            found, broken = _below(path)
            damaged += broken
            runs += found
        else:
            runs += read_file(path)
    return Collected(_each_once(runs), tuple(damaged))


def _below(folder: Path) -> tuple[list[ServingRun], list[str]]:
    files = list(islice(_candidates(folder), _MOST_FILES + 1))
    if len(files) > _MOST_FILES:
        raise InputFileError(f"{folder} holds more than {_MOST_FILES} JSON and YAML files; name a smaller folder.")
    runs: list[ServingRun] = []
    damaged: list[str] = []
    for file in files:
        try:
            found = documents.load(file)
            reader = format_of(found)
            where = file.relative_to(folder).parent
            runs += (
                []
                if reader is None
                else [replace(run, source=str(where / run.source)) for run in reader.read(found, file)]
            )
        except InputFileError as error:
            damaged.append(str(error))
    if not runs and damaged:
        raise InputFileError(damaged[0])
    if not runs:
        raise InputFileError(f"{folder} holds no result that kvbench knows; it reads results of {known()}.")
    return runs, damaged


def _candidates(folder: Path) -> Iterator[Path]:
    """The files that may be results, in a fixed order, without what repeats another file or was not measured."""
    for where, folders, names in os.walk(folder):
        here = set(names)
        # AIPerf repeats each phase, the warm-up too, below this folder.
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and (name != "phases" or "phase_manifest.json" not in here)
        )
        staged = any(_STAGE.fullmatch(name) for name in here)
        for name in sorted(here):
            repeats = staged and name == "summary_lifecycle_metrics.json"
            failed = name.endswith(".failure.json")
            known_suffix = name.lower().endswith(documents.SUFFIXES) and not name.startswith(".")
            # A pipe of that name would keep us waiting for ever.
            if known_suffix and not repeats and not failed and Path(where, name).is_file():
                yield Path(where, name)


def _each_once(runs: Sequence[ServingRun]) -> tuple[ServingRun, ...]:
    return tuple({replace(run, source=""): run for run in reversed(runs)}.values())[::-1]
