"""Synthetic traces: conversations of turns over shared prompts, with subagents that branch off (pure, seeded).

Parameters bear the names of AIPerf's options of the same meaning. A prompt holds the shared prompt, the user's own
context and all turns before it, so that blocks are equal exactly where a server's would be.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import count, islice

import numpy as np

from kvbench.errors import UsageError

_MOST_TOKENS = 1 << 24
# Readers of Mooncake's shape take blocks of 512 tokens for granted; any other size is written into the lines.
_MOONCAKE_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make. Lengths are in tokens, delays in milliseconds, ``request_rate`` in requests per second.

    ``num_prefix_prompts`` shared prompts of ``shared_system_prompt_length`` tokens are given out at random. A turn
    starts a subagent with probability ``subagent_ratio``: it goes on from the prompt of that turn for about
    ``subagent_turn_mean`` turns of its own, while the conversation goes on without what it says.
    """

    conversation_num: int = 200
    conversation_turn_mean: float = 6.0
    conversation_turn_stddev: float = 3.0
    conversation_turn_delay_mean: float = 30_000.0
    conversation_turn_delay_stddev: float = 20_000.0
    synthetic_input_tokens_mean: float = 600.0
    synthetic_input_tokens_stddev: float = 400.0
    output_tokens_mean: float = 300.0
    output_tokens_stddev: float = 150.0
    num_prefix_prompts: int = 4
    shared_system_prompt_length: int = 2048
    user_context_prompt_length: int = 1024
    subagent_ratio: float = 0.1
    subagent_turn_mean: float = 3.0
    request_rate: float = 2.0
    isl_block_size: int = _MOONCAKE_BLOCK
    random_seed: int = 0

    def check(self) -> None:
        """UsageError, naming the option, for a number that no trace can have."""
        for one in fields(self):
            value = getattr(self, one.name)
            option = f"--{one.name.replace('_', '-')}"
            if not 0 <= value <= _MOST_TOKENS:
                raise UsageError(f"{option} {value} is not between 0 and {_MOST_TOKENS:,}; choose a number that is.")
        for name in ("conversation_num", "num_prefix_prompts", "isl_block_size", "request_rate"):
            if not getattr(self, name):
                raise UsageError(f"--{name.replace('_', '-')} 0 makes nothing; choose more.")
        if self.subagent_ratio > 1:
            raise UsageError(f"--subagent-ratio {self.subagent_ratio} is no share; choose one from 0 to 1.")


@dataclass
class _Branch:
    """One line of a conversation: the whole blocks of its prompt, its tokens, and the turns that it still has."""

    name: str
    blocks: list[int]
    tokens: int
    turns: int
    opens: bool = False
    branched: bool = False


@dataclass
class _Maker:
    """Draws what a recipe leaves open, always in the same order for the same seed."""

    recipe: Recipe
    random: np.random.Generator
    shared: tuple[tuple[int, ...], ...] = ()
    blocks: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        whole = self.recipe.shared_system_prompt_length // self.recipe.isl_block_size
        self.shared = tuple(tuple(islice(self.blocks, whole)) for _ in range(self.recipe.num_prefix_prompts))

    def drawn(self, mean: float, stddev: float, least: int) -> int:
        """A whole number around the mean, not below ``least``."""
        return max(least, round(self.random.normal(mean, stddev)))

    def delay_ms(self) -> int:
        """The time until a user's next turn."""
        return self.drawn(self.recipe.conversation_turn_delay_mean, self.recipe.conversation_turn_delay_stddev, 0)

    def conversation(self, number: int) -> _Branch:
        """A conversation that has not said anything yet."""
        recipe = self.recipe
        shared = self.shared[int(self.random.integers(len(self.shared)))]
        tokens = recipe.shared_system_prompt_length + recipe.user_context_prompt_length
        turns = self.drawn(recipe.conversation_turn_mean, recipe.conversation_turn_stddev, 1)
        return _Branch(f"c{number}", list(shared), tokens, turns, opens=True)

    def subagent(self, branch: _Branch) -> _Branch | None:
        """Perhaps a branch that goes on from the prompt that was just sent; subagents start none of their own."""
        if branch.branched or self.random.random() >= self.recipe.subagent_ratio:
            return None
        turns = self.drawn(self.recipe.subagent_turn_mean, 1.0, 1)
        return _Branch(f"{branch.name}/{next(self.blocks)}", list(branch.blocks), branch.tokens, turns, branched=True)

    def turn(self, branch: _Branch) -> tuple[int, int, list[int]]:
        """Prompt tokens, output tokens and blocks of the next turn; the branch then ends with what was answered."""
        recipe = self.recipe
        branch.tokens += self.drawn(recipe.synthetic_input_tokens_mean, recipe.synthetic_input_tokens_stddev, 1)
        whole, rest = divmod(branch.tokens, recipe.isl_block_size)
        branch.blocks.extend(islice(self.blocks, whole - len(branch.blocks)))
        # A block that is not full yet is another one when it is.
        blocks = [*branch.blocks, next(self.blocks)] if rest else list(branch.blocks)
        prompt, output = branch.tokens, self.drawn(recipe.output_tokens_mean, recipe.output_tokens_stddev, 1)
        branch.tokens += output
        branch.turns -= 1
        return prompt, output, blocks


def requests(recipe: Recipe) -> Iterator[dict[str, object]]:
    """The requests in order of arrival, as Mooncake's lines have them; UsageError for an impossible recipe."""
    recipe.check()
    maker = _Maker(recipe, np.random.default_rng(recipe.random_seed))
    between_ms = 1000 * max(1.0, recipe.conversation_turn_mean) / recipe.request_rate
    order, conversations = count(), count(1)
    waiting = [(0, next(order), maker.conversation(0))]
    while waiting:
        at_ms, _, branch = heapq.heappop(waiting)
        if branch.opens and (number := next(conversations)) < recipe.conversation_num:
            start_ms = at_ms + round(maker.random.exponential(between_ms))
            heapq.heappush(waiting, (start_ms, next(order), maker.conversation(number)))
        branch.opens = False
        before = _Branch(branch.name, branch.blocks, branch.tokens, 0, branched=branch.branched)
        prompt, output, blocks = maker.turn(branch)
        named = {} if recipe.isl_block_size == _MOONCAKE_BLOCK else {"block_size": recipe.isl_block_size}
        yield {
            **named, "timestamp": at_ms, "session_id": branch.name, "input_length": prompt, "output_length": output,
            "hash_ids": blocks,
        }  # fmt: skip
        before.tokens = prompt
        for later in (maker.subagent(before), branch if branch.turns else None):
            if later is not None:
                heapq.heappush(waiting, (at_ms + maker.delay_ms(), next(order), later))


def lines(recipe: Recipe) -> Iterator[str]:
    """The requests as JSON lines."""
    for request in requests(recipe):
        yield json.dumps(request) + "\n"
