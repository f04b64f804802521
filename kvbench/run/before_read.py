"""The user's command before every round that reads (``--before-read``): run without a shell, watched and recorded."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kvbench.errors import UsageError
from kvbench.record.results import HookRun

TIMEOUT_S = 300.0
_TAIL_CHARACTERS = 2000
_SECRET_NAME = re.compile(r"key|secret|token|pass|credential", re.IGNORECASE)
_WORD = r"[\w-]*(?:secret|token|passw|passphrase|api_?key|access_?key|credential)[\w-]*"
_GIVEN = re.compile(rf"(?i)(--?{_WORD}(?:\s+|=)|{_WORD}\s*[=:]\s*)(?!<removed>)([^\s,;]+)")
_IN_URL = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
_SHORTEST_SECRET = 6


def parse_command(text: str, option: str = "--before-read") -> tuple[str, ...]:
    """The words of a command that ``option`` gives, as a shell would split them; UsageError when there are none.

    A command that carries a credential is refused, because the command is part of the record.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option} {text!r} cannot be split into words ({error}); check its quotes.") from None
    if not words or not words[0].strip():
        raise UsageError(f"{option} names no command; name one, or leave the option out.")
    if without_secrets(text) != text:
        raise UsageError(
            f"{option} carries what looks like a credential, and the command is recorded; "
            "put it into a script of yours and name that."
        )
    return words


def run_before_read(
    command: tuple[str, ...], folder: Path, timeout_s: float = TIMEOUT_S, environment: Mapping[str, str] | None = None
) -> HookRun:
    """Run the command in ``folder`` and record how it ended; ``failure`` says why the round must not be measured.

    The command gets this process's environment and no input. When it does not end in time, or on any exception, its
    whole process group is stopped.
    """
    shown, started = without_secrets(shlex.join(command), environment), time.monotonic()
    log = folder / "before-read.log"
    try:
        with log.open("wb") as file:
            child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
            code = _wait(child, timeout_s)
    except OSError as error:
        return HookRun(shown, None, 0.0, "", f"--before-read cannot be started ({error.strerror})")
    text = without_secrets(log.read_text(errors="replace"), environment)
    log.write_text(text)
    seconds = round(time.monotonic() - started, 3)
    return HookRun(shown, code, seconds, text[-_TAIL_CHARACTERS:], _failure(code, timeout_s, text))


def without_secrets(text: str, environment: Mapping[str, str] | None = None) -> str:
    """``text`` without the values of environment variables named like secrets, and without ``password=...``."""
    variables = os.environ if environment is None else environment
    values = [value for name, value in variables.items() if _SECRET_NAME.search(name) and _is_secret(value)]
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "<removed>")
    return _IN_URL.sub(r"\1:<removed>@", _GIVEN.sub(r"\1<removed>", text))


def _is_secret(value: str) -> bool:
    # Paths to key files are no secrets, and short or plain values would black out ordinary words.
    return len(value) >= _SHORTEST_SECRET and not value.startswith("/") and not value.isdecimal()


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _failure(code: int | None, timeout_s: float, text: str) -> str | None:
    if code == 0:
        return None
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    said = f": {last[:200]}" if last else ""
    if code is None:
        return f"--before-read did not end within {timeout_s:.0f} s and was stopped{said}"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"--before-read {how}{said}"
