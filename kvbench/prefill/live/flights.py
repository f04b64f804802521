"""Requests in flight, one thread and one connection each, with an end for every one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Flight:
    client: Client
    job: Job
    deadline: float


class Flights:
    """A context in which requests are sent; whatever is still under way at its end is cut off and waited for."""

    def __init__(self, clients: Sequence[Client], timeout_s: float) -> None:
        """One request at a time for each client; a request that takes longer than ``timeout_s`` fails."""
        self._idle, self._timeout_s = list(clients), timeout_s
        self._pool = ThreadPoolExecutor(len(clients))
        self._under_way: dict[Future[Exchange], _Flight] = {}

    def __enter__(self) -> Self:
        """Ready."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave no thread behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = set(self._under_way)
        while running:
            for flight in self._under_way.values():
                # Again and again: a thread that was about to send has not seen the first one.
                flight.client.cut("stopped by the user")
            running = wait(running, timeout=_POLL_S).not_done

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
        future = self._pool.submit(client.stream, path, body)
        self._under_way[future] = _Flight(client, job, time.monotonic() + self._timeout_s)

    def landed(self) -> list[tuple[Job, Exchange]]:
        """What ended within a moment, perhaps nothing; requests beyond their time are cut off."""
        done, late = wait(self._under_way, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for future in late:
            if time.monotonic() > (flight := self._under_way[future]).deadline:
                flight.client.cut(f"no complete answer within {self._timeout_s:g} s")
        ended = [(self._under_way.pop(future), future.result()) for future in done]
        self._idle.extend(flight.client for flight, _ in ended)
        return [(flight.job, exchange) for flight, exchange in ended]
