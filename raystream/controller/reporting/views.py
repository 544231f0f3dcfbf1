"""A job as one looks at it: everything that the page shows, as values. The page only draws them.

A view is made of two moments of a job and of what was kept of the moments before (`History`). It is
bounded: of 500 instances it lists those that work hardest, and a bar has up to `CELLS_MAX` cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np

from raystream.controller.protocol.totals import Histogram
from raystream.controller.reporting.status import Pace, Status, Worker, paces, together
from raystream.controller.reporting.story import Told
from raystream.schema.types import BEFORE_ALL, NEVER

Mood = Literal["idle", "busy", "hot", "blocked", "dead"]
DISK_FULL = 0.8
"""A disk with rows of state is said to fill up when this share of it is in use."""
CELLS_MAX = 64
"""Cells of a bar of key groups, and of a bar of instances."""
LISTED_MAX = 40
"""How many instances are listed: those that use most of their CPU."""
TOLD_MAX = 40
"""How many of the last decisions are shown."""
POINTS_MAX = 600
"""How many moments are kept for the graphs. Then every other one is left out."""
HOT, WORKING, HELD = 0.9, 0.1, 0.5
"""From these shares of its time on an operator is hot, busy, and blocked."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of a bar of key groups."""

    lo: int
    """Its first key group."""
    hi: int
    """The one after its last."""
    share: float
    """Its load, by the mean of all parts of this width; 1 is even."""
    mood: Mood = "idle"
    """How the instances that serve it spend their time."""
    says: str = ""
    """What is said of it in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance."""

    name: str
    """Its name."""
    operator: str
    """Its operator."""
    keys: str
    """Its key groups."""
    node: str
    """Where it is, for people."""
    pid: int
    """Its process."""
    mood: Mood
    """How it spends its time."""
    pace: Pace | None
    """How fast and how hard it works; None if nothing was heard of it yet."""
    memory: int
    """The bytes of memory that its process takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """An operator, source or sink."""

    name: str
    """Its name."""
    kind: str
    """What it is."""
    at: tuple[int, int]
    """Where it is in the graph: its column and row."""
    instances: int
    """How many instances it has."""
    mood: Mood
    """How its busiest instance spends its time."""
    pace: Pace | None
    """How fast and how hard it works."""
    skew: float
    """The load of its fullest instance, by the mean of all; 1 is even."""
    load: tuple[Cell, ...]
    """Its key groups, by how many records they had since the moment before."""
    served: tuple[Cell, ...]
    """The ranges of its instances."""
    memory: int
    """The bytes of memory that its processes take."""
    table: int
    """The bytes that its structured rows take in memory."""
    watermark: str
    """Its watermark: a date where event times are dates, otherwise a number in the flow's unit.
    Empty if it has none yet, or at its end."""
    late: int
    """Records that were late, in all."""
    ahead: int
    """Records that were set aside, in all."""
    failed: int
    """Records at which it has failed, and that it emitted as `rs.FailedRecord`."""
    checkpoint: int
    """The bytes of its newest checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node."""

    id: str
    """The id that Ray gave it."""
    name: str
    """Its name for people."""
    instances: int
    """How many instances are on it."""
    cores: float
    """How many cores these use."""
    keeper: bool
    """Whether it has a keeper."""
    memory: float | None
    """The share of its memory that is used; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPicture:
    """A job at one moment, as it is shown."""

    run: str
    """The name of its run."""
    t: float
    """Seconds since its start."""
    ended: str
    """How it has ended, in words; empty while it runs."""
    operators: tuple[OperatorView, ...]
    """Its operators, in the order of the flow."""
    edges: tuple[tuple[str, str], ...]
    """Who reads from whom: producer and consumer."""
    listed: tuple[InstanceView, ...]
    """The instances that use most of their CPU."""
    more: int
    """How many others there are."""
    nodes: tuple[NodeView, ...]
    """Its nodes."""
    story: tuple[Told, ...]
    """The last that happened, the newest first."""
    epoch: int
    """Its committed checkpoint."""
    age: float | None
    """Seconds since it was committed; None in a job without checkpoints."""
    saved: int | None
    """The newest checkpoint in the durable tier; None without one."""
    took: tuple[float, float] | None
    """How long half, and 99 %, of all checkpoints took to be stored, in seconds."""
    warnings: tuple[str, ...]
    """What is not as it should be."""
    can_save: bool
    """Whether it can be stopped with a saved checkpoint."""


