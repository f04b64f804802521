"""Small real HTTP servers that answer as OpenAI-compatible servers do in the field, above all the misbehaving ones."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "small"
PAUSE_S = 0.3


@dataclass
class Server:
    """A running server: where it is, and every request that it got as ``(path, headers, body)``."""

    url: str
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def prompts(self) -> list[str]:
        """The prompts that it was asked to complete."""
        return [body["prompt"] for path, _, body in self.requests if path.endswith("/v1/completions")]


class Answer:
    """What a behaviour writes to: status, headers, and events of a stream."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any], server: Server) -> None:
        """Answer one request."""
        self.handler, self.body, self.server = handler, body, server

    @property
    def tokens(self) -> int:
        """Every blank-separated word of the prompt is three tokens here, a short one is one."""
        text = self.body.get("prompt") or self.body["messages"][0]["content"]
        return sum(3 if len(word) > 1 else 1 for word in text.split())

    def start(
        self, status: int = 200, kind: str | None = "text/event-stream", headers: Mapping[str, str] | None = None
    ) -> None:
        """Status line and headers; the body ends with the connection."""
        self.handler.send_response(status)
        for name, value in {"Content-Type": kind, "Connection": "close", **(headers or {})}.items():
            if value is not None:
                self.handler.send_header(name, value)
        self.handler.end_headers()
        self.handler.close_connection = True

    def write(self, data: bytes) -> None:
        """Bytes, as they are."""
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def event(self, data: object) -> None:
        """One event."""
        self.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def text(self, text: str = "x", reason: str | None = None) -> None:
        """A chunk with text of the completions API."""
        self.event({"choices": [{"index": 0, "text": text, "finish_reason": reason}]})

    def usage(self, tokens: int | None = None, cached: int | None = 0, completion: int = 1) -> None:
        """The usage chunk, which has no choices."""
        details = None if cached is None else {"cached_tokens": cached}
        count = self.tokens if tokens is None else tokens
        usage = {"prompt_tokens": count, "completion_tokens": completion, "prompt_tokens_details": details}
        self.event({"choices": [], "usage": usage})

    def done(self) -> None:
        """The end."""
        self.write(b"data: [DONE]\n\n")


Behaviour = Callable[[Answer], None]


def good(answer: Answer) -> None:
    """What is right."""
    answer.start()
    answer.text(reason="length")
    answer.usage()
    answer.done()


