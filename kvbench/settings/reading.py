"""Finding the engine's configuration in a file: JSON, YAML, a command line, a Kubernetes manifest.

A file is foreign: it is read as data only, nothing in it is expanded or run, and no value of it is printed back.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from kvbench.errors import InputFileError
from kvbench.settings.keys import TRANSFER
from kvbench.settings.scopes import nearest

FLAG = "--kv-transfer-config"
SEED = "PYTHONHASHSEED"

_FLAG = re.compile(r"--kv[-_]transfer[-_]config(?![\w-])")
# vLLM's own configuration file, and the values of charts, name the option without dashes in front.
_OPTION_KEYS = frozenset({"kv-transfer-config", "kv_transfer_config", "kvTransferConfig"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ALIASES = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size"}
# A Kubernetes object has at most 1.5 MB; etcd takes no more.
_LARGEST_BYTES = 4 << 20
_MOST_NODES = 200_000


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """One configuration: where it stood and what stands around it.

    ``environment`` are the variables that are set there by name (a value that comes from elsewhere is None), None where
    the file shows no environment at all; ``options`` are the other options of the command line; ``mounts`` are the
    container's mount points, None outside of a manifest.
    """

    where: str
    config: dict[str, Any]
    environment: Mapping[str, str | None] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] | None = None


def read_file(path: Path) -> list[FoundSettings]:
    """Every configuration in a file; InputFileError when there is none, or the file cannot be read."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise InputFileError(
                f"{path} is larger than 4 MiB, which no configuration is; name the file that holds it."
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror}); name a readable file.") from None
    except ValueError:
        raise InputFileError(f"{path} is not UTF-8 text; name a JSON, YAML or text file.") from None
    return read_text(text, str(path))


def read_text(text: str, name: str) -> list[FoundSettings]:
    """Every configuration in a text, each once; InputFileError when there is none."""
    try:
        found = list(_found(text))
    except RecursionError:
        raise InputFileError(
            f"{name} is nested too deeply to be a configuration; name the file that holds it."
        ) from None
    except _BadConfig as problem:
        raise InputFileError(f"{name}: {problem}.") from None
    if not found:
        raise InputFileError(
            f"{name} holds no {FLAG} and no object with kv_connector; name a file with the engine's command line, its "
            "JSON or YAML, or a Kubernetes manifest."
        )
    return _each_once(found)


class _BadConfig(Exception):
    """A configuration that is there but cannot be read; the text says why, without quoting it."""


def _each_once(found: Sequence[FoundSettings]) -> list[FoundSettings]:
    """The same configuration in several forms counts once: the form that shows most around it."""
    kept: list[FoundSettings] = []
    for item in sorted(found, key=lambda one: (one.mounts is None, one.environment is None)):
        if all(item.config != other.config for other in kept):
            kept.append(item)
    return [item for item in found if any(item is other for other in kept)]


def _found(text: str) -> Iterator[FoundSettings]:
    documents = _documents(text)
    found = [item for document in documents for item in _Walk().walk(document)]
    if not found and _FLAG.search(text):
        found = list(_in_command(text, "command line"))
    yield from found


