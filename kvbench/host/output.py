"""Standard output and error that break without an exception, and are then known to be broken.

A full disk, a closed descriptor or a terminal that is gone must not end a measurement and must not look like a verdict.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from kvbench.errors import EXIT_MEASUREMENT, EXIT_NOT_VIABLE, EXIT_OK, EXIT_OUTPUT, EXIT_READER_GONE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# What these stand for is what was printed. The others say that there is nothing to print.
_RESULTS = frozenset({EXIT_OK, EXIT_NOT_VIABLE, EXIT_MEASUREMENT})


class _Descriptor(io.FileIO):
    """A standard descriptor; after its first failure it takes everything and writes nothing."""

    def __init__(self, number: int) -> None:
        """Write to the open descriptor ``number``, which stays open at the end."""
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """How many bytes were taken."""
        while self.failure is None:
            try:
                written = super().write(data)
                if written is not None:
                    return written
                # Its reader made the pipe non-blocking, for both ends.
                select.select((), (self,), ())
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


@dataclass(frozen=True, slots=True)
class Streams:
    """Both standard streams of this process; ``ends`` are their descriptors, standard output first."""

    texts: tuple[TextIO, TextIO]
    ends: tuple[_Descriptor, _Descriptor]

    def exit_code(self, code: int) -> int:
        """``code``, or one that is no verdict when what it stands for could not be printed in full."""
        for text in self.texts:
            text.flush()
        failures = [end.failure for end in self.ends if end.failure is not None]
        if not failures or code not in _RESULTS:
            return code
        if failures[0].errno == errno.EPIPE:
            return EXIT_READER_GONE
        print(
            f"kvbench: not everything could be printed ({failures[0].strerror}), so the exit code is no verdict; "
            "give standard output and error a place that takes them.",
            file=self.texts[1],
            flush=True,
        )
        return EXIT_OUTPUT


def take_over() -> Streams:
    """Put streams that survive their end in the place of sys.stdout and sys.stderr."""
    for number in range(3):
        _hold(number)
    ends = _Descriptor(1), _Descriptor(2)
    texts = _text(sys.stdout, ends[0]), _text(sys.stderr, ends[1])
    sys.stdout, sys.stderr = texts
    return Streams(texts, ends)


def _hold(number: int) -> None:
    """Occupy a standard descriptor that is closed: the next file would get it, and what a child prints with it."""
    try:
        os.fstat(number)
    except OSError:
        # Read-only, so that writing still fails as on a closed one.
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)


def _text(earlier: TextIO | None, end: _Descriptor) -> TextIO:
    """The text stream of a descriptor, in the way of the one that Python made (None: it was closed)."""
    if not isinstance(earlier, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(end), encoding="utf-8", errors="backslashreplace")
    earlier.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(end),
        encoding=earlier.encoding,
        errors=earlier.errors,
        line_buffering=earlier.line_buffering or earlier.write_through,
    )
