"""How a command is told how fast the GPUs recompute and what is wanted: the options, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import counts_of, parse_rate, parse_share
from kvbench.decide.cost import ServerLoad
from kvbench.decide.crossover import DEFAULT_TARGET_TOKENS, Goal
from kvbench.decide.decision import Wanted
from kvbench.decide.reads import MixChoice
from kvbench.errors import UsageError
from kvbench.prefill.curve import STEP_TOKENS, PrefillCurve, Shape, fit
from kvbench.prefill.samples import Samples, read_csv, require_alone
from kvbench.prefill.shipped import find_csv
from kvbench.units import parse_duration_s, parse_tokens


@dataclass(frozen=True, slots=True)
class Prefill:
    """The TTFT samples and the curve through them."""

    samples: Samples
    curve: PrefillCurve

    def say_notes(self) -> None:
        """Say on stderr what must be known about the curve, for output that has no place of its own for it."""
        for note in self.curve.notes:
            console.note(f"TTFT: {note}")


def _parse_step(text: str) -> int:
    """Tokens of a step; UsageError where there are none."""
    if (tokens := parse_tokens(text)) == 0:
        raise UsageError("--prefill-step 0: an engine computes one token at least in a step; write it like 8k.")
    return tokens


@dataclass(frozen=True, slots=True)
class TtftOptions:
    """Where the TTFT comes from, and what is believed of it."""

    panel: ClassVar[str] = "Recomputing: TTFT"

    ttft_csv: Annotated[
        Path | None,
        typer.Option(
            "--ttft-csv",
            metavar="FILE",
            help="Uncached TTFT: a file with the columns prompt_tokens and ttft_s or ttft_ms, sorted by length, or a "
            "shipped curve by its name, like gpt-oss-120b-h200 ('kvbench models' lists them).",
        ),
    ] = None
    ttft_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--ttft-from",
            metavar="PATH",
            help="Uncached TTFT from results that you have: a file or folder of AIPerf, GuideLLM, vLLM bench serve, "
            "SGLang bench_serving, inference-perf, GenAI-Perf or llm-d-benchmark; repeatable.",
        ),
    ] = None
    ttft_model: Annotated[
        str | None,
        typer.Option(
            "--ttft-model", metavar="NAME", help="The model that the TTFT is of, where the file names another."
        ),
    ] = None
    allow_queued: Annotated[
        bool,
        typer.Option(
            "--allow-queued",
            help="Use the TTFT of requests that ran beside others too: it includes waiting, so restoring looks better.",
        ),
    ] = False
    any_speed: Annotated[
        bool,
        typer.Option(
            "--any-speed",
            help="Believe the TTFT also where it means a speed that no accelerator is known for (docs/ttft-from.md).",
        ),
    ] = False
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Count bad CSV rows instead of stopping.")] = (
        False
    )
    prefill_curve: Annotated[
        Shape,
        typer.Option(
            "--prefill-curve", help="Through the TTFT: quadratic (a + bL + cL²), or linear, whose error is shown."
        ),
    ] = "quadratic"
    prefill_step: Annotated[
        int,
        parsed(
            _parse_step,
            "--prefill-step",
            metavar="TOKENS",
            help="Tokens that the engine computes in one step (vLLM: --max-num-batched-tokens): of prompts that come "
            "at once those that fit into one end together. It counts with --concurrent-restores.",
            show_default="8k",
        ),
    ] = STEP_TOKENS

    def prefill(self) -> Prefill | None:
        """The prefill that the options name, None when they name none; what was skipped is said on stderr."""
        if self.ttft_csv is not None and self.ttft_from:
            raise UsageError("--ttft-csv and --ttft-from both say how fast the GPUs recompute; give one of them.")
        if self.ttft_csv is not None:
            samples = self._from_csv(find_csv(self.ttft_csv))
        elif self.ttft_from:
            # Seven formats of other programs: only who has such a file waits for their readers.
            from kvbench.prefill.imported import read_serving

            samples = read_serving(self.ttft_from, allow_queued=self.allow_queued, model=self.ttft_model)
        else:
            return None
        samples = replace(samples, any_speed=self.any_speed)
        return Prefill(samples, replace(fit(samples, self.prefill_curve), step_tokens=self.prefill_step))

    def _from_csv(self, path: Path) -> Samples:
        samples = read_csv(path, skip_bad_rows=self.skip_bad_rows)
        if samples.skipped_rows:
            console.note(f"{path}: skipped {samples.skipped_rows} bad rows")
        samples = require_alone(samples, allow_queued=self.allow_queued)
        return samples if self.ttft_model is None else replace(samples, model=self.ttft_model)


TargetOption = Annotated[
    int,
    parsed(
        parse_tokens,
        "--target-context",
        metavar="TOKENS",
        help="Context length that matters to you.",
        show_default="32k",
    ),
]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The context length that a verdict is about, and what every restore pays."""

    panel: ClassVar[str] = "The verdict"

    target_context: TargetOption = DEFAULT_TARGET_TOKENS
    gpu_copy: Annotated[
        int | None,
        parsed(
            partial(parse_rate, option="--gpu-copy"),
            "--gpu-copy",
            metavar="RATE",
            help="Bandwidth from host memory into all GPUs of the server together, like 50GB/s; it enters every "
            "restore.",
            show_default="left out",
        ),
    ] = None
    hit_overhead: Annotated[
        float | None,
        parsed(
            parse_duration_s,
            "--hit-overhead",
            metavar="TIME",
            help="What a hit of any length takes beside reads, lookups and copy, like 80ms: the engine's steps until "
            "they begin, and after. It enters every restore.",
            show_default="left out",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class DecisionOptions(TargetOptions):
    """What a verdict is about, and which measurements count for it."""

    ttft_budget: Annotated[
        float | None,
        parsed(parse_duration_s, "--ttft-budget", metavar="TIME", help="Longest acceptable restore there, like 2s."),
    ] = None
    concurrent_restores: Annotated[
        tuple[int, ...],
        parsed(
            counts_of("--concurrent-restores"),
            "--concurrent-restores",
            metavar="N,...",
            help="Requests that restore at once.",
            show_default="1",
        ),
    ] = (1,)
    mix: Annotated[
        MixChoice,
        typer.Option("--mix", help="Which reads count: mixed (steady state), read, or auto: mixed where measured."),
    ] = "auto"

    @property
    def goal(self) -> Goal:
        """What restoring must reach."""
        return Goal(self.target_context, self.ttft_budget)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the server does all day."""

    panel: ClassVar[str] = "Savings"

    hit_rate: Annotated[
        float | None,
        parsed(
            partial(parse_share, option="--hit-rate"),
            "--hit-rate",
            metavar="SHARE",
            help="Share of requests whose prompt is restored, like 60%: adds savings.",
        ),
    ] = None
    requests_per_s: Annotated[
        float,
        typer.Option("--requests-per-s", min=0.0, help="With --hit-rate: requests of the server in each second."),
    ] = 1.0
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="With --hit-rate: GPUs that a prefill keeps busy.")] = 1
    gpu_price: Annotated[
        float | None, typer.Option("--gpu-price", min=0.0, help="With --hit-rate: price of one GPU for one hour.")
    ] = None

    def traffic(self) -> ServerLoad | None:
        """The traffic that the options name, None without a hit rate."""
        if self.hit_rate is None:
            return None
        return ServerLoad(self.hit_rate, self.requests_per_s, self.gpus, self.gpu_price)


RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories that fio or import wrote.")
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="MODEL", help="Judge this model of the runs only; repeatable.", show_default="all"),
]


def wanted_of(
    ttft: TtftOptions, decision: DecisionOptions, models: Sequence[str] | None, traffic: ServerLoad | None = None
) -> Wanted:
    """What ``report`` and ``gate`` are to judge; what must be known of the TTFT is said on stderr."""
    prefill = ttft.prefill()
    if prefill is not None:
        prefill.say_notes()
    return Wanted(
        curve=prefill.curve if prefill else None,
        samples=prefill.samples if prefill else None,
        goal=decision.goal,
        concurrent=decision.concurrent_restores,
        mix=decision.mix,
        models=tuple(models or ()),
        gpu_copy_bytes_per_s=decision.gpu_copy,
        hit_overhead_s=decision.hit_overhead,
        traffic=traffic,
    )
