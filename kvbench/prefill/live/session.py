"""One measurement against one server, from its plan to its files: fresh, or the rest of one that was stopped.

Length after length is warmed up and sampled until there is enough; what was recorded is saved whatever happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from kvbench.errors import UsageError
from kvbench.host.interruption import interruptible
from kvbench.prefill.live import judge, log, output, prompts, protocol, server
from kvbench.prefill.live.client import Client, Exchange
from kvbench.prefill.live.contact import Contact, make_contact
from kvbench.prefill.live.endpoint import Endpoint
from kvbench.prefill.live.flights import Flights, Job
from kvbench.prefill.live.log import Kind, Log, Record
from kvbench.prefill.live.output import Files
from kvbench.prefill.live.plan import EXTRA_WARMUPS, Plan, same_but_seed
from kvbench.prefill.live.prompts import CLOSE_ENOUGH_SHARE, Size, fitted
from kvbench.prefill.live.protocol import Dialect
from kvbench.units import format_duration_ns, format_tokens

# Indices that a killed run may have used without leaving a record.
_INDEX_GAP = 1000


class PrefillProgress(Protocol):
    """Somebody who wants to know how far it is."""

    def step(self, done: int, total: int, text: str) -> None:
        """``done`` of ``total`` lengths are finished; ``text`` names the one in work."""

    def detail(self, text: str) -> None:
        """What the length in work has so far."""

    def line(self, text: str) -> None:
        """How a length ended."""


class Session:
    """Sends what a plan asks for and keeps every answer; ``records`` begins with those of earlier sessions."""

    def __init__(self, plan: Plan, endpoint: Endpoint, key: str | None, log: Log, records: Sequence[Record]) -> None:
        """Prepare; nothing is sent yet."""
        self.plan, self.endpoint, self._log = plan, endpoint, log
        self.records = list(records)
        self._control = Client(endpoint, key, plan.timeout_s)
        self._clients = [Client(endpoint, key, plan.timeout_s) for _ in range(max(plan.concurrency))]
        last = max((record.index for record in records), default=-1)
        self._next_index = 0 if last < 0 else (last // _INDEX_GAP + 1) * _INDEX_GAP
        self._sizes: dict[int, Size] = {}
        self._contact: Contact | None = None

    @property
    def contact(self) -> Contact:
        """What calibration found out."""
        assert self._contact is not None, "calibrate first"
        return self._contact

    @property
    def only_calibrated(self) -> bool:
        """Whether nothing was sent yet but calibration prompts."""
        return all(record.kind == "calibration" for record in self.records)

    def calibrate(self) -> Contact:
        """Look at the server, find out how it wants to be asked, and how many tokens its words have.

        MeasurementError when it does not answer as an OpenAI-compatible server does.
        """
        self._contact = make_contact(self._control, self.endpoint, self.plan, self._calibration)
        return self._contact

    def measure(self, progress: PrefillProgress) -> None:
        """Sample every length at every concurrency; a length that was sent and gave nothing ends the longer ones."""
        total, done = len(self.plan.concurrency) * len(self.plan.contexts), 0
        for concurrency in self.plan.concurrency:
            hopeless = False
            for tokens in self.plan.contexts:
                if not hopeless:
                    progress.step(done, total, _where(tokens, concurrency))
                    self._length(tokens, concurrency, progress)
                    found = judge.judge_length(tokens, concurrency, self._of(tokens, concurrency))
                    progress.line(_outcome(found))
                    hopeless = not found.usable and self._fits(tokens)
                done += 1

    def results(self) -> list[judge.LengthResult]:
        """Every length of the plan, judged by what is recorded so far."""
        return [
            judge.judge_length(tokens, concurrency, self._of(tokens, concurrency))
            for concurrency in self.plan.concurrency
            for tokens in self.plan.contexts
        ]

    def counters_now(self) -> dict[str, float] | None:
        """The server's cache counters at this moment."""
        return server.counters(self._control, self.endpoint)

    def close(self) -> None:
        """Close every connection."""
        for client in (self._control, *self._clients):
            client.close()

    def _calibration(self, dialect: Dialect, size: Size) -> Record:
        return self._alone(dialect, Job("calibration", self._index(), 1, None, None, size))

    def _length(self, tokens: int, concurrency: int, progress: PrefillProgress) -> None:
        earlier = [
            r for r in self._of(tokens, concurrency) if r.kind == "sample" and judge.judge_sample(r).refused is None
        ]
        if judge.enough(earlier, self.plan):
            return
        size = self._sizes.get(tokens) or self.contact.gauge.size(tokens)
        longest = self.contact.server.max_model_tokens
        if longest is not None and tokens >= longest:
            why = (
                f"not sent: with its answer it is longer than this server's context of {format_tokens(longest)} tokens"
            )
            self._keep(_unsent(tokens, concurrency, self._index(), why))
        elif size is None:
            why = f"not sent: this server adds {self.contact.gauge.base_tokens:.0f} tokens of its own to every prompt"
            self._keep(_unsent(tokens, concurrency, self._index(), why))
        elif self._warm_up(tokens, concurrency, size):
            self._sample(tokens, concurrency, earlier, progress)

    def _fits(self, tokens: int) -> bool:
        """Whether there is room for words of ours beside what the server adds to every prompt."""
        return self.contact.gauge.size(tokens) is not None

    def _warm_up(self, tokens: int, concurrency: int, size: Size) -> bool:
        """Send requests that do not count: kernels are compiled, and the number of words corrected. False: no answer.

        Without a tokenizer the usage count of each one corrects the next, two more than asked for at most.
        """
        self._sizes[tokens] = size
        for sent in range(1, self.plan.warmups + EXTRA_WARMUPS + 1):
            record = self._alone(self.contact.dialect, self._job("warm-up", tokens, concurrency))
            if record.exchange.failure is not None:
                return False
            counted = record.exchange.prompt_tokens
            if counted is not None and self.contact.tokenizer is None:
                self._sizes[tokens] = self.contact.gauge.corrected(self._sizes[tokens], tokens - counted)
            close = counted is None or abs(counted - tokens) <= CLOSE_ENOUGH_SHARE * tokens
            if sent >= self.plan.warmups and (close or self.contact.tokenizer is not None):
                break
        return True

    def _sample(self, tokens: int, concurrency: int, earlier: Sequence[Record], progress: PrefillProgress) -> None:
        """Keep ``concurrency`` requests in flight until there is enough.

        Under load the first request of every connection is a warm-up: it does not yet meet all of the others.
        """
        taken, ramp = list(earlier), concurrency if concurrency > 1 else 0
        with Flights(self._clients[:concurrency], self.plan.timeout_s) as flights:
            while True:
                while flights.can_launch and not judge.enough(taken, self.plan):
                    job = self._job("warm-up" if ramp > 0 else "sample", tokens, concurrency)
                    ramp -= 1
                    flights.launch(job, *self._request(self.contact.dialect, job))
                if flights.empty:
                    return
                for record in [self._keep(_record(*landed)) for landed in flights.landed()]:
                    taken += [record] if record.kind == "sample" else []
                    progress.detail(f"{len(taken)} samples")

    def _job(self, kind: Kind, tokens: int, concurrency: int) -> Job:
        index, counted = self._index(), None
        if (tokenizer := self.contact.tokenizer) is not None:
            self._sizes[tokens], counted = fitted(
                tokenizer,
                self.contact.gauge,
                lambda size: prompts.text(self.plan.seed, index, size),
                self._sizes[tokens],
                tokens,
            )
        return Job(kind, index, concurrency, tokens, counted, self._sizes[tokens])

    def _alone(self, dialect: Dialect, job: Job) -> Record:
        """The record of one request that nothing else goes beside."""
        with Flights(self._clients[:1], self.plan.timeout_s) as flights:
            flights.launch(job, *self._request(dialect, job))
            while not (landed := flights.landed()):
                pass
        return self._keep(_record(*landed[0]))

    def _request(self, dialect: Dialect, job: Job) -> tuple[str, bytes]:
        """Path and body; made before the clock starts, since a long prompt takes milliseconds."""
        text = prompts.text(self.plan.seed, job.index, job.size)
        salt = f"kvbench-{self.plan.seed}-{job.index}"
        return self.endpoint.path(dialect.api), protocol.body(dialect, self.plan.model, text, salt)

    def _of(self, tokens: int, concurrency: int) -> list[Record]:
        return [r for r in self.records if (r.asked_tokens, r.concurrency) == (tokens, concurrency)]

    def _index(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    def _keep(self, record: Record) -> Record:
        self._log.add(record)
        self.records.append(record)
        return record


@dataclass(frozen=True, slots=True)
class Opened:
    """A measurement ready to go on: its plan, when it was begun, its open log, and what was recorded so far."""

    plan: Plan
    created: str
    log: Log
    records: tuple[Record, ...]
    files: Files


def planned(path: Path) -> Plan:
    """The plan of the measurement that ``path`` (the -o of it) was begun with."""
    return log.load(path.with_suffix(".jsonl")).plan


def open_new(plan: Plan, path: Path) -> Opened:
    """A fresh measurement; UsageError when any of its files exists."""
    files = output.files_of(path, plan.concurrency)
    output.require_new(files)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    opened = Log(files.log)
    opened.begin(plan, created)
    return Opened(plan, created, opened, (), files)


def open_again(path: Path, wanted: Plan | None) -> Opened:
    """The measurement that was begun at ``path``; UsageError when ``wanted`` asks for another one."""
    if path.suffix.lower() != ".csv":
        raise UsageError(f"-o {path}: name the CSV file of the measurement to continue.")
    saved = log.load(path.with_suffix(".jsonl"))
    if wanted is not None and not same_but_seed(wanted, saved.plan):
        raise UsageError(f"{path} was begun with other options; repeat those, or give only --resume and -o.")
    files = output.files_of(path, saved.plan.concurrency)
    return Opened(saved.plan, saved.created, Log(files.log, saved.complete_bytes), saved.records, files)


def measure(
    opened: Opened, endpoint: Endpoint, key: str | None, display: AbstractContextManager[PrefillProgress]
) -> tuple[dict[str, Any], Sequence[judge.LengthResult]]:
    """The summary (see output) and the results by length, both on disk when this returns or is interrupted.

    Interrupted on SIGINT, SIGTERM or SIGHUP; MeasurementError when the server cannot be measured at all.
    """
    session = Session(opened.plan, endpoint, key, opened.log, opened.records)
    # Only a measurement has a log to go on from; see below.
    saved = f"what finished is saved in {opened.files.log}, continue with --resume."
    with interruptible(lambda: "nothing was measured yet." if session.only_calibrated else saved):
        try:
            contact = session.calibrate()
            finished = False
            try:
                with display as progress:
                    session.measure(progress)
                finished = True
            finally:
                results = session.results()
                data = output.summary(
                    opened.plan, endpoint, contact, session.records, results, created=opened.created,
                    counters_after=session.counters_now(), finished=finished, files=opened.files,
                )  # fmt: skip
                output.write(opened.files, results, data)
        finally:
            session.close()
            opened.log.close()
            if session.only_calibrated:
                # The name stays free for the next try.
                opened.files.log.unlink()
    return data, results


def _record(job: Job, exchange: Exchange) -> Record:
    return Record(
        kind=job.kind,
        index=job.index,
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        concurrency=job.concurrency,
        asked_tokens=job.asked_tokens,
        counted_tokens=job.counted_tokens,
        words=job.size.words,
        pads=job.size.pads,
        exchange=exchange,
    )


def _unsent(tokens: int, concurrency: int, index: int, why: str) -> Record:
    return _record(Job("warm-up", index, concurrency, tokens, None, Size(0)), replace(Exchange(), failure=why))


def _where(tokens: int, concurrency: int) -> str:
    return f"{format_tokens(tokens)} tokens, {concurrency} at a time"


def _outcome(found: judge.LengthResult) -> str:
    where = _where(found.asked_tokens, found.concurrency)
    if found.median_ns is None:
        return f"{where}: nothing usable ({found.reason})"
    codes = ", ".join(warning.code for warning in found.warnings)
    samples = "1 sample" if len(found.usable) == 1 else f"{len(found.usable)} samples"
    return f"{where}: {format_duration_ns(found.median_ns)}, {samples}" + (f"  (distrust: {codes})" if codes else "")
