"""Restore against recompute: the published anchors, exact cases, the verdict rule and the command."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.decide.contract import to_json
from kvbench.decide.crossover import (
    Crossover,
    Goal,
    RequestCrossover,
    Verdict,
    Versus,
    decide,
    published_tokens,
    request_crossover,
    single_block_at,
    single_block_crossover,
    verdict_of,
)
from kvbench.decide.decision import Wanted, decide_runs, same_model, verdict_is_settled
from kvbench.decide.interpolation import between_jobs
from kvbench.decide.recompute import computed_s, still_computed_s
from kvbench.decide.restore import Around, MeasuredReads, RestoreCurve, restore_curve, restore_tokens_per_s
from kvbench.errors import UsageError
from kvbench.prefill.curve import PrefillCurve, fit
from kvbench.prefill.samples import Sample, Samples, read_csv
from kvbench.record import results
from kvbench.record.histogram import Histogram
from kvbench.record.results import Calls, Observation, OverTime, RunResult, Use
from kvbench.report.decision_words import footnotes
from tests.conftest import Outcome
from tests.factories import (
    GPT_OSS_BLOCK,
    MS,
    SHIPPED_CSV,
    STEADY,
    curve,
    direction,
    latency,
    measured,
    plain,
    point,
    use,
)

Run = Callable[..., Outcome]


def decided(
    at: MeasuredReads | None, prefill: PrefillCurve, goal: Goal | None = None, concurrent: int = 1
) -> Crossover:
    """The crossover of gpt-oss-120b with the same point for both models."""
    return decide(use(), "tier", concurrent, at, at, prefill, goal or Goal())


# Issue 2, item 6: the published pure read at 16 jobs, gpt-oss-120b.
CEPHFS = measured(180.0, 88.821, p99=107_500_000)
NVME = measured(5870.0, p99=4_000_000)


@pytest.mark.slow
def test_published_cephfs_single_block_says_yes_and_the_request_says_never() -> None:
    answer = decided(CEPHFS, fit(read_csv(SHIPPED_CSV)))
    assert answer.single_block is not None
    assert answer.single_block.kind == "from"
    assert answer.single_block.tokens is not None
    assert 3000 <= answer.single_block.tokens <= 4300
    assert (answer.request.kind, answer.verdict) == ("never", "not viable")
    assert answer.restore is not None
    at_48k = answer.restore.seconds[answer.restore.tokens == 49152][0]
    assert at_48k == pytest.approx(3072 / 180, rel=0.03)  # 17 s ...
    assert fit(read_csv(SHIPPED_CSV)).seconds(49152)[0] == pytest.approx(1.695, rel=0.03)  # ... against 1.7 s
    assert answer.restore_tokens_per_s == pytest.approx(16 * 180)


@pytest.mark.slow
def test_published_nvme_always_wins() -> None:
    answer = decided(NVME, fit(read_csv(SHIPPED_CSV)))
    assert (answer.request.kind, answer.verdict) == ("always", "viable")
    assert answer.restore_tokens_per_s == pytest.approx(16 * 5870)
    assert answer.single_block is not None
    assert (answer.single_block.kind, answer.single_block.tokens) == ("below-range", None)


def makespan(units: int, workers: int, seconds: float) -> float:
    """Exact list scheduling: every unit goes to the worker that is free first."""
    free = [0.0] * workers
    for _ in range(units):
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.sampled_from([1, 16, 256]))
def test_list_scheduling_of_constant_latencies(blocks: int, workers: int, units: int, block_tokens: int) -> None:
    of = use(block_tokens=block_tokens, units_per_block=units, parallelism_per_request=workers)
    at = measured(1e9, 10.0)
    lengths = np.array([float(count * block_tokens) for count in range(1, blocks + 1)])
    found = restore_curve(of, at, 1, lengths)
    wanted = [makespan(count * units, workers, 0.01) for count in range(1, blocks + 1)]
    assert found.seconds == pytest.approx(wanted, rel=1e-9)
    assert found.draws == pytest.approx(np.tile(wanted, (len(found.draws), 1)), rel=1e-9)
    whole = restore_curve(of, replace(at, histogram=None), 1, lengths)
    assert whole.seconds == pytest.approx(wanted, rel=1e-9)


def test_random_latencies_take_their_mean_in_sequence() -> None:
    at = replace(measured(1e9), histogram=Histogram(((1 * MS, 5000), (3 * MS, 5000))))
    found = restore_curve(use(parallelism_per_request=1), at, 1, np.array([16.0 * 400]))
    assert found.seconds[0] == pytest.approx(400 * 2e-3, rel=0.02)
    assert found.draws.std() == pytest.approx(math.sqrt(400) * 1e-3, rel=0.2)


def test_only_whole_blocks_are_restored() -> None:
    restore = restore_curve(use(), measured(1.0, 0.001), 1, np.array([1.0, 15.0, 16.0, 17.0, 31.0, 32.0]))
    assert restore.seconds == pytest.approx([0, 0, 1, 1, 1, 2])
    assert restore.restored.tolist() == [0, 0, 16, 16, 16, 32]


HYBRID = use(block_tokens=4160)


@pytest.mark.parametrize(("tokens", "restored"), [(4096, 0), (4160, 4160), (8192, 4160), (8320, 8320)])
def test_a_large_block_leaves_the_rest_to_be_computed(tokens: int, restored: int) -> None:
    """A hybrid model's blocks of 4,160 tokens: nothing of 4k comes back, and half of 8k."""
    answer = decide(HYBRID, "t", 1, measured(1e6), None, curve(0.1, 1e-4), Goal(tokens))
    assert answer.at_target is not None
    assert answer.at_target.restored_tokens == restored
    assert answer.at_target.bytes == restored // 4160 * answer.use.io_bytes
    assert answer.at_target.recompute_s == pytest.approx(1e-4 * restored)
    assert answer.at_target.still_computed_s == pytest.approx(0.1 + 1e-4 * (tokens - restored))


def test_nothing_is_won_where_no_block_is_whole() -> None:
    answer = decide(HYBRID, "t", 1, measured(1e6), None, curve(0.1, 1e-4, last=4096), Goal(4096))
    assert (answer.request.kind, answer.verdict) == ("never", "not viable")
    assert "no block is whole" in answer.request.reason
    longer = decide(HYBRID, "t", 1, measured(1e6), None, curve(0.1, 1e-4, last=8192), Goal(8192))
    assert (longer.request.kind, longer.verdict) == ("from", "viable")
    assert longer.request.high is not None
    assert 4000 < longer.request.high <= 4160 * 1.1


