"""``kvbench trace``: what a trace of requests holds, and making one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kvbench import console
from kvbench.commands.groups import flattened
from kvbench.commands.options import JsonOption
from kvbench.commands.trace_options import TraceOptions
from kvbench.errors import UsageError
from kvbench.report.data import clean
from kvbench.report.reuse import summary_json, summary_notes, summary_sheet
from kvbench.traces.curve import reuse_curve
from kvbench.traces.make import Recipe, lines
from kvbench.traces.summary import summarize

_INFO = (
    "Say what a trace holds: requests, tokens, sessions, time span, and how much of its prompts could be found again. "
    "Example: kvbench trace info conversation_trace.jsonl.gz"
)
_MAKE = (
    "Make a trace of conversations with shared prompts, think time and subagents, in Mooncake's shape. "
    "Example: kvbench trace make -o trace.jsonl --conversation-num 500"
)

trace = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@trace.command("info", help=_INFO)
@flattened
def info(*, source: TraceOptions, json: JsonOption = False) -> None:
    """Load, sum up, print."""
    loaded = source.load()
    summary = summarize(loaded.trace, *reuse_curve(loaded.trace))
    if json:
        broken = asdict(loaded.broken)
        console.print_json({"format": loaded.format, "trace": summary_json(summary), "broken": broken})
        return
    console.print_aligned(summary_sheet(summary, f"{clean(str(source.path))}: {loaded.format}"))
    for note in summary_notes(summary):
        console.print_text(note)


@trace.command("make", help=_MAKE)
def make(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; one that exists is not touched.")],
    conversation_num: Annotated[int, typer.Option("--conversation-num", help="Conversations.")] = 200,
    conversation_turn_mean: Annotated[
        float, typer.Option("--conversation-turn-mean", help="Turns of a conversation, mean.")
    ] = 6,
    conversation_turn_stddev: Annotated[
        float, typer.Option("--conversation-turn-stddev", help="Turns of a conversation, standard deviation.")
    ] = 3,
    conversation_turn_delay_mean: Annotated[
        float, typer.Option("--conversation-turn-delay-mean", help="Think time between turns in ms, mean.")
    ] = 30_000,
    conversation_turn_delay_stddev: Annotated[
        float, typer.Option("--conversation-turn-delay-stddev", help="Think time in ms, standard deviation.")
    ] = 20_000,
    synthetic_input_tokens_mean: Annotated[
        float, typer.Option("--synthetic-input-tokens-mean", "--isl", help="New tokens that a turn brings, mean.")
    ] = 600,
    synthetic_input_tokens_stddev: Annotated[
        float, typer.Option("--synthetic-input-tokens-stddev", "--isl-stddev", help="New tokens, standard deviation.")
    ] = 400,
    output_tokens_mean: Annotated[
        float, typer.Option("--output-tokens-mean", "--osl", help="Tokens of an answer, mean.")
    ] = 300,
    output_tokens_stddev: Annotated[
        float, typer.Option("--output-tokens-stddev", "--osl-stddev", help="Tokens of an answer, standard deviation.")
    ] = 150,
    num_prefix_prompts: Annotated[
        int, typer.Option("--num-prefix-prompts", help="Different shared system prompts.")
    ] = 4,
    shared_system_prompt_length: Annotated[
        int, typer.Option("--shared-system-prompt-length", help="Tokens of each shared system prompt.")
    ] = 2048,
    user_context_prompt_length: Annotated[
        int, typer.Option("--user-context-prompt-length", help="Tokens of each conversation's own context.")
    ] = 1024,
    subagent_ratio: Annotated[
        float, typer.Option("--subagent-ratio", help="Share of turns that a subagent branches off from.")
    ] = 0.1,
    subagent_turn_mean: Annotated[float, typer.Option("--subagent-turn-mean", help="Turns of a subagent, mean.")] = 3,
    request_rate: Annotated[
        float, typer.Option("--request-rate", help="Requests per second; conversations start at random.")
    ] = 2,
    isl_block_size: Annotated[int, typer.Option("--isl-block-size", help="Tokens of a block.")] = 512,
    random_seed: Annotated[int, typer.Option("--random-seed", help="The same seed makes the same trace.")] = 0,
) -> None:
    """Draw the trace and write it line by line."""
    recipe = Recipe(
        conversation_num, conversation_turn_mean, conversation_turn_stddev, conversation_turn_delay_mean,
        conversation_turn_delay_stddev, synthetic_input_tokens_mean, synthetic_input_tokens_stddev, output_tokens_mean,
        output_tokens_stddev, num_prefix_prompts, shared_system_prompt_length, user_context_prompt_length,
        subagent_ratio, subagent_turn_mean, request_rate, isl_block_size, random_seed,
    )  # fmt: skip
    recipe.check()
    try:
        with output.open("x", encoding="utf-8") as file:
            file.writelines(lines(recipe))
    except FileExistsError:
        raise UsageError(f"{output} exists; name another file, or remove it.") from None
    console.note(f"wrote {output}")
