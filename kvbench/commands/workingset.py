"""``kvbench workingset``: how much of a trace a cache finds at every capacity, and how large its working set is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.commands.options import JsonOption, KvDtypeOption, TpOption
from kvbench.commands.trace_options import (
    FormatOption,
    TokenizerOption,
    TraceArgument,
    TraceBlockTokensOption,
    load_trace,
)
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from kvbench.layout.sized import SizedModel
    from kvbench.traces.answer import Answer, Capacity

HELP = (
    "Say how much of a trace's prompts an LRU cache finds at each capacity, exactly, and how large the working set is. "
    "Example: kvbench workingset trace.jsonl --model qwen3-8b --capacity cpu=64GiB,nvme=7TB"
)


def workingset(
    path: TraceArgument,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Whose KV cache: a shipped profile, a config.json or its folder, or a Hub id. Without it capacities "
            "are in blocks.",
        ),
    ] = None,
    tp: TpOption = 1,
    kv_dtype: KvDtypeOption = "auto",
    capacity: Annotated[
        str | None,
        typer.Option("--capacity", metavar="[NAME=]SIZE,...", help="Capacities to show, like 64GiB or nvme=7TB."),
    ] = None,
    capacity_blocks: Annotated[
        str | None,
        typer.Option("--capacity-blocks", metavar="N,...", help="Capacities to show, in the trace's own blocks."),
    ] = None,
    window: Annotated[
        str, typer.Option("--window", metavar="N,...", help="Minutes of the windows of the working set.")
    ] = "1,5,30,60",
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", metavar="SHARE", help="Estimate from a share of the blocks, like 1%; the error is shown."
        ),
    ] = None,
    form: FormatOption = None,
    block_tokens: TraceBlockTokensOption = None,
    tokenizer: TokenizerOption = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Also write tables (CSV, JSON) and figures (SVG, PNG) to this new folder."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Load, size, compute, print."""
    from kvbench import console
    from kvbench.commands.options import parse_counts, parse_share
    from kvbench.report.reuse import answer_json
    from kvbench.traces.answer import answer
    from kvbench.traces.weights import block_weight

    wanted = parse_capacities(capacity, capacity_blocks)
    minutes = parse_counts(window, "--window")
    share = None if sample is None else parse_share(sample, "--sample")
    if model is None and any(one.bytes is not None for one in wanted):
        raise UsageError("--capacity needs --model, which says what a block weighs; or give --capacity-blocks.")
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; name a new folder with -o.")
    sized = None if model is None else _sized(model, tp, kv_dtype)
    loaded = load_trace(path, form, block_tokens, tokenizer)
    if loaded.trace.reuse == "nothing":
        raise UsageError(
            f"{path} names neither blocks nor sessions, so nothing is known of reuse; give a trace with hash_ids or "
            "session_id."
        )
    weight = None if sized is None else block_weight(sized, loaded.trace.block_tokens)
    found = answer(loaded.trace, weight, wanted, minutes, share)
    if json:
        broken = {"lines": loaded.broken.lines, "count": loaded.broken.count, "first": loaded.broken.first}
        console.print_json({**answer_json(found), "model": _model_json(sized), "broken": broken})
    else:
        _show(found, sized, path, loaded.format)
    if output is not None:
        from kvbench.report.reuse_drawing import write_files

        for written in write_files(found, output):
            console.note(f"wrote {written}")


def parse_capacities(sizes: str | None, blocks: str | None) -> tuple[Capacity, ...]:
    """The capacities of ``--capacity [NAME=]SIZE,...`` and ``--capacity-blocks N,...``, in that order."""
    from kvbench.commands.options import parse_counts
    from kvbench.traces.answer import Capacity
    from kvbench.units import parse_size, split_list

    found = []
    for item in split_list(sizes or ""):
        name, _, size = item.rpartition("=")
        found.append(Capacity(name.strip(), bytes=_positive(parse_size(size), item)))
    if sizes is not None and not found:
        raise UsageError(f"--capacity {sizes!r} names no size; write one like 64GiB or nvme=7TB.")
    counts = () if blocks is None else parse_counts(blocks, "--capacity-blocks")
    return (*found, *(Capacity("", blocks=count) for count in counts))


def _positive(size: int, item: str) -> int:
    if size < 1:
        raise UsageError(f"--capacity {item!r} is nothing; write a size like 64GiB.")
    return size


def _sized(model: str, tp: int, kv_dtype: str) -> SizedModel:
    from kvbench.layout.models import size_model

    return size_model(model, tp=tp, kv_dtype=kv_dtype)


def _model_json(sized: SizedModel | None) -> dict[str, object] | None:
    if sized is None:
        return None
    return {"model": sized.model, "tp": sized.tp, "kv_dtype": sized.kv_dtype, "warnings": list(sized.warnings)}


def _show(found: Answer, sized: SizedModel | None, path: Path, form: str) -> None:
    from kvbench import console
    from kvbench.report.data import clean
    from kvbench.report.reuse import notes, points_sheet, shares_sheet, summary_rows, working_set_sheet

    console.print_aligned(f"{clean(str(path))}: {form}", ["what", "how much"], summary_rows(found.summary)[:-1])
    for make in (points_sheet, shares_sheet, working_set_sheet):
        sheet = make(found)
        if sheet.rows:
            console.print_aligned(sheet.title, sheet.headings, sheet.texts, right=sheet.right)
    for line in notes(found, sized):
        console.print_text(line)
