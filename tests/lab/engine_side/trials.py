"""Starts the engine once for each line of standard input and says what it did: ``python trials.py < trials.jsonl``.

A line: {"name", "arguments" of vllm.LLM, "prompts": [[token, ...], ...], "again": true to ask them a second time after
the caches of the engine were emptied, "settle_s" until then, "patience_s" for all}. The answer is a line too: {"name",
"seconds", "refused": [type, text] or null, "cached_tokens": those that each prompt found, the first time and again}.
Every trial is a process of its own, forked when the engine's modules are loaded: that takes the longest. One that hangs
is ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback

# One process: an exception of the engine arrives here as it was raised.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from vllm import LLM, SamplingParams
from vllm.v1.engine import core as _core  # noqa: F401  # loaded before the forks
from vllm.v1.worker import cpu_worker as _worker  # noqa: F401

_FIXED = {"load_format": "dummy", "skip_tokenizer_init": True, "enforce_eager": True, "max_num_seqs": 4}
_ONE_TOKEN = SamplingParams(max_tokens=1, detokenize=False, ignore_eos=True)
_SETTLE_S, _PAUSE_S = 3.0, 0.1
# A start took 7 to 80 s on two processors that many others used.
_PATIENCE_S = 240.0


def main() -> None:
    """One line out for each line in, in order."""
    for line in sys.stdin:
        trial = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.write(writing, json.dumps(answer(trial)).encode())
            os._exit(0)
        os.close(writing)
        said = wait(child, reading, trial.get("patience_s", _PATIENCE_S))
        lost = {"name": trial["name"], "seconds": 0.0, "refused": said, "cached_tokens": []}
        print("TRIAL " + json.dumps(said if isinstance(said, dict) else lost), flush=True)


def wait(child: int, reading: int, patience_s: float) -> dict | list[str]:
    """What a trial answered, or in two words what became of it."""
    with os.fdopen(reading, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], patience_s)
        if not ready:
            os.kill(child, signal.SIGKILL)
        said = pipe.read()
    os.waitpid(child, 0)
    if said:
        return json.loads(said)
    return ["died", "the process ended"] if ready else ["hangs", f"no answer within {patience_s:.0f} s"]


def answer(trial: dict) -> dict:
    """What the engine did with a trial."""
    began = time.monotonic()
    found = {"name": trial["name"], "refused": None, "cached_tokens": []}
    llm = None
    try:
        llm = LLM(**_FIXED, **trial["arguments"])
        for _ in range(2 if trial.get("again") else 1):
            found["cached_tokens"].append([ask(llm, prompt) for prompt in trial["prompts"]])
            settle(llm, trial.get("settle_s", _SETTLE_S))
            llm.reset_prefix_cache(reset_connector=True)
    except BaseException as error:  # whatever the engine raises is the answer
        traceback.print_exc()
        found["refused"] = [type(error).__name__, str(error)]
    finally:
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
    return found | {"seconds": round(time.monotonic() - began, 1)}


def ask(llm: LLM, prompt: list[int]) -> int:
    """Tokens of the prompt that the engine did not compute."""
    (output,) = llm.generate({"prompt_token_ids": prompt}, _ONE_TOKEN, use_tqdm=False)
    return output.num_cached_tokens or 0


def settle(llm: LLM, seconds: float) -> None:
    """Let stores get on their way: the engine submits them in its steps only, so it is given short requests."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ask(llm, [7])
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
