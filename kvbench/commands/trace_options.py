"""Options of the commands that read a trace, and reading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.formats.traces import FORMATS, Loaded, load, require_known
from kvbench.formats.traces.head import Options


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """A trace, and what it does not say about itself."""

    panel: ClassVar[str] = "The trace"

    path: Annotated[
        Path,
        typer.Argument(
            metavar="F",
            help="A trace: Mooncake, Qwen-Bailian, kv-cache-tester or AIPerf agent sessions (also a folder of them), a "
            "prompt log (CSV or JSON lines), or OpenAI-style requests; plain, gzip or zstd.",
        ),
    ]
    form: Annotated[
        str | None,
        parsed(
            require_known,
            "--format",
            metavar="|".join(FORMATS),
            help="What the trace is written in.",
            show_default="told by the file's beginning",
        ),
    ] = None
    block_tokens: Annotated[
        int | None,
        typer.Option(
            "--block-tokens",
            min=1,
            help="Tokens of one block of the trace.",
            show_default="what the trace says; 512 for Mooncake, else 16",
        ),
    ] = None
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer",
            metavar="PATH",
            help="For traces of texts: the model's tokenizer.json, or the folder that holds it.",
        ),
    ] = None

    def load(self) -> Loaded:
        """The trace; what is broken in it is said on stderr."""
        loaded = load(self.path, Options(self.block_tokens, self.tokenizer), self.form)
        broken = loaded.broken
        if broken.count:
            console.note(f"{broken.count} of {broken.lines} lines of {self.path} are broken and left out; the first:")
            for line in broken.first:
                console.note(f"  {line}")
        return loaded