@dataclass
class History:
    """What is kept of a job for graphs over time. Old moments are thinned out."""

    t: list[float] = field(default_factory=list)
    """Seconds since the start."""
    series: dict[tuple[str, str], list[float | None]] = field(default_factory=dict)
    """By (what, operator) the value at each of these; None where there was none."""

    def add(self, now: Status, before: Status | None) -> None:
        """Add a moment; nothing of the time before the first row."""
        if now.t <= 0.0:
            return
        each = paces(now, before)
        values: dict[tuple[str, str], float | None] = {}
        for name in now.operators:
            pace = together(each[w.name] for w in now.of(name))
            if pace is not None:
                values["records/s", name] = pace.rate_out if _source(now, name) else pace.rate_in
                seconds = pace.seconds_behind
                values["behind", name] = float(pace.behind) if seconds is None else seconds
        for name, latency in now.totals.latency.items():
            then = before.totals.latency.get(name, Histogram()) if before else Histogram()
            recent = latency.since(then)
            for what, share in (("p50", 0.5), ("p99", 0.99)):
                values[what, name] = recent.quantile(share) if recent.count else self._last(
                    what, name
                )  # fmt: skip
        self.t.append(now.t)
        for key in dict.fromkeys([*self.series, *values]):  # in the order of the flow
            column = self.series.setdefault(key, [None] * (len(self.t) - 1))
            column.append(values.get(key))
        if len(self.t) > POINTS_MAX:
            self.t[:] = self.t[::2]
            for column in self.series.values():
                column[:] = column[::2]

    def _last(self, what: str, name: str) -> float | None:
        column = self.series.get((what, name))
        return column[-1] if column else None

    def of(self, what: str) -> dict[str, list[float | None]]:
        """The series of one kind by operator."""
        return {name: column for (kind, name), column in self.series.items() if kind == what}


def view(
    now: Status, before: Status | None, nodes: Mapping[str, str], ended: str = ""
) -> JobPicture:
    """A job at one moment, as it is shown.

    Args:
        before: an earlier moment. nodes: names for people by the ids of nodes. ended: how the job
            has ended, in words.
    """
    each = paces(now, before)
    most = sorted(now.workers, key=lambda w: -_cpu(each[w.name]))
    olds = {w.name: w for w in before.workers} if before else {}
    places = layout(now.operators, now.edges)
    committed, stored = now.committed, now.totals.checkpoints
    took = stored.quantile(0.5), stored.quantile(0.99)
    return JobPicture(
        run=now.run,
        t=now.t,
        ended=ended,
        operators=tuple(_operator(now, name, each, olds, places[name]) for name in now.operators),
        edges=now.edges,
        listed=tuple(_instance(w, each[w.name], nodes) for w in most[:LISTED_MAX]),
        more=max(0, len(most) - LISTED_MAX),
        nodes=_nodes(now, each, nodes),
        story=now.story[-TOLD_MAX:][::-1],
        epoch=committed.epoch if committed else 0,
        age=committed.age if committed else None,
        saved=committed.saved if committed else None,
        took=None if took[0] is None or took[1] is None else (took[0], took[1]),
        warnings=_warnings(now),
        can_save=committed is not None and committed.saved is not None,
    )


def layout(
    operators: Sequence[str], edges: Sequence[tuple[str, str]]
) -> dict[str, tuple[int, int]]:
    """Where each operator of a graph is drawn: its column is the longest way from a source."""
    column = dict.fromkeys(operators, 0)
    for _ in operators:  # a graph without circles is settled after as many rounds as it has nodes
        for producer, consumer in edges:
            column[consumer] = max(column[consumer], column[producer] + 1)
    rows: dict[int, int] = {}
    found = {}
    for name in operators:
        at = column[name]
        found[name] = at, rows.get(at, 0)
        rows[at] = rows.get(at, 0) + 1
    return found


def mood(pace: Pace | None, dead: str = "") -> Mood:
    """How an instance or operator spends its time, in a word."""
    if dead:
        return "dead"
    if pace is None:
        return "idle"
    if pace.blocked >= HELD:
        return "blocked"
    return "hot" if pace.busy >= HOT else "busy" if pace.busy >= WORKING else "idle"


_ORDER: tuple[Mood, ...] = ("idle", "busy", "blocked", "hot", "dead")


def _operator(
    now: Status,
    name: str,
    each: Mapping[str, Pace | None],
    olds: Mapping[str, Worker],
    at: tuple[int, int],
) -> OperatorView:
    mine = now.of(name)
    said = [w.progress for w in mine if w.progress is not None]
    pace = together(each[w.name] for w in mine)
    marks = [p.watermark for p in said]
    watermark = min(marks, default=NEVER)
    done = now.totals.operators.get(name)
    rates = [p.rate_in for w in mine if (p := each[w.name]) is not None]
    dead = next((w.dead for w in mine if w.dead), "")
    failed = sum(n for p in said for port, n in p.by_port.items() if port.endswith(".FailedRecord"))
    return OperatorView(
        name=name,
        kind=now.kinds.get(name, "operator"),
        at=at,
        instances=len(mine),
        mood=mood(pace, dead),
        pace=pace,
        skew=max(rates) * len(rates) / sum(rates) if sum(rates) else 1.0,
        load=_load(mine, olds),
        served=_served(mine, each),
        memory=sum(p.memory.own for p in said),
        table=sum(p.table_bytes for p in said),
        watermark=_time_said(watermark, now.date_ticks),
        late=done.late if done else sum(p.late for p in said),
        ahead=done.ahead if done else sum(p.ahead for p in said),
        failed=failed,
        checkpoint=sum(p.image_bytes for p in said),
    )


