"""The program's outer face: help, exit codes, one object on stdout, and nothing heavy imported too early."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from kvbench import __version__
from kvbench.commands import COMMANDS
from kvbench.errors import KvbenchError
from tests.conftest import ROOT, Outcome

Kvbench = Callable[..., Outcome]

HEAVY = ("pandas", "numpy", "matplotlib", "jinja2", "huggingface_hub", "kvbench.run.runner", "kvbench.record.results")


def imported_by(*arguments: str) -> set[str]:
    code = (
        "import sys, json\nfrom kvbench.cli import main\n"
        f"main({list(arguments)!r})\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--help",), ("blocksize", "qwen3-8b"), ("blocksize", "qwen3-8b", "--json"), ("models",)], ids=str
)
def test_quick_commands_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert not imported_by(*arguments) & set(HEAVY)


MODULES = {f"kvbench.commands.{command.place.partition(':')[0]}" for command in COMMANDS.values()}


@pytest.mark.parametrize("first", [(), ("--",)], ids=["plain", "after-dashes"])
def test_the_command_that_is_named_runs(kvbench: Kvbench, first: tuple[str, ...]) -> None:
    assert "shipped profiles" in kvbench(*first, "models").out


@pytest.mark.slow
def test_only_the_command_that_runs_is_loaded() -> None:
    assert MODULES & imported_by("blocksize", "qwen3-8b") == {"kvbench.commands.blocksize"}


@pytest.mark.slow
def test_the_overview_loads_no_command() -> None:
    assert not MODULES & imported_by("--help")
    assert not MODULES & imported_by("blocksiz")


def test_version(kvbench: Kvbench) -> None:
    assert kvbench("--version") == Outcome(0, f"kvbench {__version__}\n", "")


def test_no_arguments_shows_the_help_and_is_a_usage_error(kvbench: Kvbench) -> None:
    outcome = kvbench()
    assert outcome.code == 2
    assert all(name in outcome.out for name in COMMANDS)
    assert outcome.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(kvbench: Kvbench, name: str) -> None:
    outcome = kvbench(name, "--help")
    assert outcome.code == 0
    assert f"Usage: kvbench {name}" in outcome.out
    assert "".join(f"Example: {COMMANDS[name].example}".split()) in "".join(outcome.out.split())


def test_an_unknown_command_gets_a_hint(kvbench: Kvbench) -> None:
    outcome = kvbench("blocksiz")
    assert outcome.code == 2
    assert outcome.err == "kvbench: No such command 'blocksiz'. Did you mean 'blocksize'? See 'kvbench --help'.\n"


def test_an_unknown_option_names_the_command(kvbench: Kvbench) -> None:
    outcome = kvbench("crossover", "--nonsense")
    assert outcome.code == 2
    assert outcome.err == "kvbench: No such option: --nonsense. See 'kvbench crossover --help'.\n"


def raising(error: BaseException) -> Callable[..., None]:
    def command(*_: object, **__: object) -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KvbenchError("do this"), 2, "kvbench: do this\n"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "kvbench: No space left on device; free space"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "kvbench: /x: Permission denied; free space"),
    ],
    ids=["ours", "interrupt", "disk-full", "rights"],
)
def test_errors_are_one_sentence_and_a_code(
    kvbench: Kvbench, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr("kvbench.commands.crossover.published", raising(error))
    outcome = kvbench("crossover", "--p99-ms", "5")
    assert outcome.code == code
    assert outcome.err.startswith(said)
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("error", [ValueError("boom"), OSError(errno.EBADF, "odd")])
def test_a_crash_is_70_with_the_traceback_and_a_request(
    kvbench: Kvbench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("kvbench.commands.crossover.published", raising(error))
    outcome = kvbench("crossover", "--p99-ms", "5")
    assert outcome.code == 70
    assert "Traceback" in outcome.err
    assert outcome.err.endswith("not a verdict; please report it with the lines above.\n")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_verdict() -> None:
    program = f"{sys.executable} -m kvbench models --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in (0, 141)
    assert "Traceback" not in done.stderr
