"""Other runs of kvbench on the same tier at the same time: each says that it is there, and looks for the rest.

On this host a run holds an abstract socket whose name says where it works; the kernel takes the name back when the
process ends, however it ends (unix(7)). Runs of other hosts and containers show by their marked directories, whose
markers every run renews. Not seen: other hosts below another directory of the same storage, or in the same bucket.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from kvbench.tiers.removal import MARKER_NAME, WORK_PREFIX
from kvbench.tiers.tier import Tier

_SOCKETS = Path("/proc/net/unix")
_NAMED = re.compile(r"@kvbench/([0-9a-f]{16})/([0-9a-f]{16})$", re.MULTILINE)
_TOKEN = re.compile(r"[0-9a-f]{16}")
# A run renews its marker before and after every point, which takes a minute and a stalled operation at most.
_RENEWED_WITHIN_S = 300
# A directory may hold an engine's blocks as well; to list millions of them would load the tier.
_MOST_ENTRIES = 10_000
_PATIENCE_S = 5.0

# Renews the run's own marker and prints the tokens of the others that were renewed lately, by the tier's own clock.
_LOOK = """\
import itertools, os, stat, sys
folder, prefix, own, marker, within_s, most = sys.argv[1:]
mine = os.path.join(folder, prefix + own, marker)
os.utime(mine, follow_symlinks=False)
since = os.lstat(mine).st_mtime - int(within_s)
with os.scandir(folder) as entries:
    names = [entry.name for entry in itertools.islice(entries, int(most)) if entry.name.startswith(prefix)]
for name in names:
    try:
        found = os.lstat(os.path.join(folder, name, marker))
    except OSError:
        continue
    if stat.S_ISREG(found.st_mode) and found.st_mtime > since:
        print(ascii(name[len(prefix):]))
"""

# Children of hung mounts: Python complains of a running child that nobody holds.
_LEFT_ALONE: list[subprocess.Popen[str]] = []


@dataclass(frozen=True, slots=True)
class Presence:
    """One work space of this run, as others find it: what they share, and the directory that they may work in."""

    token: str
    place: str
    directory: Path | None

    def others(self, own: Collection[str]) -> int:
        """How many runs are at work on this tier beside those of the tokens in ``own``."""
        return len((_here(self.place) | self._beside()) - set(own))

    def _beside(self) -> set[str]:
        """Tokens of the runs of any host in this directory; a child looks, because a hung mount holds who looks."""
        if self.directory is None:
            return set()
        asked = (self.directory, WORK_PREFIX, self.token, MARKER_NAME, _RENEWED_WITHIN_S, _MOST_ENTRIES)
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LOOK, *map(str, asked)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = child.communicate(timeout=_PATIENCE_S)
        except BaseException as error:
            child.kill()
            _LEFT_ALONE.append(child)
            if isinstance(error, subprocess.TimeoutExpired):
                return set()
            raise
        return {token for line in said.splitlines() if _TOKEN.fullmatch(token := line.strip("'"))}


@contextmanager
def announced(tier: Tier, token: str) -> Iterator[Presence]:
    """The presence of this run on a tier, seen by others on this host while the body runs."""
    presence = Presence(token, sha256(tier.storage.encode()).hexdigest()[:16], tier.directory)
    with ExitStack() as stack:
        # Where a sandbox forbids sockets the run is not seen, and its numbers are as good as ever.
        with suppress(OSError):
            held = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            held.bind(f"\0kvbench/{presence.place}/{token}")
        yield presence


def _here(place: str) -> set[str]:
    """Tokens of the runs of this host, or of this container, that share the place."""
    try:
        text = _SOCKETS.read_text(errors="replace")
    except OSError:
        return set()
    return {token for where, token in _NAMED.findall(text) if where == place}
