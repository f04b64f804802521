"""Options of the commands that read a trace, and reading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvbench.formats.traces import Loaded

TraceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="F",
        help="A trace: Mooncake, Qwen-Bailian, kv-cache-tester or AIPerf agent sessions (also a folder of them), a "
        "prompt log (CSV or JSON lines), or OpenAI-style requests; plain, gzip or zstd.",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="mooncake, bailian, weka, openai or prompt-log. [default: told by the file's beginning]",
    ),
]
TraceBlockTokensOption = Annotated[
    int | None,
    typer.Option(
        "--block-tokens",
        min=1,
        help="Tokens of one block of the trace. [default: what the trace says; 512 for Mooncake, else 16]",
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option("--tokenizer", help="For traces of texts: the model's tokenizer.json, or the folder that holds it."),
]


def load_trace(path: Path, name: str | None, block_tokens: int | None, tokenizer: Path | None) -> Loaded:
    """The trace; what is broken in it is said on stderr."""
    from kvbench import console
    from kvbench.formats.traces import load
    from kvbench.formats.traces.head import Options

    loaded = load(path, Options(block_tokens, tokenizer), name)
    broken = loaded.broken
    if broken.count:
        console.note(f"{broken.count} of {broken.lines} lines of {path} are broken and left out; the first:")
        for line in broken.first:
            console.note(f"  {line}")
    return loaded
