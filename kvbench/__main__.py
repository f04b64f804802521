"""The door of ``kvbench`` and ``python -m kvbench``: signals and streams first, then everything that takes time.

Whatever goes wrong from here on, the exit code is one that the README names, and 1 is nothing but a verdict.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from itertools import pairwise

from kvbench.errors import EXIT_CRASH, EXIT_INTERRUPTED
from kvbench.host import interruption


def entrypoint() -> None:
    """Run one call of the program and end the process with its exit code."""
    interruption.leave_at_once()
    # What is registered first runs last, after every thread has ended.
    atexit.register(interruption.ignore)
    from kvbench.host import output

    _leave_tiers_to_a_child(sys.argv[1:])
    streams = output.take_over()
    code = _run()
    interruption.leave_at_once()
    sys.exit(streams.exit_code(code))


def _leave_tiers_to_a_child(arguments: Sequence[str]) -> None:
    from kvbench.commands import COMMANDS

    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is not None and command.touches_tiers:
        from kvbench.host.supervisor import leave_to_a_child

        named = [value for option, value in pairwise(arguments) if option == "--tier"]
        named += [text.removeprefix("--tier=") for text in arguments if text.startswith("--tier=")]
        leave_to_a_child(", ".join(value.rpartition("=")[2] for value in named) or "the tier")


def _run() -> int:
    try:
        from kvbench.cli import main
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        print(f"kvbench: this installation does not work ({why}); install kvbench again.", file=sys.stderr)
        return EXIT_CRASH
    try:
        interruption.unwind()
        return main()
    except KeyboardInterrupt:
        print("kvbench: interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BaseException as error:
        print(f"kvbench: stopped by a {type(error).__name__}, which is no verdict; please report it.", file=sys.stderr)
        return EXIT_CRASH


if __name__ == "__main__":
    entrypoint()
