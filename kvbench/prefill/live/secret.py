"""The API key: taken from OPENAI_API_KEY only, sent to the endpoint's own host only, written nowhere."""

from __future__ import annotations

from collections.abc import Mapping

from kvbench.errors import UsageError

VARIABLE = "OPENAI_API_KEY"
_SHORTEST_PART = 8
_SHORTEST_TAIL = 3


def from_environment(variables: Mapping[str, str]) -> str | None:
    """The key, or None where the variable is unset or empty; UsageError (without the value) for an impossible one."""
    key = variables.get(VARIABLE, "").strip()
    if not key:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{VARIABLE} holds blanks or characters that no HTTP header can carry; set it anew.")
    return key


def redact(text: str, key: str | None) -> str:
    """The text without the key; a server may repeat it, or its first or last half, in an error message."""
    if key is None:
        return text
    half = max(len(key) // 2, _SHORTEST_PART)
    for part in (key, key[:half], key[-half:]):
        text = text.replace(part, "***")
    for length in range(half, _SHORTEST_TAIL, -1):
        # A text that was cut in the middle of the key.
        if text.endswith(key[:length]):
            return text[:-length] + "***"
    return text
