"""Configurations against a control, load by load: what may be compared is, and what may not says why (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvbench.serving.arm import ArmRun, ClientLoad, Configuration
from kvbench.serving.checks import Problem, problems_between, problems_of
from kvbench.serving.differences import Speedup, speedups
from kvbench.serving.storage import StorageState


@dataclass(frozen=True, slots=True)
class RunProblem:
    """A problem, and the configuration, load and file that it is about."""

    configuration: str
    load: ClientLoad
    source: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every configuration, the ratios that may be shown, and what was refused or marked."""

    control: str
    configurations: tuple[Configuration, ...]
    speedups: tuple[Speedup, ...]
    problems: tuple[RunProblem, ...]

    def refused(self, name: str) -> list[RunProblem]:
        """Why a configuration's runs, or some of them, were not compared."""
        return [one for one in self.problems if one.configuration == name and one.problem.refuses]

    def refuses(self, name: str, load: ClientLoad) -> bool:
        """Whether a configuration's runs at a load may not be compared."""
        return not _usable(self.problems, name, load)

    def speedup(self, name: str, load: ClientLoad, metric: str) -> Speedup | None:
        """One ratio, None where it was refused or cannot be made."""
        return next(
            (one for one in self.speedups if (one.configuration, one.load, one.metric) == (name, load, metric)), None
        )


def compare(configurations: Sequence[Configuration], control: str) -> Comparison:
    """Each configuration against the control, at every load that both were run at."""
    base = next(one for one in configurations if one.name == control)
    problems = [
        RunProblem(one.name, run.load, run.run.source, problem)
        for one in configurations
        for run in one.runs
        for problem in problems_of(run, is_control=one is base)
    ]
    # Repeats of the control must be repeats of one thing, too.
    problems += [problem for load in base.loads for problem in _between(base, base, load)]
    found: list[Speedup] = []
    for one in configurations:
        if one is base:
            continue
        for load in one.loads:
            problems += _between(one, base, load)
            if _usable(problems, one.name, load) and _usable(problems, control, load):
                found += speedups(one.name, one.at(load), control, base.at(load), load)
    return Comparison(control, tuple(configurations), tuple(found), tuple(dict.fromkeys(problems)))


def _between(one: Configuration, base: Configuration, load: ClientLoad) -> list[RunProblem]:
    if not base.at(load):
        missing = Problem("no-control", f"the control {base.name} was not run at this load ({load.words})", True)
        return [RunProblem(one.name, load, one.at(load)[0].run.source, missing)]
    return [
        RunProblem(one.name, load, run.run.source, problem)
        for run in one.at(load)
        for problem in problems_between(base.at(load)[0], run)
    ]


def _usable(problems: Sequence[RunProblem], name: str, load: ClientLoad) -> bool:
    return not any(item.problem.refuses and (item.configuration, item.load) == (name, load) for item in problems)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data; design.md section 4."""
    return {
        "control": comparison.control,
        "configurations": [_configuration_json(comparison, one) for one in comparison.configurations],
        "speedups": [_speedup_json(one) for one in comparison.speedups],
    }


def _configuration_json(comparison: Comparison, one: Configuration) -> dict[str, Any]:
    said = [item for item in comparison.problems if item.configuration == one.name]
    shown = [
        {**load_json(item.load), "source": item.source, "code": item.problem.code, "message": item.problem.message}
        for item in said
    ]
    return {
        "name": one.name,
        "runs": [_run_json(run) for run in one.runs],
        "refused": [text for text, item in zip(shown, said, strict=True) if item.problem.refuses],
        "marks": [text for text, item in zip(shown, said, strict=True) if not item.problem.refuses],
    }


def _run_json(run: ArmRun) -> dict[str, Any]:
    server = run.server
    return {
        "source": run.run.source,
        "tool": run.run.tool,
        "model": run.run.model,
        **load_json(run.load),
        "completed": run.completed,
        "failed": run.failed,
        "requests_per_s": run.requests_per_s,
        "ttft_s": {"mean": run.ttft_s.mean, "p95": run.ttft_s.p95},
        "e2e_s": {"mean": run.e2e_s.mean, "p95": run.e2e_s.p95},
        "external_hit_rate": run.external_hit_rate,
        "local_hit_rate": run.local_hit_rate,
        "kv_usage": {"mean": server.kv_usage_mean, "highest": server.kv_usage_highest},
        "kv_tokens": server.kv_tokens,
        "prompts_in_kv": run.prompts_in_kv,
        "preemptions": server.preemptions,
        "gpu_utilization": server.gpu_utilization,
        "tier_read_bytes": _whole(server.read_bytes),
        "tier_written_bytes": _whole(server.written_bytes),
        "storage": None if run.storage is None else _storage_json(run.storage, run.duration_s),
    }


def _storage_json(storage: StorageState, duration_s: float | None) -> dict[str, Any]:
    """What the storage counted, by pool: bytes and operations, and each second of the run."""
    pools = {}
    for name, traffic in storage.pools.items():
        counts = asdict(traffic)
        rates = {f"{key}_per_s": value / duration_s if duration_s else None for key, value in counts.items()}
        pools[name] = {**_whole(counts), **rates}
    return {"read_latency_s": storage.read_latency_s, "write_latency_s": storage.write_latency_s, "pools": pools}


def load_json(load: ClientLoad) -> dict[str, Any]:
    """A load; null for what was not asked for, and for a rate without a limit."""
    finite = load.request_rate not in (0.0, float("inf"))
    return {"concurrency": load.concurrency or None, "request_rate": load.request_rate if finite else None}


def _speedup_json(one: Speedup) -> dict[str, Any]:
    return {
        "configuration": one.configuration,
        "control": one.control,
        **load_json(one.load),
        "metric": one.metric,
        "ratio": one.ratio,
        "low": one.low,
        "high": one.high,
        "outcome": one.outcome,
    }


def _whole(counts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in counts.items()}
