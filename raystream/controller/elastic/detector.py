"""The detector: turns the progress of instances into reports, and asks a policy about them.

    detector.heard(progress, keys, now)                      whenever an instance has said something
    found = detector.decide(owners, changing, now)           what is to change, what cannot

Progress comes at any time and holds counts that only grow. The detector takes their differences
over whole intervals, by the clock of the instance itself. When an operator changes it forgets what
was measured of it, and measures nothing for a while: an instance that has just begun has a backlog,
which is not its load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import NamedTuple

import numpy as np

from raystream.controller.elastic.policy import (
    KEPT,
    Load,
    Policy,
    Report,
    Target,
    Unable,
)
from raystream.controller.elastic.range_cuts import within
from raystream.controller.protocol.move_requests import vertex_of
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.progress import Progress
from raystream.errors import ConfigError
from raystream.schema.lengths import wait_of
from raystream.schema.types import KeyRange
from raystream.state.keys import tiles

COOLDOWN_SECONDS = 10.0
"""How long an operator is left alone after it was changed, or after a change was asked for."""


class Owner(NamedTuple):
    """An instance that serves a range."""

    instance: str
    keys: KeyRange


class Bounds(NamedTuple):
    """The least and the greatest number of instances that an operator may have."""

    least: int
    most: int


class Findings(NamedTuple):
    """What the detector has found."""

    targets: tuple[Target, ...]
    """What is to change."""
    notes: tuple[str, ...]
    """What people should be told, and were not told before."""


@dataclass(eq=False)
class _Series:
    """What was measured of one instance."""

    since: Progress
    """The progress with which the next report begins."""
    reports: deque[Report] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Its newest reports, in order."""


@dataclass(eq=False, kw_only=True)
class _Known:
    """What is known of one operator."""

    vertex: Vertex
    """Its vertex."""
    producers: tuple[str, ...]
    """The operators that feed it."""
    bounds: Bounds
    """How many instances it may have."""
    by_group: np.ndarray
    """float64 [G], records by key group; older ones count less."""
    owners: tuple[Owner, ...] = ()
    """Its instances, in the order of their ranges, as they were when it was looked at last."""
    series: dict[str, _Series] = field(default_factory=dict)
    """What was measured, by instance, candidates included."""
    settled: float = 0.0
    """The time from which on it is measured again after a change."""
    growing: bool = False
    """Whether it was to get more instances and has not got them yet."""
    said: set[KeyRange] = field(default_factory=set)
    """The ranges of which people were told that what they need cannot be done."""
    parents: dict[KeyRange, Report] = field(default_factory=dict)
    """By range, the last report of the range from which it was cut."""


