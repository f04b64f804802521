"""Text that somebody else wrote, made fit for a terminal, a page or a file of ours: nothing of it acts there."""

from __future__ import annotations

import unicodedata

# What a sentence repeats of a foreign file stays readable up to here; the next step stands at its end.
MOST_CHARACTERS = 600
_CUT = " ... "


def escaped(text: str) -> str:
    r"""``text`` in which every character that acts instead of being seen is spelled out, as ``\x1b`` or ``\u202e``.

    Those are control characters, line ends among them, formatting characters (the overrides of bidirectional text),
    lone surrogates, and what Unicode has not assigned.
    """
    # isprintable is False for exactly these and for blanks other than the plain one, which do no harm.
    if text.isprintable():
        return text
    return "".join(char if _is_seen(char) else _spelled(char) for char in text)


def sentence(text: str) -> str:
    """``text`` escaped, on one line and of bounded length: its middle goes, so that the next step at its end stays."""
    shown = escaped(text)
    if len(shown) <= MOST_CHARACTERS:
        return shown
    half = (MOST_CHARACTERS - len(_CUT)) // 2
    return shown[:half] + _CUT + shown[-half:]


def _is_seen(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
