"""The commands of a comparison as one shell script that a person or a pipeline runs (pure)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvbench.serving.plan import Generator, ServingPlan


@dataclass(frozen=True, slots=True)
class Visit:
    """One start of the server: an arm at one load, the ``repeat``-th time."""

    arm: str
    concurrency: int
    repeat: int

    @property
    def folder(self) -> str:
        """Its results, below the plan's folder."""
        return f"{self.arm}/c{self.concurrency}-{self.repeat}"


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How an arm is served: the command line, in which ``@TIER@`` stands for a fresh folder below ``places``."""

    command: str
    places: tuple[str, ...] = ()


TIER = "@TIER{}@"
_COUNTERS_LATE_S = 30


def visits(plan: ServingPlan) -> list[Visit]:
    """Every arm at every load, forth and back: what drifts over hours then hits all arms alike (ABBA)."""
    found = []
    for concurrency in plan.generator.concurrency:
        for repeat in range(1, plan.repeats + 1):
            arms = list(plan.arms) if repeat % 2 else list(reversed(plan.arms))
            found += [Visit(arm, concurrency, repeat) for arm in arms]
    return found


def script(plan: ServingPlan, servers: Mapping[str, ServerCommand]) -> str:
    """The whole script; it stops at the first thing that fails and removes only folders that it made."""
    planned = visits(plan)
    lines = [*_head(plan, len(planned))]
    for number, visit in enumerate(planned, start=1):
        lines += ["", f"# {number} of {len(planned)}: {visit.arm}, {visit.concurrency} at once, repeat {visit.repeat}"]
        lines += _visit(plan, visit, servers[visit.arm])
    names = " ".join(shlex.quote(f"{arm}={plan.results}/{arm}") for arm in plan.arms)
    return "\n".join([*lines, "", f"kvbench compare {names}", ""])


def _head(plan: ServingPlan, count: int) -> Iterator[str]:
    yield "#!/bin/sh"
    yield f"# {count} runs of at least {plan.generator.duration_s} s each, and as many starts of the server."
    yield "# Every run has an empty cache: the server is started anew, and its tiers begin in folders of their own."
    yield "set -eu"
    yield f"url={shlex.quote(plan.url)}"
    yield "server="
    yield 'trap \'[ -z "$server" ] || kill "$server"\' EXIT'


def _visit(plan: ServingPlan, visit: Visit, server: ServerCommand) -> Iterator[str]:
    folder = shlex.quote(f"{plan.results}/{visit.folder}")
    yield f"mkdir -p {folder}"
    tiers = [f"{place.rstrip('/')}/kvbench-{visit.folder.replace('/', '-')}" for place in server.places]
    command = server.command
    for at, tier in enumerate(tiers):
        # mkdir without -p: a folder that is there already is somebody's, or of a run that was cut short.
        yield f"mkdir {shlex.quote(tier)}"
        command = command.replace(TIER.format(at), tier)
    if tiers:
        yield f"findmnt --json --target {shlex.quote(tiers[0])} > {folder}/mount.json"
    yield f"{command} > {folder}/server.log 2>&1 & server=$!"
    yield 'until curl -sf "$url/health" > /dev/null; do kill -0 "$server"; sleep 1; done'
    yield f'curl -sf "$url/metrics" > {folder}/metrics_before.txt'
    yield from _pages(plan, visit, "before")
    yield GENERATORS[plan.generator.tool](plan, visit.concurrency, f"{plan.results}/{visit.folder}")
    yield f'curl -sf "$url/metrics" > {folder}/metrics_after.txt'
    if plan.pages:
        # What a storage counted arrives that much later (docs/compare.md).
        yield f"sleep {_COUNTERS_LATE_S}"
    yield from _pages(plan, visit, "after")
    yield 'kill "$server"; wait "$server" || true; server='
    for tier in tiers:
        yield f"rm -r {shlex.quote(tier)}"


def _pages(plan: ServingPlan, visit: Visit, when: str) -> Iterator[str]:
    for name, url in plan.pages.items():
        page = f"{plan.results}/{visit.folder}/{name}_{when}.txt"
        yield f"curl -sf {shlex.quote(url)} > {shlex.quote(page)}"


def _aiperf(plan: ServingPlan, concurrency: int, folder: str) -> str:
    """Options of ``aiperf profile`` 0.13 (config/flags/cli_config.py)."""
    load = plan.generator
    return shlex.join(
        [
            "aiperf", "profile", "--model", plan.model, "--url", plan.url, "--endpoint-type", "chat", "--streaming",
            "--input-file", load.data, "--custom-dataset-type", load.kind, *_tokenizer(load),
            "--concurrency", str(concurrency), "--benchmark-duration", str(load.duration_s),
            "--random-seed", str(load.seed), "--artifact-dir", folder, *load.arguments,
        ]
    )  # fmt: skip


def _tokenizer(load: Generator) -> Sequence[str]:
    return [] if load.tokenizer is None else ["--tokenizer", load.tokenizer]


def _guidellm(plan: ServingPlan, concurrency: int, folder: str) -> str:
    """Options of ``guidellm run`` 0.8 (cli/run.py); its parts are lists of key=value."""
    load = plan.generator
    tokenizer = [] if load.tokenizer is None else ["--tokenizer", f"kind=hf_auto,model={load.tokenizer}"]
    return shlex.join(
        [
            "guidellm", "run", "--backend", f"kind=openai_http,target={plan.url},model={plan.model}",
            "--profile", "kind=concurrent", "--override", "profile.streams", str(concurrency),
            "--constraint", f"kind=max_duration,seconds={load.duration_s}",
            "--data", _guidellm_data(load), *tokenizer, "--seed", f"kind=static,value={load.seed}",
            "--output", f"kind=json,path={folder}/guidellm.json", *load.arguments,
        ]
    )  # fmt: skip


def _guidellm_data(load: Generator) -> str:
    """A trace has a source of its own (schemas/data/deserializers/trace_common.py), other kinds have a path."""
    if load.kind in ("mooncake", "weka"):
        return json.dumps({"kind": load.kind, "source": {"kind": "json_file", "path": load.data}})
    return f"kind={load.kind},path={load.data}"


GENERATORS: Mapping[str, Callable[[ServingPlan, int, str], str]] = {"aiperf": _aiperf, "guidellm": _guidellm}
