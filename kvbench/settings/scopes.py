"""The keys of one place: unknown, of another release, missing, of the wrong kind, or with an impossible value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from kvbench.engines.vllm.releases import FEATURES, Release
from kvbench.settings.finding import Engine, SettingsFinding, join, shown
from kvbench.settings.keys import SCOPES, TRANSFER, Key, Scope, Unknown
from kvbench.settings.values import whole_of, wrong_kind

_EFFECTS: Mapping[Unknown, tuple[Engine, str]] = {
    "refused": ("refuses", "the engine does not start"),
    "ignored": ("ignores", "the engine ignores it without a word"),
    "warned": ("ignores", "LMCache logs a warning and ignores it"),
}


def check_keys(scope: Scope, config: Mapping[str, Any], where: str, release: Release) -> Iterator[SettingsFinding]:
    """What is wrong with the keys of one place, in the order of the file, missing ones last."""
    for name, value in config.items():
        key = scope.keys.get(name)
        if key is None:
            yield _unknown(scope, name, where, release)
        elif not key.known_in(release):
            yield _of_another_release(scope, key, where, release)
        else:
            yield from _check_value(scope, key, value, where)
    for key in scope.keys.values():
        if key.required and key.known_in(release) and config.get(key.name) in (None, ""):
            yield missing(key.name, scope, where)


def _check_value(scope: Scope, key: Key, value: Any, where: str) -> Iterator[SettingsFinding]:
    # null means that the key is not set.
    if value is None:
        return
    path = join(where, key.name)
    wanted = wrong_kind(key, value)
    if wanted is not None:
        yield SettingsFinding("error", "wrong-type", path, *_wrong_type(scope, key, value, wanted))
    elif key.choices and value not in key.choices:
        found = "this value" if key.secret else repr(shown(value))
        message = f"{key.name} cannot be {found}: the engine does not start"
        yield SettingsFinding("error", "wrong-value", path, message, _choose(value, key.choices), "refuses")
    elif key.least is not None and (number := whole_of(value)) is not None and number < key.least:
        message = f"{key.name} is {number}, and the least that works is {key.least}"
        hint = f"give {key.least} or more" + (f"; the default is {key.default}" if key.default else "")
        # Sizes are divided by or mapped; threads are just not started.
        engine: Engine = "refuses" if key.kind == "count" else "accepts"
        yield SettingsFinding("error", "wrong-value", path, message, hint, engine)


def missing(name: str, scope: Scope, where: str) -> SettingsFinding:
    """A key that the engine needs and does not find."""
    return SettingsFinding(
        "error", "missing-key", join(where, name), f"{scope.name} needs {name}: the engine does not start",
        f"add {name}", "refuses",
    )  # fmt: skip


def nearest(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that was probably meant, or None."""
    by_plain = {_plain(one): one for one in known}
    found = get_close_matches(_plain(name), by_plain, n=1, cutoff=0.7)
    return by_plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


def _wrong_type(scope: Scope, key: Key, value: Any, wanted: str) -> tuple[str, str, Engine]:
    hint = f"write {wanted}"
    if scope.unknown == "warned":
        return f"{key.name} is {_named(value)}, not {wanted}: LMCache leaves its default", hint, "ignores"
    if key.kind == "flag" and isinstance(value, str):
        return f"{key.name} is text, and the engine takes any text for true, also 'false'", hint, "accepts"
    if key.kind == "count" and isinstance(value, str):
        return f"{key.name} is no plain number: the engine does not start", hint, "refuses"
    engine: Engine = "accepts" if _is_used_as_it_is(scope, key, value) else "refuses"
    effect = "" if engine == "accepts" else ": the engine does not start"
    is_list = isinstance(value, list) and key.kind in ("tiers", "configs", "texts", "wholes")
    return f"{key.name} is {'a list of something else' if is_list else _named(value)}{effect}", hint, engine


def _is_used_as_it_is(scope: Scope, key: Key, value: Any) -> bool:
    """Whether nothing in the engine breaks on the value: bool() and str() take anything, a bool counts as a number."""
    if scope.name == TRANSFER.name:
        return False
    return key.kind in ("flag", "switch", "text", "path") or (key.kind == "whole" and isinstance(value, bool))


def _named(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "of another kind")


def _choose(value: Any, choices: tuple[str, ...]) -> str:
    close = nearest(str(value), choices)
    return f"choose {' or '.join(choices)}" if close is None else f"did you mean {close!r}?"


def _unknown(scope: Scope, name: object, where: str, release: Release) -> SettingsFinding:
    engine, effect = _EFFECTS[scope.unknown]
    message = f"{shown(name)!r} is no key of {scope.name}: {effect}"
    return SettingsFinding(
        "error", "unknown-key", join(where, name), message, _instead(scope, str(name), release), engine
    )


def _instead(scope: Scope, name: str, release: Release) -> str:
    others = [other for other in SCOPES if other is not scope and name in other.keys]
    if others:
        return f"it belongs into {others[0].name}"
    known = tuple(key.name for key in scope.keys.values() if key.known_in(release))
    close = nearest(name, known)
    return "remove it" if close is None else f"did you mean {close!r}?"


def _of_another_release(scope: Scope, key: Key, where: str, release: Release) -> SettingsFinding:
    engine, effect = _EFFECTS[scope.unknown]
    if key.since is not None and not release.has(key.since):
        when, hint = f"came with vLLM {FEATURES[key.since].since}", "use that release or remove it"
    else:
        assert key.until is not None
        when, hint = f"went with vLLM {FEATURES[key.until].since}", "remove it"
    message = f"{key.name} {when}, this is {release.version}: {effect}"
    return SettingsFinding("error", "other-release", join(where, key.name), message, hint, engine)
