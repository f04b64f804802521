"""``kvbench workingset``: how much of a trace a cache finds at every capacity, and how large its working set is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kvbench import console
from kvbench.commands.engine_options import EngineOptions
from kvbench.commands.groups import parsed
from kvbench.commands.options import JsonOption, KvDtypeOption, TpOption, counts_of, parse_share
from kvbench.commands.trace_options import TraceOptions
from kvbench.errors import UsageError
from kvbench.layout.models import size_model
from kvbench.layout.sized import SizedModel
from kvbench.report.data import clean
from kvbench.report.listings import simulated as listing
from kvbench.report.reuse import answer_json, notes, points_sheet, shares_sheet, summary_sheet, working_set_sheet
from kvbench.simulate.contract import configurations_json, sizing_json
from kvbench.simulate.run import Simulated, sending_of, serve, summed
from kvbench.simulate.sizing import Sizing, endurance, size_for, switched
from kvbench.simulate.timing import Predicted, over_first, predict
from kvbench.traces.answer import Answer, Capacity, answer
from kvbench.traces.trace import Trace
from kvbench.traces.weights import BlockWeight, block_weight
from kvbench.units import parse_size, split_list


def parse_capacities(text: str) -> tuple[Capacity, ...]:
    """The capacities of ``--capacity [NAME=]SIZE,...``, in the order given."""
    found = []
    for item in split_list(text):
        name, _, size = item.rpartition("=")
        found.append(Capacity(name.strip(), bytes=_positive(parse_size(size), item)))
    if not found:
        raise UsageError(f"--capacity {text!r} names no size; write one like 64GiB or nvme=7TB.")
    return tuple(found)


def _positive(size: int, item: str) -> int:
    if size < 1:
        raise UsageError(f"--capacity {item!r} is nothing; write a size like 64GiB.")
    return size


@dataclass(frozen=True, slots=True)
class CachedModelOptions:
    """Whose KV blocks the trace's blocks are."""

    panel: ClassVar[str] = "The model"

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Whose KV cache: a shipped profile, a config.json or its folder, or a Hub id. Without it capacities "
            "are in blocks.",
        ),
    ] = None
    tp: TpOption = 1
    kv_dtype: KvDtypeOption = "auto"

    def size(self) -> SizedModel | None:
        """The model, None where none was named."""
        return None if self.model is None else size_model(self.model, tp=self.tp, kv_dtype=self.kv_dtype)


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """What is asked of the trace."""

    panel: ClassVar[str] = "What is asked"

    capacity: Annotated[
        tuple[Capacity, ...],
        parsed(
            parse_capacities,
            "--capacity",
            metavar="[NAME=]SIZE,...",
            help="Capacities to show, like 64GiB or nvme=7TB.",
            show_default=False,
        ),
    ] = ()
    capacity_blocks: Annotated[
        tuple[int, ...],
        parsed(
            counts_of("--capacity-blocks"),
            "--capacity-blocks",
            metavar="N,...",
            help="Capacities to show, in the trace's own blocks.",
            show_default=False,
        ),
    ] = ()
    window_minutes: Annotated[
        tuple[int, ...],
        parsed(
            counts_of("--window"),
            "--window",
            metavar="N,...",
            help="Minutes of the windows of the working set.",
            show_default="1,5,30,60",
        ),
    ] = (1, 5, 30, 60)
    sample: Annotated[
        float | None,
        parsed(
            partial(parse_share, option="--sample"),
            "--sample",
            metavar="SHARE",
            help="Estimate from a share of the blocks, like 1%; the error is shown.",
        ),
    ] = None

    @property
    def capacities(self) -> tuple[Capacity, ...]:
        """Those in bytes, then those in blocks."""
        return (*self.capacity, *(Capacity("", blocks=count) for count in self.capacity_blocks))