@pytest.mark.parametrize("constant_s", [0.0, 0.2, 1.0])
def test_the_constant_of_the_prefill_is_paid_by_a_hit_too(constant_s: float) -> None:
    """A block of 16 tokens every 1.7 ms against 16 tokens of prefill in 1.6 ms: never, whatever each prompt pays."""
    one, prefill = use(parallelism_per_request=1), curve(constant_s, 1e-4)
    slower, quicker = (
        decide(one, "t", 1, measured(1 / block_s, jobs=1), None, prefill, Goal()) for block_s in (0.0017, 0.0015)
    )
    assert (slower.request.kind, quicker.request.kind) == ("never", "always")


def test_a_tier_of_44_000_tokens_a_second_wins_from_12_000_tokens_on_and_not_always() -> None:
    """b + cP of the H200's curve is 1 / 44,000 s at P = 12.1k; counted with its constant it would win at 2k already."""
    prefill = fit(read_csv(SHIPPED_CSV))
    at = measured(44_000 / 16, jobs=1)
    found = decide(use(parallelism_per_request=1), "t", 1, at, None, prefill, Goal(8192))
    assert found.request.kind == "from"
    exact = (1 / 44_000 - prefill.b_s_per_token) / prefill.c_s_per_token2
    assert exact == pytest.approx(12_169, rel=0.01)
    assert found.request.tokens == pytest.approx(exact, rel=0.01)
    assert found.verdict != "viable"


def test_what_an_engine_needs_for_any_hit_moves_the_crossover() -> None:
    """Each token restored spares 0.05 ms, so 80 ms that every hit takes are repaid from 1,600 tokens on."""
    one, at, prefill = use(parallelism_per_request=1), measured(1250.0, jobs=1), curve(0.3, 1e-4)
    found = decide(one, "t", 1, at, None, prefill, Goal(8192), Around(hit_overhead_s=0.08))
    assert found.request.kind == "from"
    assert found.request.tokens == pytest.approx(1600, rel=0.05)
    assert decide(one, "t", 1, at, None, prefill, Goal(8192)).request.kind == "always"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("concurrent", "step_tokens", "spared_s"),
    [
        # Steps that are short beside a prompt: they end one after the other, the mean one after (R + 1) / 2.
        (1, 1, 0.8),
        (3, 1, 1.6),
        (16, 1, 6.8),
        # All in one step end with the last.
        (1, 10**6, 0.8),
        (3, 24_000, 2.4),
        (16, 10**6, 12.8),
        # Two fill a step, and the third comes out of the next: 2, 2, and 3 times as late.
        (3, 16_000, 0.8 * 7 / 3),
        # The second prompt just does not fit: its last tokens are in the second step, which the third fills.
        (3, 15_999, 0.8 * (15_999 / 8000 + 3 + 3) / 3),
    ],
)
def test_restores_at_once_are_compared_with_prefills_at_once(
    concurrent: int, step_tokens: int, spared_s: float
) -> None:
    """R prefills of 8,000 tokens and 0.8 s: each ends with the step that computes its last token."""
    prefill = replace(curve(0.1, 1e-4), step_tokens=step_tokens)
    found = decide(use(), "t", concurrent, measured(1e6), None, prefill, Goal(8000))
    assert found.at_target is not None
    assert found.at_target.recompute_s == pytest.approx(spared_s)


