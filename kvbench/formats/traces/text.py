"""The lines of a trace file, one at a time: plain, gzip or zstd, told by their first bytes."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kvbench.errors import InputFileError

LONGEST_LINE_BYTES = 64 << 20
# A trace of one agent is one JSON object, and may be printed over many lines.
LONGEST_DOCUMENT_BYTES = 1 << 30
HEAD_BYTES = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20


class LineTooLong(ValueError):
    """A line is longer than any request; the text says how long a line may be."""


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader[Any]]:
    """The file's content, unpacked; InputFileError, also later on, when it cannot be read or is damaged."""
    try:
        with _plain(path) as stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputFileError(f"{path} is cut off or damaged ({error}); copy the file again.") from None
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise InputFileError(f"{path} is damaged ({error}); copy the file again.") from None
        reason = error.strerror or "the system refused"
        raise InputFileError(f"{path} cannot be read ({reason}); name a trace file or a folder of them.") from None


@contextmanager
def _plain(path: Path) -> Iterator[io.BufferedReader[Any]]:
    with io.BufferedReader(io.FileIO(path), _BUFFER) as raw:
        start = raw.peek(4)[:4]
        if start.startswith(_GZIP):
            with gzip.open(raw) as unpacked:
                yield io.BufferedReader(unpacked, _BUFFER)
        elif start == _ZSTD:
            zstd = _zstd()
            try:
                with zstd.open(raw, "rb") as unpacked:
                    yield io.BufferedReader(unpacked, _BUFFER)
            except zstd.ZstdError as error:
                raise InputFileError(f"{path} is damaged ({error}); copy the file again.") from None
        else:
            yield raw


def _zstd() -> Any:
    """Python's zstd module, which came with 3.14, or its backport."""
    from importlib import import_module

    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise InputFileError(
        "this trace is packed with zstd, which this Python cannot read; pip install 'kvbench[traces]', or unpack it."
    )


def head_of(stream: io.BufferedReader[Any]) -> bytes:
    """The beginning of a stream, without taking it."""
    return stream.peek(HEAD_BYTES).removeprefix(_BOM)


def lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | LineTooLong]]:
    """Number and content of every line that is not blank; what is too long is skipped and given as such."""
    number = 0
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(line) > LONGEST_LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(stream)
            yield number, LineTooLong(f"it is longer than {LONGEST_LINE_BYTES >> 20} MiB")
            continue
        line = (line.removeprefix(_BOM) if number == 1 else line).strip()
        if line:
            yield number, line


def document(stream: IO[bytes]) -> bytes | LineTooLong:
    """The whole content as one document."""
    content = stream.read(LONGEST_DOCUMENT_BYTES + 1).removeprefix(_BOM)
    if len(content) > LONGEST_DOCUMENT_BYTES:
        return LineTooLong(f"it is longer than {LONGEST_DOCUMENT_BYTES >> 30} GiB")
    return content


def _skip_line(stream: IO[bytes]) -> None:
    while rest := stream.readline(_BUFFER):
        if rest.endswith(b"\n"):
            return
