"""How long a restore takes, where a load was not measured, and what a tie would need: exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from kvbench.decide.breakeven import BreakEven, break_even, budget_reach
from kvbench.decide.cost import ServerLoad, saving
from kvbench.decide.crossover import AtTarget, Goal, decide
from kvbench.decide.interpolation import between_jobs, between_sizes, rate_bounds
from kvbench.decide.reference_tiers import reference_tiers
from kvbench.decide.restore import (
    USUAL_VARIATION,
    Around,
    MeasuredReads,
    long_run_factors,
    reads_s,
    restore_curve,
    restore_tokens_per_s,
)
from kvbench.decide.throughput import Rates, Throughput, throughput
from kvbench.prefill.curve import fit
from kvbench.prefill.samples import read_csv
from kvbench.record.histogram import Histogram
from kvbench.record.results import OverTime
from kvbench.record.stats import t_quantile
from tests.factories import MS, SHIPPED_CSV, STEADY, curve, measured, use


def at_load(jobs: int, iops: float, mean_ms: float, io_bytes: int = 1 << 20) -> MeasuredReads:
    """The reads of a point with that many jobs, all equally slow."""
    found = measured(iops, mean_ms)
    return replace(found, point=replace(found.point, id=f"t-{io_bytes}-j{jobs}", numjobs=jobs, io_bytes=io_bytes))


def test_lookups_come_first_and_the_copy_last() -> None:
    # 10 blocks of 1,179,648 bytes in sequence: 10 x 1 ms of reads, 10 x 0.5 ms of lookups, 11,796,480 bytes at 1 GB/s.
    of = use(parallelism_per_request=1)
    around = Around(lookup_s_per_unit=0.0005, gpu_copy_bytes_per_s=10**9)
    found = restore_curve(of, measured(1e9, 1.0), 1, np.array([160.0]), around)
    assert found.around_s == pytest.approx([0.005 + 0.01179648])
    assert found.seconds == pytest.approx([0.010 + 0.005 + 0.01179648])
    # Four requests share the link to the GPUs; the reads here are not limited by their rate.
    of_four = restore_curve(of, measured(1e9, 1.0), 4, np.array([160.0]), around)
    assert of_four.seconds == pytest.approx([0.010 + 0.005 + 4 * 0.01179648])


def test_the_end_of_a_request_is_quicker_where_the_rate_is_the_limit() -> None:
    # Four in flight take 4 ms each, so the tier gives one unit a millisecond; one alone takes 1 ms.
    of = use(parallelism_per_request=4)
    loaded = measured(1000.0, 4.0, 4)
    lengths = np.array([16.0, 32.0, 64.0, 96.0])
    saturated = restore_curve(of, replace(loaded, alone_s=0.001), 1, lengths)
    assert saturated.seconds == pytest.approx([0.001, 0.002, 0.004, 0.006], rel=1e-3)
    # Where one alone takes as long as four together, or nobody knows, every unit takes its 4 ms.
    for alone_s in (0.004, None):
        plain = restore_curve(of, replace(loaded, alone_s=alone_s), 1, lengths)
        assert plain.seconds == pytest.approx([0.004, 0.004, 0.004, 0.008], rel=1e-3)
    # Others that restore at the same time fill what one leaves free.
    beside = restore_curve(of, replace(loaded, alone_s=0.001), 2, lengths)
    assert beside.seconds == pytest.approx([0.004, 0.004, 0.008, 0.012], rel=1e-3)


def test_who_looks_up_leaves_the_tier_to_the_others() -> None:
    # Two requests of 16 blocks, one thread each, on a tier that gives 100 blocks a second however many ask: 320 ms
    # while both read, 160 ms alone. Looking up takes 240 ms of each: T = 160 + 160 T / (T + 240) has the root 240.
    of, lengths = use(parallelism_per_request=1), np.array([256.0])
    loaded = replace(measured(100.0, 20.0, 2), alone_s=0.010)
    around = Around(lookup_s_per_unit=0.015)
    found = restore_curve(of, loaded, 2, lengths, around)
    assert found.loaded_s == pytest.approx([0.320])
    assert found.alone_share == 0.5
    assert found.seconds == pytest.approx([0.240 + 0.240])
    # On a tier where a unit takes as long alone, nobody gains from a pause of the others.
    assert restore_curve(of, replace(loaded, alone_s=0.020), 2, lengths, around).seconds == pytest.approx([0.560])
    assert restore_curve(of, replace(loaded, alone_s=None), 2, lengths, around).seconds == pytest.approx([0.560])


def test_threads_that_are_shared_are_free_while_the_others_pause() -> None:
    # Four requests share the 32 threads that one alone has too, so a quarter of the time is enough for one.
    of = use(parallelism_per_request=32, threads=32)
    found = restore_curve(of, measured(1000.0, 32.0, 32), 4, np.array([16.0 * 320]), Around(lookup_s_per_unit=0.001))
    assert found.alone_share == 0.25
    assert found.loaded_s == pytest.approx([1.28])


@given(st.floats(0, 10), st.floats(0.01, 1), st.floats(0, 10))
def test_reads_take_between_alone_and_loaded(loaded_s: float, share: float, around_s: float) -> None:
    (found,) = reads_s(np.array([loaded_s]), share, np.array([around_s]))
    assert share * loaded_s - 1e-9 <= found <= loaded_s + 1e-9
    # It is the root: T (T + around) = alone (T + around) + (loaded - alone) T.
    alone_s = share * loaded_s
    left, right = found * (found + around_s), alone_s * (found + around_s) + (loaded_s - alone_s) * found
    assert left == pytest.approx(right, abs=1e-6)


def test_the_speed_on_long_prompts_counts_what_is_around() -> None:
    around = Around(lookup_s_per_unit=0.001, gpu_copy_bytes_per_s=1_179_648_000)
    # A block of 16 tokens takes 10 ms at 100 a second, 1 ms to look up and 1 ms to copy.
    assert restore_tokens_per_s(use(), measured(100.0, 0.001), 1, around) == pytest.approx(16 / 0.012)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.floats(0, 0.01), st.integers(10**8, 10**11))
def test_what_is_around_never_makes_a_restore_faster(lookup_s: float, copy: int) -> None:
    lengths = np.array([160.0, 1600.0])
    bare, loaded = (
        restore_curve(use(), measured(100.0), 1, lengths, around).seconds
        for around in (Around(), Around(lookup_s, copy))
    )
    assert (loaded >= bare).all()


def test_between_two_loads_the_rate_has_bounds() -> None:
    # From 1 to 16 jobs the rate grows from 100 to 400: at 4 jobs the chord gives 160, and more than 400 is impossible.
    found = between_jobs([at_load(1, 100.0, 10.0), at_load(16, 400.0, 40.0)], 4)
    assert found is not None
    assert found.bounds is not None
    assert [bound.read.iops for bound in found.bounds] == pytest.approx([400.0, 160.0])
    assert found.read.iops == pytest.approx(math.sqrt(400 * 160))
    # Four jobs keep four reads in flight: 10 ms each at 400 a second, 25 ms at 160.
    assert [bound.read.latency_ns.mean for bound in found.bounds if bound.read.latency_ns] == pytest.approx(
        [10 * MS, 25 * MS]
    )
    assert found.histogram is not None
    assert [warning.code for warning in found.point.warnings] == ["interpolated"]
    assert found.point.id == "between t-1048576-j1 and t-1048576-j16"


@given(
    st.lists(st.integers(1, 64), min_size=3, max_size=3, unique=True).map(sorted),
    st.floats(1, 64),
    st.floats(1e-3, 1e6),
    st.booleans(),
)
def test_bounds_hold_a_tier_that_saturates_anywhere(
    loads: list[int], saturated: float, alone: float, sharply: bool
) -> None:
    def rate(jobs: int) -> float:
        """What the jobs do together: in proportion up to a sharp limit, or ever less more."""
        return alone * (min(jobs, saturated) if sharply else jobs / (1 + (jobs - 1) / saturated))

    few, jobs, many = loads
    least, most = rate_bounds((few, rate(few)), (many, rate(many)), jobs)
    assert least * (1 - 1e-9) <= rate(jobs) <= most * (1 + 1e-9)


def test_bounds_of_the_published_kind() -> None:
    # One job does 100, sixteen do 400 because the tier saturates at four: four jobs do 400, and eight as well.
    assert rate_bounds((1, 100.0), (16, 400.0), 4) == pytest.approx((160.0, 400.0))
    assert rate_bounds((1, 100.0), (16, 400.0), 2) == pytest.approx((120.0, 200.0))
    # A tier that is slower with more jobs is no faster in between than with few.
    assert rate_bounds((4, 400.0), (16, 300.0), 8) == pytest.approx((366.7, 400.0), rel=1e-3)
    # And one that does not saturate leaves nothing open.
    assert rate_bounds((1, 100.0), (16, 1600.0), 4) == pytest.approx((400.0, 400.0))


def test_a_restore_within_bounds_has_the_draws_of_both() -> None:
    known = [at_load(1, 100.0, 10.0), at_load(16, 400.0, 40.0)]
    steady = [replace(item, point=replace(item.point, over_time=STEADY)) for item in known]
    found = between_jobs(steady, 4)
    assert found is not None
    restore = restore_curve(use(io_bytes=1 << 20, parallelism_per_request=4), found, 1, np.array([16.0 * 400]))
    # 400 units at 400 a second take 1 s, at 160 a second 2.5 s.
    assert np.unique(restore.draws.round(2)).tolist() == [1.0, 2.5]
    assert (restore.draws[:100] < 2).sum() == 50
    # Of a neighbour that was measured in one piece the rate between is not known either.
    unknown = between_jobs([steady[0], replace(known[1], point=replace(known[1].point, over_time={}))], 4)
    assert unknown is not None
    assert (found.point.over_time, unknown.point.over_time) == ({"read": OverTime(6, 0.0)}, {})


@given(st.floats(0.01, 0.5), st.integers(3, 30))
def test_the_long_run_factors_are_those_of_student(error: float, batches: int) -> None:
    factors = np.sort(np.log(long_run_factors(OverTime(batches, error))))
    assert factors == pytest.approx(-factors[::-1], abs=1e-9)
    reach = error * t_quantile(0.975, batches - 1)
    inside = (np.abs(factors) <= reach + 1e-12).mean()
    assert inside == pytest.approx(0.95, abs=0.005)


def test_one_section_is_taken_within_a_factor() -> None:
    factors = long_run_factors(None)
    assert ((factors >= 1 / USUAL_VARIATION) & (factors <= USUAL_VARIATION)).mean() == pytest.approx(0.95, abs=0.005)
    at = measured(100.0, 10.0, 1)
    alone = replace(at, point=replace(at.point, over_time={}))
    known, unknown = (restore_curve(use(parallelism_per_request=1), it, 1, np.array([1600.0])) for it in (at, alone))
    assert known.seconds == pytest.approx([1.0])
    assert unknown.seconds == pytest.approx([1.0])
    assert known.draws == pytest.approx(1.0)
    assert np.quantile(unknown.draws, [0.025, 0.975]) == pytest.approx([1 / USUAL_VARIATION, USUAL_VARIATION], rel=0.02)
    # What one request takes is not what is uncertain about the tier.
    assert unknown.requests == pytest.approx(1.0)


def test_nothing_is_extrapolated() -> None:
    known = [at_load(2, 100.0, 10.0), at_load(16, 400.0, 40.0)]
    assert between_jobs(known, 1) is None
    assert between_jobs(known, 32) is None
    assert between_jobs(known[:1], 2) is None
    assert between_jobs([replace(known[0], histogram=None), known[1]], 4) is None


def test_between_two_sizes_bytes_follow_too() -> None:
    sizes = [at_load(1, 400.0, 2.5, 1 << 20), at_load(1, 100.0, 10.0, 4 << 20)]
    found = between_sizes(sizes, 2 << 20)
    assert found is not None
    assert found.read.iops == pytest.approx(200.0)
    assert found.read.bytes_per_s == pytest.approx(200.0 * (2 << 20))


def test_between_two_sizes_a_unit_alone_is_in_between_too() -> None:
    # Alone 2.5 ms for 1 MiB and 10 ms for 4 MiB: 5 ms for 2 MiB, not the 2.5 ms of the smaller neighbour.
    small, large = at_load(16, 400.0, 40.0, 1 << 20), at_load(16, 100.0, 160.0, 4 << 20)
    found = between_sizes([replace(small, alone_s=0.0025), replace(large, alone_s=0.010)], 2 << 20)
    assert found is not None
    assert found.alone_s == pytest.approx(0.005)
    halfway = between_sizes([replace(small, alone_s=0.0025), large], 2 << 20)
    assert halfway is not None
    assert halfway.alone_s is None


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_poorer_neighbour_says_how_much_is_known(low: int, high: int) -> None:
    one, other = at_load(1, 100.0, 10.0), at_load(16, 400.0, 40.0)
    one = replace(one, histogram=Histogram(((10 * MS, low),)))
    other = replace(other, histogram=Histogram(((40 * MS, high),)))
    found = between_jobs([one, other], 4)
    assert found is not None
    assert found.histogram is not None
    assert found.histogram.samples == min(low, high)


def test_break_even_is_where_both_take_equally_long() -> None:
    # 100 blocks of 16 tokens, 1,179,648 bytes each, in 1 s: prefill of 1,600 tokens takes 0.4 s.
    prefill = curve(0.0, 0.4 / 1600, 0.0)
    of, at = use(parallelism_per_request=1), measured(1e9, 10.0)
    restore = restore_curve(of, at, 1, np.array([1600.0]))
    found = break_even(of, at, restore, prefill, 1600)
    assert found is not None
    assert found.bytes_per_s == pytest.approx(100 * 1_179_648 / 0.4)
    # All latencies have to shrink by 0.4.
    assert found.p99_ns == pytest.approx(4 * MS, rel=1e-6)


def test_break_even_counts_that_others_pause() -> None:
    # Loaded 320 ms, alone 160 ms, around 240 ms; prefill takes 600 ms, so the reads may take 360 ms:
    # 360 x 600 = k (320 x 360 + 160 x 240) is k = 1.406.
    of, at = use(parallelism_per_request=1), replace(measured(100.0, 20.0, 2), alone_s=0.010)
    around = Around(lookup_s_per_unit=0.015)
    restore = restore_curve(of, at, 2, np.array([256.0]), around)
    # Two prefills of one step end together, after the time of both.
    found = break_even(of, at, restore, curve(0.0, 0.3 / 256, 0.0, first=128), 256, concurrent=2)
    assert found is not None
    assert found.p99_ns == pytest.approx(20 * MS * 216_000 / 153_600, rel=1e-6)
    # One thread looks up for both, which takes 480 ms, however fast the reads.
    assert break_even(of, at, restore, curve(0.0, 0.4 / 256, 0.0, first=128), 256) == BreakEven(256, None, None)
    # With latencies so much longer a restore takes what prefill takes.
    factor = 153_600 / 216_000
    tied = replace(measured(100.0 * factor, 20.0 / factor, 2), alone_s=0.010 / factor)
    assert restore_curve(of, tied, 2, np.array([256.0]), around).seconds == pytest.approx([0.6], rel=1e-6)


def test_no_storage_is_fast_enough_when_the_copy_alone_takes_longer() -> None:
    of, at = use(), measured(100.0)
    restore = restore_curve(of, at, 1, np.array([1600.0]), Around(gpu_copy_bytes_per_s=10**6))
    found = break_even(of, at, restore, curve(0.0, 1e-6, 0.0), 1600)
    assert found is not None
    assert (found.bytes_per_s, found.p99_ns) == (None, None)


def test_break_even_is_not_extrapolated() -> None:
    of, at = use(), measured(100.0)
    restore = restore_curve(of, at, 1, np.array([1e6]))
    assert break_even(of, at, restore, curve(), 10**6) is None


def test_a_budget_reaches_as_far_as_nothing_is_over_it() -> None:
    tokens, seconds = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert budget_reach(tokens, seconds, 2.5) == (1, False)
    assert budget_reach(tokens, seconds, 0.5) == (None, False)
    assert budget_reach(tokens, seconds, 4.0) == (4, True)
    assert budget_reach(tokens[:0], seconds[:0], 4.0) == (None, False)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.floats(20, 2000), st.floats(0.01, 50))
def test_a_larger_budget_never_reaches_less_far(iops: float, budget_s: float) -> None:
    reached = []
    for seconds in (budget_s, budget_s * 2):
        at = measured(iops)
        answer = decide(use(), "t", 1, at, at, curve(), Goal(16384, seconds))
        assert answer.budget is not None
        reached.append(answer.budget.restore_tokens or 0)
    assert reached[0] <= reached[1]


def hit(tokens: int, recompute_s: float | None) -> AtTarget:
    """A hit of that many tokens, all of them in whole blocks."""
    return AtTarget(tokens, tokens, 0.1, 0.2, tokens, recompute_s)


def test_a_saving_is_prefill_times_gpus() -> None:
    # Of 10 ms + 1 us x 8,000 a hit spares 8 ms on 8 GPUs; 0.5 x 2 hits a second make 86,400 a day.
    found = saving(curve(0.01, 1e-6, 0.0), hit(8000, 0.008), ServerLoad(0.5, 2.0, gpus=8, gpu_hour_price=3.0))
    assert found is not None
    assert found.gpu_s_per_hit == pytest.approx(0.064)
    assert found.hits_per_day == 86_400
    assert found.gpu_s_per_day == pytest.approx(5_529.6)
    assert found.price_per_day == pytest.approx(5_529.6 / 3600 * 3)
    assert found.gpu_s_per_hit_low <= found.gpu_s_per_hit <= found.gpu_s_per_hit_high


def test_no_saving_is_extrapolated_and_no_price_invented() -> None:
    assert saving(curve(), hit(10**7, None), ServerLoad(0.5, 1.0)) is None
    found = saving(curve(), hit(8000, 0.8), ServerLoad(0.5, 1.0))
    assert found is not None
    assert found.price_per_day is None


def test_no_more_is_saved_than_is_served_and_than_the_gpus_have() -> None:
    at, prefill = hit(8000, 0.8), curve(0.1, 1e-4)
    served = saving(prefill, at, ServerLoad(0.5, 4.0), most_per_s=1.5)
    assert served is not None
    assert served.hits_per_day == pytest.approx(0.5 * 1.5 * 86_400)
    assert served.gpu_s_per_day == pytest.approx(0.5 * 1.5 * 86_400 * 0.8)
    # 0.5 x 4 hits a second would save 1.6 GPU-seconds each second of one GPU.
    asked = saving(prefill, at, ServerLoad(0.5, 4.0), most_per_s=100.0)
    assert asked is not None
    assert asked.gpu_s_per_day == 86_400


def served_by(
    hit_rate: float,
    read: float | None,
    write: float | None,
    tokens: int = 8000,
) -> Throughput | None:
    """The throughput of requests of 8,000 tokens in 500 blocks: T = 0.1 + 0.8 s, of which a hit spares 0.8."""
    item = decide(use(), "t", 1, measured(1e6), None, curve(0.1, 1e-4), Goal(tokens))
    return throughput(item, curve(0.1, 1e-4), hit_rate, Rates(((read or 0.0, write or 0.0),)))


BYTES = 500 * 1_179_648


@pytest.mark.slow
def test_a_full_server_is_limited_by_gpus_reads_or_stores() -> None:
    free = served_by(0.5, 1e12, None)
    assert free is not None
    assert (free.limited_by, free.store_share) == ("GPUs", None)
    assert free.without_per_s == pytest.approx(1 / 0.9)
    assert free.with_per_s == pytest.approx(1 / 0.5)
    assert free.gain == pytest.approx(1.8)
    # Half the requests read: a tier of 0.75 requests a second serves 1.5.
    slow = served_by(0.5, 0.75 * BYTES, 1e12)
    assert slow is not None
    assert slow.limited_by == "reads"
    assert slow.with_per_s == pytest.approx(1.5)
    # 2 requests a second, half of them stored, on a tier that takes 0.25 of them a second: four times its write rate.
    stored = served_by(0.5, 1e12, 0.25 * BYTES)
    assert stored is not None
    assert stored.limited_by == "stores"
    assert stored.store_share == pytest.approx(4.0)
    assert stored.with_per_s == pytest.approx(0.5)
    assert [stored.gain, stored.free_gain] == pytest.approx([0.45, 1.8])


@pytest.mark.slow
def test_no_throughput_is_extrapolated_or_made_up() -> None:
    assert served_by(0.5, None, 1.0) is None
    assert served_by(0.5, 1e9, 1e9, tokens=10**6) is None


@pytest.mark.slow
def test_the_published_volume_pays_for_throughput_and_not_for_latency() -> None:
    """VPC block, gpt-oss-120b on an H200 at 32k: with a quarter of hits a server has 1.30 times the throughput if
    stores were free; they would take five times its write rate. For the latency of a request it never pays."""
    prefill = fit(read_csv(SHIPPED_CSV))
    vpc = next(tier for tier in reference_tiers() if tier.name.startswith("VPC"))
    read, write, mixed_read, mixed_write = (
        max(
            one.bytes_per_s
            for one in vpc.points
            if (one.io_bytes, one.mix, one.direction) == (1_179_648, mix, direction)
        )
        for mix, direction in (("read", "read"), ("write", "write"), ("mixed", "read"), ("mixed", "write"))
    )
    item = decide(use(), "vpc", 1, measured(read / 1_179_648), None, prefill, Goal())
    assert item.verdict == "not viable"
    found = throughput(item, prefill, 0.25, Rates(((read, 0.0), (0.0, write), (mixed_read, mixed_write))))
    assert found is not None
    assert found.free_gain == pytest.approx(1.30, abs=0.01)
    assert found.store_share == pytest.approx(5.6, abs=0.1)
    assert found.limited_by == "stores"
    assert found.gain < 1


@pytest.mark.parametrize(
    ("read", "written", "at_most"),
    [
        # Only one of them is asked for.
        (800.0, 0.0, 1.0),
        (0.0, 800.0, 0.5),
        # The measured mix itself, and half of it.
        (600.0, 200.0, 1.0),
        (300.0, 100.0, 2.0),
        # A quarter of the time in the mix, the rest writing: 150 read, 50 + 300 written. Halfway to reading: 700, 100.
        (150.0, 350.0, 1.0),
        (700.0, 100.0, 1.0),
    ],
)
def test_a_tier_does_what_lies_between_the_mixes_that_were_measured(
    read: float, written: float, at_most: float
) -> None:
    rates = Rates(((800.0, 0.0), (0.0, 400.0), (600.0, 200.0)))
    assert rates.at_most(read, written) == pytest.approx(at_most)
    # A pair that is worse than another adds nothing.
    assert Rates((*rates.pairs, (500.0, 150.0))).at_most(read, written) == pytest.approx(at_most)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=6), st.floats(0.01, 0.99))
def test_what_a_tier_does_at_most_is_what_a_linear_program_says(
    pairs: list[tuple[float, float]], hit_rate: float
) -> None:
    # Most x with shares of time s >= 0, their sum 1: sum s R >= x read and sum s W >= x written.
    asked = (hit_rate, 1 - hit_rate)
    bounds = [[*(-pair[way] for pair in pairs), asked[way]] for way in (0, 1)]
    solved = linprog([*[0.0] * len(pairs), -1.0], bounds, [0.0, 0.0], [[*[1.0] * len(pairs), 0.0]], [1.0])
    assert Rates(tuple(pairs)).at_most(*asked) == pytest.approx(-solved.fun, rel=1e-6, abs=1e-3)


def test_the_tail_of_a_request_is_simulated() -> None:
    # One unit in a hundred takes 1 s instead of 1 ms: most requests of 100 units in sequence wait for at least one.
    at = replace(measured(1e9), histogram=Histogram(((1 * MS, 99_000), (1000 * MS, 1000))))
    answer = decide(use(parallelism_per_request=1), "t", 1, at, at, curve(), Goal(1600))
    assert answer.at_target is not None
    assert answer.at_target.bytes == 100 * 1_179_648
    # Binomial(100, 0.01): the median is 1 slow unit, the 99th percentile 4.
    assert answer.at_target.p50_s == pytest.approx(1.1, abs=0.01)
    assert math.isclose(answer.at_target.p99_s, 4.1, abs_tol=1.01)