@pytest.mark.slow
def test_the_tokens_of_a_step_on_the_command_line(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    arguments = ("crossover", path, "--ttft-csv", SHIPPED_CSV, "--json", "--prefill-step")
    assert kvbench(*arguments, "1").json()["prefill"]["step_tokens"] == 1
    refused = kvbench(*arguments, "0")
    assert refused.code == 2
    assert refused.err == (
        "kvbench: --prefill-step 0: an engine computes one token at least in a step; write it like 8k.\n"
    )


@pytest.mark.parametrize(("concurrent", "computed"), [(1, 0.5), (4, 2.0)])
def test_the_constant_of_a_request_waits_for_nobody(concurrent: int, computed: float) -> None:
    """What follows the whole blocks is computed for all in one step, 0.5 s each; the constant of 0.1 s is paid once."""
    prefill = curve(0.1, 0.5 / 8)
    restore = restore_curve(use(), measured(1e6), concurrent, np.array([1608.0]))
    assert still_computed_s(prefill, restore, concurrent) == pytest.approx([0.1 + computed])
    assert computed_s(replace(prefill, step_tokens=10**6), 8.0, concurrent) == pytest.approx([0.1 + computed])


@given(st.integers(1, 8))
def test_concurrent_restores_share_the_bandwidth(concurrent: int) -> None:
    at = measured(100.0, 0.001)
    lengths = np.array([160.0])
    assert restore_curve(use(), at, concurrent, lengths).seconds == pytest.approx([10 / (100 / concurrent)])
    assert restore_tokens_per_s(use(), at, concurrent) == pytest.approx(1600 / concurrent)


@pytest.mark.slow
@settings(max_examples=8)
@given(st.floats(20, 5000), st.floats(1.01, 20), st.floats(1e-5, 1e-3), st.floats(0, 1e-8))
def test_more_bandwidth_never_moves_the_crossover_up(iops: float, factor: float, b: float, c: float) -> None:
    prefill = curve(0.01, b, c, spread=0.1)
    slow, fast = (decided(measured(rate), prefill, Goal(16384)) for rate in (iops, iops * factor))
    assert slow.restore is not None
    assert fast.restore is not None
    assert (fast.restore.seconds <= slow.restore.seconds * (1 + 1e-9)).all()
    order = ["always", "from", "unknown", "never"]
    if "unknown" not in (slow.request.kind, fast.request.kind):
        assert order.index(fast.request.kind) <= order.index(slow.request.kind)
    if fast.request.tokens is not None and slow.request.tokens is not None:
        assert fast.request.tokens <= slow.request.tokens
    if slow.verdict == "viable":
        assert fast.verdict == "viable"


@pytest.mark.slow
@settings(max_examples=8)
@given(st.floats(20, 5000), st.floats(1.01, 20), st.floats(1e-5, 1e-3), st.floats(0, 1e-8))
def test_faster_prefill_never_moves_the_crossover_down(iops: float, factor: float, b: float, c: float) -> None:
    at = measured(iops)
    slow, fast = (decided(at, curve(0.01 / by, b / by, c / by, spread=0.1), Goal(16384)) for by in (1, factor))
    order = ["always", "from", "unknown", "never"]
    if "unknown" not in (slow.request.kind, fast.request.kind):
        assert order.index(slow.request.kind) <= order.index(fast.request.kind)
    if fast.request.tokens is not None and slow.request.tokens is not None:
        assert slow.request.tokens <= fast.request.tokens
    for answer in (slow, fast):
        assert all(value is None or value > 0 for value in (answer.request.tokens, answer.request.low))


@pytest.mark.slow
@settings(max_examples=8)
@given(st.floats(20, 5000), st.floats(1e-5, 1e-3), st.floats(1e-11, 1e-8), st.sampled_from([1e-3, 60.0, 3600.0]))
def test_another_unit_of_time_is_the_same_crossover(iops: float, b: float, c: float, unit: float) -> None:
    """Every time in another unit: seconds of prefill, ns of latency and 1 / rate all scale alike."""
    one = decided(measured(iops), curve(0.01, b, c, spread=0.1), Goal(16384))
    other = decided(measured(iops / unit), curve(0.01 * unit, b * unit, c * unit, spread=0.1), Goal(16384))
    assert one.request.kind == other.request.kind
    assert one.verdict == other.verdict
    for left, right in ((one.request.tokens, other.request.tokens), (one.request.low, other.request.low)):
        assert (left is None) == (right is None)
        assert left is None or left == pytest.approx(right, rel=0.02)


@pytest.mark.slow
@settings(max_examples=8)
@given(st.floats(20, 5000), st.sampled_from([2, 4]))
def test_larger_blocks_at_the_same_bandwidth_are_the_same_crossover(iops: float, factor: int) -> None:
    """Twice the tokens and bytes in a block at half the rate move the same tokens per second."""
    prefill = curve(0.01, 1e-4, 1e-9, spread=0.1)
    of = use(parallelism_per_request=1)
    larger = replace(of, io_bytes=of.io_bytes * factor, block_tokens=of.block_tokens * factor)
    small = decide(of, "t", 1, measured(iops, 1e3 / iops), None, prefill, Goal(16384))
    large = decide(larger, "t", 1, measured(iops / factor, 1e3 * factor / iops), None, prefill, Goal(16384))
    assert small.request.kind == large.request.kind
    assert small.restore_tokens_per_s == pytest.approx(large.restore_tokens_per_s)
    if small.request.tokens is not None:
        assert small.request.tokens == pytest.approx(large.request.tokens, rel=0.05)


@pytest.mark.slow
def test_from_is_where_the_lines_cross() -> None:
    # Restore: 1600 tokens/s. Prefill: c L^2 = L / 1600 at L = 1 / (1600 c) = 8000.
    answer = decided(measured(100.0, 0.001), curve(0, 0, 1 / 1600 / 8000, spread=0.05))
    assert answer.request.kind == "from"
    assert answer.request.tokens == pytest.approx(8000, rel=0.02)
    assert answer.request.low is not None
    assert answer.request.high is not None
    assert answer.request.low <= 8000 <= answer.request.high
    # 5 % faster or slower prefill moves the crossing by the same share.
    assert answer.request.low == pytest.approx(8000 / 1.05, rel=0.03)
    assert answer.request.high == pytest.approx(8000 / 0.95, rel=0.03)


@pytest.mark.slow
@settings(max_examples=5)
@given(st.integers(4000, 30_000), st.integers(0, 1000))
def test_the_interval_contains_the_true_crossing(true: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    lengths = np.repeat([1024, 2048, 4096, 8192, 16384, 32768, 65536], 5)
    seconds = lengths**2 / 1600 / true * generator.normal(1, 0.01, len(lengths))
    rows = tuple(Sample(int(n), float(s)) for n, s in zip(lengths, seconds, strict=True))
    answer = decided(measured(100.0, 0.001), fit(Samples(rows, None, "x")))
    assert answer.request.kind == "from"
    assert answer.request.tokens == pytest.approx(true, rel=0.05)
    assert answer.request.low is not None
    assert answer.request.high is not None
    # 95 % is no promise for every seed, a few blocks beside the interval are.
    assert answer.request.low * 0.97 <= true <= answer.request.high * 1.03


@pytest.mark.slow
def test_the_crossover_lies_within_its_own_interval() -> None:
    for true in range(4000, 4400, 16):
        answer = decided(measured(100.0), curve(0, 0, 1 / 1600 / true, spread=0.001)).request
        assert answer.tokens is not None
        assert answer.low is not None
        assert answer.high is not None
        assert answer.low <= answer.tokens <= answer.high


def test_winning_only_short_prompts_is_not_a_crossover() -> None:
    # Latency falls with the length for nobody: short prompts win where a window bounds what is stored of longer ones.
    versus = Versus(SHORT_WINS, curve(0.1, 1e-4), 1)
    found = request_crossover(versus)
    assert found.kind == "unknown"
    assert "wins up to about 2,048 tokens" in found.reason
    # At 2k it wins and beyond it does not, so that there is no answer; at the target it loses for sure.
    assert verdict_of(found, versus, Goal(2048))[0] == "cannot say"
    verdict, why = verdict_of(found, versus, Goal(65_536))
    assert verdict == "not viable"
    assert why == "at the target of 65,536 tokens restoring takes 9 s and recomputing 6.55 s"


def test_the_published_shortcut() -> None:
    assert published_tokens(0.05, 0.00005) == pytest.approx(1000)


@pytest.mark.parametrize(
    ("p99_s", "kind", "tokens"),
    [(0.1023, "below-range", None), (0.1024, "from", 1024), (1.0, "from", 10_000), (6.5536, "from", 65536),
     (6.5537, "above-range", None)],
)  # fmt: skip
def test_single_block_at_the_ends(p99_s: float, kind: str, tokens: int | None) -> None:
    found = single_block_at(p99_s, curve(), "p")
    assert (found.kind, found.p99_ns, found.point) == (kind, round(p99_s * 1e9), "p")
    assert found.tokens == (None if tokens is None else pytest.approx(tokens, abs=2))


def test_without_p99_there_is_no_single_block() -> None:
    read = direction(latency_ns=latency(1e6, p99=None))
    assert single_block_crossover(MeasuredReads(point(read=read), read, None), curve()) is None


LENGTHS = np.array([1024.0, 2048.0, 8192.0, 65_536.0])
SHORT_WINS = RestoreCurve(
    LENGTHS,
    LENGTHS,
    np.array([0.05, 0.1, 2.0, 9.0]),
    np.array([[0.05, 0.1, 2.0, 9.0]]),
    around_s=np.zeros(4),
    loaded_s=np.array([0.05, 0.1, 2.0, 9.0]),
    alone_share=1.0,
    requests=np.array([[0.05, 0.1, 2.0, 9.0]]),
)
TARGET = 8192
FLAT = RestoreCurve(
    np.array([1024.0, TARGET]),
    np.array([1024.0, TARGET]),
    np.array([1.0, 2.0]),
    np.array([[1.0, 1.8], [1.0, 2.2]]),
    around_s=np.zeros(2),
    loaded_s=np.array([1.0, 2.0]),
    alone_share=1.0,
    requests=np.array([[1.0, 1.8], [1.0, 2.2]]),
)


def request(kind: str, low: int | None = None, high: int | None = None) -> RequestCrossover:
    """A request crossover of that kind."""
    tokens = 4000 if kind == "from" else None
    return RequestCrossover(kind, tokens, low, high, "because")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (request("always"), "viable"),
        (request("always", 1024, 4096), "viable"),
        (request("always", 1024, TARGET), "viable"),
        (request("always", 1024, TARGET + 1), "cannot say"),
        pytest.param(
            request("always", 1024, None), "cannot say",
        ),
        (request("from", 2000, TARGET), "viable"),
        (request("from", 2000, TARGET + 1), "cannot say"),
        (request("from", TARGET, TARGET + 1), "cannot say"),
        (request("from", TARGET + 1, None), "not viable"),
        (request("from", TARGET + 1, TARGET + 9), "not viable"),
        (request("from", 2000, None), "cannot say"),
        (request("from"), "cannot say"),
        (request("never"), "not viable"),
        (request("never", TARGET), "cannot say"),
        (request("never", TARGET + 1), "not viable"),
        (request("unknown"), "not viable"),
    ],
)  # fmt: skip
def test_the_verdict_rule(asked: RequestCrossover, verdict: Verdict) -> None:
    found, reason = verdict_of(asked, Versus(FLAT, curve(), 1), Goal(TARGET))
    assert found == verdict
    assert reason


