"""Requests in flight, one thread and one connection each, with an end for every one of them.

No concurrent.futures: a signal raises Interrupted between any two bytecodes of the main thread, and inside the locks of
a future that leaves one which never ends. A SimpleQueue takes no lock in Python, and a daemon thread keeps no process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from kvbench.prefill.live.client import Client, Exchange
from kvbench.prefill.live.log import Kind
from kvbench.prefill.live.prompts import Size

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Job:
    """One request to make, and the text of it."""

    kind: Kind
    index: int
    concurrency: int
    asked_tokens: int | None
    counted_tokens: int | None
    size: Size


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    client: Client
    job: Job
    deadline: float
    thread: threading.Thread


class Flights:
    """A context in which requests are sent; whatever is still under way at its end is cut off and waited for."""

    def __init__(self, clients: Sequence[Client], timeout_s: float) -> None:
        """One request at a time for each client; a request that takes longer than ``timeout_s`` fails."""
        self._idle, self._timeout_s = list(clients), timeout_s
        self._under_way: dict[Client, _Flight] = {}
        self._ended: SimpleQueue[tuple[Client, Exchange | Exception]] = SimpleQueue()
        self._closed = False

    def __enter__(self) -> Self:
        """Ready."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave no request behind."""
        self._closed = True
        for flight in self._under_way.values():
            while flight.thread.is_alive():
                # Again and again: a thread that was about to send has not seen the first one.
                flight.client.cut("stopped by the user")
                flight.thread.join(_POLL_S)

    @property
    def can_launch(self) -> bool:
        """Whether a client is free."""
        return bool(self._idle)

    @property
    def empty(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def launch(self, job: Job, path: str, body: bytes) -> None:
        """Send a request on a free client."""
        client = self._idle.pop()
        thread = threading.Thread(target=self._fly, args=(client, path, body), daemon=True)
        self._under_way[client] = _Flight(client, job, time.monotonic() + self._timeout_s, thread)
        thread.start()

    def landed(self) -> list[tuple[Job, Exchange]]:
        """What ended within a moment, perhaps nothing; requests beyond their time are cut off."""
        ended = self._next()
        for client, _ in ended:
            self._idle.append(client)
        jobs = [self._under_way.pop(client).job for client, _ in ended]
        for flight in self._under_way.values():
            if time.monotonic() > flight.deadline:
                flight.client.cut(f"no complete answer within {self._timeout_s:g} s")
        return [(job, _sound(outcome)) for job, (_, outcome) in zip(jobs, ended, strict=True)]

    def _fly(self, client: Client, path: str, body: bytes) -> None:
        """Runs in a thread of its own; one that comes up after the end sends nothing."""
        if self._closed:
            return
        try:
            outcome: Exchange | Exception = client.stream(path, body)
        except Exception as error:
            outcome = error
        self._ended.put((client, outcome))

    def _next(self) -> list[tuple[Client, Exchange | Exception]]:
        """The first to end within a moment, and all that ended by then."""
        found = []
        try:
            found.append(self._ended.get(timeout=_POLL_S))
            while True:
                found.append(self._ended.get_nowait())
        except Empty:
            return found


def _sound(outcome: Exchange | Exception) -> Exchange:
    """The exchange; an error that a client did not foresee is raised where somebody sees it."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