def _documents(text: str) -> list[Any]:
    """The documents of JSON or YAML text; none when it is neither."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError):
        return []


@dataclass
class _Walk:
    """Walks a document with what is known around each place; a node that an alias repeats is seen once."""

    seen: set[int] = field(default_factory=set)

    def walk(self, document: Any) -> Iterator[FoundSettings]:
        if isinstance(document, dict) and _is_config(document, at_root=True):
            yield FoundSettings("the file itself", document)
        elif isinstance(document, dict | list):
            yield from self._node(document, "", _Around())

    def _node(self, node: Any, where: str, around: _Around) -> Iterator[FoundSettings]:
        if isinstance(node, str):
            if _FLAG.search(node):
                yield from _in_command(node, where, around)
        elif isinstance(node, dict | list):
            if id(node) in self.seen or len(self.seen) > _MOST_NODES:
                return
            self.seen.add(id(node))
            yield from self._mapping(node, where, around) if isinstance(node, dict) else self._list(node, where, around)

    def _mapping(self, node: dict[Any, Any], where: str, around: _Around) -> Iterator[FoundSettings]:
        if _is_config(node, at_root=False):
            yield FoundSettings(where, node, around.environment, {}, around.mounts)
            return
        around = around.inside(node)
        for name, value in node.items():
            path = f"{where}.{name}" if where else str(name)
            if name in _OPTION_KEYS and value is not None:
                yield FoundSettings(path, _parsed(value), around.environment, _scalars(node), around.mounts)
            else:
                yield from self._node(value, path, around)

    def _list(self, node: list[Any], where: str, around: _Around) -> Iterator[FoundSettings]:
        if any(isinstance(item, str) and _FLAG.match(item) for item in node):
            words = [_unescaped(str(item), around) for item in node if isinstance(item, str | int | float)]
            yield from _in_words(words, where, around)
            return
        for number, item in enumerate(node):
            yield from self._node(item, f"{where}[{number}]", around)


@dataclass(frozen=True, slots=True)
class _Around:
    """What a place in a manifest is surrounded by."""

    environment: Mapping[str, str | None] | None = None
    mounts: tuple[str, ...] | None = None

    def inside(self, node: Mapping[Any, Any]) -> _Around:
        """The same for what a mapping holds: a container brings its variables and mounts along."""
        if not any(name in node for name in ("args", "command", "env", "volumeMounts")):
            return self
        container = "args" in node or "command" in node
        mounts = [item.get("mountPath") for item in _mappings(node.get("volumeMounts"))]
        environment = {
            str(item["name"]): None if item.get("value") is None else str(item["value"])
            for item in _mappings(node.get("env"))
            if "name" in item
        }
        # What envFrom brings is not in the file.
        shown = (container or environment) and "envFrom" not in node
        return _Around(
            environment if shown else self.environment,
            tuple(str(path) for path in mounts) if container else self.mounts,
        )


def _mappings(node: Any) -> list[dict[Any, Any]]:
    return [item for item in node if isinstance(item, dict)] if isinstance(node, list) else []


def _is_config(node: Mapping[Any, Any], *, at_root: bool) -> bool:
    names = [name for name in node if isinstance(name, str)]
    if "kv_connector" in names:
        return True
    return at_root and any(name in TRANSFER.keys or nearest(name, ("kv_connector",)) for name in names)


def _in_command(text: str, where: str, around: _Around | None = None) -> Iterator[FoundSettings]:
    """The configurations of shell text; with quotes that do not balance elsewhere, only the option itself is read."""
    try:
        # A backslash at the end of a line continues it, also where a script was indented.
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        words = [word for start in _FLAG.finditer(text) for word in _first_words(text[start.start() :])]
    if not any(_FLAG.match(word) for word in words):
        # A script inside of another command's quotes.
        for word in words:
            if _FLAG.search(word) and word != text:
                yield from _in_command(word, where, around)
        return
    yield from _in_words(words, where, around or _Around(environment={}))


def _first_words(text: str) -> Iterator[str]:
    reader = shlex.shlex(text, posix=True, punctuation_chars=False)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        yield reader.get_token() or ""
        yield reader.get_token() or ""
    except ValueError:
        raise _BadConfig(f"the quotes after {FLAG} do not close") from None


def _in_words(words: Sequence[str], where: str, around: _Around) -> Iterator[FoundSettings]:
    assigned, options = _assignments(words), _options(words)
    environment = {**(around.environment or {}), **assigned} if assigned else around.environment
    dotted: dict[str, Any] = {}
    for number, word in enumerate(words):
        flag = _FLAG.match(word)
        if flag is None:
            continue
        rest = word[flag.end() :]
        following = words[number + 1] if number + 1 < len(words) else None
        if rest.startswith("."):
            _put(dotted, rest[1:], following)
            continue
        value = rest[1:] if rest.startswith("=") else following
        if value is None:
            raise _BadConfig(f"nothing follows {FLAG}")
        yield FoundSettings(where, _parsed(value), environment, options, around.mounts)
    if dotted:
        yield FoundSettings(where, dotted, environment, options, around.mounts)


def _assignments(words: Sequence[str]) -> dict[str, str]:
    """Variables that a command line sets for its program: in front of it, or with the -e of a container's command."""
    found, in_front = {}, True
    for before, word in pairwise(("", *words)):
        if _FLAG.match(word):
            break
        in_front = in_front and not word.startswith("-")
        if _ASSIGNMENT.fullmatch(word) and (in_front or before in ("-e", "--env")):
            name, _, value = word.partition("=")
            found[name] = value
    return found


def _options(words: Sequence[str]) -> dict[str, str]:
    """The options of a command line that have a value, by name without dashes."""
    found = {}
    for number, word in enumerate(words):
        if not word.startswith("-") or _FLAG.match(word):
            continue
        name, separator, value = word.partition("=")
        name = _ALIASES.get(name, name.lstrip("-").replace("_", "-"))
        following = words[number + 1] if number + 1 < len(words) else ""
        found[name] = value if separator else "" if following.startswith("-") else following
    return found


def _put(config: dict[str, Any], path: str, following: str | None) -> None:
    """Set ``--kv-transfer-config.a.b VALUE`` (also ``=VALUE``), as vLLM's FlexibleArgumentParser nests it."""
    path, separator, value = path.partition("=")
    text = value if separator else following
    if text is None:
        raise _BadConfig(f"nothing follows {FLAG}.{path}")
    *parents, last = path.split(".")
    for name in parents:
        inner = config.setdefault(name, {})
        if not isinstance(inner, dict):
            raise _BadConfig(f"{FLAG}.{path} sets a key inside of one that is no object")
        config = inner
    try:
        config[last] = json.loads(text)
    except ValueError:
        config[last] = text


def _parsed(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
            why = getattr(error, "msg", "a number is out of range")
            raise _BadConfig(f"what follows {FLAG} is not JSON (line {line}, column {column} of it: {why})") from None
    if not isinstance(value, dict):
        raise _BadConfig(f"what follows {FLAG} is no JSON object")
    return value


def _scalars(node: Mapping[Any, Any]) -> dict[str, str]:
    return {
        str(name).replace("_", "-"): str(value) for name, value in node.items() if isinstance(value, str | int | float)
    }


def _unescaped(text: str, around: _Around) -> str:
    """An argument as the container gets it: Kubernetes makes ``$$`` one ``$``, and leaves an unknown $(NAME) alone."""
    return text if around.mounts is None else text.replace("$$", "$")