@pytest.mark.parametrize(
    ("budget", "asked", "verdict"),
    [
        (2.3, request("always"), "viable"),
        (2.0, request("always"), "cannot say"),
        (1.7, request("always"), "not viable"),
        (1.7, request("never"), "not viable"),
        (2.3, request("never"), "not viable"),
        (2.0, request("from", 9000, None), "not viable"),
        (2.0, request("from", 2000, None), "cannot say"),
        (1.7, request("unknown"), "not viable"),
    ],
)
def test_the_ttft_budget(budget: float, asked: RequestCrossover, verdict: Verdict) -> None:
    found, reason = verdict_of(asked, Versus(FLAT, curve(), 1), Goal(TARGET, budget))
    assert found == verdict
    if budget != 2.3 and asked.kind == "always":
        assert f"of {budget:g} s allowed" in reason


@pytest.mark.parametrize("kind", ["always", "never", "from"])
def test_a_target_below_the_measured_range(kind: str) -> None:
    found, reason = verdict_of(request(kind, 1100, 1200), Versus(FLAT, curve(first=2048), 1), Goal(1024))
    assert (found, reason) == ("cannot say", "prefill was measured from 2,048 tokens on, the target is 1,024")


def test_never_does_not_reach_beyond_the_measured_range() -> None:
    found, reason = verdict_of(request("never"), Versus(FLAT, curve(last=4096), 1), Goal(TARGET))
    assert (found, reason) == ("cannot say", "prefill was measured up to 4,096 tokens, the target is 8,192")


def test_always_does_not_reach_beyond_the_measured_range() -> None:
    """Prefill 0.1 ms a token up to 2k, restoring 0.09 ms: the curve carried on wins, but not surely."""
    answer = decided(measured(1 / (16 * 9e-5)), curve(0.6, 1e-4, last=2048, spread=0.2))
    assert answer.request.kind in ("always", "from")
    assert answer.verdict == "cannot say"


@pytest.mark.slow
def test_a_void_point_carries_no_verdict() -> None:
    void = replace(NVME, point=replace(NVME.point, warnings=(results.PointWarning("page-cache", "m", "h"),)))
    answer = decided(void, fit(read_csv(SHIPPED_CSV)))
    assert (answer.verdict, answer.verdict_reason) == ("cannot say", "the point it rests on is void: page-cache")


