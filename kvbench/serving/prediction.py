"""What a simulation of the trace said beforehand, beside what the serving runs showed (pure, but for reading the file).

The simulation is ``kvbench workingset --json`` with ``--gpu``, ``--cpu`` and tiers; its configurations and those of the
comparison belong together by name. Hit rates are means over the runs of a load; ratios are over the control of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, ConfigDict, ValidationError

from kvbench.border import bounded
from kvbench.errors import InputFileError, UsageError
from kvbench.serving.arm import ArmRun, ClientLoad, Configuration
from kvbench.serving.comparing import Comparison, load_json
from kvbench.serving.differences import Metric

# Host memory and what is above it; the engine's counters of bytes by tier are of the tiers behind it.
_MEMORY = ("gpu", "cpu")
_MOST = 1 << 62
_NEXT_TO_NOTHING = 1e-9
_Share = Annotated[float, Ge(0), Le(1)]
_Ratio = Annotated[float, Gt(0)]
_RATIOS: tuple[Metric, ...] = ("requests_per_s", "ttft_mean", "ttft_p95")


class _Read(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False, frozen=True)


class _Tier(_Read):
    name: str
    hit_rate: _Share
    read_bytes: Annotated[int, Ge(0), Le(_MOST)]


class _Simulated(_Read):
    name: str
    external_hit_rate: _Share
    tiers: Annotated[list[_Tier], MinLen(1)]


class _Times(_Read):
    name: str
    requests_per_s_ratio: _Ratio
    ttft_mean_ratio: _Ratio
    ttft_p95_ratio: _Ratio


class _Trace(_Read):
    prompt_tokens: Annotated[int, Gt(0), Le(_MOST)]


class Prediction(_Read):
    """What ``workingset --json`` printed, as far as serving runs can be held against it."""

    trace: _Trace
    configurations: Annotated[list[_Simulated], MinLen(1)]
    predicted: list[_Times] = []


@dataclass(frozen=True, slots=True)
class HeldAgainst:
    """One number of a configuration at a load, as it was predicted and as it was observed."""

    configuration: str
    load: ClientLoad
    metric: str
    predicted: float
    observed: float

    @property
    def ratio(self) -> float | None:
        """Observed over predicted; None where next to nothing was predicted."""
        return self.observed / self.predicted if self.predicted > _NEXT_TO_NOTHING else None


def read_prediction(path: Path) -> Prediction:
    """The prediction in a file; InputFileError for one that is something else."""
    try:
        return Prediction.model_validate(bounded.json_of(bounded.read_bytes(path), "refuse"))
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, ValidationError):
        raise InputFileError(
            f"{path} is not what 'kvbench workingset --json' prints with --gpu and --cpu; write it again."
        ) from None


def hold(comparison: Comparison, prediction: Prediction) -> list[HeldAgainst]:
    """Everything that both say; UsageError where no configuration has a name of the prediction's."""
    simulated = {one.name: one for one in prediction.configurations}
    found = [one for one in comparison.configurations if one.name in simulated]
    if not found:
        raise UsageError(
            f"the prediction is of {', '.join(simulated)}, and no configuration is called so; give them its names."
        )
    held: list[HeldAgainst] = []
    for one in found:
        for load in one.loads:
            held += _rates(one, load, simulated[one.name], prediction.trace.prompt_tokens)
            held += _ratios(comparison, one, load, prediction.predicted)
    return held


def _rates(one: Configuration, load: ClientLoad, simulated: _Simulated, tokens: int) -> Iterator[HeldAgainst]:
    behind = sum(tier.read_bytes for tier in simulated.tiers if tier.name not in _MEMORY)
    runs = one.at(load)
    for metric, predicted, values in (
        ("local_hit_rate", simulated.tiers[0].hit_rate, [run.local_hit_rate for run in runs]),
        ("external_hit_rate", simulated.external_hit_rate, [run.external_hit_rate for run in runs]),
        ("tier_read_bytes_per_token", behind / tokens, [_read_per_token(run) for run in runs]),
    ):
        known = [value for value in values if value is not None]
        if known:
            yield HeldAgainst(one.name, load, metric, predicted, sum(known) / len(known))


def _read_per_token(run: ArmRun) -> float | None:
    """Bytes that the tiers behind the CPU's memory gave for each prompt token."""
    read, count, mean = run.server.read_bytes, run.completed, run.prompt_tokens_mean
    return sum(read.values()) / (count * mean) if read and count and mean else None


def _ratios(
    comparison: Comparison, one: Configuration, load: ClientLoad, predicted: Sequence[_Times]
) -> Iterator[HeldAgainst]:
    """Ratios over the control, where the prediction's are over a configuration of the same name."""
    if not predicted or predicted[0].name != comparison.control:
        return
    for times in predicted[1:]:
        for metric in _RATIOS if times.name == one.name else ():
            observed = comparison.speedup(one.name, load, metric)
            if observed is not None:
                expected = getattr(times, f"{metric}_ratio")
                yield HeldAgainst(one.name, load, f"{metric}_ratio", expected, observed.ratio)


def prediction_json(held: Sequence[HeldAgainst]) -> list[dict[str, Any]]:
    """What was held against each other as plain data."""
    return [
        {
            "configuration": one.configuration,
            **load_json(one.load),
            "metric": one.metric,
            "predicted": one.predicted,
            "observed": one.observed,
            "ratio": one.ratio,
        }
        for one in held
    ]
