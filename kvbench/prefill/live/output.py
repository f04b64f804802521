"""What a measurement leaves: a CSV for each concurrency that ``crossover --ttft-csv`` reads, and one JSON object."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvbench.border.escaping import escaped
from kvbench.errors import UsageError
from kvbench.host import environment
from kvbench.prefill.live import judge
from kvbench.prefill.live.contact import Contact
from kvbench.prefill.live.endpoint import Endpoint
from kvbench.prefill.live.log import Record
from kvbench.prefill.live.plan import Plan
from kvbench.prefill.live.server import hit_tokens
from kvbench.record.results import PointWarning, write_atomically
from kvbench.units import format_tokens

SCHEMA_VERSION = 1

_COLUMNS = (
    "prompt_tokens", "ttft_s", "concurrency", "asked_tokens", "cached_tokens", "first", "connection", "total_s",
    "client_cpu_s", "client_wait_s", "at", "prompt", "marks",
)  # fmt: skip
CLOCK = (
    "time.perf_counter_ns, from just before the first byte of the request is sent on an open connection until the read "
    "from the socket that completed the first text"
)
_CONNECTIONS = "kept open and reused where the server allows it, one for each request in flight; opening is not timed"


@dataclass(frozen=True, slots=True)
class Files:
    """Where a measurement writes: the CSV by concurrency, the JSON object and the log."""

    csv: dict[int, Path]
    json: Path
    log: Path


def files_of(output: Path, concurrency: Sequence[int]) -> Files:
    """The files beside ``output``, which names the CSV of the lowest concurrency."""
    if output.suffix.lower() != ".csv":
        raise UsageError(f"-o {output}: name the CSV file to write, like ttft.csv; a .json and a .jsonl go beside it.")
    first, *others = sorted(concurrency)
    tables = {first: output} | {count: output.with_name(f"{output.stem}-c{count}.csv") for count in others}
    return Files(tables, output.with_suffix(".json"), output.with_suffix(".jsonl"))


def require_new(files: Files) -> None:
    """UsageError when one of the files exists: a measurement is never written over."""
    for path in (files.log, files.json, *files.csv.values()):
        if path.exists():
            raise UsageError(
                f"{path} exists; name another -o, or continue that measurement with --resume and the same -o."
            )


def summary(
    plan: Plan,
    endpoint: Endpoint,
    contact: Contact,
    records: Sequence[Record],
    results: Sequence[judge.LengthResult],
    *,
    created: str,
    counters_after: dict[str, float] | None,
    finished: bool,
    files: Files,
) -> dict[str, Any]:
    """Everything about a measurement but its samples, as one JSON object."""
    dialect = contact.dialect
    return {
        "schema_version": SCHEMA_VERSION,
        "created": created,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": finished,
        "url": endpoint.url,
        "api": dialect.api,
        "model": plan.name,
        "served_model": plan.model,
        "server": asdict(contact.server),
        "method": {
            "clock": CLOCK,
            "connections": _CONNECTIONS,
            "connections_opened": sum(1 for record in records if record.exchange.connection == "new"),
            "connections_reused": sum(1 for record in records if record.exchange.connection == "reused"),
            "retries": 0,
            "redirects_followed": False,
            "proxy": "none, whatever the environment says",
            "answer_tokens": 1,
            "token_limit_field": dialect.limit_field,
            "optional_fields": list(dialect.fields),
            "prompts": "random words, unique from the first one",
            "length": _length_source(contact),
        },
        "plan": asdict(plan),
        "prefix_cache_counters": {"before": contact.counters, "after": counters_after},
        "lengths": [_length(found, plan) for found in results],
        "requests": _requests(records),
        "warnings": [asdict(warning) for warning in run_warnings(plan, contact, results, counters_after)],
        "environment": environment.collect(None),
        "files": {
            "csv": {str(count): str(path) for count, path in files.csv.items()},
            "json": str(files.json),
            "log": str(files.log),
        },
    }


def write(files: Files, results: Sequence[judge.LengthResult], data: dict[str, Any]) -> None:
    """Write the JSON object and every CSV, each in one step."""
    for concurrency, path in files.csv.items():
        mine = [found for found in results if found.concurrency == concurrency]
        write_atomically(path, table(mine, data, concurrency))
    write_atomically(files.json, json.dumps(data, indent=1, allow_nan=False) + "\n")


def table(results: Sequence[judge.LengthResult], data: dict[str, Any], concurrency: int) -> str:
    """The CSV of one concurrency: usable samples by length, then the others as comments with the reason."""
    judged = [item for found in results for item in found.judged]
    usable = sorted((item for item in judged if item.refused is None), key=lambda i: (i.tokens, i.record.index))
    server = " ".join(filter(None, (data["server"]["name"], data["server"]["version"])))
    load = "" if concurrency == 1 else f", under load: {concurrency} requests at a time"
    lines = [
        escaped(f"# model: {data['model']}"),
        escaped(f"# source: kvbench prefill, {data['api']} at {data['url']} ({server}), {data['created']}{load}"),
        _row(_COLUMNS),
        *(_row(_cells(item)) for item in usable),
    ]
    left_out = [item for item in judged if item.refused is not None]
    # A comma behind the first word: a colon there would make it a note of the whole file.
    lines += [f"# left out, {_row([str(item.tokens), item.refused or ''])}" for item in left_out]
    return "\n".join(lines) + "\n"


def run_warnings(
    plan: Plan, contact: Contact, results: Sequence[judge.LengthResult], counters_after: dict[str, float] | None
) -> list[PointWarning]:
    """Doubts about the measurement as a whole."""
    found = []
    hits = hit_tokens(contact.counters, counters_after)
    if hits:
        message = f"the server's own counters say that {hits:,.0f} prompt tokens came out of a cache meanwhile."
        hint = "Measure while nobody else uses the server, or with its prefix cache off."
        found.append(PointWarning("cache-counters", message, hint, {"tokens": hits}))
    hint = "The log says why; --resume measures only what is missing."
    for code, what, wanted in (
        ("missing-lengths", "no usable sample", [result for result in results if not result.usable]),
        ("incomplete-lengths", "too few usable samples", [r for r in results if r.usable and not is_complete(r, plan)]),
    ):
        if wanted:
            names = ", ".join(f"{format_tokens(r.asked_tokens)} tokens ({r.concurrency} at a time)" for r in wanted)
            found.append(PointWarning(code, f"{what} of {names}.", hint, {"lengths": len(wanted)}))
    return found


def is_complete(found: judge.LengthResult, plan: Plan) -> bool:
    """Whether a length has as many usable samples as the plan wants."""
    return judge.enough([item.record for item in found.usable], plan)


def _length(found: judge.LengthResult, plan: Plan) -> dict[str, Any]:
    usable = found.usable
    tokens = sorted(item.tokens for item in usable)
    return {
        "asked_tokens": found.asked_tokens,
        "concurrency": found.concurrency,
        "prompt_tokens": {"min": tokens[0], "max": tokens[-1]} if tokens else None,
        "samples": len(usable),
        "refused": len(found.judged) - len(usable),
        "complete": is_complete(found, plan),
        "median_ns": found.median_ns,
        "median_low_ns": found.low_ns,
        "median_high_ns": found.high_ns,
        "reason": found.reason,
        "warnings": [asdict(warning) for warning in found.warnings],
    }


def _requests(records: Sequence[Record]) -> dict[str, int]:
    kinds = ("calibration", "warm-up", "sample")
    return {kind: sum(1 for record in records if record.kind == kind) for kind in kinds} | {
        "failed": sum(1 for record in records if record.exchange.failure is not None),
        "prompt_tokens": sum(record.exchange.prompt_tokens or 0 for record in records),
    }


def _length_source(contact: Contact) -> str:
    if contact.tokenizer is not None:
        return f"usage.prompt_tokens; made exact with {contact.tokenizer.path}"
    if "stream_options" in contact.dialect.fields:
        return "usage.prompt_tokens; corrected after each warm-up"
    return "as asked: the server counts no tokens"


def _cells(item: judge.JudgedSample) -> list[str]:
    record, exchange = item.record, item.record.exchange
    return [
        str(item.tokens),
        _seconds(exchange.ttft_ns),
        str(record.concurrency),
        str(record.asked_tokens),
        "" if exchange.cached_tokens is None else str(exchange.cached_tokens),
        exchange.first or "",
        exchange.connection,
        _seconds(exchange.total_ns),
        _seconds(exchange.client_cpu_ns),
        _seconds(exchange.client_wait_ns),
        record.at,
        str(record.index),
        " ".join(item.codes),
    ]


def _seconds(duration_ns: int | None) -> str:
    return "" if duration_ns is None else f"{duration_ns / 1e9:.9f}"


def _row(cells: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([" ".join(cell.split()) for cell in cells])
    return buffer.getvalue()
