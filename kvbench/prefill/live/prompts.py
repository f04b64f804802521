"""Prompts that no prefix cache has seen, and how many words make how many tokens on this server.

Every prompt of one length holds the same random words in another order behind an opening of its own. A tokenizer that
splits at blanks (every one in use today) then makes the same number of tokens of each, so one calibrated count serves
all. That count is the server's own, never that of a tokenizer of ours.
"""

from __future__ import annotations

import http.client
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvbench.prefill.live.client import Client
from kvbench.prefill.live.endpoint import Endpoint
from kvbench.prefill.live.protocol import MOST_TOKENS
from kvbench.prefill.live.server import root

CLOSE_ENOUGH_SHARE = 0.005
_MOST_ROUNDS = 8
# Syllable words take about three tokens of a vocabulary of 100,000 (three to four of a small one).
_GUESSED_TOKENS_PER_WORD = 3.0

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


@dataclass(frozen=True, slots=True)
class Gauge:
    """Tokens of a prompt of n words: ``base_tokens`` (beginning of text, chat template) + n x ``tokens_per_word``."""

    base_tokens: float
    tokens_per_word: float
    tokens_per_pad: float = 1.0

    def size(self, tokens: int) -> Size | None:
        """The size of a prompt of about so many tokens; None when the template alone leaves no room."""
        words = (tokens - self.base_tokens) / self.tokens_per_word - OPENING_WORDS
        return Size(math.floor(words)) if words >= 1 else None

    def corrected(self, size: Size, missing_tokens: int) -> Size:
        """The size with ``missing_tokens`` more (negative: fewer): whole words, then short ones of a token."""
        missing = missing_tokens + size.pads * self.tokens_per_pad
        words = math.floor(missing / self.tokens_per_word)
        pads = round((missing - words * self.tokens_per_word) / self.tokens_per_pad)
        return Size(max(1, size.words + words), max(0, pads))


def gauge(seen: list[tuple[int, int]]) -> Gauge:
    """The straight line through ``(words, tokens)`` of two calibration prompts, through fewer a plausible one."""
    measured = [(words + OPENING_WORDS, tokens) for words, tokens in seen]
    if len(measured) < 2 or measured[0][0] == measured[-1][0]:
        words, tokens = measured[0] if measured else (1, round(_GUESSED_TOKENS_PER_WORD))
        return Gauge(0.0, max(0.5, tokens / words))
    (few, least), (many, most) = measured[0], measured[-1]
    slope = max(0.5, (most - least) / (many - few))
    return Gauge(max(0.0, least - slope * few), slope)


class ServerTokenizer:
    """The server's own ``/tokenize``; ``offset`` is what the API adds to its count (a chat template)."""

    def __init__(self, client: Client, endpoint: Endpoint, model: str) -> None:
        """Ask nothing yet."""
        self._client, self._model, self.path = client, model, f"{root(endpoint)}/tokenize"
        self._shape: Callable[[str], dict[str, Any]] | None = None
        self.offset = 0
        self.requests = 0

    def learn(self, text: str, tokens: int) -> int | None:
        """How many tokens the API counts beyond this tokenizer's count; None where there is no tokenizer."""
        # vLLM (and SGLang) take "prompt", llama.cpp "content"; both ignore what they do not know.
        shapes: tuple[Callable[[str], dict[str, Any]], ...] = (
            lambda prompt: {"model": self._model, "prompt": prompt},
            lambda prompt: {"content": prompt, "add_special": True},
        )
        for shape in (self._shape,) if self._shape else shapes:
            if counted := self._counted(shape(text)):
                self._shape = shape
                return tokens - counted
        return None

    def count(self, text: str) -> int | None:
        """Tokens of a prompt as the API will count them, or None when the server does not say."""
        assert self._shape is not None
        counted = self._counted(self._shape(text))
        return None if counted is None else counted + self.offset

    def tokens_per_pad(self, prompt: Callable[[Size], str]) -> float:
        """What one short word adds to a prompt: mostly 1, in a small vocabulary 2; 1 where the server does not say."""
        counts = [self.count(prompt(Size(1, pads))) for pads in (0, 4)]
        if counts[0] is None or counts[1] is None or counts[1] <= counts[0]:
            return 1.0
        return (counts[1] - counts[0]) / 4

    def _counted(self, data: dict[str, Any]) -> int | None:
        self.requests += 1
        try:
            status, _, body = self._client.ask("POST", self.path, data, timeout_s=60)
            answer = json.loads(body) if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return None
        if not isinstance(answer, dict):
            return None
        tokens = answer.get("tokens")
        count = answer.get("count", len(tokens) if isinstance(tokens, list) else None)
        return count if isinstance(count, int) and 0 < count <= MOST_TOKENS else None


def fitted(
    tokenizer: ServerTokenizer, line: Gauge, prompt: Callable[[Size], str], size: Size, tokens: int
) -> tuple[Size, int | None]:
    """The size whose prompt has exactly ``tokens`` (the nearest found where none has), and its count."""
    best: tuple[Size, int | None] = (size, None)
    for _ in range(_MOST_ROUNDS):
        counted = tokenizer.count(prompt(size))
        if counted is None:
            break
        if best[1] is None or abs(counted - tokens) < abs(best[1] - tokens):
            best = size, counted
        if counted == tokens:
            break
        size = line.corrected(size, tokens - counted)
    return best


def _opening(seed: str, index: int) -> tuple[str, str, str]:
    count = len(_SYLLABLES)
    start = random.Random(f"{seed}-start").randrange(count)
    lap, nonce = divmod(index, count)[0], random.Random(f"{seed}-nonce-{index}").choice(_SYLLABLES)
    return _SYLLABLES[(start + index * _STRIDE) % count], _SYLLABLES[lap % count], nonce


def _words(seed: str, count: int) -> list[str]:
    generator = random.Random(f"{seed}-words")
    vowelled = [first + vowel for first in _CONSONANTS for vowel in _VOWELS]
    return [generator.choice(vowelled) + generator.choice(_SYLLABLES) for _ in range(count)]
