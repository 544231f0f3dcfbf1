"""The state of a job at one moment: which instance works where. From two such moments follows how
fast and how hard they work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.totals import Totals
from raystream.controller.reporting.report import Committed
from raystream.controller.reporting.story import Told, story
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.schema.types import KeyRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """An instance, where it runs, and what it said last."""

    name: str
    """Its identity."""
    operator: str
    """The name of its operator, source or sink."""
    keys: KeyRange
    """The key groups that it serves."""
    node: str
    """The id that Ray gave its node."""
    pid: int
    """The id of its process on that node."""
    progress: Progress | None = None
    """What it said last; None if nothing was heard of it yet."""
    dead: str = ""
    """Why its process is gone; empty if it lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A job at one moment."""

    run: str
    """The name of the run."""
    t: float
    """Seconds since the start; negative before the first row."""
    operators: tuple[str, ...]
    """The names of its operators, in the order of the flow."""
    workers: tuple[Worker, ...]
    """All of its instances."""
    committed: Committed | None
    """The newest committed checkpoint; None in a job without checkpoints."""
    keepers: tuple[str, ...]
    """The nodes that have a keeper."""
    story: tuple[Told, ...]
    """What has happened so far, in order."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """By operator: "source", "operator" or "sink"."""
    edges: tuple[tuple[str, str], ...] = ()
    """Which operator reads from which: producer and consumer, each pair once."""
    totals: Totals = field(default_factory=Totals)
    """What it has done in all, in counts that never fall."""
    links: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Bytes a second from one node to another, as they were measured where checkpoints go."""
    epoch_seconds: float | None = None
    """In a paced job, whose epoch 1 begins at 0 seconds, the real seconds of an epoch; otherwise
    None."""
    date_ticks: int | None = None
    """Where event times are dates, how many units of them since 1970 a second has; None where they
    are numbers."""

    def of(self, operator: str) -> tuple[Worker, ...]:
        """The instances of an operator, by range."""
        mine = (w for w in self.workers if w.operator == operator)
        return tuple(sorted(mine, key=lambda w: (w.keys, w.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How an instance or an operator worked between two moments. The shares of an operator are the
    highest of its instances."""

    rate_in: float
    """Records taken, a second."""
    rate_out: float
    """Records emitted, a second."""
    cpu: float
    """Share of a core that was used."""
    busy: float
    """Share of the time in which it worked."""
    blocked: float
    """Share of the time in which it waited for the instances that read from it."""
    waiting: int
    """Records at hand that were not applied, at the later moment."""
    state_rows: int
    """Rows of state, at the later moment."""
    rows_on_disk: int = 0
    """How many of these are on disk alone."""
    state_bytes: int
    """About how many bytes these take when they are stored."""
    behind: int
    """How many epochs it is behind the sources."""
    seconds_behind: float | None
    """How many seconds it is behind the pace of the job; None without one."""


def status_of(
    plan: Plan,
    run: str,
    entry: JournalEntry,
    members: Iterable[Member],
    committed: Committed | None,
    now: float,
    notes: Iterable[tuple[float, str]] = (),
    totals: Totals | None = None,
    links: Mapping[tuple[str, str], float] | None = None,
) -> Status:
    """The state of a job, from what its controller knows.

    Args:
        run: the name of the run.
        now: the Unix time.
        notes: seconds since the start, and the text.
        totals: those of the newest entry that is written; unless given, those of `entry`.
        links: see `Status`.
    """
    clock = plan.clock
    paced = clock is not None and clock.speed is not None
    return Status(
        run=run,
        t=now - entry.started if entry.started else 0.0,
        operators=tuple(v.name for v in plan.vertices),
        kinds={v.name: v.kind for v in plan.vertices},
        edges=tuple(
            dict.fromkeys(
                (plan.vertices[e.producer].name, plan.vertices[e.consumer].name) for e in plan.edges
            )
        ),
        workers=tuple(
            Worker(
                name=m.name,
                operator=m.record.place.operator,
                keys=m.record.place.keys,
                node=m.record.node,
                pid=m.record.pid,
                progress=m.progress,
                dead=m.dead,
            )
            for m in members
        ),
        committed=committed,
        keepers=tuple(p.node for p in entry.keepers),
        story=story(entry.recoveries, entry.moved, notes, entry.upgraded),
        totals=entry.totals if totals is None else totals,
        links=links or {},
        epoch_seconds=clock.seconds / clock.speed
        if clock is not None and clock.speed and paced
        else None,
        date_ticks=plan.ticks if _are_dates(plan) else None,
    )


def _are_dates(plan: Plan) -> bool:
    """Whether the event times of all sources are dates."""
    fields = [
        port.schema.field(v.epochs.column or v.epochs.time)
        for v in plan.vertices
        if v.epochs is not None
        for port in v.ports
    ]
    times = [f for f in fields if f is not None]
    return bool(times) and all(f.moment for f in times)


def newest(status: Status) -> int:
    """The last epoch that every source has sent."""
    said = [w.progress for w in status.workers if w.progress is not None]
    return max((p.position for p in said), default=0)


def pace(worker: Worker, now: Status, before: Status | None) -> Pace | None:
    """How an instance worked since the moment before, or since it began if it was not there then;
    of its records nothing is known then. None as long as nothing was heard of it."""
    olds = [w.progress for w in before.workers if w.name == worker.name] if before else []
    return _pace(worker, now, olds[0] if olds else None, newest(now))


def paces(now: Status, before: Status | None) -> dict[str, Pace | None]:
    """The same of all instances, by name."""
    olds = {w.name: w.progress for w in before.workers} if before else {}
    last = newest(now)
    return {w.name: _pace(w, now, olds.get(w.name), last) for w in now.workers}


def _pace(worker: Worker, now: Status, old: Progress | None, last: int) -> Pace | None:
    p = worker.progress
    if p is None:
        return None
    old = old if old is not None and old.seconds < p.seconds else None
    seconds = p.seconds - (old.seconds if old else 0.0)

    def share(what: str) -> float:
        """How much one of the counts has grown, a second."""
        then = getattr(old, what) if old else 0
        return max(0.0, getattr(p, what) - then) / seconds if seconds > 0 else 0.0

    def rate(what: str) -> float:
        """The same of what is stored with a checkpoint, and so holds what instances before this one
        counted: without an older moment nobody knows how much of it is its own."""
        return share(what) if old else 0.0

    seconds_behind = None
    if now.epoch_seconds is not None and not p.ended:
        seconds_behind = max(0.0, now.t - (p.position + 1) * now.epoch_seconds)
    return Pace(
        rate_in=rate("records_in"),
        rate_out=rate("records_out"),
        cpu=share("cpu"),
        busy=share("busy"),
        blocked=share("blocked"),
        waiting=p.waiting,
        state_rows=p.state_rows,
        rows_on_disk=p.on_disk.rows,
        state_bytes=p.state_bytes,
        behind=0 if p.ended else last - p.position,
        seconds_behind=seconds_behind,
    )


def together(paces: Iterable[Pace | None]) -> Pace | None:
    """The pace of an operator, from those of its instances; None as long as none is known."""
    known = [p for p in paces if p is not None]
    if not known:
        return None
    behind = [p.seconds_behind for p in known if p.seconds_behind is not None]
    return Pace(
        rate_in=sum(p.rate_in for p in known),
        rate_out=sum(p.rate_out for p in known),
        cpu=max(p.cpu for p in known),
        busy=max(p.busy for p in known),
        blocked=max(p.blocked for p in known),
        waiting=sum(p.waiting for p in known),
        state_rows=sum(p.state_rows for p in known),
        rows_on_disk=sum(p.rows_on_disk for p in known),
        state_bytes=sum(p.state_bytes for p in known),
        behind=max(p.behind for p in known),
        seconds_behind=max(behind) if behind else None,
    )
