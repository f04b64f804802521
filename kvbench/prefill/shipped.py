"""The prefill curves that kvbench ships, each a CSV file of measured TTFT under a name."""

from __future__ import annotations

import difflib
from pathlib import Path

from kvbench.errors import InputFileError
from kvbench.profiles import profiles_dir


def shipped_curves() -> dict[str, Path]:
    """The files of all shipped curves, by name."""
    return {path.stem: path for path in sorted((profiles_dir() / "prefill").glob("*.csv"))}


def find_csv(given: Path) -> Path:
    """The file of ``--ttft-csv``: the one that was named, or else the shipped curve of that name.

    InputFileError where a plain word is neither: who writes a file's name writes its ending or its folder.
    """
    # A name too long for a file, or a folder that may not be entered, is left to the reader of the file.
    is_word = given.name == str(given) and not given.suffix
    if not is_word or given.exists():
        return given
    curves = shipped_curves()
    name = given.name.lower()
    if name not in curves:
        close = difflib.get_close_matches(name, curves, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the curves are {', '.join(curves)}."
        raise InputFileError(f"--ttft-csv {given}: no such file, and no shipped curve has that name; {hint}")
    return curves[name]