@pytest.mark.parametrize("concurrent", [1, 4])
def test_an_unmeasured_load_is_unknown_and_says_what_to_measure(concurrent: int) -> None:
    answer = decided(None, curve(), concurrent=concurrent)
    jobs = 16 * concurrent
    assert answer.request.kind == "unknown"
    assert answer.request.reason.endswith(f"{GPT_OSS_BLOCK} bytes and {jobs} jobs; add --numjobs {jobs}")
    assert (answer.verdict, answer.single_block) == ("cannot say", None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("a/b", "A/B", True), ("a/b", "b", True), ("a/b", "c/b", False), ("b", "b/", True), ("a/b", "a/bc", False)],
)
def test_same_model(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same
    assert same_model(other, one) is same


# --- the command -----------------------------------------------------------------------------------------------------

GOLDEN_PUBLISHED = """\
Crossover in tokens, single block

 prefill ms/token   tokens/s   p99 5.00 ms   p99 50.0 ms
 ───────────────────────────────────────────────────────
             0.01    100,000           500         5,000
             0.02     50,000           250         2,500
             0.05     20,000           100         1,000
              0.1     10,000            50           500
              0.2      5,000            25           250
              0.5      2,000            10           100
                1      1,000             5            50
                2        500             3            25

Published method: L = p99 of one block / prefill cost of one token. It compares one block's tail with the prefill of \
L tokens. For whole requests, which decide, run 'kvbench crossover RUN_DIR --ttft-csv FILE'."""


@pytest.mark.slow
def test_the_published_table(kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = kvbench("crossover", "--p99-ms", "5,50")
    assert (outcome.code, outcome.err) == (0, "")
    assert plain(outcome.out) == GOLDEN_PUBLISHED


def test_the_published_table_with_a_curve(kvbench: Run) -> None:
    outcome = kvbench("crossover", "--p99-ms", "50,107.5,5000", "--ttft-csv", SHIPPED_CSV)
    row = next(line for line in outcome.out.splitlines() if "measured" in line)
    assert "below 2,048 tokens (p99 50.0 ms)" in row
    assert "from 3,823 tokens (p99 108 ms)" in row
    assert "above 49,152 tokens (p99 5.00 s)" in row
    data = kvbench("crossover", "--p99-ms", "5,50", "--json").json()
    assert data["prefill"] is None
    assert data["results"] == []
    published = data["published"]
    assert isinstance(published, list)
    assert {"p99_ns": 5_000_000, "prefill_s_per_token": 1e-05, "tokens": 500} in published


def run_dir(path: Path, *iops: tuple[str, float], **changes: Any) -> Path:
    """A run directory with one pure read point of 16 jobs for each tier."""
    points = []
    for tier, rate in iops:
        at = measured(rate)
        one = replace(at.point, id=f"{tier}-read", tier=tier, histogram=f"{tier}.json", **changes)
        results.save_histograms(path, f"{tier}.json", {"read": at.histogram or Histogram(())})
        points.append(one)
    results.save(RunResult("2026-01-01T00:00:00+00:00", (use(),), tuple(points)), path)
    return path


GOLDEN_RUN = """\
Restore or recompute, for contexts of 32,768 tokens

 tier   model                     at once   verdict      restoring wins   restores tokens/s   single block (published)
 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
 nvme   openai/gpt-oss-120b TP2         1   VIABLE       always                      93,920   below 2,048 tokens (p99 2.73 ms)
 ceph   openai/gpt-oss-120b TP2         1   NOT VIABLE   never                        2,880   from 2,942 tokens (p99 88.9 ms)

Why

 tier   model                     reason                                                                                                     rests on point   distrust
 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
 nvme   openai/gpt-oss-120b TP2   restoring wins at every length measured, 2,048 to 49,152 tokens; restoring wins at every length measured   nvme-read
 ceph   openai/gpt-oss-120b TP2   at 49,152 tokens restoring takes 10.2 times as long as prefill; restoring never wins up to 49,152 tokens   ceph-read

One request of 32,768 tokens

 tier   model                     one request         p50 / p99   to tie, it needs
 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
 nvme   openai/gpt-oss-120b TP2      2.25 GiB   349 ms / 349 ms   at 8,192: 3.188 GiB/s (p99 5.49 ms); at 32,768: 2.368 GiB/s (p99 7.42 ms)
 ceph   openai/gpt-oss-120b TP2      2.25 GiB   11.4 s / 11.4 s   at 8,192: 3.188 GiB/s (p99 5.49 ms); at 32,768: 2.368 GiB/s (p99 7.42 ms)

Prefill of openai/gpt-oss-120b: 5 TTFT samples from 2,048 to 49,152 tokens, about 28,909 tokens/s at 49,152; source: llm-d, guide to the peer-to-peer KV cache (uncached time to first token), read 2026-11.
The request model decides: it restores every block of the prompt. The single block compares one block's p99 with the prefill of L tokens, as published, and is shown for comparison.
Restoring wins wherever the GPUs prefill slower than the tier restores tokens/s. The verdict is about the latency of a request; what a full server serves at a hit rate, with its stores, says 'kvbench report --hit-rate'.
The prefill curve (a + bL + cL²) is off by at most 5.23 ms; a straight line would be off by 75.6 ms at best.
"""  # noqa: E501


@pytest.mark.slow
def test_a_run_directory(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0), ("ceph", 180.0))
    markdown = tmp_path / "out.md"
    outcome = kvbench("crossover", path, "--ttft-csv", SHIPPED_CSV, "--markdown", markdown)
    assert (outcome.code, outcome.err) == (0, "")
    assert plain(outcome.out) == plain(GOLDEN_RUN)
    assert markdown.read_text().startswith("# Restore or recompute\n\n## Restore or recompute, for contexts of 32,768")


@pytest.mark.slow
def test_a_budget_says_how_far_it_reaches(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    arguments = ("crossover", path, "--ttft-csv", SHIPPED_CSV, "--ttft-budget", "2s")
    (found,) = kvbench(*arguments, "--json").json()["results"]
    # 180 blocks of 16 tokens a second for 2 s are 5,760 tokens; all measured prompts are prefilled within 1.7 s.
    assert found["ttft_budget"]["restore_tokens"] == pytest.approx(5760, rel=0.03)
    assert not found["ttft_budget"]["restore_beyond"]
    assert (found["ttft_budget"]["recompute_tokens"], found["ttft_budget"]["recompute_beyond"]) == (49152, True)
    assert "within the budget" in kvbench(*arguments).out


@pytest.mark.slow
def test_the_link_to_the_gpus_enters_every_restore(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0))
    arguments = ("crossover", path, "--ttft-csv", SHIPPED_CSV, "--json")
    bare, slow = (kvbench(*arguments, *more).json()["results"][0] for more in ((), ("--gpu-copy", "1GB/s")))
    # 2,048 blocks of 1,179,648 bytes at 1 GB/s take 2.416 s more.
    assert slow["at_target"]["p50_s"] - bare["at_target"]["p50_s"] == pytest.approx(2.415919104)
    assert (bare["request"]["kind"], slow["request"]["kind"]) == ("always", "never")
    assert slow["gpu_copy_bytes_per_s"] == 10**9


@pytest.mark.slow
def test_what_if_more_reads_were_in_flight(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    arguments = ("crossover", path, "--ttft-csv", SHIPPED_CSV, "--what-if", "parallel=8")
    data = kvbench(*arguments, "--json").json()
    assert len(data["results"]) == 1
    (asked,) = data["what_if"]
    # Nothing was measured at 8 jobs, and one point has no neighbour to interpolate with.
    assert (asked["what_if"], asked["verdict"]) == ("8 reads in flight", "cannot say")
    assert "--numjobs 8" in asked["verdict_reason"]
    assert "8 reads in flight" in kvbench(*arguments).out


@pytest.mark.slow
def test_a_load_between_two_measured_ones_is_interpolated_and_marked(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    run = results.load(path)
    one = replace(run.points[0], id="ceph-1", numjobs=1)
    results.save(replace(run, points=(*run.points, one)), path)
    (asked,) = kvbench("crossover", path, "--ttft-csv", SHIPPED_CSV, "--what-if", "parallel=4", "--json").json()[
        "what_if"
    ]
    assert asked["interpolated"]
    assert asked["point"] == "between ceph-1 and ceph-read"
    assert asked["request"]["kind"] == "never"


def at_jobs(jobs: int, iops: float) -> MeasuredReads:
    """A steady point of that many jobs."""
    at = measured(iops, jobs=jobs)
    return replace(at, point=replace(at.point, id=f"j{jobs}", over_time=STEADY))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        # Four jobs read between 160 and 400 blocks of 16 tokens a second: 2,560 to 6,400 tokens a second.
        # T = 1e-7 L^2 then crosses between 1,563 and 3,906 tokens.
        (1200, "not viable"),
        (2500, "cannot say"),
        (5000, "viable"),
    ],
)
def test_a_verdict_between_two_loads_holds_at_both_bounds(target: int, verdict: str) -> None:
    found = between_jobs([at_jobs(1, 100.0), at_jobs(16, 400.0)], 4)
    assert found is not None
    answer = decide(
        use(parallelism_per_request=4), "ceph", 1, found, None, curve(0.0, 0.0, 1e-7, 512, 16384), Goal(target)
    )
    assert answer.verdict == verdict
    assert answer.request.low is not None
    assert answer.request.high is not None
    assert answer.request.low <= 1563 + 16
    assert answer.request.high >= 3906 - 16
    assert "; 4 jobs read 180 MiB/s to 450 MiB/s by their neighbours" in answer.verdict_reason
    assert ("measure them, --numjobs 4" in answer.verdict_reason) == (verdict == "cannot say")


@pytest.mark.slow
def test_one_section_gives_a_verdict_only_where_a_usual_change_could_not_flip_it() -> None:
    at = measured(100.0, jobs=16)
    alone = replace(at, point=replace(at.point, over_time={}))
    # 1,600 tokens a second: T = 1e-7 L^2 crosses at 6,250 tokens, 4,167 to 9,375 within a factor of 1.5.
    prefill = curve(0.0, 0.0, 1e-7, 2048, 16384)
    verdicts = {
        target: [decide(use(), "ceph", 1, it, None, prefill, Goal(target)).verdict for it in (at, alone)]
        for target in (3800, 5000, 8000, 11000)
    }
    assert verdicts == {
        3800: ["not viable", "not viable"],
        5000: ["not viable", "cannot say"],
        8000: ["viable", "cannot say"],
        11000: ["viable", "viable"],
    }
    said = decide(use(), "ceph", 1, alone, None, prefill, Goal(8000)).verdict_reason
    assert said.endswith("; one section does not show how the tier changes: taken within a factor of 1.5")


def lookup_run(io: Use, lookup_ms: float) -> tuple[Observation, RunResult]:
    """A mixed point that is not saved yet, in a run whose point of one job timed its lookups."""
    at = measured(100.0, jobs=16)
    fresh = replace(at.point, id="fresh", mix="mixed", driver="replay")
    one = replace(at.point, id="one", mix="mixed", driver="replay", numjobs=1)
    one = replace(one, metadata={"lookup": Calls(1000, latency(lookup_ms * MS))})
    assert at.histogram is not None
    return Observation(fresh, {"read": at.histogram}), RunResult("", uses=(io,), points=(one,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lookup_ms", "gpu_copy", "settled"),
    [
        # 1,600 tokens a second alone: the crossover is 6,250 tokens. With 6 ms of lookup for every 10 ms, 10,000.
        (0.001, None, True),
        (6.0, None, True),
        (2.7, None, False),
        # 1,179,648 bytes in 2.7 ms.
        (0.001, round(1_179_648 / 0.0027), False),
    ],
)
def test_a_verdict_is_settled_with_everything_that_the_decision_uses(
    lookup_ms: float, gpu_copy: int | None, settled: bool, tmp_path: Path
) -> None:
    unsure = {"read": OverTime(6, 0.02)}
    item, run = lookup_run(use(), lookup_ms)
    item = replace(item, point=replace(item.point, over_time=unsure))
    prefill = curve(0.0, 0.0, 1e-7, 2048, 16384)
    wanted = Wanted(prefill, None, Goal(8000), gpu_copy_bytes_per_s=gpu_copy)
    assert verdict_is_settled(item, tmp_path, run, wanted) is settled
    # None rests on it: another load, another mix, another model.
    for other in (replace(item.point, numjobs=8), replace(item.point, mix="read")):
        assert verdict_is_settled(replace(item, point=other), tmp_path, run, wanted) is None
    for curveless in (replace(wanted, curve=replace(prefill, model="other")), replace(wanted, curve=None)):
        assert verdict_is_settled(item, tmp_path, run, curveless) is None


def test_an_early_verdict_needs_more_confidence(tmp_path: Path) -> None:
    # The crossover of 6,250 tokens is known to 3 %: t of 5 degrees of freedom is 2.57 for 95 % and 3.36 for 98 %.
    of, at = use(parallelism_per_request=1), measured(100.0, 10.0, 1)
    unsure = replace(at.point, mix="mixed", over_time={"read": OverTime(6, 0.03)})
    prefill = curve(0.0, 0.0, 1e-7, 4096, 10240)
    goal = Goal(round(6250 * math.exp(2.95 * 0.03)))
    assert at.histogram is not None
    item, run = Observation(unsure, {"read": at.histogram}), RunResult("", uses=(of,))
    assert verdict_is_settled(item, tmp_path, run, Wanted(prefill, None, goal)) is False
    assert decide(of, "ceph", 1, replace(at, point=unsure), None, prefill, goal).verdict == "viable"


@pytest.mark.slow
def test_without_a_prefill_curve_restoring_is_timed_and_nothing_decided(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    wanted = Wanted(None, None, Goal(8000), models=(use().model,))
    decided = decide_runs([results.open_run(path)], wanted)
    (found,) = decided.crossovers
    assert (found.verdict, found.request.kind, found.single_block) == ("cannot say", "unknown", None)
    assert found.verdict_reason == "no prefill was given (--ttft-csv or --ttft-from)"
    assert found.point is not None
    assert found.restore is not None
    assert 8000 in found.restore.tokens
    printed = to_json(decided)
    assert printed["prefill"] is None
    assert printed["results"][0]["restore_tokens_per_s"] == found.restore_tokens_per_s
    assert not any(line.startswith("Prefill") for line in footnotes(decided))
    # Near miss: a curve decides, and one of another model says whose it is.
    known = curve(0.0, 0.0, 1e-7, 2048, 16384)
    (answered,) = decide_runs([results.open_run(path)], replace(wanted, curve=known)).crossovers
    assert "prefill" not in answered.verdict_reason
    (other,) = decide_runs([results.open_run(path)], replace(wanted, curve=replace(known, model="x"))).crossovers
    assert other.verdict_reason == f"the TTFT samples are of x; give samples of {use().model}"
    with pytest.raises(UsageError, match="no measured model matches"):
        decide_runs([results.open_run(path)], replace(wanted, models=("x",)))


@pytest.mark.slow
def test_a_request_that_is_alone_looks_up_on_an_idle_tier(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    run = results.load(path)
    lookups = {jobs: Calls(100, latency(jobs * MS / 4)) for jobs in (32, 16, 1)}
    points = [
        replace(run.points[0], id=f"ceph-{jobs}", numjobs=jobs, driver="replay", metadata={"lookup": lookups[jobs]})
        for jobs in lookups
    ]
    results.save(replace(run, points=tuple(points)), path)
    arguments = ("--ttft-csv", SHIPPED_CSV, "--concurrent-restores", "1,2", "--json")
    alone, two = kvbench("crossover", path, *arguments).json()["results"]
    assert (alone["lookup_s_per_unit"], two["lookup_s_per_unit"]) == (0.00025, 0.004)


@pytest.mark.slow
def test_another_size_has_the_lookups_too(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    run = results.load(path)
    metadata = {"lookup": Calls(100, latency(MS))}
    small = replace(run.points[0], numjobs=16, driver="replay", metadata=metadata)
    large = replace(small, id="large", io_bytes=8 * small.io_bytes)
    results.save(replace(run, points=(small, large)), path)
    asked = kvbench("crossover", path, "--ttft-csv", SHIPPED_CSV, "--what-if", "block-tokens=32", "--json").json()
    assert [item["lookup_s_per_unit"] for item in asked["what_if"]] == [0.001]


@pytest.mark.slow
def test_a_straight_line_is_offered_with_its_error(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    arguments = ("crossover", path, "--ttft-csv", SHIPPED_CSV, "--prefill-curve")
    line = kvbench(*arguments, "linear", "--json").json()["prefill"]
    assert line["c_s_per_token2"] == 0
    assert line["largest_residual_s"] >= line["linear_residual_s"] == pytest.approx(0.076, abs=0.001)
    assert [item["prompt_tokens"] for item in line["residuals"]] == [2048, 8192, 16384, 32768, 49152]
    refused = kvbench(*arguments, "cubic")
    assert refused.code == 2
    assert refused.err == (
        "kvbench: Invalid value for '--prefill-curve': 'cubic' is not one of 'quadratic', 'linear'. "
        "See 'kvbench crossover --help'.\n"
    )


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--gpu-copy", "fast", "--gpu-copy 'fast' is not a rate"),
        ("--what-if", "speed=2", "--what-if 'speed=2'"),
        ("--what-if", "parallel=x", "--what-if 'parallel=x'"),
    ],
)
def test_new_options_refuse_nonsense(kvbench: Run, tmp_path: Path, option: str, value: str, said: str) -> None:
    path = run_dir(tmp_path / "run", ("ceph", 180.0))
    outcome = kvbench("crossover", path, "--ttft-csv", SHIPPED_CSV, option, value)
    assert outcome.code == 2
    assert said in outcome.err


def assert_no_nan(value: object) -> None:
    """Walk JSON data and refuse what JSON cannot say."""
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict):
        for inner in value.values():
            assert_no_nan(inner)
    elif isinstance(value, list):
        for inner in value:
            assert_no_nan(inner)


@pytest.mark.slow
def test_json_has_the_contract(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0), ("ceph", 180.0))
    outcome = kvbench("crossover", path, "--ttft-csv", SHIPPED_CSV, "--json", "--concurrent-restores", "1,4")
    assert (outcome.code, outcome.err) == (0, "")
    data = json.loads(outcome.out)
    assert_no_nan(data)
    assert set(data) >= {"prefill", "results"}
    assert set(data["prefill"]) >= {"a_s", "b_s_per_token", "c_s_per_token2", "measured_from", "measured_to"}
    assert [(row["tier"], row["concurrent_restores"], row["verdict"]) for row in data["results"]] == [
        ("nvme", 1, "viable"), ("nvme", 4, "cannot say"), ("ceph", 1, "not viable"), ("ceph", 4, "cannot say")
    ]  # fmt: skip
    for row in data["results"]:
        assert set(row) >= {"tier", "model", "connector", "concurrent_restores", "single_block", "request", "verdict"}
        assert set(row["request"]) == {"kind", "tokens", "low", "high", "reason"}
        assert set(row["single_block"]) == {"kind", "tokens", "p99_ns", "point"}
        assert isinstance(row["single_block"]["p99_ns"], int)
    assert data["results"][1]["request"]["reason"].endswith("64 jobs; add --numjobs 64")


def answers(kvbench: Run, *arguments: str | Path) -> list[dict[str, object]]:
    """The results of one crossover call."""
    found = kvbench("crossover", *arguments, "--json").json()["results"]
    assert isinstance(found, list)
    return found


def test_a_curve_of_another_model_is_no_answer(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0))
    other = tmp_path / "other.csv"
    other.write_text("# model: org/other\nprompt_tokens,ttft_s\n1024,0.5\n2048,1\n4096,2\n")
    (row,) = answers(kvbench, path, "--ttft-csv", other)
    assert isinstance(row["request"], dict)
    assert row["request"]["kind"] == "unknown"
    assert row["request"]["reason"] == "the TTFT samples are of org/other; give samples of openai/gpt-oss-120b"
    assert (row["verdict"], row["single_block"]) == ("cannot say", None)
    assert row["restore_tokens_per_s"] == pytest.approx(16 * 5870)


@pytest.mark.slow
def test_the_steady_state_is_preferred(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0))
    run = results.load(path)
    slow = measured(180.0)
    mixed = replace(slow.point, id="mixed", tier="nvme", mix="mixed", write=direction(1000, 60.0))
    results.save(run.with_point(mixed), path)
    assert [row["point"] for row in answers(kvbench, path, "--ttft-csv", SHIPPED_CSV)] == ["mixed"]
    assert [row["point"] for row in answers(kvbench, path, "--ttft-csv", SHIPPED_CSV, "--mix", "read")] == ["nvme-read"]
    results.save(run.with_point(replace(mixed, status="failed", reason="x")), path)
    assert [row["point"] for row in answers(kvbench, path, "--ttft-csv", SHIPPED_CSV)] == ["nvme-read"]


