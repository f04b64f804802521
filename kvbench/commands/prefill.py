"""``kvbench prefill``: uncached TTFT measured on the user's own server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.commands.options import JsonOption, PrecisionOption
from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK, UsageError

if TYPE_CHECKING:
    from kvbench.prefill.live.endpoint import Endpoint
    from kvbench.prefill.live.judge import LengthResult
    from kvbench.prefill.live.plan import Plan

HELP = "Measure how long your own server takes to the first token of prompts that no cache holds."


def prefill(
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help="An OpenAI-compatible server, like http://127.0.0.1:8000; its key comes from OPENAI_API_KEY."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model as the server calls it.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="MODEL", help="What kvbench calls that model, kept in the CSV. [default: NAME]"),
    ] = None,
    contexts: Annotated[
        str | None,
        typer.Option("--contexts", help="Prompt tokens, separated by commas. [default: 1k,2k,4k,8k,16k,32k]"),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at a time, separated by commas, like 1,4,16.")
    ] = "1",
    api: Annotated[
        str, typer.Option("--api", help="completions, chat, or auto: completions, and chat where there are none.")
    ] = "auto",
    samples: Annotated[
        str,
        typer.Option("--samples", help="Samples of each length, or auto: 6 to 20, until the median is known."),
    ] = "auto",
    precision: PrecisionOption = "5%",
    warmup: Annotated[
        int, typer.Option("--warmup", min=1, max=100, help="Requests to throw away before each length.")
    ] = 1,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest time for one request, like 10m.")] = "10m",
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
    import os

    from kvbench import console
    from kvbench.prefill.live import endpoint as endpoints
    from kvbench.prefill.live import session

    wanted = None
    if url is not None or model is not None or not resume:
        wanted = _plan(url, model, name, contexts, concurrency, api, samples, precision, warmup, timeout)
    plan = wanted or session.planned(output)
    endpoint = endpoints.parse_url(plan.url)
    if wanted is not None and url is not None:
        endpoint = endpoints.parse_url(url)
    if dry_run:
        _describe(plan, endpoint, as_json=json)
        return EXIT_OK
    key = endpoints.key_of(os.environ)
    endpoints.require_nearby(endpoint, yes=yes)
    if key is not None and endpoint.scheme == "http" and endpoints.needs_yes(endpoint):
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


def _plan(
    url: str | None,
    model: str | None,
    name: str | None,
    contexts: str | None,
    concurrency: str,
    api: str,
    samples: str,
    precision: str,
    warmup: int,
    timeout: str,
) -> Plan:
    from kvbench.commands.options import parse_counts, parse_precision
    from kvbench.prefill.live.endpoint import parse_url
    from kvbench.prefill.live.plan import DEFAULT_CONTEXTS, Plan, checked_contexts, new_seed
    from kvbench.units import parse_duration_s, parse_tokens, split_list

    if url is None or not model:
        raise UsageError("say which server and which of its models to measure: --url http://HOST:PORT --model NAME.")
    endpoint = parse_url(url)
    if not f"{model}{name or ''}".isprintable():
        raise UsageError("the model's name holds characters that cannot be printed; give it as the server shows it.")
    if api not in ("auto", "completions", "chat"):
        raise UsageError(f"--api {api!r}: choose from auto, completions, chat.")
    timeout_s = parse_duration_s(timeout)
    if timeout_s <= 0:
        raise UsageError("--timeout must be longer than nothing, like 10m.")
    fewest, most = _samples(samples)
    return Plan(
        url=endpoint.url,
        model=model,
        name=name or model,
        api=endpoint.api or api,  # type: ignore[arg-type]
        contexts=DEFAULT_CONTEXTS if contexts is None else checked_contexts([*map(parse_tokens, split_list(contexts))]),
        concurrency=parse_counts(concurrency, "--concurrency"),
        fewest_samples=fewest,
        most_samples=most,
        precision=parse_precision(precision),
        warmups=warmup,
        timeout_s=timeout_s,
        seed=new_seed(),
    )


def _samples(text: str) -> tuple[int, int]:
    from kvbench.prefill.live.plan import FEWEST_SAMPLES, MOST_SAMPLES

    if text == "auto":
        return FEWEST_SAMPLES, MOST_SAMPLES
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise UsageError(f"--samples {text!r}: write a whole number from 1 to 9999, or auto.")
    return int(text), int(text)


def _describe(plan: Plan, endpoint: Endpoint, *, as_json: bool) -> None:
    from dataclasses import asdict

    from kvbench import console
    from kvbench.prefill.live.endpoint import needs_yes
    from kvbench.prefill.live.plan import describe, estimate

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
    from kvbench import console
    from kvbench.units import format_tokens

    server = " ".join(filter(None, (data["server"]["name"], data["server"]["version"])))
    console.print_table(
        f"TTFT of {data['model']}, {data['api']} at {data['url']} ({server})",
        ("prompt tokens", "at a time", "samples", "median TTFT", "95 % of it", "distrust"),
        [
            (format_tokens(found.asked_tokens), str(found.concurrency), str(len(found.usable)), *_cells(found))
            for found in results
        ],
        right=(0, 1, 2, 3, 4),
    )
    for found in results:
        if found.reason:
            console.print_line(f"  {format_tokens(found.asked_tokens)} tokens: {found.reason}")
    shown = {caveat.code: caveat for found in results for caveat in found.warnings}
    for code, message, hint in [
        *((caveat.code, caveat.message, caveat.hint) for caveat in shown.values()),
        *((item["code"], item["message"], item["hint"]) for item in data["warnings"]),
    ]:
        console.print_line(f"  {code}: {message} {hint}")
    console.note(f"written: {', '.join([*data['files']['csv'].values(), data['files']['json']])}")


def _cells(found: LengthResult) -> tuple[str, str, str]:
    from kvbench.units import format_duration_ns

    doubts = ", ".join(caveat.code for caveat in found.warnings)
    if found.median_ns is None:
        return "-", "-", doubts
    low, high = (None if side is None else format_duration_ns(side) for side in (found.low_ns, found.high_ns))
    return format_duration_ns(found.median_ns), "-" if low is None or high is None else f"{low} to {high}", doubts
