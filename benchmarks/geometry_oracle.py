"""kvbench's blocks, groups and file sizes beside those that vLLM's own Python computes, as a Markdown table.

    python benchmarks/geometry_oracle.py [--vllm 0.24.0] [--cache DIR] [--config CONFIG.json ...] [--only TEXT]

Needs no GPU. Builds an environment of its own below --cache (CPU torch, the wheel's Python files, some 2 GB with the
download), takes the deployments of tests/data/connectors and the models that --config names, and takes five to forty
seconds for each. Exit code 1 when a number differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kvbench.connectors import stored_layout  # noqa: E402
from kvbench.errors import KvbenchError  # noqa: E402
from kvbench.layout import read_layout  # noqa: E402
from kvbench.layout.dtype import Checkpoint, resolve  # noqa: E402
from kvbench.layout.models import FoundConfig, size_layout  # noqa: E402

CASES = ROOT / "tests" / "data" / "connectors"
PACKAGES = Path(__file__).with_name("geometry_oracle.txt")
# The first that the configured indexes offer is taken; any CPU build will do.
TORCH = ("torch==2.13.0", "torch")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "kvbench" / "geometry-oracle"


@dataclass(frozen=True)
class Case:
    """One deployment of a model."""

    model: str
    config: dict[str, Any]
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    kv_dtype: str = "auto"
    prefix_caching: bool = False
    hybrid_manager: bool = True
    file_tokens: int | None = None
    gpu_arch: str = "sm90"


def main() -> int:
    """Set up, ask both, print the table; 0 when all comparable numbers are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", default="0.24.0", help="release of vLLM [default: 0.24.0]")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"environment and wheels [default: {CACHE}]")
    parser.add_argument("--config", type=Path, action="append", default=[], help="also this config.json, at TP 1 and 2")
    parser.add_argument("--only", default="", help="only models whose name holds this text")
    options = parser.parse_args()
    cases = [case for case in (*recorded(), *configs(options.config)) if options.only in case.model]
    python, source = environment(options.cache, options.vllm)
    print("| model | deployment | kvbench | vLLM " + options.vllm + " | |\n|---|---|---|---|---|")
    verdicts = [
        compared(case, found, options.vllm) for case, found in zip(cases, ask(cases, python, source), strict=True)
    ]
    counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if "DIFFERENT" in counts else 0


