"""The serving results of the published study, to set a user's own beside them (profiles/serving/published.yaml)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt
from pydantic import BaseModel, ConfigDict

from kvbench.border import bounded
from kvbench.profiles import profiles_dir

_Positive = Annotated[float, Gt(0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedRun(_Strict):
    """One configuration as printed; None for what is not."""

    configuration: str
    requests_per_s: _Positive | None = None
    ttft_mean_s: _Positive | None = None
    ttft_p95_s: _Positive | None = None
    e2e_mean_s: _Positive | None = None
    external_hit_rate: _Positive | None = None


class _PublishedDeployment(_Strict):
    deployment: str
    runs: list[PublishedRun]


class _Study(_Strict):
    source: str
    deployments: list[_PublishedDeployment]


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A run with what it was made on; ``speedup`` is its throughput over that of its deployment without offload."""

    deployment: str
    run: PublishedRun
    speedup: float | None
    source: str


def published() -> Iterator[PublishedRow]:
    """Every published run, deployment by deployment."""
    (document,) = bounded.yaml_of((profiles_dir() / "serving" / "published.yaml").read_text(encoding="utf-8"))
    study = _Study.model_validate(document)
    for one in study.deployments:
        base = next((run.requests_per_s for run in one.runs if run.configuration == "none"), None)
        for run in one.runs:
            speedup = run.requests_per_s / base if run.requests_per_s and base else None
            yield PublishedRow(one.deployment, run, speedup, study.source)