def test_a_rate_of_zero_is_no_crash(kvbench: Run, tmp_path: Path) -> None:
    """fio reports 0 operations/s for a run shorter than a millisecond."""
    path = run_dir(tmp_path / "run", ("nvme", 5870.0), read=direction(1, 0.0, latency_ns=latency(1e5)))
    outcome = kvbench("crossover", path, "--ttft-csv", SHIPPED_CSV)
    assert outcome.code in (0, 2)


@pytest.mark.slow
def test_two_runs_with_equal_point_names_keep_their_own_doubts(kvbench: Run, tmp_path: Path) -> None:
    warning = results.PointWarning("few-samples", "m", "h")
    clean = run_dir(tmp_path / "a", ("nvme", 5870.0))
    doubted = run_dir(tmp_path / "b", ("nvme", 5870.0), warnings=(warning,))
    lines = kvbench("crossover", doubted, clean, "--ttft-csv", SHIPPED_CSV).out.splitlines()
    rows = [line for line in lines if "nvme-read" in line]
    assert len(rows) == 2
    assert ["few-samples" in row for row in rows] == [True, False]


@pytest.mark.slow
def test_the_result_file_itself_can_be_named(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0))
    assert answers(kvbench, path / "result.json", "--ttft-csv", SHIPPED_CSV) == answers(
        kvbench, path, "--ttft-csv", SHIPPED_CSV
    )


