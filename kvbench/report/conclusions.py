"""What follows from the verdicts in words: what they mean, tier by tier, and which tier to choose (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvbench.decide.advice import in_plain_words, is_shared, which_tier
from kvbench.decide.decision import Judged
from kvbench.report.cells import use_label
from kvbench.report.data import Advice

# More paragraphs than this are not read; the tables hold every tier.
_MOST_PARAGRAPHS = 4


def advice(all_judged: Sequence[Judged]) -> tuple[Advice, ...]:
    """For each use and load: what it means in plain words, tier by tier, and which tier to choose."""
    found = []
    for label in dict.fromkeys(_load_label(item) for item in all_judged):
        items = [item for item in all_judged if _load_label(item) == label]
        # Under the names of the report, which tell two runs with one tier apart.
        named = [(replace(item.crossover, tier=item.tier), item.curve) for item in items]
        words = [text for crossover, curve in named if (text := in_plain_words(crossover, curve))]
        shared = {item.tier: is_shared(item.run.result, item.crossover.tier) for item in items}
        chosen = which_tier([crossover for crossover, _ in named], shared)
        if words or chosen:
            found.append(Advice(label, tuple(words[:_MOST_PARAGRAPHS]), tuple(chosen)))
    return tuple(found)


def _load_label(item: Judged) -> str:
    count = item.crossover.concurrent_restores
    return use_label(item) if count == 1 else f"{use_label(item)}, {count} restores at once"