def _time_said(time: int, ticks: int | None) -> str:
    """An event time for people. ticks: see `Status.date_ticks`."""
    if not BEFORE_ALL < time < NEVER:
        return ""
    try:
        moment = None if ticks is None else _YEAR_1970 + timedelta(seconds=time // ticks)
    except OverflowError:
        moment = None  # no date of a calendar
    return f"{time:,}" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


_YEAR_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def _load(mine: Sequence[Worker], olds: Mapping[str, Worker]) -> tuple[Cell, ...]:
    """The key groups of an operator in cells, by their records since the moment before."""
    groups = max((w.keys.hi for w in mine), default=0)
    counts = np.zeros(groups, np.int64)
    for w in mine:
        if w.progress is None or not w.progress.load:
            continue
        load = np.frombuffer(w.progress.load, np.int64)
        old = olds.get(w.name)
        if old is not None and old.progress is not None and old.keys == w.keys:
            then = np.frombuffer(old.progress.load, np.int64)
            load = load - then if len(then) == len(load) else load
        if len(load) == len(w.keys):
            part = counts[w.keys.lo : w.keys.hi]
            np.maximum(part, load, out=part)  # an owner and its candidate count the same records
    if not groups or not counts.any():
        return ()
    cuts = np.unique(np.linspace(0, groups, min(CELLS_MAX, groups) + 1).astype(np.int64))
    sums = np.add.reduceat(counts, cuts[:-1])
    even = counts.sum() / groups
    return tuple(
        Cell(int(lo), int(hi), float(n / (even * (hi - lo))), says=f"{int(n):,} records")
        for lo, hi, n in zip(cuts[:-1], cuts[1:], sums, strict=True)
    )


def _served(mine: Sequence[Worker], each: Mapping[str, Pace | None]) -> tuple[Cell, ...]:
    """The ranges of an operator; where there are too many, neighbours are one cell, which shows the
    worst of them."""
    step = max(1, -(-len(mine) // CELLS_MAX))
    cells = []
    for at in range(0, len(mine), step):
        some = mine[at : at + step]
        moods = [mood(each[w.name], w.dead) for w in some]
        worst = max(moods, key=_ORDER.index)
        known = [p for w in some if (p := each[w.name]) is not None]
        busy = max((p.busy for p in known), default=0.0)
        names = some[0].name if len(some) == 1 else f"{some[0].name} to {some[-1].name}"
        rate = sum(p.rate_in for p in known)
        says = f"{names}: {busy:.0%} busy, {rate:,.0f} records/s"
        cells.append(Cell(some[0].keys.lo, some[-1].keys.hi, busy, worst, says))
    return tuple(cells)


def _instance(worker: Worker, pace: Pace | None, nodes: Mapping[str, str]) -> InstanceView:
    return InstanceView(
        name=worker.name,
        operator=worker.operator,
        keys=f"{worker.keys}",
        node=nodes.get(worker.node, worker.node[:6]),
        pid=worker.pid,
        mood=mood(pace, worker.dead),
        pace=pace,
        memory=worker.progress.memory.own if worker.progress else 0,
    )


def _nodes(
    now: Status, each: Mapping[str, Pace | None], names: Mapping[str, str]
) -> tuple[NodeView, ...]:
    found = []
    for node in dict.fromkeys([*names, *(w.node for w in now.workers)]):
        there = [w for w in now.workers if w.node == node]
        uses = [w.progress.memory for w in there if w.progress is not None]
        known = [u.node / u.limit for u in uses if u.limit]
        found.append(
            NodeView(
                id=node,
                name=names.get(node, node[:6]),
                instances=len(there),
                cores=sum(_cpu(each[w.name]) for w in there),
                keeper=node in now.keepers,
                memory=max(known) if known else None,
            )
        )
    return tuple(found)


def _warnings(now: Status) -> tuple[str, ...]:
    found = [f"{w.name} is dead: {w.dead}" for w in now.workers if w.dead]
    found += [
        f"{w.name}: the disk with its rows is {full:.0%} full; the job ends at 90 %"
        for w in now.workers
        if w.progress is not None and (full := w.progress.on_disk.full) >= DISK_FULL
    ]
    if (committed := now.committed) is not None:
        found += [w for w in (committed.unsaved, committed.unstored) if w]
        if committed.under_replicated:
            found.append(f"{committed.under_replicated:,} ranges lack copies of their checkpoint")
        if committed.short_of_zones:
            found.append(
                f"{committed.short_of_zones:,} ranges have their copies in fewer zones than they"
                " could"
            )
        if committed.stopping:
            found.append("the job ends with the next checkpoint that is saved")
    return tuple(found)


def _source(now: Status, name: str) -> bool:
    return now.kinds.get(name) == "source"


def _cpu(pace: Pace | None) -> float:
    return 0.0 if pace is None else pace.cpu
