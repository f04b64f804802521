"""Credentials taken out of texts and data of others before anything of them is written or shown: one rule for all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

REMOVED = "<removed>"

# Keys whose value goes whole: credentials, and the names of hosts that a result handed to others should not carry.
_SECRET_KEY = re.compile(r"key|secret|token|pass|credential|http_user|http_host|hostname", re.IGNORECASE)
# Names that stand before a value in running text. "tokens" and "tokenizer" are words of the trade, not secrets.
_NAME = (
    r"[\w.-]*(?:secret|token(?![sio])|passw|passphrase|credential|(?:api|access|private|account|secret)[_-]?key)[\w-]*"
    r"|(?:[\w.-]*[_.-])?(?:pass|key|pw|pwd)"
)
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
_GIVEN = re.compile(
    rf"(?i)((?<![\w-])--?(?:{_NAME})(?:\s+|=)|(?<![\w.-])(?:{_NAME})[\"']?\s*[=:]\s*)(?!{REMOVED})({_VALUE})"
)
_AUTHORIZED = re.compile(rf"(?i)\b(bearer|basic)\s+(?!{REMOVED})[\w.~+/=-]{{8,}}")
_LOGIN = re.compile(r"(?<![\w-])(-u|--user)(\s+|=)(?!<removed>)[^\s:]+:\S+|(\bsshpass\s+-p)\s*(?!<removed>)\S+")
# A password may hold slashes and signs "@"; a port and a path are none.
_IN_URL = re.compile(rf"//(?!{REMOVED})(?:[^\s/@:]{{0,200}}:(?!\d{{1,5}}/)[^\s@]{{1,200}}|[^\s/]{{0,400}})@")
_BEFORE_HOST = re.compile(rf"(?<![\w/.+-])[\w.+-]+:(?!{REMOVED})[^\s/@:,]+@(?=[\w\[])")
# What services hand out, by its look: AWS key ids, GitHub, GitLab, Hugging Face, OpenAI, Slack, JSON web tokens, Ceph.
_BY_LOOK = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}"
    r"|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]*|AQ[A-Za-z0-9+/]{37}=)(?![A-Za-z0-9])"
)
_SHORTEST = 5


def redacted(text: str) -> str:
    """``text`` without passwords, tokens and the user part of addresses; everything else stands as it was."""
    if len(text) < _SHORTEST:
        return text
    return _redacted_short(text) if len(text) < 256 else _redacted(text)


def redacted_json(value: Any) -> Any:
    """JSON data in which every key named like a secret has lost its value, and every text what looks like one.

    What holds no secret is the same object, so that a large result is not copied.
    """
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        if _is_counts(value):
            return value
        changed = {key: new for key, item in value.items() if (new := _redacted_item(key, item)) is not item}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [redacted_json(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def without_values(text: str, values: Iterable[str]) -> str:
    """``text`` without credentials, known ones (``values``) and those that look like it."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, REMOVED)
    return redacted(text)


def is_secret_name(name: str) -> bool:
    """Whether a key, an option or a variable of that name holds what nobody else should see."""
    return _SECRET_KEY.search(name) is not None


def _is_counts(value: dict[Any, Any]) -> bool:
    """Whether these are the bins of a histogram, which are most of a result: numbers under names of digits."""
    return set(map(type, value.values())) == {int} and "".join(map(str, value)).isdecimal()


def _redacted_item(key: Any, item: Any) -> Any:
    if _is_secret_key(str(key)):
        return REMOVED
    return item if type(item) in (int, float) else redacted_json(item)


@lru_cache(maxsize=4096)
def _is_secret_key(key: str) -> bool:
    return is_secret_name(key)


@lru_cache(maxsize=4096)
def _redacted_short(text: str) -> str:
    return _redacted(text)


def _redacted(text: str) -> str:
    text = _IN_URL.sub(f"//{REMOVED}@", text)
    text = _BEFORE_HOST.sub(f"{REMOVED}@", text)
    text = _LOGIN.sub(lambda found: f"{found[1] or found[3]} {REMOVED}", text)
    text = _AUTHORIZED.sub(rf"\1 {REMOVED}", text)
    text = _GIVEN.sub(rf"\1{REMOVED}", text)
    return _BY_LOOK.sub(REMOVED, text)
