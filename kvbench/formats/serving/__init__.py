"""Results of serving benchmarks, each read once into a ServingRun: one file per format, listed in FORMATS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kvbench.errors import InputFileError
from kvbench.formats.serving import aiperf, documents, genai_perf, guidellm, inference_perf, llmd, sglang, vllm
from kvbench.formats.serving.record import ServingRun


class ServingFormat(Protocol):
    """What a format's module has: whether documents are of it, and the runs that they hold."""

    def accepts(self, documents: tuple[Any, ...], /) -> bool:
        """Whether the documents of a file are of this format; never raises."""

    def read(self, documents: tuple[Any, ...], path: Path, /) -> tuple[ServingRun, ...]:
        """The runs, in the file's order; InputFileError for what is not as the tool writes it."""


FORMATS: dict[str, ServingFormat] = {
    aiperf.NAME: aiperf,
    genai_perf.NAME: genai_perf,
    guidellm.NAME: guidellm,
    inference_perf.NAME: inference_perf,
    llmd.NAME: llmd,
    sglang.NAME: sglang,
    vllm.NAME: vllm,
}


def known() -> str:
    """The names of the formats, for a sentence."""
    names = list(FORMATS)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def read_file(path: Path) -> tuple[ServingRun, ...]:
    """The serving runs of one file, in its order; InputFileError when it is damaged or of no known format."""
    found = documents.load(path)
    reader = format_of(found)
    if reader is None:
        raise InputFileError(f"{path} is of no known format; kvbench reads results of {known()}.")
    return reader.read(found, path)


def format_of(found: tuple[Any, ...]) -> ServingFormat | None:
    """The one format that accepts a file's documents, None when none does."""
    return next((one for one in FORMATS.values() if one.accepts(found)), None)
