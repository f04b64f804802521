"""A run as one archive for somebody else: every file that kvbench wrote, without names, places and secrets."""

from __future__ import annotations

import getpass
import gzip
import io
import os
import platform
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kvbench import __version__
from kvbench.border import bounded
from kvbench.border.json_text import json_text
from kvbench.border.pseudonyms import Kind, Pseudonyms, texts_of
from kvbench.errors import ResultFileError
from kvbench.record import results
from kvbench.record.point import slug
from kvbench.record.results import RESULT_NAME, RunResult
from kvbench.run.foreign import LOCK_NAME
from kvbench.run.measurement import MEASUREMENT_NAME

BUNDLE_NAME = "bundle.json"

_TEXTS = frozenset({".json", ".fio", ".txt", ".log", ".err", ".md"})
_MOST_FILES = 100_000
# What a result says with one word, beside its keys: a directory of that name must not change it.
_WORDS = frozenset({
    "read", "write", "mixed", "ok", "failed", "skipped", "interrupted", "lat", "clat", "cold", "cached", "unknown",
    "random", "sequential", "engine", "own", "huge", "fio", "replay", "memory", "s3", "dram", "warning", "events",
    "ext4", "xfs", "tmpfs", "nfs", "nfs4",
})  # fmt: skip
_FACTS_KEPT = ("filesystem", "backing_filesystem", "device", "scheduler", "client")
_BY_TIER = frozenset({"tiers", "tier_traits"})


@dataclass(frozen=True, slots=True)
class Bundle:
    """The archive's bytes, how many names of each kind were replaced, and the files that were left out, with why."""

    content: bytes
    files: tuple[str, ...]
    replaced: dict[Kind, int]
    left_out: dict[str, str]


def bundle(run_dir: Path, words: Iterable[str] = ()) -> Bundle:
    """The run of a directory as a .tar.gz, in which each private name and each of ``words`` is one pseudonym.

    The same run gives the same bytes. Links, files of others and what is no text are left out. ResultFileError when the
    directory holds no run, or is too large for one.
    """
    run = results.load(run_dir)
    texts, left_out = _texts_in(run_dir)
    documents = {name: _document(name, text) for name, text in texts.items()}
    names = _learned(run, documents, words)
    files = {names.applied(name): _without_names(document, names) for name, document in documents.items()}
    if len(files) < len(documents):
        raise ResultFileError(f"{run_dir} holds two files whose names differ only in letter case; rename one.")
    said = {"made_by": f"kvbench {__version__}", "replaced": names.counts, "left_out": sorted(left_out.values())}
    files[BUNDLE_NAME] = json_text(said, indent=1)
    return Bundle(_archive(files), tuple(files), names.counts, left_out)


def _texts_in(run_dir: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of a run by name below its directory, and why the other files stay out."""
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for path in _files_below(run_dir):
        name = path.relative_to(run_dir).as_posix()
        if not _is_ours(PurePosixPath(name)):
            left_out[name] = "kvbench did not write it into a run"
            continue
        try:
            texts[name] = bounded.read_bytes(path, regular=True).decode()
        except (OSError, ValueError) as error:
            left_out[name] = (error.strerror or "it cannot be read") if isinstance(error, OSError) else "it is no text"
    return texts, left_out


def _files_below(folder: Path) -> Iterator[Path]:
    """Regular files only, in order; no link is followed."""
    found = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.is_symlink() or not path.is_file() or path.name == LOCK_NAME:
                continue
            found += 1
            if found > _MOST_FILES:
                raise ResultFileError(f"{folder} holds more than {_MOST_FILES:,} files, so it is no run of kvbench.")
            yield path


def _is_ours(name: PurePosixPath) -> bool:
    if name.suffix not in _TEXTS:
        return False
    at_top = name.name in (RESULT_NAME, MEASUREMENT_NAME, "summary.md") or name.suffix == ".fio"
    return at_top if len(name.parts) == 1 else name.parts[0] in ("points", "imported")


def _document(name: str, text: str) -> Any:
    """The JSON data of a text, or the text itself where it is none."""
    if name.endswith(".json"):
        with suppress(ValueError):
            return bounded.json_of(text, "null")
    return text


def _learned(run: RunResult, documents: Mapping[str, Any], words: Iterable[str]) -> Pseudonyms:
    """What must not be handed on: this host and its user, the run's hosts and tiers, and every name in its texts."""
    names = Pseudonyms(kept=_kept(run, documents))
    for word in words:
        names.know("word", word)
    hosts = [platform.node(), str(run.environment.get("host", "")), *(c for p in run.points for c in p.clients)]
    for host in hosts:
        names.know("host", host)
        names.know("host", host.partition(".")[0])
    with suppress(KeyError, OSError):
        names.know("user", getpass.getuser())
    for tier, facts in run.tiers.items():
        _know_tier(names, tier, str(facts.get("path") or ""))
        names.know_path(str(facts.get("mount_point") or ""))
    for document in documents.values():
        for text in texts_of(document):
            names.learn(text)
    return names


def _know_tier(names: Pseudonyms, tier: str, path: str) -> None:
    """A tier that nobody named is called like its directory, and its points like the slug of that."""
    if tier in path.split("/"):
        names.know("tier", tier)
        names.know_also(slug(tier), tier)
    names.know_path(path)


def _kept(run: RunResult, documents: Mapping[str, Any]) -> set[str]:
    """The keys of the files, the words in which a result says things, and the folders of its points."""
    folders = {PurePosixPath(name).parts[1] for name in documents if name.count("/") > 1}
    facts = {str(facts[name]) for facts in run.tiers.values() for name in _FACTS_KEPT if facts.get(name)}
    return {key for document in documents.values() for key in _keys(document)} | facts | folders | _WORDS


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            # Below these the keys are names of tiers.
            for below in item.values() if key in _BY_TIER and isinstance(item, dict) else [item]:
                yield from _keys(below)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _without_names(document: Any, names: Pseudonyms) -> str:
    if isinstance(document, str):
        return names.applied(document)
    return json_text(names.applied_json(document), indent=1)


def _archive(files: Mapping[str, str]) -> bytes:
    """A .tar.gz without owners, modes and times of the files."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"kvbench-run/{name}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
