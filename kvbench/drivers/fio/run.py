"""The fio process: found once, started with an argument list, watched, and always stopped."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import Interrupted, ToolError
from kvbench.host.stuck import LongCalls

# lat_ns percentiles beside clat_ns, and N in every latency object: fio 3.19 (RHEL 8) is the oldest seen with both.
OLDEST_FIO = (3, 19)

OUTPUT_NAME = "fio.json"
# fio's result, its progress, and what it complains about.
_OUTPUTS = (OUTPUT_NAME, "fio.log", "fio.err")

_DESCRIPTORS = Path("/proc/self/fd")
_POLL_S = 0.5
_STOP_S = 5.0
_ETA_RATE = re.compile(r"\[((?:[rwt]=[0-9.]+[KMGT]?i?B/s,?)+)\]")
_HOW_TO_INSTALL = "install it ('apt-get install fio', 'dnf install fio') or run 'make fio' in a clone of kvbench"


@dataclass(frozen=True, slots=True)
class Fio:
    """The fio program: its path and version text."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class Finished:
    """How a fio process ended: exit code (negative: signal), output files, and whether kvbench stopped it."""

    code: int
    output: str
    errors: str
    timed_out: bool


class JobInterrupted(Interrupted):
    """The user stopped fio; ``partial`` is what it had printed by then."""

    def __init__(self, message: str, partial: Finished) -> None:
        """The message of the interruption, with fio's end."""
        super().__init__(message)
        self.partial = partial


def find_fio() -> Fio:
    """The fio on PATH; ToolError when it is missing, does not run, or is older than 3.19."""
    path = shutil.which("fio")
    if path is None:
        raise ToolError(f"fio is not installed; {_HOW_TO_INSTALL}.")
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{path} does not run ({error}); {_HOW_TO_INSTALL}.") from None
    version = answer.stdout.strip()
    match = re.match(r"fio-(\d+)\.(\d+)", version)
    if match is None:
        raise ToolError(f"{path} does not say its version (it printed {version[:60]!r}); {_HOW_TO_INSTALL}.")
    if (int(match.group(1)), int(match.group(2))) < OLDEST_FIO:
        oldest = ".".join(map(str, OLDEST_FIO))
        raise ToolError(f"{version} is too old, kvbench needs fio {oldest} or later; {_HOW_TO_INSTALL}.")
    return Fio(path, version)


def check_job(fio: Fio, job_file: Path, environment: Mapping[str, str] | None = None) -> None:
    """Let fio itself parse the job file; ToolError with fio's own words when it refuses."""
    answer = subprocess.run(
        [fio.path, "--parse-only", str(job_file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=job_file.parent,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    if answer.returncode != 0:
        said = " ".join((answer.stdout + answer.stderr).split())
        raise ToolError(f"{fio.version} refuses the job file {job_file}: {said[:300]}; please report it.")


def run_job(
    fio: Fio,
    job_file: Path,
    *,
    timeout_s: float,
    environment: Mapping[str, str],
    on_rate: Callable[[str], None],
    read_only: bool = False,
    private: bool = False,
    inherited: Sequence[int] = (),
) -> Finished:
    """Run one job file in its own directory and wait for it; ``on_rate`` gets fio's current rates about twice a second.

    With ``read_only`` fio refuses to write or trim whatever the job file says; it gets the descriptors ``inherited``.
    Writes fio.json, fio.log (progress), fio.err and command.txt beside the job file; with ``private`` only command.txt,
    and what fio prints, which holds the values of all options, stays in memory without a name. fio runs in a session of
    its own, so a Ctrl-C reaches kvbench alone and kvbench stops fio; on any exception the child is stopped before it
    propagates. An interruption is a JobInterrupted.
    """
    directory = job_file.parent
    options = ["--eta=always", "--eta-newline=1", *(["--readonly"] if read_only else []), job_file.name]
    with ExitStack() as stack:
        output, log, errors = _in_memory(stack) if private else [directory / name for name in _OUTPUTS]
        if not private:
            output.unlink(missing_ok=True)
        named = output if private else output.name
        arguments = [fio.path, "--output-format=json+", f"--output={named}", *options]
        (directory / "command.txt").write_text(f"cd {shlex.quote(str(directory))}\n{shlex.join(arguments)}\n")
        return _run(arguments, directory, (output, log, errors), timeout_s, environment, on_rate, inherited)


def _in_memory(stack: ExitStack) -> list[Path]:
    """Files without a name for what fio prints; they go with the last process that has them open (memfd_create(2))."""
    opened = [os.memfd_create(name, 0) for name in _OUTPUTS]
    for descriptor in opened:
        stack.callback(os.close, descriptor)
    return [_DESCRIPTORS / str(descriptor) for descriptor in opened]


def _run(
    arguments: list[str],
    directory: Path,
    outputs: tuple[Path, Path, Path],
    timeout_s: float,
    environment: Mapping[str, str],
    on_rate: Callable[[str], None],
    inherited: Sequence[int],
) -> Finished:
    output, log, errors = outputs
    unnamed = [int(path.name) for path in outputs if path.parent == _DESCRIPTORS]
    with log.open("wb") as log_file, errors.open("wb") as error_file:
        child = subprocess.Popen(
            arguments,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=error_file,
            env={**os.environ, **environment},
            start_new_session=True,
            pass_fds=[*unnamed, *inherited],
        )
        interrupted, timed_out = None, False
        try:
            timed_out = not _wait(child, log, timeout_s, on_rate)
        except Interrupted as error:
            interrupted = error
        finally:
            stop(child)
    finished = _finished(child, output, errors, timed_out=timed_out)
    if interrupted is not None:
        raise JobInterrupted(str(interrupted), finished)
    return finished


def _finished(child: subprocess.Popen[bytes], output: Path, errors: Path, *, timed_out: bool) -> Finished:
    code = -signal.SIGKILL if child.returncode is None else child.returncode
    text = output.read_text(errors="replace") if output.exists() else ""
    return Finished(code, text, errors.read_text(errors="replace"), timed_out)


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a child by its id: SIGTERM, then SIGKILL; returns when it is gone or stuck in the kernel."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            # A hung mount keeps it in uninterruptible sleep; the guard waits on (fio 3.33 on a paused CephFS).
            return


def current_rate(log_text: str) -> str | None:
    """The newest rates in fio's progress text, such as ``r=629MiB/s,w=198MiB/s``, or None before the first."""
    found = _ETA_RATE.findall(log_text)
    return found[-1] if found else None


def _wait(child: subprocess.Popen[bytes], log: Path, timeout_s: float, on_rate: Callable[[str], None]) -> bool:
    deadline, calls = time.monotonic() + timeout_s, LongCalls(child.pid)
    while True:
        try:
            child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline or calls.hangs():
                return False
            on_rate(current_rate(_tail(log)) or "")
        else:
            return True


def _tail(path: Path, size: int = 4096) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode(errors="replace")


def engine_options(fio: Fio, engine: str) -> str:
    """The names and meanings of an I/O engine's options, one a line; without any when this fio lacks the engine."""
    asked = [fio.path, f"--enghelp={engine}"]
    return subprocess.run(
        asked, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    ).stdout
