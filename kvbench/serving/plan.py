"""The plan of a comparison: one server, one load, and several configurations of tiers (strict YAML)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kvbench.border import bounded
from kvbench.errors import InputFileError, UsageError
from kvbench.units import is_one_line, parse_size

Tool = Literal["aiperf", "guidellm"]
# Years of measuring.
_MOST_RUNS = 10_000
# Parts of names of folders: of arms, and of what the tool calls its kinds of data.
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_+.-]*$"


def _one_line(text: str) -> str:
    if not is_one_line(text) or not text:
        raise ValueError("it is empty or holds a control character")
    return text


def _size(text: str) -> str:
    try:
        parse_size(text)
    except UsageError as error:
        raise ValueError(str(error).rstrip(".")) from None
    return text


Line = Annotated[str, AfterValidator(_one_line)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class Arm(_Strict):
    """A configuration: the CPU tier of a server and the tiers behind it, as ``kvbench settings`` takes them."""

    cpu: Annotated[str, AfterValidator(_size)] | None = None
    tiers: list[Line] = Field(default_factory=list)


class Generator(_Strict):
    """The load: the same data, seed, duration and loads for every arm. ``kind`` is what the tool calls the data."""

    tool: Tool = "aiperf"
    data: Line
    kind: Annotated[str, Field(pattern=_NAME)]
    concurrency: Annotated[list[Annotated[int, Ge(1)]], MinLen(1)]
    duration_s: Annotated[int, Ge(1)]
    seed: int = 42
    tokenizer: Line | None = None
    arguments: list[Line] = Field(default_factory=list)


class ServingPlan(_Strict):
    """What is compared; ``serve`` are more arguments of the server, the same for all arms.

    ``pages`` are more pages of metrics that are saved before and after each run, such as that of Ceph's manager.
    """

    model: Line
    tensor_parallel_size: Annotated[int, Ge(1)] = 1
    engine_version: Line | None = None
    serve: list[Line] = Field(default_factory=list)
    url: Line = "http://127.0.0.1:8000"
    results: Line = "runs"
    repeats: Annotated[int, Ge(1)] = 2
    pages: dict[Annotated[str, Field(pattern=_NAME)], Line] = Field(default_factory=dict)
    generator: Generator
    arms: dict[Annotated[str, Field(pattern=_NAME)], Arm]


def read_plan(path: Path) -> ServingPlan:
    """The plan in a file; InputFileError that names the first key that is wrong."""
    try:
        documents = bounded.yaml_of(bounded.read_bytes(path, bounded.MOST_CONFIG_BYTES).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputFileError(f"{path} cannot be read ({reason}); write a plan as docs/compare.md shows one.") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputFileError(f"{path} holds no plan; docs/compare.md shows one.")
    try:
        plan = ServingPlan.model_validate(documents[0])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:40] for part in first["loc"]) or "the whole"
        raise InputFileError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}.") from None
    _require_sound(plan, path)
    return plan


def _require_sound(plan: ServingPlan, path: Path) -> None:
    if len(plan.arms) < 2:
        raise InputFileError(f"{path}: arms: one arm has nothing to be compared with; add a second one.")
    runs = len(plan.arms) * plan.repeats * len(plan.generator.concurrency)
    if runs > _MOST_RUNS:
        raise InputFileError(f"{path}: {runs} runs are more than {_MOST_RUNS:,}; ask for fewer arms, loads or repeats.")
    for name, arm in plan.arms.items():
        if arm.tiers and arm.cpu is None:
            raise InputFileError(f"{path}: arms.{name}: a tier needs cpu: the engine moves every block through it.")
    if "metrics" in plan.pages:
        raise InputFileError(f"{path}: pages.metrics: the engine's own page is saved under this name; choose another.")
    load = plan.generator
    # docs.nvidia.com/aiperf, load generator options: a mooncake_trace is sent at its own timestamps.
    timed = load.tool == "aiperf" and load.kind == "mooncake_trace"
    if timed and "--no-fixed-schedule" not in load.arguments:
        raise InputFileError(
            f"{path}: generator: AIPerf sends a mooncake_trace at its own times and ignores concurrency; add "
            "arguments: [--no-fixed-schedule, --ignore-trace-delays]."
        )
