"""A small real OpenAI-compatible server: llama.cpp's own, from PyPI, over a model of random weights.

``python -m tests.lab.llm serve DIR PORT`` is the server process; ``up`` and ``down`` keep one for the lab, and
``serving`` is a context for a test of its own. One thread: two on a busy machine of two processors swing by a factor of
eight.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab.nanio import free_port
from tests.lab.processes import pid_of, stop, wait_until
from tests.lab.state import LabError, LlmServer

MODEL = "kvbench-random-nano"
CONTEXT_TOKENS = 8192
_REQUIRED = ("xllamacpp", "gguf")
_START_S = 60


@dataclass(frozen=True, slots=True)
class Shape:
    """A model and how it is served; as it is, 2048 tokens take a fifth of a second on one thread.

    ``saves_in``: where a slot's KV can be saved to files, and restored from; nothing else is kept of a prompt then.
    """

    layers: int = 2
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    feed_forward: int = 256
    slots: int = 2
    context_tokens: int = CONTEXT_TOKENS
    saves_in: str | None = None


NANO = Shape()


def require() -> None:
    """LabError with the reason where the server cannot run."""
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise LabError(f"{', '.join(missing)} not installed (Linux on x86-64: pip install -e '.[test]')")
    # In a process of its own: the module holds a whole server, and needs libgomp, which no wheel brings.
    tried = subprocess.run([sys.executable, "-c", "import xllamacpp"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise LabError(
            f"xllamacpp does not load here ({tried.stderr.strip().splitlines()[-1]}; apt-get install libgomp1)"
        )


def up(root: Path) -> LlmServer:
    """Start the lab's server; LabError when it does not answer."""
    require()
    port = free_port()
    child = _start(root / "llm", port, root / "log" / "llm.log")
    (root / "run" / "llm.pid").write_text(f"{child.pid}\n")
    if not _started(child, port):
        down(root)
        raise LabError(f"llama.cpp does not answer; see {root}/log/llm.log")
    return LlmServer(f"http://127.0.0.1:{port}", MODEL)


def is_up(root: Path) -> bool:
    """Whether the lab's server runs."""
    return pid_of(root / "run" / "llm.pid") is not None


def down(root: Path) -> None:
    """Stop the lab's server."""
    stop([root / "run" / "llm.pid"], grace_s=3)


@contextmanager
def serving(folder: Path, port: int | None = None, shape: Shape = NANO) -> Iterator[LlmServer]:
    """A server that lives as long as the context, its model and log in ``folder``."""
    require()
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    child = _start(folder, port, folder / "llm.log", shape)
    try:
        if not _started(child, port):
            raise LabError(f"llama.cpp does not answer: {(folder / 'llm.log').read_text(errors='replace')[-400:]}")
        yield LlmServer(f"http://127.0.0.1:{port}", MODEL, child.pid)
    finally:
        child.kill()
        child.wait()


def _started(child: subprocess.Popen[bytes], port: int) -> bool:
    """Whether the server has its model; it takes connections, and answers them with 503, before that."""
    wait_until(lambda: _healthy(port) or child.poll() is not None, _START_S)
    return child.poll() is None and _healthy(port)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _start(folder: Path, port: int, log: Path, shape: Shape = NANO) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.lab.llm", "serve", str(folder), str(port), json.dumps(asdict(shape))]
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
        )


def serve(folder: Path, port: int, shape: Shape = NANO) -> None:
    """Make the model if it is not there, and serve it until somebody ends this process."""
    import xllamacpp

    model = folder / "nano.gguf"
    if not model.exists():
        write_model(model, shape)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.model_alias = {MODEL}
    settings.n_ctx, settings.n_parallel = shape.context_tokens * shape.slots, shape.slots
    if shape.saves_in is not None:
        settings.slot_save_path, settings.cache_ram_mib = f"{shape.saves_in}/", 0
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.endpoint_metrics = True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


@dataclass(frozen=True)
class _Vocabulary:
    tokens: list[str]
    merges: list[str]
    controls: int


def _vocabulary() -> _Vocabulary:
    """A byte-level BPE (as GPT-2's) that knows pairs of consonant and vowel, and both and vowels behind a blank."""
    controls = ["<s>", "</s>", "<unk>"]
    pairs = [(first, vowel) for first in "bcdfghjklmnpqrstvwxyz" for vowel in "aeiou"]
    merges = [f"{first} {vowel}" for first, vowel in pairs] + [f"Ġ {first}{vowel}" for first, vowel in pairs]
    merges += [f"Ġ {vowel}" for vowel in "aeiou"]
    merged = [merge.replace(" ", "") for merge in merges]
    return _Vocabulary([*controls, *_bytes_as_characters(), *merged], merges, len(controls))


def _bytes_as_characters() -> list[str]:
    """The 256 characters by which GPT-2's vocabulary writes bytes: printable ones stand for themselves (encoder.py)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def write_model(path: Path, shape: Shape = NANO) -> None:
    """Write a GGUF file of random weights in llama's architecture, about 1 MB."""
    import gguf
    import numpy as np

    vocabulary = _vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(MODEL)
    writer.add_context_length(shape.context_tokens)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary.tokens)
    plain = len(vocabulary.tokens) - vocabulary.controls
    writer.add_token_types([gguf.TokenType.CONTROL] * vocabulary.controls + [gguf.TokenType.NORMAL] * plain)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
    generator = np.random.default_rng(0)
    for name, rows in _tensors(len(vocabulary.tokens), shape):
        values = generator.standard_normal(rows, dtype=np.float32) * np.float32(0.02)
        writer.add_tensor(name, np.ones(rows, np.float32) if name.endswith("norm.weight") else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(tokens: int, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (tokens, shape.width)
    yield "output_norm.weight", (shape.width,)
    yield "output.weight", (tokens, shape.width)
    query_width = shape.heads * shape.head_size
    kv_width = shape.kv_heads * shape.head_size
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        yield f"{block}attn_norm.weight", (shape.width,)
        yield f"{block}ffn_norm.weight", (shape.width,)
        for name, rows in (("attn_q", query_width), ("attn_k", kv_width), ("attn_v", kv_width)):
            yield f"{block}{name}.weight", (rows, shape.width)
        yield f"{block}attn_output.weight", (shape.width, query_width)
        yield f"{block}ffn_gate.weight", (shape.feed_forward, shape.width)
        yield f"{block}ffn_up.weight", (shape.feed_forward, shape.width)
        yield f"{block}ffn_down.weight", (shape.width, shape.feed_forward)


if __name__ == "__main__":
    serve(Path(sys.argv[2]), int(sys.argv[3]), Shape(**json.loads(sys.argv[4])))
