"""For each point: prepare, run, judge, save. Every round is on disk before the next one starts."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Protocol

from kvbench.checks import judge
from kvbench.checks.requests import by_lane
from kvbench.drivers import SERIES_NAME, Driver, Program, RoundInterrupted, Site, unmeasured
from kvbench.errors import Interrupted, MeasurementError, RemovalHangs, TierError
from kvbench.host.interruption import interruptible
from kvbench.record import events, results
from kvbench.record.batches import SEPARATE_S, spans_of
from kvbench.record.point import Point, lane_name
from kvbench.record.quarters import with_quarters
from kvbench.record.results import Conditions, HookRun, Observation, PointResult, Round, RunResult, TierTraits
from kvbench.record.rounds import next_round_s, pool
from kvbench.run.before_read import run_before_read
from kvbench.run.measurement import Measurement, TierPlan, writes_of
from kvbench.run.plan import job_comments
from kvbench.run.read_counter import read_counter
from kvbench.run.watch import Watch
from kvbench.tiers import consent, kinds, others
from kvbench.tiers.held import dying
from kvbench.tiers.limits import Limit, limit_facts, limit_of
from kvbench.tiers.tier import Tier

POINTS_FOLDER = "points"
ROUNDS_NAME = "rounds.json"

_MORE_ROUNDS = "more rounds were to come; continue with --resume"

Decided = Callable[[Observation, RunResult], bool | None]


class Progress(Protocol):
    """What a run tells the person who waits; the default says nothing."""

    def laying_out(self, tier: str, dataset_bytes: int) -> None:
        """The data set of a tier is being written."""

    def measuring(self, number: int, total: int, point: Point) -> None:
        """A point starts."""

    def rate(self, text: str) -> None:
        """The driver's current rates."""

    def looked(self, point: PointResult) -> None:
        """A round of a point ended, and more rounds of it are to come."""

    def measured(self, point: PointResult) -> None:
        """A point ended and is saved."""

    def disturbed(self, tier: str, other_runs: int) -> None:
        """Other runs of kvbench are at work on a tier."""


class Silent:
    """A Progress that says nothing."""

    def laying_out(self, tier: str, dataset_bytes: int) -> None: ...
    def measuring(self, number: int, total: int, point: Point) -> None: ...
    def rate(self, text: str) -> None: ...
    def looked(self, point: PointResult) -> None: ...
    def measured(self, point: PointResult) -> None: ...
    def disturbed(self, tier: str, other_runs: int) -> None: ...


def run(
    measurement: Measurement,
    result: RunResult,
    run_dir: Path,
    programs: Mapping[str, Program],
    progress: Progress | None = None,
    decided: Decided | None = None,
    allow_destroy: Sequence[str] = (),
    *,
    yes: bool = False,
    allow_shared: bool = False,
) -> RunResult:
    """The run with every point of ``measurement`` that ``result`` does not hold as ok yet; saved after each point.

    Raises TierError before anything is measured when a tier cannot be used, and Interrupted on SIGINT, SIGTERM or
    SIGHUP after the point at hand is stopped and saved. A point that fails is saved with its reason; the run goes on.
    ``programs`` holds the driver of every point by name. ``decided``, given a point and the run so far, may end the
    point early (see StopRule).
    ``allow_destroy`` names the block devices that may be written; ``yes`` allows an S3 endpoint that may cost money,
    ``allow_shared`` directories that others may rename in.
    """
    progress = progress or Silent()
    again = " and ".join(["--resume", *(f"the same {option}" for option in measurement.commands)])
    hangs: RemovalHangs | None = None
    with interruptible(lambda: f"what finished is saved, continue with {again}."):
        tiers = {plan.name: kinds.inspect(plan.name, plan.target, allow_destroy) for plan in measurement.tiers}
        for plan in measurement.tiers:
            consent.require_fitting(tiers[plan.name], plan.driver, on_device=plan.settings.device is not None)
        _require_consent(measurement, tiers, allow_destroy)
        consent.require_nearby(tiers.values(), yes=yes)
        consent.require_unshared(tiers.values(), allow_shared=allow_shared)
        limits = {plan.name: limit_of(tiers[plan.name].mount, plan.limit_bytes_per_s) for plan in measurement.tiers}
        result = replace(
            result,
            tiers={name: {**tier.facts(), **limit_facts(limits[name])} for name, tier in tiers.items()},
            tier_traits={name: TierTraits(tier.shared, tier.place) for name, tier in tiers.items()},
        )
        session = _Session(measurement, run_dir, programs, progress, decided, limits, result)
        pending = [plan for plan in measurement.tiers if session.visits([plan])]
        for plan in pending:
            session.prepare(plan, tiers[plan.name])
        # Repeats pair the tiers, which then hold their data at the same time; one visit each needs one tier at a time.
        for group in [pending] if measurement.repeats > 1 else [[plan] for plan in pending]:
            try:
                session.measure(group, tiers)
            except RemovalHangs as error:
                hangs = error
    if hangs is not None:
        raise hangs
    return session.result


