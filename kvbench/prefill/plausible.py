"""Whether TTFT can be right at all: the speed that it means, held against what the model can be computed at (pure).

A unit that is off by a thousand moves every time alike, so that no sample stands out and the curve looks perfect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvbench.layout.work import WorkBounds
from kvbench.prefill.curve import PrefillCurve

# FLOP per second of one accelerator. The fastest: NVIDIA Rubin at dense NVFP4, 3.6 EFLOPS over the 72 packages of a
# Vera Rubin NVL144 (NVIDIA, GTC 2025). Above the dense FP8 peak of an NVIDIA B200 (4.5 PFLOPS, DGX B200 datasheet)
# nobody has published a prefill; a thousandth of that is slower than half the FP32 peak of an NVIDIA T4 (8.1 TFLOPS,
# T4 datasheet), the slowest GPU that vLLM supports. Half of that again is what 16 cores with AVX-512 have.
_FASTEST, _FAST = 50e15, 4.5e15
_SLOW, _SLOWEST = 4e12, 2e12
_FASTEST_NAME, _FAST_NAME = "NVIDIA Rubin, dense FP4", "the peak of an NVIDIA B200, dense FP8"
_SLOW_NAME = "half an NVIDIA T4 without its tensor cores"
# What a unit that is off by so much would look like.
_SLIP = 1000
_WORTH = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))

Degree = Literal["impossible", "doubtful"]


@dataclass(frozen=True, slots=True)
class SpeedWarning:
    """Why the speed of a prefill curve is not believed, as a sentence without its full stop."""

    degree: Degree
    text: str


@dataclass(frozen=True, slots=True)
class _Speed:
    """The speed at one length, in FLOP per second of all accelerators together."""

    tokens: float
    tokens_per_s: float
    flop_per_s: float


def speed_warning(curve: PrefillCurve, work: WorkBounds, accelerators: int) -> SpeedWarning | None:
    """What is wrong with the curve's speed on so many accelerators; None when it can be, or was vouched for.

    The fastest of the measured lengths counts: short prompts are slow on every server, since they do not fill it.
    """
    if curve.any_speed or not curve.samples:
        return None
    lengths = np.array([*{float(tokens) for tokens, _ in curve.residuals_s}, curve.measured_from, curve.measured_to])
    seconds = curve.seconds(lengths)
    if not (seconds > 0).all():
        return None
    least = max(_speeds(lengths, seconds, np.array([work.least_flop(one) for one in lengths])), key=_rate)
    most = max(_speeds(lengths, seconds, np.array([work.most_flop(one) for one in lengths])), key=_rate)
    fast, slow = least.flop_per_s / accelerators, most.flop_per_s / accelerators
    if fast > _FAST:
        limit = f"the fastest computes {_worth(_FASTEST)} ({_FASTEST_NAME})" if fast > _FASTEST else (
            f"none is known to prefill above {_worth(_FAST)} ({_FAST_NAME})")  # fmt: skip
        found: Degree = "impossible" if fast > _FASTEST else "doubtful"
        return SpeedWarning(found, _sentence(least, work, accelerators, "at least", limit, _too_fast(curve)))
    if slow < _SLOW:
        limit = f"one computes at least {_worth(_SLOW)} ({_SLOW_NAME})"
        found = "impossible" if slow < _SLOWEST else "doubtful"
        return SpeedWarning(found, _sentence(most, work, accelerators, "at most", limit, _too_slow(curve)))
    return None


def _speeds(lengths: np.ndarray, seconds: np.ndarray, flop: np.ndarray) -> Iterator[_Speed]:
    for tokens, took, work in zip(lengths, seconds, flop, strict=True):
        yield _Speed(float(tokens), float(tokens / took), float(work / took))


def _rate(speed: _Speed) -> float:
    return speed.flop_per_s


def _sentence(speed: _Speed, work: WorkBounds, accelerators: int, side: str, limit: str, slip: str) -> str:
    count = f"{accelerators} accelerators (TP {accelerators})" if accelerators > 1 else "one accelerator (TP 1)"
    return (
        f"the TTFT means {_tokens(speed.tokens_per_s)} tokens/s at {speed.tokens:,.0f} tokens, which with "
        f"{work.source} (2 FLOP for each of them and token, and attention) is {side} {_worth(speed.flop_per_s)} on "
        f"{count}, where {limit}; {slip}"
    )


def _too_fast(curve: PrefillCurve) -> str:
    if curve.ttft_column == "ttft_ms":
        return "did you mean ttft_s?"
    return "is another unit, an empty first chunk, a cached prompt, another model or more accelerators behind it?"


def _too_slow(curve: PrefillCurve) -> str:
    if curve.ttft_column == "ttft_s":
        return "did you mean ttft_ms?"
    if curve.ttft_column == "ttft_ms":
        return "are these microseconds, or is it another model?"
    return f"is the TTFT {_SLIP:,} times too long, another unit, or is it another model?"


def _tokens(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def _worth(flop_per_s: float) -> str:
    size, unit = next((pair for pair in _WORTH if flop_per_s >= pair[0]), _WORTH[-1])
    return f"{flop_per_s / size:,.3g} {unit}"