ERRORS: list[tuple[list[str], str]] = [
    (["RUN"], "say how fast the GPUs recompute: --ttft-csv FILE or --ttft-from PATH (or --p99-ms for the published "
     "figure)."),
    (["RUN", "--ttft-csv", "no.csv"], "no.csv cannot be read (No such file or directory); name a CSV file with TTFT "
     "samples."),
    (["no", "--ttft-csv", "CSV"], "no does not exist; name a run directory that 'kvbench fio' or 'kvbench import' "
     "wrote."),
    (["RUN", "--ttft-csv", "CSV", "--mix", "x"], "Invalid value for '--mix': 'x' is not one of 'auto', 'mixed', "
     "'read'. See 'kvbench crossover --help'."),
    (["RUN", "--ttft-csv", "CSV", "--model", "x"], "no measured model matches; the runs hold openai/gpt-oss-120b "
     "(TP 2, logical)."),
    (["RUN", "--ttft-csv", "CSV", "--tp", "1"], "no measured model matches; the runs hold openai/gpt-oss-120b "
     "(TP 2, logical)."),
    (["RUN", "--ttft-csv", "CSV", "--concurrent-restores", "0"], "--concurrent-restores '0': write whole numbers from "
     "1, separated by commas, like 1,16."),
    (["RUN", "--ttft-csv", "CSV", "--target-context", "8GiB"], "'8GiB' is not a number of tokens; write it like 8192 "
     "or 8k (k = 1024)."),
    (["RUN", "--ttft-csv", "CSV", "--ttft-budget", "2h"], "'2h' is not a duration; write it like 2s, 500ms or 60."),
    (["--p99-ms", "0"], "--p99-ms '0': write positive milliseconds up to a day, separated by commas, like 5,50."),
    (["--p99-ms", "5,x"], "--p99-ms '5,x': write positive milliseconds up to a day, separated by commas, like 5,50."),
    (["--p99-ms", "nan"], "--p99-ms 'nan': write positive milliseconds up to a day, separated by commas, like 5,50."),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), ERRORS, ids=range(len(ERRORS)))