def recorded() -> Iterator[Case]:
    """The deployments that the tests hold kvbench to."""
    models = json.loads((CASES / "models.json").read_text(encoding="utf-8"))
    for line in (CASES / "vllm-0.24.0.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, tp, pp, dcp, dtype, options = line.split("\t")[:6]
        tokens = re.search(r"block=(\d+)", options)
        yield Case(
            name, models[name], int(tp), int(pp), int(dcp), dtype, "prefix-caching" in options,
            "no-hybrid-manager" not in options, int(tokens[1]) if tokens else None,
        )  # fmt: skip


def configs(paths: Sequence[Path]) -> Iterator[Case]:
    """Each config at TP 1 and 2, with prefix caching, which changes nothing for models without states."""
    for path in paths:
        config = json.loads(path.read_text(encoding="utf-8"))
        for tp in (1, 2):
            yield Case(path.parent.name if path.name == "config.json" else path.stem, config, tp, prefix_caching=True)


def environment(cache: Path, version: str) -> tuple[Path, Path]:
    """The interpreter of the engine's environment and the folder with vLLM's Python files, made where missing."""
    python, source = cache / "venv" / "bin" / "python", cache / f"vllm-{version}"
    if not (cache / "installed").exists():
        run(sys.executable, "-m", "venv", str(cache / "venv"))
        install_torch(python)
        run(str(python), "-m", "pip", "install", "-q", "-r", str(PACKAGES))
        (cache / "installed").touch()
    if not source.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            run(str(python), "-m", "pip", "download", "-q", "--no-deps", f"vllm=={version}", "-d", folder)
            unpack(next(Path(folder).glob("*.whl")), source)
    return python, source


def install_torch(python: Path) -> None:
    """A CPU torch, or whatever the configured indexes have."""
    for wanted in TORCH:
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", wanted], check=False)
        if done.returncode == 0:
            return
    raise SystemExit("torch could not be installed")


def unpack(wheel: Path, target: Path) -> None:
    """The Python and JSON files of the wheel and its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        wanted = [name for name in archive.namelist() if name.endswith((".py", ".json", "METADATA"))]
        archive.extractall(target.with_suffix(".part"), wanted)
    target.with_suffix(".part").rename(target)


def run(*command: str) -> None:
    """Run a program, its output on stderr; SystemExit when it fails."""
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def ask(cases: Sequence[Case], python: Path, source: Path) -> Iterator[dict[str, Any]]:
    """The engine's answer to each case, in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.json"
        path.write_text(json.dumps([asdict(case) for case in cases]))
        command = [str(python), str(Path(__file__).with_name("geometry_engine.py")), str(path)]
        environ = {**os.environ, "PYTHONPATH": str(source)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        ) as child:
            assert child.stdout is not None
            yield from map(json.loads, child.stdout)
        if child.returncode:
            raise SystemExit(f"the engine's process ended with {child.returncode}: run {' '.join(command)} by hand")


def compared(case: Case, engine: dict[str, Any], version: str) -> str:
    """Print the row of a case and say how it went."""
    ours, theirs = of_kvbench(case, version), of_engine(engine)
    if "error" in engine:
        verdict = "not built by the engine here"
    elif ours.startswith("refused"):
        verdict = "refused by both" if theirs.endswith("refused") else "refused by kvbench only"
    else:
        verdict = "equal" if ours == theirs else "DIFFERENT"
    print(f"| {case.model} | {deployment(case)} | {ours} | {theirs} | {verdict} |", flush=True)
    return verdict


def deployment(case: Case) -> str:
    """What is not at its default."""
    parts = [f"TP {case.tp}", f"PP {case.pp}" * (case.pp > 1), f"DCP {case.dcp}" * (case.dcp > 1)]
    parts += [case.kv_dtype * (case.kv_dtype != "auto"), "prefix caching" * case.prefix_caching]
    parts += ["no hybrid manager" * (not case.hybrid_manager), f"{case.file_tokens} tokens" * bool(case.file_tokens)]
    return ", ".join(part for part in parts if part)


def of_kvbench(case: Case, version: str) -> str:
    """Our numbers as text, or the refusal."""
    try:
        read = read_layout(case.config)
        dtype = resolve(case.kv_dtype, read.layout, Checkpoint(case.config, read.text))
        sized = size_layout(
            FoundConfig(case.model, "", case.config), read, dtype, tp=case.tp, pp=case.pp, dcp=case.dcp,
            block_tokens=case.file_tokens or 16,
        )  # fmt: skip
        stored = stored_layout(
            sized, "vllm-fs", engine_version=version, gpu_arch=case.gpu_arch, hybrid_manager=case.hybrid_manager,
            # On by default for hybrid models from 0.26 on.
            prefix_caching=case.prefix_caching or version not in ("0.24.0", "0.25.0", "0.25.1"),
        )  # fmt: skip
    except KvbenchError as error:
        return f"refused: {str(error).partition(';')[0][:90]}"
    tokens = (stored.engine_block_tokens or 0) // case.dcp
    return _numbers(tokens, stored.rank_block_bytes, len(stored.groups), f"{stored.groups[0].padded_bytes:,}")


def of_engine(engine: dict[str, Any]) -> str:
    """The engine's numbers as text, or why it built nothing."""
    if "error" in engine:
        return str(engine["error"]).splitlines()[0][:90].replace("|", "/")
    file = "refused" if engine["file_bytes"] is None else f"{engine['file_bytes']:,}"
    return _numbers(engine["block_tokens"], engine["rank_block_bytes"], len(engine["groups"]), file)


def _numbers(tokens: int, ranks: Sequence[int], groups: int, file: str) -> str:
    return f"{tokens} tokens, {' / '.join(f'{size:,}' for size in ranks)}, {groups} groups, file {file}"


if __name__ == "__main__":
    sys.exit(main())