class Detector:
    """Judges the load of one job.

    Args:
        bounds: by operator, the least and the greatest number of its instances. Where none are
            given, an operator may have from one to one for each key group, and a source to one for
            each split; sinks stay as they are.
        cooldown: seconds for which an operator is left alone after a change.

    Raises:
        ConfigError: the bounds do not fit the plan.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        bounds: Mapping[str, tuple[int, int]] | None = None,
        cooldown: float = COOLDOWN_SECONDS,
    ) -> None:
        self.policy, self._interval = policy, interval_of(policy)
        self.groups = plan.groups
        self.cooldown = cooldown
        by_name = bounds_in(plan, bounds or {})
        names = {v.id: v.name for v in plan.vertices}
        self._known = {
            v.name: _Known(
                vertex=v,
                producers=tuple(dict.fromkeys(names[e.producer] for e in v.inputs)),
                bounds=by_name[v.name],
                by_group=np.zeros(plan.groups),
            )
            for v in plan.vertices
        }
        self._news = False
        self._calm = 0.0  # since when no operator got more instances
        self._said: set[str] = set()

    def heard(self, progress: Progress, keys: KeyRange, now: float) -> None:
        """Note the progress of an instance.

        Args:
            keys: its range.
            now: seconds from the start of the job.
        """
        known = self._known[progress.vertex]
        series = known.series.get(progress.name)
        if progress.ended or now < known.settled:
            known.series.pop(progress.name, None)
        elif series is None:
            known.series[progress.name] = _Series(progress)
        elif progress.seconds - series.since.seconds >= self._interval:
            before, series.since = series.since, progress
            series.reports.append(report_of(before, progress, keys, now))
            own = known.by_group[keys.lo : keys.hi]
            own *= 0.5
            own += records_of(before, progress, keys)
            self._news = True

    def reports(self) -> dict[str, Report]:
        """The newest report of every instance that has one."""
        return {
            name: s.reports[-1]
            for known in self._known.values()
            for name, s in known.series.items()
            if s.reports
        }

    def decide(
        self, owners: Mapping[str, Sequence[Owner]], changing: Collection[str], now: float
    ) -> Findings:
        """What the policy makes of the new reports; nothing if there are none.

        Args:
            owners: by operator, its instances in the order of their ranges.
            changing: the operators that are being changed, or cannot be changed now.
            now: seconds from the start of the job.
        """
        for name, known in self._known.items():
            mine = tuple(owners[name])
            if mine != known.owners:
                self._forget(known, now + self.cooldown if known.owners else now)
                if len(mine) > len(known.owners):
                    self._calm = max(self._calm, known.settled)
                known.owners, known.growing = mine, False
                known.said.intersection_update(o.keys for o in mine)
            elif known.growing and (name in changing or now < known.settled):
                self._calm = max(self._calm, now)
            else:
                known.growing = False
        if not self._news:
            return Findings((), ())
        self._news = False
        loads = {
            name: self._load(k)
            for name, k in self._known.items()
            if name not in changing and now >= k.settled
        }
        try:
            found = list(self.policy.decide(list(loads.values())))
        except Exception as error:  # it is a user's code, and the job does not depend on it
            return Findings((), self._wrong(f"raised {type(error).__name__}: {error}"))
        try:
            plain = [plainly(f) for f in found]
        except (AttributeError, TypeError) as error:
            return Findings(
                (),
                self._wrong(f"returned something that is neither a Target nor an Unable: {error}"),
            )
        return self._judged(plain, loads, now)

    def _judged(
        self, found: Sequence[Target | Unable], loads: Mapping[str, Load], now: float
    ) -> Findings:
        """What of the policy's answers can be done."""
        targets: list[Target] = []
        notes: list[str] = []
        for f in found:
            load = loads.get(f.operator)
            if f.operator not in self._known:
                notes += self._wrong(f"speaks of {f.operator!r}, which is no operator")
            elif load is None:
                continue  # it is being changed
            elif isinstance(f, Unable):
                notes += self._once(f)
            elif not tiles(f.ranges, self.groups):
                cut = " ".join(map(str, f.ranges))
                notes += self._wrong(f"wants {f.operator} as {cut}: not every key group once")
            else:
                ranges = within(f.ranges, load.by_group, load.least, load.most)
                if ranges != load.ranges:
                    targets.append(Target(f.operator, ranges, f.because))
                    known = self._known[f.operator]
                    known.parents = parents_of(ranges, load)
                    known.growing = len(ranges) > len(load.ranges)
                    self._forget(known, now + self.cooldown)
        return Findings(tuple(targets), tuple(notes))

    def _load(self, known: _Known) -> Load:
        series = [known.series.get(o.instance) for o in known.owners]
        return Load(
            operator=known.vertex.name,
            producers=known.producers,
            ranges=tuple(o.keys for o in known.owners),
            reports=tuple(() if s is None else tuple(s.reports) for s in series),
            by_group=known.by_group,
            least=known.bounds.least,
            most=known.bounds.most,
            calm=self._calm,
            parents=tuple(known.parents.get(o.keys) for o in known.owners),
        )

    def _forget(self, known: _Known, settled: float) -> None:
        """Forget what was measured of an operator, and measure again from `settled` on."""
        known.settled = settled
        known.series.clear()

    def _once(self, unable: Unable) -> tuple[str, ...]:
        """Say what cannot be done for a range, once as long as the operator has that range."""
        said = self._known[unable.operator].said
        if unable.keys in said:
            return ()
        said.add(unable.keys)
        return (unable.because,)

    def _wrong(self, what: str) -> tuple[str, ...]:
        """Say what is wrong with the policy, once; the job goes on as it is."""
        if what in self._said:
            return ()
        self._said.add(what)
        return (f"{type(self.policy).__name__} {what}; the job goes on as it is",)