def test_every_error_is_a_sentence(
    kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run_dir(tmp_path / "run", ("nvme", 5870.0))
    outcome = kvbench("crossover", *({"RUN": "run", "CSV": str(SHIPPED_CSV)}.get(item, item) for item in arguments))
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"kvbench: {sentence}\n")


@pytest.mark.parametrize("tails", ["", "1e308"])
def test_tails_at_the_edge_are_refused(kvbench: Run, tails: str) -> None:
    outcome = kvbench("crossover", "--p99-ms", tails)
    assert (outcome.code, outcome.out) == (2, "")


@pytest.mark.slow
def test_skipped_rows_are_counted(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0))
    bad = tmp_path / "bad.csv"
    bad.write_text(SHIPPED_CSV.read_text() + "x,y\n")
    assert kvbench("crossover", path, "--ttft-csv", bad).code == 2
    outcome = kvbench("crossover", path, "--ttft-csv", bad, "--skip-bad-rows")
    assert (outcome.code, outcome.err) == (0, f"{bad}: skipped 1 bad rows\n")


@pytest.mark.slow
def test_the_newest_run_is_named(kvbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_dir(tmp_path / "reports" / "x", ("nvme", 5870.0))
    outcome = kvbench("crossover", "--ttft-csv", SHIPPED_CSV)
    assert (outcome.code, outcome.err) == (0, "run: reports/x\n")


@pytest.mark.slow
def test_a_ttft_budget_on_the_command_line(kvbench: Run, tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", ("nvme", 5870.0))
    verdicts = [
        answers(kvbench, path, "--ttft-csv", SHIPPED_CSV, "--ttft-budget", budget)[0]["verdict"]
        for budget in ("1s", "100ms")
    ]
    assert verdicts == ["viable", "not viable"]  # 2,048 blocks at 5,870/s are 0.35 s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.99, "cannot say"), (0.65, "cannot say"), (0.5, "viable"), (1.2, "cannot say"), (2.0, "not viable")],
)
def test_without_an_interval_noise_must_not_decide(share: float, verdict: str) -> None:
    """Two lengths: no interval, and honest TTFT stray by 20 %; restoring at 0.99 of the prefill proves nothing."""
    found = decided(measured(1000.0), fit(polynomial_of(share)))
    assert found.verdict == verdict
    if verdict == "cannot say":
        assert "too few prefill samples for an interval" in found.verdict_reason
    beyond = decided(measured(1000.0), fit(polynomial_of(share)), Goal(2 * 65536))
    assert beyond.verdict == "cannot say"


def test_lengths_at_which_nothing_is_restored_turn_no_verdict() -> None:
    """Blocks of 4,160 tokens: at the 1,024 tokens that were measured both sides are 0, which is no near tie."""
    found = decide(HYBRID, "t", 1, measured(0.1), None, fit(polynomial_of(2.0)), Goal())
    assert (found.request.kind, found.verdict) == ("never", "not viable")


def test_a_target_below_the_measured_lengths_is_not_judged_by_them() -> None:
    found = decided(measured(1000.0), fit(polynomial_of(0.5)), Goal(512))
    assert found.verdict == "cannot say"


def polynomial_of(share: float) -> Samples:
    """Two samples of a server whose prefill takes 1 / share of what a tier of 16,000 tokens/s needs."""
    rows = tuple(Sample(tokens, tokens / 16_000 / share) for tokens in (1024, 65536))
    return Samples(rows, None, "a test")


@pytest.mark.slow
def test_one_length_has_no_always() -> None:
    rows = (Sample(32768, 100.0), Sample(32768, 101.0))
    found = decided(measured(1000.0), fit(Samples(rows, None, "a test")))
    assert (found.request.kind, found.verdict) == ("unknown", "cannot say")
    assert found.verdict_reason.startswith("prefill was measured at 32,768 tokens only")
    more = Samples((*rows, Sample(1024, 3.1)), None, "a test")
    assert decided(measured(1000.0), fit(more)).verdict == "viable"