class _Session:
    """The state of one run: the growing result. Everything else is passed along."""

    def __init__(
        self,
        measurement: Measurement,
        run_dir: Path,
        programs: Mapping[str, Program],
        progress: Progress,
        decided: Decided | None,
        limits: Mapping[str, Limit | str],
        result: RunResult,
    ) -> None:
        self.measurement, self.run_dir = measurement, run_dir
        self.run_dir_status = run_dir.stat()
        self.drivers: dict[str, Driver] = {name: program.driver(self._rate) for name, program in programs.items()}
        self.watch: Watch | None = None
        self.progress, self.decided, self.limits = progress, decided, limits
        self.result = result
        # What this session measured, by point, and the points that are still visited in turn.
        self.rounds: dict[str, list[Observation]] = {}
        self.partly: set[str] = set()
        self.presences: dict[tuple[str, str], others.Presence] = {}

    def _other_runs(self, lane: tuple[str, str]) -> int:
        """How many other runs are at work on the lane's tier; this one may work on it several times."""
        return self.presences[lane].others([presence.token for presence in self.presences.values()])

    def _driver(self, tier: Tier, name: str) -> Driver:
        """The driver that is called so on a tier of this kind."""
        return self.drivers[tier.kind.program_of(name)]

    def _rate(self, text: str) -> None:
        if self.watch is not None:
            self.watch.heard()
        self.progress.rate(text)

    def visits(self, plans: Sequence[TierPlan]) -> list[tuple[int, Point]]:
        """What is left to do on these tiers: ``(repeat, point)`` in the order of measuring.

        One visit each keeps the planned order. Several are paired and shuffled (with a fixed seed): every kind of point
        runs on all lanes (tiers and their drivers) in a row, forwards in odd repeats and backwards in even ones (ABBA),
        so that slow drift of the host falls on all lanes alike.
        """
        lanes = [_lane(plan) for plan in plans]
        planned = [point for point in self.measurement.points if _lane(point) in lanes]
        if self.measurement.repeats == 1:
            return [(1, point) for point in planned if self._repeats_done(point) < 1]
        by_kind = {(_kind(point), _lane(point)): point for point in planned}
        left = []
        for repeat in range(1, self.measurement.repeats + 1):
            kinds = list(dict.fromkeys(map(_kind, planned)))
            random.Random(repeat).shuffle(kinds)
            order = lanes if repeat % 2 else lanes[::-1]
            left += [(repeat, by_kind[kind, lane]) for kind in kinds for lane in order if (kind, lane) in by_kind]
        return [(repeat, point) for repeat, point in left if self._repeats_done(point) < repeat]

    def prepare(self, plan: TierPlan, tier: Tier) -> None:
        """Check rights, space, O_DIRECT and the driver's plan of a tier before any tier is measured."""
        tier.require_space(plan.settings.dataset_bytes)
        points = self._points_left(plan)
        with tier.workspace(self.run_dir) as space:
            tier.require_direct_io(space, sorted({point.io_bytes for point in points}))
            # The points know no model; the plan for people says whose I/O this is.
            comments = job_comments(self.measurement.uses)
            site = Site(tier, space, plan.settings)
            name = lane_name(plan.name, plan.driver)
            self._driver(tier, plan.driver).check(points, site, self.run_dir, name, comments)

    def measure(self, plans: Sequence[TierPlan], tiers: Mapping[str, Tier]) -> None:
        """Lay the data out on these tiers and measure their points; a tier that cannot be laid out is skipped."""
        with ExitStack() as stack:
            sites = {}
            for plan in plans:
                site = self._lay_out(plan, tiers[plan.name], stack)
                if site is not None:
                    sites[_lane(plan)] = site
            for repeat, points in self._in_turn([plan for plan in plans if _lane(plan) in sites]):
                self._measure_points(points, repeat, sites)

    def _in_turn(self, plans: Sequence[TierPlan]) -> Iterator[tuple[int, list[Point]]]:
        """The points that are left, repeat by repeat; those of one repeat are visited in turn."""
        for repeat, visits in groupby(self.visits(plans), key=lambda visit: visit[0]):
            yield repeat, [point for _, point in visits]

    def _lay_out(self, plan: TierPlan, tier: Tier, stack: ExitStack) -> Site | None:
        """The tier's site with its data in place, or None after its points were skipped with the reason."""
        try:
            with dying(plan.name):
                site = Site(tier, stack.enter_context(tier.workspace(self.run_dir)), plan.settings)
                self.presences[_lane(plan)] = stack.enter_context(others.announced(tier, site.space.token))
                if other_runs := self._other_runs(_lane(plan)):
                    self.progress.disturbed(plan.name, other_runs)
                self.progress.laying_out(plan.name, plan.settings.dataset_bytes)
                folder = self._folder(f"{lane_name(plan.name, plan.driver)}-layout")
                self._driver(tier, plan.driver).lay_out(site, folder)
        except (MeasurementError, TierError) as error:
            for point in self._points_left(plan):
                if self.result.point(point.id) is None:
                    self._keep(point, [Observation(unmeasured(point, "skipped", str(error)), {})])
            return None
        return site

    def _measure_points(self, waiting: Sequence[Point], repeat: int, sites: Mapping[tuple[str, str], Site]) -> None:
        """One round of each point in turn until every one is done, so that the rounds of a point are far apart.

        Each round is on disk before the next one starts.
        """
        while waiting:
            unfinished = []
            for point in waiting:
                if self._visit(point, repeat, sites[_lane(point)]):
                    unfinished.append(point)
            waiting = unfinished

    def _visit(self, point: Point, repeat: int, site: Site) -> bool:
        """Measure the next round of a point; whether it needs another one."""
        known = self._known_rounds(point)
        runtime_s = self._next_round_s(known, repeat, site)
        if runtime_s is not None:
            self.progress.measuring(self._number(point), len(self.measurement.points), point)
            known = [*known, self._timed_round(point, repeat, site, known, runtime_s)]
        more = self._next_round_s(known, repeat, site) is not None
        self.rounds[point.id] = known
        self._keep(point, known, unfinished=_MORE_ROUNDS if more else None)
        return more

    def _next_round_s(self, known: Sequence[Observation], repeat: int, site: Site) -> int | None:
        decided = None if self.decided is None else self._decided
        return next_round_s(site.settings.stop_rule, [item for item in known if _repeat_of(item) == repeat], decided)

    def _timed_round(
        self, point: Point, repeat: int, site: Site, known: Sequence[Observation], runtime_s: int
    ) -> Observation:
        """One round with the time at which it began; what an interrupted one had measured is saved."""
        folder, began_s = self._round_folder(point, site, len(known) + 1), time.time()
        before = self._other_runs(_lane(point))
        try:
            item = self._round(point, site, folder, runtime_s)
        except RoundInterrupted as error:
            partial = error.partial
            reason = partial.point.reason or "stopped before its time"
            self._keep(
                point, [*known, _beside(_begun(partial, repeat, began_s), before)], unfinished=reason, stopped=True
            )
            raise
        return _beside(_begun(item, repeat, began_s), before or self._other_runs(_lane(point)))

    def _decided(self, pooled: Observation) -> bool | None:
        assert self.decided is not None
        return self.decided(pooled, self._so_far())

    def _so_far(self) -> RunResult:
        """The run as if the points that are still visited in turn were done."""
        points = [
            replace(point, status="ok", reason=None) if point.id in self.partly else point
            for point in self.result.points
        ]
        return replace(self.result, points=tuple(points))

    def _round(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One round, after the user's --before-read when it reads; a command that fails fails the round."""
        command = () if point.mix == "write" else self.measurement.before_read
        if not command:
            return self._counted(point, site, folder, runtime_s)
        try:
            hook = run_before_read(command, folder)
        except Interrupted as error:
            partial = unmeasured(point, "interrupted", "stopped while --before-read ran")
            raise RoundInterrupted(str(error), Observation(partial, {})) from None
        if hook.failure is not None:
            return _after(hook, Observation(unmeasured(point, "failed", hook.failure), {}))
        return _after(hook, self._counted(point, site, folder, runtime_s))

    def _counted(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One round, with the bytes that the user's --read-counter says the storage read meanwhile."""
        counter = () if point.mix == "write" else self.measurement.read_counter
        if not counter:
            return self._watched(point, site, folder, runtime_s)
        try:
            before = read_counter(counter, folder)
            item = self._watched(point, site, folder, runtime_s)
            seen = read_counter(counter, folder) - before
        except MeasurementError as error:
            return Observation(unmeasured(point, "failed", str(error)), {})
        except Interrupted as error:
            if isinstance(error, RoundInterrupted):
                raise
            partial = unmeasured(point, "interrupted", "stopped while --read-counter ran")
            raise RoundInterrupted(str(error), Observation(partial, {})) from None
        conditions = replace(item.point.conditions, device_read_bytes=seen)
        return replace(item, point=replace(item.point, conditions=conditions))

    def _watched(self, point: Point, site: Site, folder: Path, runtime_s: int) -> Observation:
        """One round on what was laid out and nothing else, with what happened meanwhile written into its series."""
        self.watch = watch = Watch(self.measurement.watch, site.space.token)
        series = folder / SERIES_NAME
        series.unlink(missing_ok=True)
        try:
            with dying(point.tier):
                site.space.require_same()
                with watch.beside(folder):
                    item = self._driver(site.tier, point.driver).measure(point, site, folder, runtime_s)
            # Before the events are marked: that leaves out the latencies of most seconds.
            return _with_spans(item, series)
        except MeasurementError as error:
            return Observation(unmeasured(point, "failed", str(error)), {})
        finally:
            self.watch = None
            events.mark(series, watch.events())

    def _require_run_dir(self) -> None:
        """MeasurementError unless the run directory is the one that this run began with: the evidence lies there."""
        with suppress(OSError):
            if os.path.samestat(self.run_dir_status, self.run_dir.stat()):
                return
        raise MeasurementError(
            f"the run directory {self.run_dir} was removed or replaced while the run lasted; what was measured is gone "
            "with it, so measure again with another -o."
        )

    def _keep(
        self, point: Point, rounds: Sequence[Observation], *, unfinished: str | None = None, stopped: bool = False
    ) -> None:
        """Pool, judge and save the rounds of a point; ``unfinished`` says why there should be more of them.

        Of a round that was ``stopped`` the numbers are shown, and a resumed run measures it anew.
        """
        self._require_run_dir()
        pooled = pool(rounds)
        folder = f"{POINTS_FOLDER}/{point.id}"
        in_rounds = (self.run_dir / folder / "round-1").is_dir()
        kept = replace(
            pooled.point,
            source=folder if in_rounds or point.driver != "fio" else f"{folder}/fio.json",
            before_read=tuple(hook for item in rounds for hook in item.point.before_read),
            conditions=self._limited(pooled.point),
        )
        self.partly.discard(point.id)
        if unfinished is not None:
            self.partly.add(point.id)
            kept = replace(kept, status="interrupted", reason=unfinished)
        if pooled.histograms:
            kept = replace(kept, histogram=f"{folder}/histogram.json")
            results.save_histograms(self.run_dir, f"{folder}/histogram.json", pooled.histograms)
        if self._join_series(point, len(rounds)):
            kept = replace(kept, series=f"{folder}/{SERIES_NAME}")
            series = results.load_series(self.run_dir, kept)
            kept = replace(kept, events=events.events_of(series), rounds=with_quarters(kept.rounds, series))
        saved = results.inside(self.run_dir, f"{folder}/{ROUNDS_NAME}")
        if not stopped and (unfinished or self.measurement.repeats > 1 or saved.exists()):
            results.save_observations(saved, rounds)
        kept = judge(kept)
        self.result = by_lane(self.result.with_point(kept))
        results.save(self.result, self.run_dir)
        tell = self.progress.measured if unfinished is None or stopped else self.progress.looked
        tell(kept)

    def _limited(self, point: PointResult) -> Conditions:
        """The point's conditions with what its tier's link allows."""
        limit = self.limits[point.tier]
        if isinstance(limit, str):
            return point.conditions
        return replace(
            point.conditions,
            limit_bytes_per_s=limit.bytes_per_s,
            limit_source=limit.source,
            limit_asked=limit.asked,
        )

    def _known_rounds(self, point: Point) -> list[Observation]:
        """The rounds of a point so far, those of the run that is resumed included; a failed point starts anew."""
        if point.id in self.rounds:
            return self.rounds[point.id]
        saved = results.inside(self.run_dir, f"{POINTS_FOLDER}/{point.id}/{ROUNDS_NAME}")
        kept = self.result.point(point.id)
        if kept is None or kept.status in ("failed", "skipped") or not saved.exists():
            return []
        return results.load_observations(saved)

    def _join_series(self, point: Point, rounds: int) -> bool:
        """One series over all rounds, its seconds counted on; False when there is none."""
        folder = self.run_dir / POINTS_FOLDER / point.id
        sources = [folder / f"round-{number}" / SERIES_NAME for number in range(1, rounds + 1)]
        present = [source for source in sources if source.exists()]
        if not present:
            return (folder / SERIES_NAME).exists()
        joined: list[dict[str, object]] = []
        for number, source in enumerate(present, start=1):
            offset = len(joined)
            joined += [
                {**entry, "second": offset + index, "round": number}
                for index, entry in enumerate(results.read_series(source), start=1)
            ]
        results.write_atomically(folder / SERIES_NAME, json.dumps(joined) + "\n")
        return True

    def _repeats_done(self, point: Point) -> int:
        known = self.result.point(point.id)
        if known is None or known.status != "ok":
            return 0
        return max((item.repeat for item in known.rounds), default=1)

    def _points_left(self, plan: TierPlan) -> list[Point]:
        return list(dict.fromkeys(point for _, point in self.visits([plan])))

    def _round_folder(self, point: Point, site: Site, number: int) -> Path:
        rounds = site.settings.auto or self.measurement.repeats > 1
        return self._folder(f"{point.id}/round-{number}" if rounds else point.id)

    def _folder(self, name: str) -> Path:
        folder = self.run_dir / POINTS_FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _number(self, point: Point) -> int:
        return self.measurement.points.index(point) + 1


def _lane(item: TierPlan | Point) -> tuple[str, str]:
    """What is measured side by side: a tier with one driver."""
    return (item.name if isinstance(item, TierPlan) else item.tier), item.driver


def _kind(point: Point) -> tuple[int, str, int]:
    return point.io_bytes, point.mix, point.numjobs


def _begun(item: Observation, repeat: int, began_s: float) -> Observation:
    """The round with its own summary, which the pooled point keeps of it."""
    own = Round(repeat, item.point.runtime_s or 0.0, began_s=began_s)
    return replace(item, point=replace(item.point, rounds=(own,)))


def _with_spans(item: Observation, series: Path) -> Observation:
    """A round that is long enough for several batches of time with its seconds."""
    if (item.point.runtime_s or 0.0) <= SEPARATE_S:
        return item
    return replace(item, spans=spans_of(events.complete(results.read_series(series))))


def _repeat_of(item: Observation) -> int:
    return item.point.rounds[0].repeat if item.point.rounds else 1


def _beside(item: Observation, other_runs: int) -> Observation:
    """The observation with the number of other runs that were at work on the tier meanwhile."""
    return replace(item, point=replace(item.point, conditions=replace(item.point.conditions, other_runs=other_runs)))


def _after(hook: HookRun, item: Observation) -> Observation:
    return replace(item, point=replace(item.point, before_read=(hook,)))


def _require_consent(measurement: Measurement, tiers: Mapping[str, Tier], allow_destroy: Sequence[str]) -> None:
    """TierError unless every device that this run writes is named; a resumed run has to name it again."""
    writes = {
        plan.name: plan.settings.device == "write" or writes_of(measurement, plan.name) for plan in measurement.tiers
    }
    consent.require_consent([(tiers[name], writes[name]) for name in writes], allow_destroy)
