"""Removing what kvbench made and nothing else: the one rule of a run's end, its guard, every start and ``clean``.

A directory goes only while all of this holds, seen through descriptors that are held from the first look to the last
removal, so that nothing is followed that is renamed or replaced meanwhile:

- it is a directory and no link, its owner is ours (or whose it is was said not to matter), its name ends in a token;
- nothing is mounted on it or inside it, and every directory below is on the same mount and file system;
- its marker is a small regular file of the same owner that reads as one of ours, and its token is that of the name;
- the run that made it is dead; or its marker is empty, as that of a run that hung before it had written it, it holds
  nothing else, and was made long ago.

The marker goes last, so that ``clean`` finds what could be removed only in part. Buckets share the reading of markers.
This module needs nothing but the standard library and a module that needs no more, because the guard runs alone.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from kvbench.border.escaping import escaped

WORK_PREFIX = "kvbench-"
# What kvbench makes; other names are looked at only for a marker.
OUR_NAME = re.compile(f"{WORK_PREFIX}[0-9a-f]{{16}}")
MARKER_NAME = ".kvbench-owner.json"
# Ours have about 200 bytes.
MARKER_BYTES = 4096

# Reasons to leave a directory: somebody else's or at work; not what kvbench makes; without a marker; could not be done.
Kind = Literal["apart", "odd", "unmarked", "stuck"]

# A run leaves a call that has not returned for a minute (host.stuck), so no run is still at its marker then.
_GIVEN_UP_S = 120.0

# NFS frees a file that was open a moment later, an unmount takes a moment, and EIO may pass.
PAUSES_S = (0.25, 0.5, 1.0)

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# kvbench makes four levels: model, two of the hash, file.
_LEVELS = 32
# On a device that fails every request each try takes its time.
_MOST_FAILURES = 100
_LARGEST_PROCESS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a directory or a prefix stays, in words without a full stop; ``kind`` says what that means for the caller."""

    why: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Marker:
    """Who made a directory: a process of a machine; ``written_s`` is when, in seconds since 1970, as its file says."""

    host: str
    boot: str
    pid_namespace: str
    process: int
    token: str
    created: str | None = None
    written_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Whose directories may go (None: anybody's), and why the run behind a marker may still be at work."""

    owners: frozenset[int] | None
    alive: Callable[[Marker], str | None]


class _Stays(Exception):
    """A reason of the rule against the removal."""

    def __init__(self, why: str, kind: Kind) -> None:
        super().__init__(why)
        self.kept = Kept(why, kind)


@dataclass(frozen=True, slots=True)
class _Held:
    """A directory that passed the rule, held by descriptors: its parent's and its own."""

    parent: int
    name: str
    top: int
    mount: int | None
    device: int
    marker: bytes
    marker_times_ns: tuple[int, int]


@dataclass(slots=True)
class _Failures:
    """What could not be removed: how many, and the first with its reason."""

    count: int = 0
    first: str = ""

    def add(self, where: str, error: OSError) -> None:
        self.count += 1
        self.first = self.first or f"{escaped(where)} could not be removed ({reason(error)})"

    def __str__(self) -> str:
        return self.first + (f", and {self.count - 1} more" if self.count > 1 else "")


def reason(error: OSError) -> str:
    """What the system says of an error."""
    return error.strerror or type(error).__name__


def parse_marker(content: bytes, written_s: float = 0.0) -> Marker:
    """What a marker says; ValueError for everything that kvbench would not have written."""
    if len(content) > MARKER_BYTES:
        raise ValueError("longer than a marker")
    try:
        said = json.loads(content, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested") from None
    if not isinstance(said, dict):
        raise ValueError("not an object")
    host, boot, namespace, token = (said.get(key) for key in ("host", "boot", "pid_namespace", "token"))
    process, created = said.get("pid"), said.get("created")
    texts = (host, boot, namespace, token, created or "")
    # To Python True is a number.
    if not all(isinstance(text, str) for text in texts) or type(process) is not int:
        raise ValueError("other types")
    if not 0 < process <= _LARGEST_PROCESS:
        raise ValueError("no process id")
    return Marker(str(host), str(boot), str(namespace), process, str(token), created, written_s)


def mark(directory: int, said: Mapping[str, object]) -> os.stat_result:
    """Write the marker of an open directory that was just made; what the file system says of it.

    OSError when that fails; then no marker is left.
    """
    return _write_new(directory, json.dumps(said).encode())


def why_kept(directory: Path, rule: Rule) -> Kept | None:
    """Why a directory must stay, or None when the rule allows to remove it; FileNotFoundError when it is gone."""
    try:
        with _held(directory, rule):
            return None
    except _Stays as stays:
        return stays.kept
    except FileNotFoundError:
        raise
    except OSError as error:
        return Kept(f"it cannot be looked at ({reason(error)})", "stuck")


def remove(directory: Path, rule: Rule, pauses_s: Sequence[float] = PAUSES_S) -> Kept | None:
    """Remove a directory as the rule allows, again after each pause while something is in the way.

    Why it stays, whole or in part; None when it is gone.
    """
    kept = _try_to_remove(directory, rule)
    for pause_s in pauses_s:
        if kept is None or kept.kind != "stuck":
            break
        time.sleep(pause_s)
        kept = _try_to_remove(directory, rule)
    return kept


def _try_to_remove(directory: Path, rule: Rule) -> Kept | None:
    failures = _Failures()
    try:
        with _held(directory, rule) as held:
            if _sweep(held, held.top, "", failures):
                _finish(held)
    except _Stays as stays:
        return stays.kept
    except FileNotFoundError:
        return None
    except OSError as error:
        return Kept(f"it could not be removed ({reason(error)})", "stuck")
    return Kept(str(failures), "stuck") if failures.count else None


@contextmanager
def _held(directory: Path, rule: Rule) -> Iterator[_Held]:
    """The directory with its parent, both open, when the rule allows to remove it; _Stays when it does not."""
    parent = os.open(directory.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        top = os.open(directory.name, _LOOK, dir_fd=parent)
        try:
            yield _examined(parent, directory.name, top, rule)
        finally:
            os.close(top)
    finally:
        os.close(parent)


def _examined(parent: int, name: str, top: int, rule: Rule) -> _Held:
    mount = _mount_id(top)
    # Before anything asks the directory: what is mounted there may never answer.
    if mount != _mount_id(parent):
        raise _Stays("something is mounted on it; unmount that first", "stuck")
    seen = os.fstat(top)
    if not stat.S_ISDIR(seen.st_mode):
        raise _Stays("it is a link" if stat.S_ISLNK(seen.st_mode) else "it is no directory", "unmarked")
    if seen.st_dev != os.fstat(parent).st_dev:
        raise _Stays("it is another file system", "stuck")
    if rule.owners is not None and seen.st_uid not in rule.owners:
        raise _Stays(f"it belongs to user {seen.st_uid}; add --any-owner for those of others", "apart")
    _require_nothing_mounted(top)
    content, written = _read_marker(top, seen.st_uid)
    if content or not _is_given_up(name, top, written):
        _require_dead(name, content, written, rule)
    return _Held(parent, name, top, mount, seen.st_dev, content, (written.st_atime_ns, written.st_mtime_ns))


def _require_dead(name: str, content: bytes, written: os.stat_result, rule: Rule) -> None:
    """_Stays unless the marker is that of this directory, by a run that is dead."""
    try:
        marker = parse_marker(content, written.st_mtime)
    except ValueError:
        raise _Stays("its marker cannot be read", "odd") from None
    if name != WORK_PREFIX + marker.token:
        raise _Stays("its marker is that of another directory", "odd")
    at_work = rule.alive(marker)
    if at_work is not None:
        raise _Stays(at_work, "apart")


def _is_given_up(name: str, top: int, written: os.stat_result) -> bool:
    """Whether a run hung while it wrote its marker: an empty one, long ago, and nothing else in the directory."""
    if OUR_NAME.fullmatch(name) is None or time.time() - written.st_mtime < _GIVEN_UP_S:
        return False
    return [found for found, _ in _listed(top)] == [MARKER_NAME]


def _mount_id(descriptor: int) -> int | None:
    """The mount that a descriptor is on, None where the system does not say; two of one file system differ."""
    try:
        said = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    except FileNotFoundError:
        return None
    found = re.search(r"^mnt_id:\s*(\d+)$", said, re.MULTILINE)
    return int(found[1]) if found else None


def _require_nothing_mounted(top: int) -> None:
    """_Stays when something is mounted below the directory, or when nobody can say."""
    # The kernel's names of the directory and of the mount points follow a renaming.
    own = f"{Path(f'/proc/self/fd/{top}').readlink()}/"
    try:
        mounts = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    except OSError as error:
        raise _Stays(f"what is mounted inside it cannot be seen ({reason(error)})", "stuck") from None
    # proc(5): id parent major:minor root mount-point; blanks, tabs, newlines and backslashes are octal.
    for point in re.findall(r"^\S+ \S+ \S+ \S+ ([^ ]+) ", mounts, re.MULTILINE):
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
        if point.startswith(own):
            raise _Stays(f"something is mounted inside it, on {escaped(point)}; unmount that first", "stuck")


def _read_marker(top: int, owner: int) -> tuple[bytes, os.stat_result]:
    """At most one byte more than a marker may have; only a regular file of this owner is opened, without waiting."""
    try:
        seen = os.stat(MARKER_NAME, dir_fd=top, follow_symlinks=False)
    except FileNotFoundError:
        raise _Stays("it has no marker of kvbench", "unmarked") from None
    if not stat.S_ISREG(seen.st_mode):
        raise _Stays("its marker is no regular file", "odd")
    if seen.st_uid != owner:
        raise _Stays(f"its marker belongs to user {seen.st_uid}", "odd")
    if seen.st_size > MARKER_BYTES:
        raise _Stays(f"its marker has {seen.st_size} bytes, more than kvbench writes", "odd")
    try:
        marker = os.open(MARKER_NAME, _READ, dir_fd=top)
    except BlockingIOError as error:
        # A lease (fcntl(2)): to open it would wait for whoever has it.
        raise _Stays(f"its marker is held by another ({reason(error)})", "odd") from None
    try:
        if not os.path.samestat(seen, os.fstat(marker)):
            raise _Stays("its marker was replaced meanwhile", "odd")
        return os.read(marker, MARKER_BYTES + 1), seen
    finally:
        os.close(marker)


def _sweep(held: _Held, folder: int, below: str, failures: _Failures) -> bool:
    """Remove what is in a directory, the marker left out; whether all of that is gone."""
    before = failures.count
    try:
        listed = _listed(folder)
    except OSError as error:
        failures.add(below or ".", error)
        return False
    for name, is_folder in listed:
        if failures.count >= _MOST_FAILURES:
            return False
        if not below and name == MARKER_NAME:
            continue
        try:
            if is_folder:
                _remove_folder(held, folder, name, f"{below}{name}/", failures)
            else:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            failures.add(f"{below}{name}", error)
    return failures.count == before


def _listed(folder: int) -> list[tuple[str, bool]]:
    """Names in a directory, and whether each is a directory itself; a link is none."""
    reader = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(reader) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(reader)


def _remove_folder(held: _Held, parent: int, name: str, below: str, failures: _Failures) -> None:
    folder = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=parent)
    try:
        if _mount_id(folder) != held.mount or os.fstat(folder).st_dev != held.device:
            raise OSError(0, "another file system")
        if below.count("/") > _LEVELS:
            raise OSError(0, "deeper than kvbench makes directories")
        empty = _sweep(held, folder, below, failures)
    finally:
        os.close(folder)
    if empty:
        os.rmdir(name, dir_fd=parent)


def _finish(held: _Held) -> None:
    """Remove the marker and the directory, which holds nothing else any more; the marker comes back if that fails."""
    if not os.path.samestat(os.fstat(held.top), os.stat(held.name, dir_fd=held.parent, follow_symlinks=False)):
        raise OSError(0, "another took its name meanwhile")
    os.unlink(MARKER_NAME, dir_fd=held.top)
    try:
        os.rmdir(held.name, dir_fd=held.parent)
    except OSError:
        with suppress(OSError):
            _write_new(held.top, held.marker, held.marker_times_ns)
        raise


def _write_new(top: int, content: bytes, times_ns: tuple[int, int] | None = None) -> os.stat_result:
    """Make the marker in an open directory; its status. OSError when that fails, and then none is left."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    marker = os.open(MARKER_NAME, flags, 0o600, dir_fd=top)
    try:
        if os.write(marker, content) != len(content):
            raise OSError(0, "no space left for a marker")
        if times_ns is not None:
            os.utime(marker, ns=times_ns)
        with suppress(OSError):
            # Should the host lose power, what is left is found by its marker.
            os.fsync(marker)
        return os.fstat(marker)
    except OSError:
        with suppress(OSError):
            os.unlink(MARKER_NAME, dir_fd=top)
        raise
    finally:
        os.close(marker)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
