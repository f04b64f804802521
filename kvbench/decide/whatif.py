"""Other deployments decided on the same measurements: another block size, TP, or number of parallel reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kvbench.connectors import stored_layout
from kvbench.decide.decision import WhatIf
from kvbench.errors import UsageError
from kvbench.layout.models import size_model
from kvbench.record.results import Use
from kvbench.run.plan import uses_of


def parse_what_if(item: str) -> WhatIf:
    """The what-if of ``--what-if NAME=NUMBER``, NAME one of block-tokens, tp, parallel; UsageError otherwise."""
    name, _, number = item.partition("=")
    if name not in _CHANGES or not number.isascii() or not number.isdecimal() or int(number) < 1:
        raise UsageError(
            f"--what-if {item!r}: write one of {', '.join(_CHANGES)} and a whole number, like parallel=32."
        )
    change, words = _CHANGES[name]
    value = int(number)
    return WhatIf(words.format(value), lambda use: change(use, value))


def _with_block_tokens(use: Use, value: int) -> Use:
    return _derived(use, tp=use.tp, block_tokens=value)


def _with_tp(use: Use, value: int) -> Use:
    return _derived(use, tp=value, block_tokens=use.block_tokens)


def _with_parallel(use: Use, value: int) -> Use:
    return replace(use, parallelism_per_request=value, threads=max(value, use.threads) if use.threads else None)


_CHANGES: Mapping[str, tuple[Callable[[Use, int], Use], str]] = {
    "block-tokens": (_with_block_tokens, "{} tokens a block"),
    "tp": (_with_tp, "TP {}, prefill as measured"),
    "parallel": (_with_parallel, "{} reads in flight"),
}


def _derived(use: Use, *, tp: int, block_tokens: int) -> Use:
    """The use of the same model and connector, sized again; UsageError where its units have several sizes."""
    sized = size_model(use.model, tp=tp, kv_dtype=use.kv_dtype, block_tokens=block_tokens)
    uses = uses_of(sized, stored_layout(sized, use.connector, engine_version=use.engine_version))
    if len(uses) != 1:
        raise UsageError(f"--what-if: {use.connector} would make units of several sizes of {use.model}.")
    return uses[0]
