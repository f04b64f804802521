"""How each kind of number is computed, in words that stand on their own."""

from __future__ import annotations

from kvbench.decide.decision import Wanted
from kvbench.decide.restore import USUAL_VARIATION
from kvbench.report.data import Computation
from kvbench.units import format_tokens

# benchmarks/coverage.py; docs/decision.md has the table.
COVERAGE = "In simulation 98 % of the p99 and 99 % of the restore intervals held."

_READS = {
    "auto": "the reads of the mixed point at that load (steady state), else of the pure read point",
    "mixed": "the reads of the mixed point at that load",
    "read": "the pure read point at that load",
}


def methods(wanted: Wanted) -> tuple[Computation, ...]:
    """Every formula behind the report, with the inputs of this one."""
    target = format_tokens(wanted.goal.target_tokens)
    return (
        Computation(
            "Restore time of L tokens",
            "units = ceil(L / tokens of a block) x I/Os of a block. Each unit takes a latency drawn from the measured "
            "read histogram; the units are list-scheduled over the reads that one request keeps in flight, and never "
            "finish faster than units x concurrent restores / IOPS. The number is the median of 400 simulated "
            "requests, the interval their central 95 % once each is as much slower or quicker as the rate is uncertain "
            "over time (see below). Lookups, where a replay timed them, and the copy to the GPU "
            "(--gpu-copy) are added: the one comes before the reads, the other after; meanwhile the others have the "
            "tier. Checked against real restores (docs/decision.md): nearly always within 15 % on local disks and RGW; "
            "on ceph-fuse a pool of 32 threads was up to 1.4 times as fast as predicted.",
            f"{_READS[wanted.mix]}; the verdict names the point.",
        ),
        Computation(
            "Recompute time of L tokens",
            "TTFT(L) = a + bL + cL², a, b, c >= 0, least squares of relative errors; "
            "interval: 1,000 bootstrap draws of the residuals. A sample that stands far from all others is set "
            "aside and named. Never extrapolated.",
            _prefill_inputs(wanted),
        ),
        Computation(
            "Crossover (decides)",
            "the length from which the restore time stays below the recompute time, over 256 lengths in the measured "
            "range; interval: the same over paired draws.",
            "restore time and recompute time.",
        ),
        Computation(
            "Verdict",
            f"viable: the whole interval of the crossover is at most {target} tokens; not viable: it is above, or "
            "restoring never wins; else cannot say. With a budget, the restore time at the target must keep it too.",
            "crossover and goal.",
        ),
        Computation(
            "Restore speed, the prefill speed to beat",
            "tokens of a block / (I/Os of a block x max(concurrent restores / IOPS, mean latency / reads in flight)).",
            "IOPS and mean latency of the same point.",
        ),
        Computation("Recompute speed", f"{target} / TTFT({target}).", "recompute time."),
        Computation(
            "Single block (published method)",
            "the L at which TTFT(L) equals the p99 of one block read by 16 jobs; in the published figure "
            "L = p99 / (TTFT / context). It compares one block with the prefill of L tokens, so it never decides here.",
            "p99 of reads at 16 jobs.",
        ),
        Computation(
            "Tie, and budget",
            "bytes per second = bytes of the context / (recompute time - lookups - copy); p99 = measured p99 x "
            "recompute time / restore time, as if every latency were scaled alike. A budget reaches up to the last "
            "length that is restored within it in 97.5 % of the simulated requests.",
            "restore and recompute time.",
        ),
        Computation(
            "p50 and p99",
            "nearest rank of the merged latency histogram of all jobs; 95 % interval over batches of time, unknown "
            "where there are too few of them, or too few samples.",
            "each point's histogram file.",
        ),
        Computation(
            "What an interval means",
            "where the number would lie if this tier were measured for ever in the state of today, with 95 %. Its unit "
            "is a batch of time and not an operation: rounds that begin at least 10 s apart, compared with Student's "
            f"t. {COVERAGE} Without three batches a p99 has none, and a restore time is taken within a factor of "
            f"{USUAL_VARIATION:g} either way. Check it on your tier: benchmarks/coverage_real.py.",
            "the rounds of each point, and the one-second series of a long one.",
        ),
        Computation(
            "Bandwidth and IO/s", "bytes and operations divided by the time that fio measured.", "fio's JSON output."
        ),
    )


def _prefill_inputs(wanted: Wanted) -> str:
    if wanted.curve is None:
        return "none were given."
    curve = wanted.curve
    about = f" of {curve.model}" if curve.model else ""
    return (
        f"{curve.samples} samples{about} from {format_tokens(curve.measured_from)} to "
        f"{format_tokens(curve.measured_to)} tokens; {curve.source}."
    )