def plainly(said: Target | Unable) -> Target | Unable:
    """What a policy says, in Python's own numbers, because NumPy's could not be sent.

    Raises:
        AttributeError, TypeError: a user's policy says something else.
    """
    if isinstance(said, Unable):
        return Unable(str(said.operator), _range(said.keys), str(said.because))
    ranges = tuple(_range(keys) for keys in said.ranges)
    return Target(str(said.operator), ranges, str(said.because))


def _range(keys: KeyRange) -> KeyRange:
    return KeyRange(*map(index, keys))


def parents_of(ranges: Sequence[KeyRange], load: Load) -> dict[KeyRange, Report]:
    """By range that an operator is to have, the last report of the range from which it is cut; by
    range that stays, what was known before. Ranges are in order."""
    found: dict[KeyRange, Report] = {}
    at = 0
    for keys in ranges:
        while load.ranges[at].hi <= keys.lo:
            at += 1
        parent = load.reports[at][-1] if load.reports[at] else None
        if keys == load.ranges[at]:
            parent = load.parents[at]
        if parent is not None and keys.hi <= load.ranges[at].hi:
            found[keys] = parent
    return found


def records_of(before: Progress, now: Progress, keys: KeyRange) -> np.ndarray:
    """The records that an instance took between two moments, by key group (int64 [len(keys)]). They
    are never negative, although the instance may have counted while it was asked."""
    counts = [np.frombuffer(p.load, np.int64) for p in (before, now)]
    if len(counts[0]) != len(keys) or len(counts[1]) != len(keys):
        return np.zeros(len(keys), np.int64)
    return np.maximum(counts[1] - counts[0], 0)


def report_of(before: Progress, now: Progress, keys: KeyRange, t: float) -> Report:
    """What an instance measured between two moments, the later of which is `t`."""
    seconds = now.seconds - before.seconds
    return Report(
        instance=now.name,
        keys=keys,
        t=t,
        seconds=seconds,
        cpu=(now.cpu - before.cpu) / seconds,
        busy=(now.busy - before.busy) / seconds,
        blocked=(now.blocked - before.blocked) / seconds,
        rate_in=(now.records_in - before.records_in) / seconds,
        rate_out=(now.records_out - before.records_out) / seconds,
        waiting=now.waiting,
        state_bytes=now.state_bytes,
    )


def bounds_in(plan: Plan, given: Mapping[str, tuple[int, int]]) -> dict[str, Bounds]:
    """How many instances each operator of a plan may have: as given, otherwise the usual bounds.

    Raises:
        ConfigError: there is no such operator, or its bounds are impossible.
    """
    for name, (least, most) in given.items():
        if vertex_of(plan, name).kind == "sink":
            raise ConfigError(
                f"bounds: {name} is a sink: a policy leaves the number of its instances as it is",
                hint="Give it as many as it is to have with `instances`; sinks to databases change"
                " by `raystream scale`, too.",
            )
        if least > most:
            raise ConfigError(
                f"bounds: {name} from {least} to {most}; the least is greater than the most",
                hint=f"Give the least first: {name}={most}-{least}, in Python ({most}, {least}).",
            )
        if not 1 <= least <= most <= plan.groups:
            raise ConfigError(
                f"bounds: {name} from {least} to {most}; an operator has from 1 to {plan.groups}"
                " instances, the number of key groups"
            )
    usual = {v.name: _usual(plan, v) for v in plan.vertices}
    return usual | {name: Bounds(*both) for name, both in given.items()}


def _usual(plan: Plan, vertex: Vertex) -> Bounds:
    if vertex.kind == "source":
        return Bounds(1, max(1, min(plan.groups, len(plan.splits[vertex.id]))))
    if vertex.kind == "sink":
        return Bounds(*2 * (len(plan.ranges[vertex.id]),))
    return Bounds(1, plan.groups)


def interval_of(policy: Policy) -> float:
    """How many seconds lie between the reports that a policy wants.

    Raises:
        ConfigError: its `interval` is no length of time.
    """
    return wait_of(type(policy).__name__, "interval", policy.interval, zero=False)