def workingset(
    *,
    source: TraceOptions,
    model: CachedModelOptions,
    question: QuestionOptions,
    engine: EngineOptions,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Also write tables (CSV, JSON) and figures (SVG, PNG) to this new folder.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, size, compute, print."""
    if model.model is None and question.capacity:
        raise UsageError("--capacity needs --model, which says what a block weighs; or give --capacity-blocks.")
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; name a new folder with -o.")
    sized = model.size()
    loaded = source.load()
    if loaded.trace.reuse == "nothing":
        raise UsageError(
            f"{source.path} names neither blocks nor sessions, so nothing is known of reuse; give a trace with "
            "hash_ids or session_id."
        )
    weight = None if sized is None else block_weight(sized, loaded.trace.block_tokens)
    simulated = _simulate(engine, sized, weight, loaded.trace)
    found = answer(loaded.trace, weight, question.capacities, question.window_minutes, question.sample)
    if json:
        broken = asdict(loaded.broken)
        console.print_json({**answer_json(found), **simulated.json(), "model": _model_json(sized), "broken": broken})
    else:
        _show(found, sized, source.path, loaded.format)
        simulated.show(loaded.trace)
    if output is not None:
        # matplotlib
        from kvbench.report.reuse_drawing import write_files

        for written in write_files(found, output):
            console.note(f"wrote {written}")


@dataclass(frozen=True, slots=True)
class _Tried:
    """The configurations that were simulated, and what was asked about them."""

    found: Sequence[Simulated] = ()
    changed: Mapping[str, Sequence[Simulated]] = field(default_factory=dict)
    sizing: Sizing | None = None
    predicted: Sequence[Predicted] = ()
    replicas: int = 1

    def json(self) -> dict[str, object]:
        return {
            **configurations_json(self.found, self.changed),
            "sizing": sizing_json(self.sizing),
            "predicted": [asdict(one) for one in self.predicted],
        }

    def show(self, trace: Trace) -> None:
        sheets = [listing.tiers(self.found), listing.times(self.predicted), listing.changes(self.found, self.changed)]
        console.print_sheets(sheets)
        for line in listing.notes(self.found):
            console.print_text(line)
        for item in self.found:
            known = {one.name: one for one in item.configuration.secondary}
            for tier in item.tiers:
                one = known.get(tier.name)
                copies = self.replicas if one is not None and not one.shared else 1
                worn = endurance(trace, tier, None if one is None else one.capacity_bytes, copies)
                if worn is not None:
                    text = listing.endurance_text(tier, item.configuration, worn.drive_writes_per_day)
                    console.print_text(text)
        if self.sizing is not None:
            console.print_text(listing.sizing_text(self.sizing))


def _simulate(asked: EngineOptions, sized: SizedModel | None, weight: BlockWeight | None, trace: Trace) -> _Tried:
    if not asked.asked:
        return _Tried()
    if sized is None or weight is None:
        raise UsageError("an engine's tiers need --model, which says what a block weighs.")
    engine, tried = asked.engine(sized, weight, trace), asked.configurations()
    sizing = None if asked.size_for is None else size_for(trace, engine, asked.cpu or engine.gpu_bytes, asked.size_for)
    compute, sending = asked.compute(), sending_of(trace, engine)
    found, times = [], []
    # One after the other: the moves of a long trace's requests take more memory than everything else.
    for one in tried:
        served = serve(sending, one)
        found.append(summed(sending, served))
        times += [] if compute is None else [predict(sending, served, compute, asked.rates)]
    return _Tried(found, switched(trace, engine, tried, asked.what_if), sizing, over_first(times), engine.replicas)


def _model_json(sized: SizedModel | None) -> dict[str, object] | None:
    if sized is None:
        return None
    return {"model": sized.model, "tp": sized.tp, "kv_dtype": sized.kv_dtype, "warnings": list(sized.warnings)}


def _show(found: Answer, sized: SizedModel | None, path: Path, form: str) -> None:
    console.print_aligned(summary_sheet(found.summary, f"{clean(str(path))}: {form}", with_shares=False))
    for make in (points_sheet, shares_sheet, working_set_sheet):
        sheet = make(found)
        if sheet.rows:
            console.print_aligned(sheet)
    for line in notes(found, sized):
        console.print_text(line)
