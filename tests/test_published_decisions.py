"""The published tiers against the shipped prefill curve, with the arithmetic written out (issue 11, item 7).

gpt-oss-120b: 16 tokens are one block of 1,179,648 bytes; the published jobs keep 16 in flight. Prefill on the H200 is
measured: 205.4 ms at 8,192 tokens, 983 ms at 32,768, 1,695 ms at 49,152. Each row below is computed by hand from the
published bytes per second and latencies of pure reads at 16 jobs.
"""

from __future__ import annotations

import pytest

from kvbench.decide.crossover import Crossover, Goal, decide
from kvbench.decide.reference_tiers import ReferencePoint, reference_tiers
from kvbench.decide.restore import MeasuredReads
from kvbench.prefill.curve import fit
from kvbench.prefill.samples import read_csv
from kvbench.record.results import Direction, LatencyNs
from tests.factories import SHIPPED_CSV, point, use

BLOCK = 1_179_648


def published(tier: str) -> ReferencePoint:
    """The pure reads of gpt-oss-120b's block at 16 jobs."""
    (found,) = (
        figure
        for reference in reference_tiers()
        if reference.id == tier
        for figure in reference.points
        if (figure.io_bytes, figure.mix, figure.direction, figure.numjobs) == (BLOCK, "read", "read", 16)
    )
    return found


def decided(tier: str, target: int = 32_768) -> Crossover:
    """What kvbench decides for that tier, from its published figures alone."""
    figure = published(tier)
    # The table of the NVMe gives no mean; Little's law does: 16 in flight / operations per second.
    mean_ns = figure.mean_ns or round(16 / figure.iops * 1e9)
    latency = LatencyNs(mean=mean_ns, p50=figure.p50_ns, p99=figure.p99_ns)
    read = Direction(round(figure.iops * 60), figure.bytes_per_s * 60, figure.iops, figure.bytes_per_s, latency)
    at = MeasuredReads(point(read=read, mix="read"), read, None)
    return decide(use(), tier, 1, at, at, fit(read_csv(SHIPPED_CSV)), Goal(target))


# Tokens per second of a long restore: bytes per second / 1,179,648 x 16 tokens, unless Little's mean says less.
@pytest.mark.parametrize(
    ("tier", "tokens_per_s", "seconds_32k", "kind", "verdict"),
    [
        # 212,350,383 / 1,179,648 = 180.01 x 16 = 2,880; 16 / 88.821 ms = 180.14. 2,048 / 180.01 = 11.38 s.
        ("cephfs", 2_880, 11.38, "never", "not viable"),
        # 272,753,707 / 1,179,648 = 231.22 x 16 = 3,699; 16 / 69.16 ms = 231.3. 2,048 / 231.22 = 8.857 s.
        ("rgw-s3", 3_699, 8.857, "never", "not viable"),
        # 799,475,217 / 1,179,648 = 677.72 x 16 = 10,844; 16 / 23.602 ms = 677.9. 2,048 / 677.72 = 3.022 s.
        ("vpc-block", 10_844, 3.022, "never", "not viable"),
        # 6,603,000,000 / 1,179,648 = 5,597.4 x 16 = 89,559. 2,048 / 5,597.4 = 0.3659 s against 0.983 s.
        ("micron-7450-nvme", 89_559, 0.3659, "always", "viable"),
    ],
)
def test_requests(tier: str, tokens_per_s: int, seconds_32k: float, kind: str, verdict: str) -> None:
    answer = decided(tier)
    assert answer.restore_tokens_per_s == pytest.approx(tokens_per_s, rel=1e-3)
    assert answer.at_target is not None
    assert answer.at_target.bytes == 2048 * BLOCK
    assert answer.at_target.p50_s == pytest.approx(seconds_32k, rel=2e-3)
    assert (answer.request.kind, answer.verdict) == (kind, verdict)


# Where prefill takes as long as one block's p99, on straight lines between the measured samples.
@pytest.mark.parametrize(
    ("tier", "tokens"),
    [
        # 107.479 ms lies (107.479 - 70.6) / (205.4 - 70.6) = 0.2736 of the way from 2,048 to 8,192: 3,729.
        ("cephfs", 3_729),
        # 143.655 ms: 0.5419 of the way: 5,378.
        ("rgw-s3", 5_378),
    ],
)
def test_single_blocks(tier: str, tokens: int) -> None:
    single = decided(tier).single_block
    assert single is not None
    # The fitted parabola runs up to 200 tokens beside the chords between the samples.
    assert single.tokens == pytest.approx(tokens, abs=200)


@pytest.mark.parametrize("tier", ["vpc-block", "micron-7450-nvme"])
def test_a_tail_shorter_than_any_measured_prefill_says_so(tier: str) -> None:
    # 25.035 ms and 4.0 ms against 70.6 ms at 2,048 tokens, the shortest measured.
    single = decided(tier).single_block
    assert single is not None
    assert (single.kind, single.tokens) == ("below-range", None)


def test_what_a_tier_would_need() -> None:
    answer = decided("cephfs", target=32_768)
    at_8k, at_32k = answer.break_even
    # A hit spares T - a of the fit, a = 29 ms: 512 blocks x 1,179,648 = 603,979,776 bytes in 176 ms, 2,048 in 938 ms.
    prefill = fit(read_csv(SHIPPED_CSV))
    at_8k_s, at_32k_s = (float(prefill.seconds(tokens)[0]) - prefill.a_s for tokens in (8192, 32_768))
    assert at_8k_s == pytest.approx(0.1764, rel=0.01)
    assert at_8k.bytes_per_s == pytest.approx(603_979_776 / at_8k_s)
    assert at_32k.bytes_per_s == pytest.approx(2_415_919_104 / at_32k_s)
    # The reads take 11.38 s and may take less than a second: the p99 would have to be so much of itself.
    assert at_32k.p99_ns == pytest.approx(107_479_000 * at_32k_s / 11.38, rel=0.01)