@contextmanager
def serving(behaviour: Behaviour, *, models: tuple[str, ...] = (MODEL,), owner: str = "somebody") -> Iterator[Server]:
    """A server on loopback that answers completions with ``behaviour`` and lists ``models``."""
    found = Server("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Models; nothing else is there."""
            found.requests.append((self.path, dict(self.headers), {}))
            data = {"data": [{"id": name, "owned_by": owner} for name in models]}
            self._plain(200 if self.path.endswith("/models") else 404, data)

        def do_POST(self) -> None:
            """A completion."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.requests.append((self.path, dict(self.headers), body))
            if "completions" not in self.path:
                self._plain(404, {})
                return
            # A client that hangs up is none of this server's business.
            with suppress(OSError):
                behaviour(Answer(self, body, found))

        def _plain(self, status: int, data: object) -> None:
            text = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        found.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


def role_chunk_first(answer: Answer) -> None:
    """sgl-project/sglang#29251: an empty role chunk long before the first token."""
    answer.start()
    answer.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    time.sleep(PAUSE_S)
    answer.event({"choices": [{"delta": {"content": "The"}, "finish_reason": "length"}]})
    answer.usage()
    answer.done()


def empty_choices_first(answer: Answer) -> None:
    """anomalyco/opencode#42918: chunks without choices, and one with usage, before the first token."""
    answer.start()
    answer.event({"choices": []})
    answer.usage(completion=0)
    answer.event({"choices": [{"delta": None}]})
    time.sleep(PAUSE_S)
    answer.text(reason="length")
    answer.usage()
    answer.done()


def reasoning_first(answer: Answer) -> None:
    """A thinking model: its first text is reasoning."""
    answer.start()
    answer.event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
    answer.event({"choices": [{"delta": {"reasoning_content": "Hm"}, "finish_reason": "length"}]})
    answer.usage()
    answer.done()


def token_without_text(answer: Answer) -> None:
    """One token was made, but half a character has no text."""
    answer.start()
    time.sleep(PAUSE_S)
    answer.text("", reason="length")
    answer.usage()
    answer.done()


def no_token(answer: Answer) -> None:
    """An answer of nothing."""
    answer.start()
    answer.usage(completion=0)
    answer.done()


def dropped(answer: Answer) -> None:
    """The connection ends after the first chunk."""
    answer.start()
    answer.text()


def dropped_chunk(answer: Answer) -> None:
    """The connection ends in the middle of a chunk of the transfer coding."""
    answer.start(headers={"Transfer-Encoding": "chunked"})
    answer.write(b"400\r\ndata: {")


def unprintable_error(answer: Answer) -> None:
    """An error with a lone surrogate and an escape sequence in it."""
    answer.start(403, "application/json")
    answer.write(b'{"error": {"message": "no \\ud800 \\u001b[31mway"}}')


def too_many_requests(answer: Answer) -> None:
    """429, with a wait that is not followed."""
    answer.start(429, "application/json", {"Retry-After": "1"})
    answer.write(b'{"error": {"message": "slow down"}}')


def html_page(answer: Answer) -> None:
    """A gateway's error page."""
    answer.start(502, "text/html")
    answer.write(b"<html><body>Bad <b>gateway</b></body></html>")


def html_with_200(answer: Answer) -> None:
    """A login page, which browsers like."""
    answer.start(200, "text/html; charset=utf-8")
    answer.write(b"<html>data: {}</html>")


def not_streamed(answer: Answer) -> None:
    """The whole answer at once."""
    answer.start(200, "application/json")
    answer.write(json.dumps({"choices": [{"text": "x"}], "usage": {"prompt_tokens": 1}}).encode())


def slow_headers(answer: Answer) -> None:
    """A header line, and another, and another: no single read ever times out."""
    answer.write(b"HTTP/1.1 200 OK\r\n")
    while not answer.server.stopping.wait(0.05):
        answer.write(b"X-Wait: more\r\n")


def never_ending(answer: Answer) -> None:
    """max_tokens is ignored."""
    answer.start()
    while not answer.server.stopping.is_set():
        answer.text("x" * 1000)


def keep_alives_only(answer: Answer) -> None:
    """Comments that keep the connection open, and no token."""
    answer.start()
    while not answer.server.stopping.wait(0.05):
        answer.write(b": keep-alive\n\n")


def huge_line(answer: Answer) -> None:
    """A line without an end."""
    answer.start()
    answer.write(b"data: ")
    while not answer.server.stopping.is_set():
        answer.write(b"x" * 65536)


def invalid_utf8(answer: Answer) -> None:
    """Bytes that are no text."""
    answer.start()
    answer.write(b'data: {"choices": [{"text": "\xff\xfe"}]}\n\n')


def not_json(answer: Answer) -> None:
    """Text that is no JSON."""
    answer.start()
    answer.write(b"data: oops\n\n")


def error_in_stream(answer: Answer) -> None:
    """vLLM: an error as an event of a stream that began well."""
    answer.start()
    answer.event({"error": {"message": "out of memory", "code": 500}})
    answer.done()


def warm_cache(answer: Answer) -> None:
    """Most of the prompt comes out of a prefix cache."""
    answer.start()
    answer.text(reason="length")
    answer.usage(cached=answer.tokens * 9 // 10)
    answer.done()


def shorter_than_asked(answer: Answer) -> None:
    """The prompt is cut to 100 tokens, as a truncating gateway does."""
    answer.start()
    answer.text(reason="length")
    answer.usage(min(100, answer.tokens))
    answer.done()


def no_usage(answer: Answer) -> None:
    """No usage at all. Slow enough that noise is no five-fold drop, which nothing could explain here."""
    answer.start()
    time.sleep(PAUSE_S / 2)
    answer.text(reason="length")
    answer.done()
