"""A real S3 server (nanio) for the tests, and a proxy in front of it that fails in the ways that services fail."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import pytest

from tests.lab.nanio import answers, free_port
from tests.lab.s3 import make_bucket
from tests.lab.state import S3Server


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    size: int


@dataclass(frozen=True)
class Fault:
    """What to do with a request instead of passing it on: one of these."""

    kind: str  # silent, close, truncate, answer, slow
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None


Choose = Callable[[Request], Fault | None]


@contextlib.contextmanager
def nanio_server(folder: Path) -> Iterator[S3Server]:
    """nanio on a free loopback port with keys of its own; no bucket yet."""
    port = free_port()
    server = S3Server(f"http://127.0.0.1:{port}", "KVBENCHTEST", secrets.token_hex(20), "unset")
    keys = {"NANIO_ACCESS_KEY": server.access_key, "NANIO_SECRET_KEY": server.secret_key}
    program, data = Path(sys.executable).with_name("nanio"), folder / "data"
    data.mkdir()
    with (folder / "nanio.log").open("wb") as log:
        child = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port), "--data-dir", data],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **keys},
        )
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert child.poll() is None, (folder / "nanio.log").read_text()
            assert time.monotonic() < deadline, "nanio does not answer"
            time.sleep(0.1)
        yield server
    finally:
        child.terminate()
        child.wait(30)


def new_bucket(server: S3Server) -> S3Server:
    """The server with a bucket that is new and empty."""
    fresh = S3Server(server.endpoint, server.access_key, server.secret_key, f"b{secrets.token_hex(6)}")
    make_bucket(fresh)
    return fresh


def use_http_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fio with the http engine, first on PATH; skips where there is none.

    KVBENCH_FIO_HTTP names a directory with such a fio, or with the engine alone as a file called ``http``.
    """
    folder = os.environ.get("KVBENCH_FIO_HTTP")
    if folder:
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("LD_LIBRARY_PATH", folder)
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    if "http_host" not in subprocess.run(["fio", "--enghelp=http"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this fio has no http engine; name one with KVBENCH_FIO_HTTP")


@dataclass
class Proxy:
    """Passes whole requests on to a server and keeps them; ``choose`` says which of them go wrong."""

    upstream: str
    certificate: Path | None = None
    choose: Choose = lambda request: None
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._tls = None
        if self.certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(self.certificate)
        self._open: set[socket.socket] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Refuse new connections and cut those that are open: the service dies."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError), client:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            self._open.add(client)
            client.settimeout(120)
            upstream = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=60)
            with client, client.makefile("rb") as stream, contextlib.closing(upstream):
                while self._one(client, stream, upstream):
                    pass
            self._open.discard(client)

    def _one(self, client: socket.socket, stream: BinaryIO, upstream: http.client.HTTPConnection) -> bool:
        line = stream.readline().decode()
        if not line.strip():
            return False
        method, path, _ = line.split()
        headers = dict(_headers(stream))
        if headers.pop("expect", None):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = stream.read(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, len(body))
        self.requests.append(request)
        fault = self.choose(request)
        if fault is not None and fault.kind == "slow":
            time.sleep(fault.seconds)
            fault = None
        if fault is not None and fault.kind != "truncate":
            return self._fail(client, fault)
        upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        content = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() != "transfer-encoding"}
        if method != "HEAD":
            kept = {
                **{n: v for n, v in kept.items() if n.lower() != "content-length"},
                "content-length": str(len(content)),
            }
        _send(client, answer.status, kept, content if fault is None else content[: len(content) // 2])
        return fault is None

    def _fail(self, client: socket.socket, fault: Fault) -> bool:
        if fault.kind == "silent":
            self._closed.wait(120)
        if fault.kind != "answer":
            return False
        text = f'<?xml version="1.0"?><Error><Code>{fault.code}</Code><Message>no</Message></Error>'.encode()
        text = text if fault.body is None else fault.body
        header = {"content-type": "application/xml", "content-length": str(len(text)), **fault.headers}
        _send(client, fault.status, header, text)
        return True


def _headers(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    while (line := stream.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        yield name.strip().lower(), value.strip()


def _send(client: socket.socket, status: int, headers: dict[str, str], content: bytes) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    client.sendall(f"HTTP/1.1 {status} x\r\n{lines}\r\n".encode() + content)
