"""One HTTP connection with a clock at its socket: ``http.client``, because nothing may stand between the two.

It sends what it is told once, follows no redirect, repeats nothing, uses no proxy, and lets another thread cut it off.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from kvbench import __version__
from kvbench.prefill.live.endpoint import Endpoint, redact
from kvbench.prefill.live.protocol import BadEvent, First, StreamEvent, error_text, one_line, read_line

_CONNECT_S = 10.0
_PIECE_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 1 << 20
_LONGEST_STREAM_BYTES = 8 << 20
_LONGEST_ANSWER_BYTES = 64 << 20
_AFTER_DONE_S = 1.0
_CLOSES_WITHIN_S = 0.002


@dataclass(frozen=True, slots=True)
class Exchange:
    """How one streamed request went; times in ns from the moment before its first byte was sent.

    ``failure`` is None for a good one. ``first`` says what ended the TTFT: text, reasoning text, or, for a token
    without text, the chunk that says the one token was made. ``client_cpu_ns`` and ``client_wait_ns`` are this
    thread's time on a processor and in the queue for one until then (None where the system does not say).
    """

    failure: str | None = None
    http_status: int | None = None
    ttft_ns: int | None = None
    headers_ns: int | None = None
    total_ns: int | None = None
    first: First | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    connection: str = "new"
    client_cpu_ns: int = 0
    client_wait_ns: int | None = None
    server: str | None = None


class _Refused(Exception):
    """The answer is not the stream that was asked for; the text says what it is."""


class Client:
    """One kept-open connection to an endpoint, for one thread; ``cut`` may be called from any other."""

    def __init__(self, endpoint: Endpoint, key: str | None, timeout_s: float) -> None:
        """Prepare; nothing is sent before the first request."""
        self._endpoint, self._key, self._timeout_s = endpoint, key, timeout_s
        self._http = _connection(endpoint)
        # http.client lets go of the socket as soon as a response says "Connection: close".
        self._sock: socket.socket | None = None
        self._lock = threading.Lock()
        self._cut: str | None = None

    def stream(self, path: str, body: bytes) -> Exchange:
        """Post ``body`` and time the first token of the streamed answer; never raises for what a server does."""
        self._cut = None
        seen = Exchange()
        try:
            seen = replace(seen, connection=self._ready())
            started = _Clock()
            self._http.request("POST", path, body, self._headers(len(body)))
            response = self._http.getresponse()
            seen = replace(
                seen,
                http_status=response.status,
                headers_ns=started.elapsed_ns(),
                server=_short(response.getheader("Server")),
            )
            self._require_stream(response)
            seen = self._read(response, started, seen)
        except (OSError, http.client.HTTPException, BadEvent, _Refused) as error:
            self.close()
            return replace(seen, failure=self._reason(error))
        return seen

    def ask(self, method: str, path: str, data: object = None, timeout_s: float = 5.0) -> tuple[int, str, bytes]:
        """Status, Server header and body of a plain request; OSError or HTTPException when there is no answer."""
        self._cut = None
        # A server that sends a byte now and then never lets a single read time out.
        end = threading.Timer(2 * timeout_s, self.cut, ["no answer in time"])
        # Interrupted between here and its end, it must not keep the process for that long.
        end.daemon = True
        try:
            end.start()
            self._ready(timeout_s)
            body = None if data is None else json.dumps(data).encode()
            self._http.request(method, path, body, self._headers(len(body or b""), accept="*/*"))
            response = self._http.getresponse()
            answer = response.read(_LONGEST_ANSWER_BYTES)
            if self._cut is not None:
                # http.client takes the end of a connection for the end of the headers.
                raise TimeoutError(self._cut)
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        except _Refused as error:
            raise TimeoutError(str(error)) from None
        finally:
            end.cancel()
        if not response.isclosed():
            self.close()
        return response.status, _short(response.getheader("Server")) or "", answer

    def cut(self, why: str) -> None:
        """End the request in progress from another thread; its exchange fails with ``why``."""
        with self._lock:
            self._cut = why
            if self._sock is not None:
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        with self._lock:
            self._http.close()
            self._sock = None

    def _ready(self, timeout_s: float | None = None) -> str:
        """``new`` or ``reused``: an open connection. One that the server has closed meanwhile is replaced unused."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        if self._http.sock is not None and _has_input(self._http.sock):
            self.close()
        found = "reused"
        if self._http.sock is None:
            found = "new"
            self._http.timeout = min(_CONNECT_S, timeout_s)
            self._http.connect()
        self._sock = self._http.sock
        self._patience(timeout_s)
        if self._cut is not None:
            raise _Refused(self._cut)
        return found

    def _patience(self, seconds: float) -> None:
        """How long the next read may take."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.settimeout(seconds)

    def _headers(self, length: int, accept: str = "text/event-stream") -> dict[str, str]:
        headers = {
            "Accept": accept,
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Content-Length": str(length),
            "User-Agent": f"kvbench/{__version__}",
        }
        return headers if self._key is None else {**headers, "Authorization": f"Bearer {self._key}"}

    def _require_stream(self, response: http.client.HTTPResponse) -> None:
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if 300 <= response.status < 400:
            raise _Refused(_redirect(response.getheader("Location") or "", self._endpoint))
        if response.status != 200:
            raise _Refused(f"HTTP {response.status}: {_said(response, kind)}")
        if kind != "text/event-stream":
            raise _Refused(f"the answer is {_short(kind) or 'of no stated type'}, not a stream of events")

    def _read(self, response: http.client.HTTPResponse, started: _Clock, seen: Exchange) -> Exchange:
        ended, total_ns = None, 0
        for event, at_ns in _events(response, started):
            if event.error is not None:
                raise _Refused(f"the server says: {event.error}")
            if event.first is not None and seen.ttft_ns is None:
                seen = _at(seen, event.first, at_ns, started)
            seen, total_ns = _with_usage(seen, event), at_ns
            if event.finish_reason is not None and ended is None:
                ended = _at(seen, "finish", at_ns, started)
            if event.done:
                # What may follow is the end of the body; a server that keeps it open costs the connection, not more.
                self._patience(_AFTER_DONE_S)
                with suppress(OSError, http.client.HTTPException):
                    response.read(_PIECE_BYTES)
                break
        else:
            if ended is None:
                raise _Refused("the stream ended before its end was announced")
        if not response.isclosed():
            self.close()
        if seen.ttft_ns is None:
            if ended is None or not seen.completion_tokens:
                raise _Refused("the stream held no token")
            seen = replace(
                seen,
                ttft_ns=ended.ttft_ns,
                first="finish",
                client_cpu_ns=ended.client_cpu_ns,
                client_wait_ns=ended.client_wait_ns,
            )
        return replace(seen, total_ns=total_ns)

    def _reason(self, error: Exception) -> str:
        if self._cut is not None:
            return self._cut
        if isinstance(error, (_Refused, BadEvent)):
            return redact(str(error), self._key)
        if isinstance(error, TimeoutError):
            return "no answer in time"
        if isinstance(error, ConnectionRefusedError):
            return f"nobody listens at {self._endpoint.origin}"
        if isinstance(error, http.client.HTTPException):
            return f"the answer is broken off or no HTTP ({type(error).__name__})"
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return redact(f"the connection failed ({text or type(error).__name__})", self._key)


class _Clock:
    """Time since its making on the monotonic clock, and what this thread got of a processor meanwhile."""

    def __init__(self) -> None:
        self._cpu_ns, self._wait_ns = time.thread_time_ns(), _run_queue_ns()
        self._start_ns = time.perf_counter_ns()

    def elapsed_ns(self) -> int:
        return time.perf_counter_ns() - self._start_ns

    def cpu_ns(self) -> int:
        return time.thread_time_ns() - self._cpu_ns

    def wait_ns(self) -> int | None:
        now = _run_queue_ns()
        return None if now is None or self._wait_ns is None else now - self._wait_ns


def _events(response: http.client.HTTPResponse, started: _Clock) -> Iterator[tuple[StreamEvent, int]]:
    """Every event with the time at which its last byte came out of the socket, before it is parsed."""
    rest, total = b"", 0
    while piece := response.read1(_PIECE_BYTES):
        at_ns = started.elapsed_ns()
        total += len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        if total > _LONGEST_STREAM_BYTES or len(rest) > _LONGEST_LINE_BYTES:
            raise _Refused("the answer does not end although one token was asked for")
        for line in lines:
            if (event := read_line(line.rstrip(b"\r"))) is not None:
                yield event, at_ns
    if rest and (event := read_line(rest.rstrip(b"\r"))) is not None:
        yield event, started.elapsed_ns()


def _at(seen: Exchange, first: First, at_ns: int, started: _Clock) -> Exchange:
    return replace(
        seen, ttft_ns=at_ns, first=first, client_cpu_ns=started.cpu_ns(), client_wait_ns=started.wait_ns()
    )  # fmt: skip


def _with_usage(seen: Exchange, event: StreamEvent) -> Exchange:
    """The exchange with what the event adds; a server that counts in every chunk is right in its last one."""
    names = ("finish_reason", "prompt_tokens", "cached_tokens", "completion_tokens")
    found = {name: value for name in names if (value := getattr(event, name)) is not None}
    return replace(seen, **found) if found else seen


def _connection(endpoint: Endpoint) -> http.client.HTTPConnection:
    if endpoint.scheme == "http":
        return http.client.HTTPConnection(endpoint.host, endpoint.port)
    return http.client.HTTPSConnection(endpoint.host, endpoint.port, context=ssl.create_default_context())


def _has_input(sock: socket.socket) -> bool:
    """Whether an idle connection can be read, which between two answers means that the server has closed it."""
    # llama.cpp's server closes after every stream, a moment after its last byte.
    readable, _, _ = select.select([sock], [], [], _CLOSES_WITHIN_S)
    return bool(readable)


def _said(response: http.client.HTTPResponse, kind: str) -> str:
    text = response.read(_PIECE_BYTES)
    if kind == "application/json":
        with suppress(ValueError, RecursionError):
            return error_text(json.loads(text))
    if kind == "text/html":
        return f"{response.reason}, with a page for people"
    return one_line(text.decode(errors="replace"), 200) or response.reason


def _redirect(location: str, endpoint: Endpoint) -> str:
    # Only the host: the rest of a Location may carry a token.
    try:
        host = urlsplit(location).hostname or endpoint.host
    except ValueError:
        host = "no address"
    return f"the server redirects to {_short(host)}, which is not followed; give that server's own URL"


def _short(text: str | None) -> str | None:
    return None if text is None else one_line(text, 80)


def _run_queue_ns() -> int | None:
    """ns that this thread has waited for a processor so far (Linux, sched-stats: the second field of schedstat)."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
