"""``kvbench prefill``: uncached TTFT measured on the user's own server."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import typer

from kvbench import console
from kvbench.commands.groups import parsed
from kvbench.commands.options import JsonOption, counts_of, parse_precision
from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK, UsageError
from kvbench.prefill.live import endpoint as endpoints
from kvbench.prefill.live import session
from kvbench.prefill.live.endpoint import Endpoint, needs_yes, parse_url
from kvbench.prefill.live.judge import LengthResult
from kvbench.prefill.live.plan import (
    DEFAULT_CONTEXTS,
    FEWEST_SAMPLES,
    MOST_SAMPLES,
    Api,
    Plan,
    checked_contexts,
    describe,
    estimate,
    new_seed,
)
from kvbench.report.listings.prompts import prompts as prompt_table
from kvbench.units import format_tokens, parse_duration_s, parse_tokens, split_list


class SampleCounts(NamedTuple):
    """How many samples each length gets."""

    fewest: int
    most: int


_AUTO_SAMPLES = SampleCounts(FEWEST_SAMPLES, MOST_SAMPLES)


def _parse_samples(text: str) -> SampleCounts:
    if text == "auto":
        return _AUTO_SAMPLES
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise UsageError(f"--samples {text!r}: write a whole number from 1 to 9999, or auto.")
    return SampleCounts(int(text), int(text))


def _parse_contexts(text: str) -> tuple[int, ...]:
    return checked_contexts([parse_tokens(item) for item in split_list(text)])


def _parse_timeout_s(text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise UsageError("--timeout must be longer than nothing, like 10m.")
    return seconds


@dataclass(frozen=True, slots=True)
class LiveServerOptions:
    """Which server and which of its models is measured."""

    panel: ClassVar[str] = "The server"

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="An OpenAI-compatible server, like http://127.0.0.1:8000; its key comes from OPENAI_API_KEY.",
        ),
    ] = None
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model as the server calls it.")] = (
        None
    )
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="MODEL", help="What kvbench calls that model, kept in the CSV.", show_default="NAME"
        ),
    ] = None
    api: Annotated[
        Api, typer.Option("--api", help="completions, chat, or auto: completions, and chat where there are none.")
    ] = "auto"
    timeout_s: Annotated[
        float,
        parsed(
            _parse_timeout_s,
            "--timeout",
            metavar="TIME",
            help="Longest time for one request, like 10m.",
            show_default="10m",
        ),
    ] = 600.0


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """Which prompts are sent, and how often."""

    panel: ClassVar[str] = "The prompts"

    contexts: Annotated[
        tuple[int, ...],
        parsed(
            _parse_contexts,
            "--contexts",
            metavar="TOKENS,...",
            help="Prompt tokens.",
            show_default="1k,2k,4k,8k,16k,32k",
        ),
    ] = DEFAULT_CONTEXTS
    concurrency: Annotated[
        tuple[int, ...],
        parsed(
            counts_of("--concurrency"),
            "--concurrency",
            metavar="N,...",
            help="Requests at a time, like 1,4,16.",
            show_default="1",
        ),
    ] = (1,)
    samples: Annotated[
        SampleCounts,
        parsed(
            _parse_samples,
            "--samples",
            metavar="N",
            help="Samples of each length, or auto: 6 to 20, until the median is known to --precision.",
            show_default="auto",
        ),
    ] = _AUTO_SAMPLES
    precision: Annotated[
        float,
        parsed(
            parse_precision,
            "--precision",
            metavar="SHARE",
            help="With --samples auto: half-width of the median's interval to reach, like 5%.",
            show_default="5%",
        ),
    ] = 0.05
    warmup: Annotated[
        int, typer.Option("--warmup", min=1, max=100, help="Requests to throw away before each length.")
    ] = 1


def prefill(
    *,
    server: LiveServerOptions,
    prompts: PromptOptions,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also measure a server that is not on a loopback or private address.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the measurement in -o.")] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="CSV file to write; a .json and a .jsonl go beside it.")
    ] = Path("ttft.csv"),
    json: JsonOption = False,
) -> int:
    """Plan, guard, calibrate, measure, judge, write."""
    wanted = None
    if server.url is not None or server.model is not None or not resume:
        wanted = _plan(server, prompts)
    plan = wanted or session.planned(output)
    endpoint = parse_url(plan.url if server.url is None else server.url)
    if dry_run:
        _describe(plan, endpoint, as_json=json)
        return EXIT_OK
    key = endpoints.key_of(os.environ)
    endpoints.require_nearby(endpoint, yes=yes)
    if key is not None and endpoint.scheme == "http" and needs_yes(endpoint):
        console.note(
            f"{endpoints.KEY_VARIABLE} goes to {endpoint.host} unencrypted; use https where the server has it."
        )
    opened = session.open_again(output, wanted) if resume else session.open_new(plan, output)
    data, results = session.measure(opened, endpoint, key, console.steps())
    if json:
        console.print_json(data)
    else:
        _show(data, results)
    return EXIT_OK if all(length["complete"] for length in data["lengths"]) else EXIT_MEASUREMENT


def _plan(server: LiveServerOptions, prompts: PromptOptions) -> Plan:
    """The plan of a new measurement; UsageError where the server or its model is not named."""
    if server.url is None or not server.model:
        raise UsageError("say which server and which of its models to measure: --url http://HOST:PORT --model NAME.")
    endpoint = parse_url(server.url)
    if not f"{server.model}{server.name or ''}".isprintable():
        raise UsageError("the model's name holds characters that cannot be printed; give it as the server shows it.")
    return Plan(
        url=endpoint.url,
        model=server.model,
        name=server.name or server.model,
        api=endpoint.api or server.api,
        contexts=prompts.contexts,
        concurrency=prompts.concurrency,
        fewest_samples=prompts.samples.fewest,
        most_samples=prompts.samples.most,
        precision=prompts.precision,
        warmups=prompts.warmup,
        timeout_s=server.timeout_s,
        seed=new_seed(),
    )


def _describe(plan: Plan, endpoint: Endpoint, *, as_json: bool) -> None:
    guarded = needs_yes(endpoint)
    if as_json:
        data = {"dry_run": True, "plan": asdict(plan), "estimate": asdict(estimate(plan)), "needs_yes": guarded}
        console.print_json(data)
        return
    console.print_text("\n".join(describe(plan)))
    if guarded is not False:
        why = "its name has no address here" if guarded is None else "it is not a loopback or private address"
        console.print_line(f"  needs --yes: {why}, and prompts there may cost money")


def _show(data: dict[str, Any], results: Sequence[LengthResult]) -> None:
    server = " ".join(filter(None, (data["server"]["name"], data["server"]["version"])))
    title = f"TTFT of {data['model']}, {data['api']} at {data['url']} ({server})"
    console.print_sheets([prompt_table(title, results)])
    for found in results:
        if found.reason:
            console.print_line(f"  {format_tokens(found.asked_tokens)} tokens: {found.reason}")
    shown = {warning.code: warning for found in results for warning in found.warnings}
    for code, message, hint in [
        *((warning.code, warning.message, warning.hint) for warning in shown.values()),
        *((item["code"], item["message"], item["hint"]) for item in data["warnings"]),
    ]:
        console.print_line(f"  {code}: {message} {hint}")
    console.note(f"written: {', '.join([*data['files']['csv'].values(), data['files']['json']])}")
