"""One thin file per command. COMMANDS lists them in the order of ``--help``.

The modules are named, not imported: a call loads only the command that it runs, and the overview none. Therefore a
command's module imports at its top what the command needs; what only some calls need stays inside when it is heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is (``module:function``), what its help says, and one call that works as it stands.

    One that ``touches_tiers`` runs in a child, which is left behind when a tier hangs.
    """

    place: str
    help: str
    example: str
    touches_tiers: bool = False


_FIO = Command(
    "fio:fio",
    "Measure each tier with fio at exactly the models' I/O sizes, and judge every point. With a TTFT, --runtime auto "
    "stops a point as soon as its verdict cannot flip.",
    "kvbench fio --tier nvme=/mnt/nvme --model qwen3-8b --tp 2 -o reports/nvme",
    touches_tiers=True,
)

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "blocksize": Command(
            "blocksize:blocksize",
            "Size models' KV caches: per token, per block on a rank and on the server, and per context.",
            "kvbench blocksize qwen3-8b --tp 2 --context 8k,128k --fit 80GiB",
        ),
        "models": Command(
            "models:models",
            "List the models that kvbench knows without a download, with their KV bytes per token.",
            "kvbench models --json",
        ),
        "jobs": Command(
            "jobs:jobs",
            "Print the fio job file for a tier, without running it.",
            "kvbench jobs --tier /mnt/nvme --model qwen3-8b --published -o kv.fio",
            touches_tiers=True,
        ),
        "fio": _FIO,
        "measure": _FIO,
        "import": Command(
            "import_:import_",
            "Read fio JSON that was made elsewhere into a run directory and judge it.",
            "kvbench import nvme=fio.json --model qwen3-8b --tp 2 -o reports/imported",
        ),
        "prefill": Command(
            "prefill:prefill",
            "Measure how long your own server takes to the first token of prompts that no cache holds.",
            "kvbench prefill --url http://127.0.0.1:8000 --model NAME --contexts 1k,8k,32k -o ttft.csv",
        ),
        "crossover": Command(
            "crossover:crossover",
            "Say from which context length on restoring beats recomputing, per tier and model.",
            "kvbench crossover reports/nvme --ttft-csv ttft.csv --target-context 16k --concurrent-restores 1,4",
        ),
        "trace": Command(
            "trace:trace", "Look at a trace of requests, or make one.", "kvbench trace info conversation_trace.jsonl.gz"
        ),
        "workingset": Command(
            "workingset:workingset",
            "Say how much of a trace's prompts an LRU cache finds at each capacity, exactly, and how large the working "
            "set is.",
            "kvbench workingset trace.jsonl --model qwen3-8b --capacity cpu=64GiB,nvme=7TB",
        ),
        "settings": Command(
            "settings:settings",
            "Write the engine's --kv-transfer-config for a model and its tiers, or check one that exists.",
            "kvbench settings qwen3-8b --tp 2 --cpu 64GiB --tier fs=/mnt/nvme",
        ),
        "diff": Command(
            "diff:diff",
            "Compare two measured runs: ratios with intervals, and whether they can be told apart.",
            "kvbench diff reports/before reports/after",
        ),
        "arms": Command(
            "arms:arms",
            "Print the commands of a comparison: servers, load generator, order and clean-up. Nothing is started.",
            "kvbench arms plan.yaml",
        ),
        "compare": Command(
            "compare:compare",
            "Compare serving runs of several configurations with one of them: what a tier brought, and whether that is "
            "more than noise.",
            "kvbench compare none=runs/none cpu=runs/cpu cpu+nvme=runs/cpu+nvme",
        ),
        "export": Command(
            "export:export",
            "Write every measured number of runs as CSV, Parquet or Prometheus metrics.",
            "kvbench export reports/nvme --form prometheus -o kvbench.prom",
        ),
        "report": Command(
            "report:report",
            "Make one offline HTML page with the verdict, the figures and every number, from recorded runs.",
            "kvbench report reports/nvme --ttft-csv ttft.csv -o nvme.html",
        ),
        "gate": Command(
            "gate:gate",
            "Say whether every measured tier is viable: exit 0 viable, 1 not viable, 3 cannot say.",
            "kvbench gate reports/nvme --ttft-csv ttft.csv --target-context 16k --junit gate.xml",
        ),
        "bundle": Command(
            "bundle:bundle",
            "Pack a run for a vendor: secrets go, and hosts, addresses, users and paths get other names, always the "
            "same for one. Look at it before you send it.",
            "kvbench bundle reports/nvme --replace ACME -o nvme.tar.gz",
        ),
        "doctor": Command(
            "doctor:doctor",
            "Say what works here: this host, and what each tier is and can do. Exit 2 when something must be mended "
            "first.",
            "kvbench doctor --tier nvme=/mnt/nvme",
            touches_tiers=True,
        ),
        "clean": Command(
            "clean:clean",
            "Remove what a dead kvbench left on a tier, and nothing else. An engine's own blocks are never touched.",
            "kvbench clean --tier /mnt/nvme --dry-run",
            touches_tiers=True,
        ),
    }
)
