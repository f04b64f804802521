"""How a command is told how fast the GPUs recompute and what is wanted: the options, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvbench.decide.cost import Traffic
    from kvbench.decide.crossover import Goal
    from kvbench.decide.decision import Wanted
    from kvbench.prefill.curve import PrefillCurve
    from kvbench.prefill.samples import Samples

TtftCsvOption = Annotated[
    Path | None,
    typer.Option("--ttft-csv", help="Uncached TTFT: columns prompt_tokens and ttft_s or ttft_ms, sorted by length."),
]
TtftFromOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ttft-from",
        metavar="PATH",
        help="Uncached TTFT from results that you have: a file or folder of AIPerf, GuideLLM, vLLM bench serve, SGLang "
        "bench_serving, inference-perf, GenAI-Perf or llm-d-benchmark; repeatable.",
    ),
]
TtftModelOption = Annotated[
    str | None,
    typer.Option("--ttft-model", metavar="NAME", help="The model that the TTFT is of, where the file names another."),
]
AllowQueuedOption = Annotated[
    bool,
    typer.Option(
        "--allow-queued",
        help="Use the TTFT of requests that ran beside others too: it includes waiting, so restoring looks better.",
    ),
]
AnySpeedOption = Annotated[
    bool,
    typer.Option(
        "--any-speed",
        help="Believe the TTFT also where it means a speed that no accelerator is known for (docs/ttft-from.md).",
    ),
]
SkipOption = Annotated[bool, typer.Option("--skip-bad-rows", help="Count bad CSV rows instead of stopping.")]
TargetOption = Annotated[str, typer.Option("--target-context", help="Context length that matters to you.")]
BudgetOption = Annotated[str | None, typer.Option("--ttft-budget", help="Longest acceptable restore there, like 2s.")]
ConcurrentOption = Annotated[
    str, typer.Option("--concurrent-restores", help="Requests that restore at once, separated by commas.")
]
ReadsOption = Annotated[
    str, typer.Option("--mix", help="Which reads count: mixed (steady state), read, or auto: mixed where measured.")
]

CurveOption = Annotated[
    str,
    typer.Option("--prefill-curve", help="Through the TTFT: quadratic (a + bL + cL²) or linear, whose error is shown."),
]
GpuCopyOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-copy",
        metavar="RATE",
        help="Bandwidth from host memory into all GPUs of the server together, like 50GB/s; it enters every restore. "
        "[default: left out]",
    ),
]
HitRateOption = Annotated[
    str | None, typer.Option("--hit-rate", help="Share of requests whose prompt is restored, like 60%: adds savings.")
]
RequestRateOption = Annotated[
    float, typer.Option("--requests-per-s", min=0.0, help="With --hit-rate: requests of the server in each second.")
]
GpusOption = Annotated[int, typer.Option("--gpus", min=1, help="With --hit-rate: GPUs that a prefill keeps busy.")]
GpuPriceOption = Annotated[
    float | None, typer.Option("--gpu-price", min=0.0, help="With --hit-rate: price of one GPU for one hour.")
]


@dataclass(frozen=True, slots=True)
class TtftOptions:
    """The options that say where TTFT comes from, as typed."""

    csv: Path | None
    serving: list[Path] | None
    model: str | None = None
    allow_queued: bool = False
    skip_bad_rows: bool = False
    shape: str = "quadratic"
    any_speed: bool = False


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options that say what the server does all day, as typed."""

    hit_rate: str | None = None
    requests_per_s: float = 1.0
    gpus: int = 1
    gpu_hour_price: float | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """The TTFT samples and the curve through them."""

    samples: Samples
    curve: PrefillCurve


def prefill_of(options: TtftOptions) -> Prefill | None:
    """The prefill that the options name, None when they name none; what was skipped is said on stderr."""
    from kvbench import console
    from kvbench.errors import UsageError
    from kvbench.prefill.curve import fit, parse_shape

    shape = parse_shape(options.shape)
    if options.csv is not None and options.serving:
        raise UsageError("--ttft-csv and --ttft-from both say how fast the GPUs recompute; give one of them.")
    if options.csv is not None:
        from kvbench.prefill.samples import read_csv, require_alone

        samples = read_csv(options.csv, skip_bad_rows=options.skip_bad_rows)
        if samples.skipped_rows:
            console.note(f"{options.csv}: skipped {samples.skipped_rows} bad rows")
        samples = require_alone(samples, allow_queued=options.allow_queued)
        samples = samples if options.model is None else replace(samples, model=options.model)
    elif options.serving:
        from kvbench.prefill.imported import read_serving

        samples = read_serving(options.serving, allow_queued=options.allow_queued, model=options.model)
    else:
        return None
    samples = replace(samples, any_speed=options.any_speed)
    return Prefill(samples, fit(samples, shape))


def say_notes(prefill: Prefill | None) -> None:
    """What must be known about the curve, on stderr, for output that has no place of its own for it."""
    from kvbench import console

    for note in prefill.curve.notes if prefill else ():
        console.note(f"TTFT: {note}")


def goal_of(target_context: str, ttft_budget: str | None) -> Goal:
    """The goal that the options name."""
    from kvbench.decide.crossover import Goal
    from kvbench.units import parse_duration_s, parse_tokens

    return Goal(parse_tokens(target_context), None if ttft_budget is None else parse_duration_s(ttft_budget))


def gpu_copy_of(text: str | None) -> int | None:
    """Bytes per second of ``--gpu-copy``, or None."""
    from kvbench.commands.options import parse_rate

    return None if text is None else parse_rate(text, "--gpu-copy")


def load_of(options: LoadOptions) -> Traffic | None:
    """The load that the options name, None without a hit rate."""
    from kvbench.commands.options import parse_share
    from kvbench.decide.cost import Traffic

    if options.hit_rate is None:
        return None
    share = parse_share(options.hit_rate, "--hit-rate")
    return Traffic(share, options.requests_per_s, options.gpus, options.gpu_hour_price)


def wanted_of(
    ttft: TtftOptions,
    models: list[str] | None,
    target_context: str,
    ttft_budget: str | None,
    concurrent_restores: str,
    mix: str,
    gpu_copy: str | None = None,
    load: LoadOptions | None = None,
) -> Wanted:
    """What ``report`` and ``gate`` are to judge."""
    from kvbench.commands.options import parse_counts
    from kvbench.decide.decision import Wanted, parse_mix

    prefill = prefill_of(ttft)
    say_notes(prefill)
    return Wanted(
        curve=prefill.curve if prefill else None,
        samples=prefill.samples if prefill else None,
        goal=goal_of(target_context, ttft_budget),
        concurrent=parse_counts(concurrent_restores, "--concurrent-restores"),
        mix=parse_mix(mix),
        models=tuple(models or ()),
        gpu_copy_bytes_per_s=gpu_copy_of(gpu_copy),
        traffic=load_of(load or LoadOptions()),
    )
