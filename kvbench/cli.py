"""The typer application; ``main`` maps every outcome to one sentence and a documented exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

import typer

from kvbench import __version__
from kvbench.border.escaping import escaped, sentence
from kvbench.commands import COMMANDS
from kvbench.commands.groups import flattened
from kvbench.errors import EXIT_CRASH, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, KvbenchError

_SYSTEM_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN})

_HELP = (
    "Size an LLM's KV blocks, measure a storage tier with that I/O, and say from which context length on restoring "
    "them beats recomputing the prompt."
)
_EPILOG = (
    "Exit codes: 0 done; 1 not viable (gate); 2 usage or bad input; 3 a measurement failed, or --strict and a warning; "
    "70 a bug in kvbench; 74 not everything could be printed; 130 interrupted (what finished is saved); 141 the reader "
    "of the output went away."
)


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The typer application with the named commands (all of them by default)."""
    app = _empty_app()
    for name in names:
        module_name, _, function = COMMANDS[name].place.partition(":")
        found = getattr(import_module(f"kvbench.commands.{module_name}"), function)
        epilog = f"Example: {COMMANDS[name].example}"
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=COMMANDS[name].help, epilog=epilog)
        else:
            app.command(name, help=COMMANDS[name].help, epilog=epilog)(flattened(found))
    return app


def _overview() -> typer.Typer:
    """An application that knows what its commands are called and for, and loads none of them."""
    app = _empty_app()
    for name, command in COMMANDS.items():
        app.command(name, help=command.help)(_unloaded)
    return app


def _unloaded() -> None:
    pass


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """The application with the command that the arguments name, the overview where they name none.

    Loading one command instead of all keeps ``kvbench blocksize`` as quick as a program with nothing else in it. No
    option before the command takes a value, so only ``--`` can stand before its name.
    """
    if arguments and arguments[0] in COMMANDS:
        return build_app(arguments[:1])
    return build_app() if arguments and arguments[0] == "--" else _overview()


def _empty_app() -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=_HELP,
        epilog=_EPILOG,
    )
    app.callback()(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvbench {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of one kvbench call; errors are printed on stderr, never raised."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _app_for(arguments)(args=arguments, prog_name="kvbench", standalone_mode=False)
    except KvbenchError as error:
        _say(f"kvbench: {error}")
        return error.exit_code
    except typer.TyperException as error:
        # typer has printed the whole help already when the command line was empty; the message is then empty too.
        if message := error.format_message():
            # pydantic, with which typer checks values, says first what kind of exception it was.
            message = message.replace(": Value error, ", ": ", 1)
            stop = "" if message.endswith((".", "?", "!")) else "."
            _say(f"kvbench: {message}{stop} See 'kvbench {_command_of(error)}--help'.")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("kvbench: interrupted.")
        return EXIT_INTERRUPTED
    except OSError as error:
        # A full disk or a missing right is the system's answer about a place of the user's, not a bug.
        if error.filename is None and error.errno not in _SYSTEM_ERRNOS:
            return _crash()
        where = f"{error.filename}: " if error.filename else ""
        _say(f"kvbench: {where}{error.strerror}; free space, check the rights or name another place.")
        return EXIT_USAGE
    except MemoryError:
        _say("kvbench: this host's memory does not suffice; use a smaller input, or a larger host.")
        return EXIT_USAGE
    except (Exception, SystemExit):
        # typer turns an EPIPE of any pipe into SystemExit(1); those of the standard streams do not come here.
        return _crash()
    if code == EXIT_INTERRUPTED:
        # typer turns a KeyboardInterrupt into this code and says nothing.
        _say("kvbench: interrupted.")
    return code if isinstance(code, int) else EXIT_OK


def _crash() -> int:
    import traceback

    for line in traceback.format_exc().splitlines():
        print(escaped(line), file=sys.stderr)
    _say(f"kvbench: this is a bug in kvbench {__version__}, not a verdict; please report it with the lines above.")
    return EXIT_CRASH


def _command_of(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, f"{context.info_name} ")
        context = context.parent
    return "".join(names)


def _say(text: str) -> None:
    print(sentence(text), file=sys.stderr)
