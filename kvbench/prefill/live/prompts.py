"""Prompts of random words that no prefix cache has seen: unique from the first word on, yet all equally long.

Every prompt of one length holds the same words in another order behind an opening of its own. A tokenizer that splits
at blanks (every one in use today) then makes the same number of tokens of each, so one calibrated count serves all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = tuple(first + vowel + last for first in _CONSONANTS for vowel in _VOWELS for last in _CONSONANTS)
# Coprime to the number of syllables (980 = 2^2 x 5 x 7^2), so that neighbouring prompts open with other letters and no
# opening syllable comes back before all others were used.
_STRIDE = 397
_SHORT_WORD = "a"
OPENING_WORDS = 3


@dataclass(frozen=True, slots=True)
class Size:
    """How much text a prompt holds: random words, and short ones of a token each that make up the exact count."""

    words: int
    pads: int = 0


def text(seed: str, index: int, size: Size) -> str:
    """The prompt number ``index`` of the run ``seed``; two indices never share their first two words."""
    words = _words(seed, size.words)
    random.Random(f"{seed}-order-{index}").shuffle(words)
    return " ".join([*_opening(seed, index), *words, *[_SHORT_WORD] * size.pads])


def _opening(seed: str, index: int) -> tuple[str, str, str]:
    count = len(_SYLLABLES)
    start = random.Random(f"{seed}-start").randrange(count)
    lap, nonce = divmod(index, count)[0], random.Random(f"{seed}-nonce-{index}").choice(_SYLLABLES)
    return _SYLLABLES[(start + index * _STRIDE) % count], _SYLLABLES[lap % count], nonce


def _words(seed: str, count: int) -> list[str]:
    generator = random.Random(f"{seed}-words")
    vowelled = [first + vowel for first in _CONSONANTS for vowel in _VOWELS]
    return [generator.choice(vowelled) + generator.choice(_SYLLABLES) for _ in range(count)]
