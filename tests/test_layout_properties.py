"""Laws that hold for every layout, whatever its layers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from kvbench.errors import ModelConfigError
from kvbench.layout.kv import KVLayout, Layer, StatePart
from kvbench.layout.sizing import (
    check_parallel,
    context,
    rank_token_bytes,
    stage_sizes,
    stages,
    state_bytes,
    token_bytes,
)

DTYPES = st.sampled_from(["bfloat16", "fp8", "int8_per_token_head", "nvfp4"])
HEADS = st.sampled_from([1, 2, 4, 8, 10, 16])
DIMS = st.sampled_from([64, 80, 128, 256])
WINDOWS = st.integers(1, 5000)
TOKENS = st.integers(0, 200_000)
TPS = st.sampled_from([1, 2, 4, 8, 16])

full = st.builds(Layer, st.just("full"), HEADS, DIMS, DIMS)
windowed = st.builds(Layer, st.sampled_from(["sliding", "chunked"]), HEADS, DIMS, DIMS, WINDOWS)
recurrent = st.builds(
    lambda units, size: Layer("linear", state=(StatePart("state", 16 * units, size),)),
    st.integers(1, 8),
    st.integers(1, 100_000),
)
nothing = st.sampled_from([Layer("none"), Layer("shared")])
layers = st.lists(st.one_of(full, windowed, recurrent, nothing), min_size=1, max_size=12).map(tuple)
layouts = layers.map(lambda made: KVLayout(made, query_heads=160))


@given(layouts, DTYPES, TOKENS)
def test_a_longer_context_never_weighs_less(layout: KVLayout, dtype: str, tokens: int) -> None:
    assert context(layout, dtype, 1, tokens + 1).bytes >= context(layout, dtype, 1, tokens).bytes


@given(layouts, DTYPES, st.data())
def test_linear_in_tokens_below_the_smallest_window(layout: KVLayout, dtype: str, data: st.DataObject) -> None:
    smallest = min((layer.window for layer in layout.layers if layer.window is not None), default=10_000)
    tokens = data.draw(st.integers(0, smallest))
    per_token = sum(token_bytes(layer, dtype) for layer in layout.layers)

    assert context(layout, dtype, 1, tokens).bytes == per_token * tokens + state_bytes(layout)


@given(layouts, DTYPES, TOKENS)
def test_growth_beyond_every_window_is_that_of_the_full_layers(layout: KVLayout, dtype: str, tokens: int) -> None:
    tokens += 5000
    growing = sum(token_bytes(layer, dtype) for layer in layout.layers if layer.window is None)

    assert context(layout, dtype, 1, tokens + 1).bytes - context(layout, dtype, 1, tokens).bytes == growing


@given(layers, layers, DTYPES, TOKENS)
def test_additive_over_layers(one: tuple[Layer, ...], two: tuple[Layer, ...], dtype: str, tokens: int) -> None:
    def weigh(made: tuple[Layer, ...]) -> int:
        return context(KVLayout(made, 160), dtype, 1, tokens).bytes

    assert weigh(one + two) == weigh(one) + weigh(two)


@given(layouts, DTYPES, TPS)
def test_ranks_together_hold_at_least_one_copy(layout: KVLayout, dtype: str, tp: int) -> None:
    one_copy = sum(token_bytes(layer, dtype) for layer in layout.layers)
    try:
        check_parallel(layout, tp, 1)
        rank = sum(rank_token_bytes(layer, dtype, tp) for layer in layout.layers)
    except ModelConfigError:
        assume(False)
    smallest = min((layer.kv_heads for layer in layout.layers if layer.owns_kv), default=tp)

    assert rank * tp >= one_copy
    if tp <= smallest:
        assert rank * tp == one_copy


@given(layouts, DTYPES, TOKENS, TPS)
def test_a_context_on_the_server_is_never_less_than_one_copy(
    layout: KVLayout, dtype: str, tokens: int, tp: int
) -> None:
    try:
        weighed = context(layout, dtype, tp, tokens)
    except ModelConfigError:
        assume(False)

    assert weighed.server_bytes == weighed.rank_bytes * tp >= weighed.bytes


@given(layouts, DTYPES, st.integers(1, 12), st.integers(1, 256))
def test_stages_split_the_block_without_loss(layout: KVLayout, dtype: str, pp: int, block_tokens: int) -> None:
    assume(pp <= len(layout.layers))
    found = stages(layout, dtype, 1, pp, block_tokens)

    assert sum(stage.layers for stage in found) == len(layout.layers)
    per_token = sum(token_bytes(layer, dtype) for layer in layout.layers)
    assert sum(stage.rank_block_bytes for stage in found) == per_token * block_tokens


@given(st.integers(1, 200), st.integers(1, 64))
def test_stage_sizes_differ_by_at_most_one_and_the_last_is_smallest(count: int, pp: int) -> None:
    assume(pp <= count)
    sizes = stage_sizes(count, pp)

    assert (sum(sizes), len(sizes)) == (count, pp)
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)


@given(full, WINDOWS, DTYPES, TOKENS)
def test_a_window_never_makes_a_layer_heavier(layer: Layer, window: int, dtype: str, tokens: int) -> None:
    narrow = KVLayout((replace(layer, kind="sliding", window=window),), 160)

    assert context(narrow, dtype, 1, tokens).bytes <= context(KVLayout((layer,), 160), dtype, 1, tokens).bytes
