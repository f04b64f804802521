"""nanio: a light S3 server from PyPI that checks signatures, in a virtual environment of the lab's own."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

from tests.lab.processes import pid_of, run, stop, wait_until
from tests.lab.s3 import make_bucket
from tests.lab.state import LabError, S3Server

_PACKAGE = "nanio==0.1.7"
_BUCKET = "kvbench"


def up(root: Path) -> S3Server:
    """Start nanio on a free loopback port; LabError when it cannot be installed or does not answer."""
    program = _installed(root / "venv")
    port = free_port()
    data, pid_file = root / "nanio", root / "run" / "nanio.pid"
    data.mkdir(exist_ok=True)
    server = S3Server(f"http://127.0.0.1:{port}", "KVBENCHLAB", secrets.token_hex(20), _BUCKET)
    keys = {"NANIO_ACCESS_KEY": server.access_key, "NANIO_SECRET_KEY": server.secret_key}
    with (root / "log" / "nanio.log").open("ab") as log:
        child = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port), "--data-dir", data],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **keys},
            start_new_session=True,
        )
    pid_file.write_text(f"{child.pid}\n")
    if not wait_until(lambda: answers(port), 30):
        stop([pid_file], grace_s=3)
        raise LabError(f"nanio does not answer; see {root}/log/nanio.log")
    make_bucket(server)
    return server


def is_up(root: Path) -> bool:
    """Whether the lab's nanio runs."""
    return pid_of(root / "run" / "nanio.pid") is not None


def down(root: Path) -> None:
    """Stop the lab's nanio."""
    stop([root / "run" / "nanio.pid"], grace_s=3)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _installed(venv: Path) -> Path:
    program = venv / "bin" / "nanio"
    if not program.exists():
        run([sys.executable, "-m", "venv", venv], timeout_s=300)
        run([venv / "bin" / "python", "-m", "pip", "install", "-q", _PACKAGE], timeout_s=300)
    return program
