"""``kvbench compare``: serving runs of several configurations, and whether they differ by more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import JsonOption, KvDtypeOption, TpOption, parse_share
from kvbench.errors import EXIT_OK, EXIT_USAGE, UsageError
from kvbench.layout.models import size_model
from kvbench.report.tables.serving import pools, predictions, problems, served, servers
from kvbench.serving.arm import Configuration
from kvbench.serving.comparing import Comparison, to_json
from kvbench.serving.comparing import compare as compare_all
from kvbench.serving.gpu_memory import GpuRoom, room_of
from kvbench.serving.loading import load
from kvbench.serving.prediction import HeldAgainst, hold, prediction_json, read_prediction
from kvbench.units import format_bytes, format_number, format_tokens, is_one_line, parse_size


class NamedPath(NamedTuple):
    """``NAME=PATH``: a run of a configuration, or a folder of runs."""

    name: str
    path: Path


def _parse_path(text: str) -> NamedPath:
    name, separator, path = text.partition("=")
    if not separator or not name or not path or not is_one_line(name):
        raise UsageError(f"{text!r}: write NAME=PATH, the name of a configuration and a result of its serving runs.")
    return NamedPath(name, Path(path))


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """What is needed to say how much GPU memory is left for KV."""

    panel: ClassVar[str] = "GPU memory"

    gpu_memory: Annotated[
        int | None,
        parsed(parse_size, "--gpu-memory", metavar="SIZE", help="Memory of one GPU: say what is left of it for KV."),
    ] = None
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="With --gpu-memory: the model that was served.")
    ] = None
    weights: Annotated[
        int | None,
        parsed(parse_size, "--weights", metavar="SIZE", help="With --gpu-memory: the weights, all GPUs together."),
    ] = None
    tp: TpOption = 1
    kv_dtype: KvDtypeOption = "auto"
    utilization: Annotated[
        float,
        parsed(
            partial(parse_share, option="--gpu-memory-utilization"),
            "--gpu-memory-utilization",
            metavar="SHARE",
            help="The share of it that the engine takes.",
            show_default="0.92, as vLLM 0.32",
        ),
    ] = 0.92

    def room(self, control: Configuration) -> GpuRoom | None:
        """What is left for KV and the mean prompt of the control; None where nobody asked."""
        if self.gpu_memory is None:
            if self.model is not None or self.weights is not None:
                raise UsageError("--model and --weights say what GPU memory is left; add --gpu-memory SIZE.")
            return None
        if self.model is None or self.weights is None:
            raise UsageError("--gpu-memory needs --model MODEL and --weights SIZE: the rest is left for KV.")
        sized = size_model(self.model, tp=self.tp, kv_dtype=self.kv_dtype)
        lengths = [length for run in control.runs if (length := run.prompt_tokens_mean)]
        mean = sum(lengths) / len(lengths) if lengths else None
        return room_of(sized, self.gpu_memory, self.utilization, self.weights, mean)


def _write_page(found: Comparison, held: Sequence[HeldAgainst], output: Path) -> None:
    if output.suffix.lower() not in (".html", ".htm") or output.is_dir():
        raise UsageError(f"-o {output}: name a file that ends in .html.")
    # matplotlib
    from kvbench.report.serving_page import write_page

    write_page(found, held, output)
    console.note(f"page: {output}")


def _room_json(room: GpuRoom | None) -> dict[str, Any] | None:
    return None if room is None else {**asdict(room), "prompts": room.prompts}


def _room_line(room: GpuRoom) -> str:
    line = f"GPU memory left for KV: at most {format_bytes(room.left_bytes)} on each of {room.gpus} GPUs"
    if room.prompts is None or room.prompt_tokens is None:
        return line
    return f"{line}, {format_number(room.prompts)} prompts of {format_tokens(room.prompt_tokens)} tokens at once"


def compare(
    *,
    configurations: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=PATH...",
            help="A configuration and its runs: a result file of AIPerf, GuideLLM, vLLM bench serve, SGLang, "
            "inference-perf or llm-d, or a folder of them. A name given again adds repeats.",
        ),
    ],
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="NAME", help="What the others are compared with.", show_default="the first"),
    ] = None,
    gpu: GpuOptions,
    predicted: Annotated[
        Path | None,
        typer.Option(
            "--predicted",
            metavar="FILE",
            help="What 'kvbench workingset --json' said beforehand of configurations with these names.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.html", help="Also write an offline page of figures and tables."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Load, compare, print; 2 when anything was refused."""
    by_name: dict[str, list[Path]] = {}
    for one in map(_parse_path, configurations):
        by_name.setdefault(one.name, []).append(one.path)
    base = control or next(iter(by_name))
    if base not in by_name:
        raise UsageError(f"--control {base}: no configuration is called so; choose from {', '.join(by_name)}.")
    if len(by_name) < 2:
        raise UsageError("one configuration has nothing to be compared with; name a second one, like cpu=runs/cpu.")
    loaded = [load(name, paths) for name, paths in by_name.items()]
    for note in dict.fromkeys(note for one in loaded for note in one.notes):
        console.note(note)
    found = compare_all([one.configuration for one in loaded], base)
    room = gpu.room(next(one.configuration for one in loaded if one.configuration.name == base))
    held = None if predicted is None else hold(found, read_prediction(predicted))
    if output is not None:
        _write_page(found, held or (), output)
    if json:
        held_json = None if held is None else prediction_json(held)
        console.print_json({**to_json(found), "gpu_memory": _room_json(room), "predictions": held_json})
    else:
        more = [sheet for sheet in (servers(found), pools(found), predictions(held or ())) if sheet.rows]
        console.print_sheets([served(found), *more, problems(found)])
        if room is not None:
            console.print_line(_room_line(room))
    return EXIT_USAGE if any(one.problem.refuses for one in found.problems) else EXIT_OK
