"""Names that tell whose machine it was, replaced in texts: each by one pseudonym, the same one wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from ipaddress import ip_address
from itertools import pairwise
from typing import Any, Literal

from kvbench.border.redaction import redacted

Kind = Literal["host", "user", "address", "bucket", "path", "id", "tier", "word"]

_WORD = r"[A-Za-z0-9]"
# The path ends where no file system of ours would have a character: quotes, lists, options and brackets.
_PATH = re.compile(r"(?<![\w.~<>/-])/(?!/)[^\s\"'`,;:=|<>()\[\]{}*?]+")
_URL = re.compile(
    r"\b([a-z][a-z0-9+.-]*)://(?:[^\s/@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s/:?#\"'`,;<>)\]}]+)((?::\d+)?)(/[^\s\"'`,;<>)\]}]*)?"
)
_REMOTE = re.compile(r"(?<![\w./-])([A-Za-z][\w.-]*\w):(?=/)(?!//)")
_DOMAIN = re.compile(
    r"(?<![\w./@-])(?:[A-Za-z0-9-]+\.)+(?:internal|local|localdomain|lan|corp|intranet|svc|com|net|org|io|cloud|dev|ai"
    r"|eu|de|fr|uk|nl|ch|at|us|jp|cn|in|example|test|invalid)(?![\w-]|\.\w)"
)
_LOGIN = re.compile(r"(?<![\w.+<>-])([A-Za-z0-9_][\w.+-]*)@(?=[\w\[])")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_MAC = re.compile(r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
_UUID = re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])")
_HOMES = frozenset({"home", "Users"})

# Parts of a path that say what it is and not whose: the usual roots of a system, devices, and kvbench's own names.
_COMMON = frozenset({
    "app", "bash", "bench", "benchmark", "bin", "block", "bus", "by-id", "by-path", "by-uuid", "cache", "ceph",
    "cephfs", "class", "containers", "csi", "data", "dev", "devices", "diff", "disk", "docker", "etc", "fio",
    "fuse", "home", "kubelet", "kv", "kv-cache", "lib", "lib64", "local", "lower", "lvm", "mapper", "media",
    "merged", "mnt", "models", "mount", "net", "nfs", "null", "nvme", "opt", "overlay", "overlay2", "pci",
    "plugins", "pods", "proc", "projects", "python", "python3", "reports", "results", "root", "run", "runs", "sbin",
    "scratch", "self", "sh", "shm", "src", "srv", "ssh", "storage", "sys", "test", "tests", "tier", "tmp", "upper",
    "user", "users", "Users", "usr", "var", "volumes", "work", "workspace",
})  # fmt: skip
_OURS = re.compile(
    r"\.?kvbench[\w.-]*|points|imported|round-\d+|[\w.-]*\.(?:fio|json|log|err|txt|md|py|sh|so|bin|csv)|b\d+(?:\.\d+)*"
    r"|(?:nvme\d+(?:n\d+)?(?:p\d+)?|[shv]d[a-z]+\d*|md\d+|dm-\d+|loop\d+|rbd\d+|zram\d+)|python3\.\d+|\d+"
)
# A shorter word stands in too many others to be replaced where it is no part of a path.
_SHORTEST_WORD = 3


class Pseudonyms:
    """Learns names from texts (``learn``), then gives every text without them (``applied``).

    ``kept`` are words that stay even where a path holds them: those that a format itself is made of.
    """

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._kept = frozenset(kept) | _COMMON
        self._names: dict[str, str] = {}
        self._counts: dict[Kind, int] = {}

    @property
    def counts(self) -> dict[Kind, int]:
        """How many different names of each kind were found."""
        return dict(self._counts)

    def know(self, kind: Kind, name: str) -> None:
        """Remember a name of a kind; whatever it is part of, it is replaced."""
        if name and name.casefold() not in self._names and not (kind != "word" and name in self._kept):
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._name(name, f"{kind}-{self._counts[kind]}")

    def know_also(self, spelling: str, name: str) -> None:
        """Remember another spelling of a name that is known: both get one pseudonym."""
        if name.casefold() in self._names:
            self._name(spelling, self._names.get(spelling.casefold(), self._names[name.casefold()]))

    def _name(self, spelling: str, pseudonym: str) -> None:
        self._names[spelling.casefold()] = pseudonym
        self.__dict__.pop("_known", None)

    def know_path(self, path: str) -> None:
        """Remember every part of a path that says whose it is."""
        parts = [part for part in path.split("/") if part]
        for before, part in pairwise(["", *parts]):
            if before in _HOMES:
                self.know("user", part)
            elif not _OURS.fullmatch(part):
                self.know("path", part)

    def learn(self, text: str) -> None:
        """Remember the names in a text: addresses, hosts of URLs and mounts, logins, and paths."""
        for kind, name in _found(redacted(text)):
            if kind == "path":
                self.know_path(name)
            else:
                self.know(kind, name)

    def applied(self, text: str) -> str:
        """The text with every name that is known replaced, and without what looks like a credential."""
        text = redacted(text)
        if text.casefold() in self._names:
            return self._names[text.casefold()]
        if self._known is not None:
            text = self._known.sub(lambda found: self._names[found[0].casefold()], text)
        return _PATH.sub(lambda found: "/".join(map(self._part, found[0].split("/"))), text)

    def applied_json(self, value: Any) -> Any:
        """JSON data with every text in it replaced, keys as well."""
        if isinstance(value, str):
            return self.applied(value)
        if isinstance(value, dict):
            return {self.applied(key): self.applied_json(item) for key, item in value.items()}
        return [self.applied_json(item) for item in value] if isinstance(value, list) else value

    def _part(self, part: str) -> str:
        return self._names.get(part.casefold(), part)

    @cached_property
    def _known(self) -> re.Pattern[str] | None:
        """Every known name, the longest first: also inside of ids, but not inside of longer words."""
        names = sorted((name for name in self._names if len(name) >= _SHORTEST_WORD), key=len, reverse=True)
        if not names:
            return None
        return re.compile(rf"(?i)(?<!{_WORD})(?:{'|'.join(map(re.escape, names))})(?!{_WORD})")


def _found(text: str) -> Iterator[tuple[Kind, str]]:
    for found in _URL.finditer(text):
        yield ("bucket" if found[1] == "s3" else "host"), found[2].strip("[]")
        if found[4]:
            yield "path", found[4]
    for pattern, kind in _BY_PATTERN:
        for found in pattern.finditer(text):
            name = found[found.re.groups]
            if kind != "address" or _is_address(name):
                yield kind, name


def _is_address(text: str) -> bool:
    """Whether it is an address of a machine: times and versions look alike, and loopback is everybody's."""
    if _MAC.fullmatch(text):
        return True
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


_BY_PATTERN: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (_UUID, "id"),
    (_MAC, "address"),
    (_IPV4, "address"),
    (_IPV6, "address"),
    (_LOGIN, "user"),
    (_REMOTE, "host"),
    (_DOMAIN, "host"),
    (_PATH, "path"),
)


def texts_of(value: Any) -> Iterator[str]:
    """Every text of JSON data, keys as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
