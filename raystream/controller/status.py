"""How a job stands: who works where, and, between two looks at it, how fast and how hard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raystream.controller.journal import Entry
from raystream.controller.members import Member
from raystream.controller.report import Floor, Progress
from raystream.controller.story import Told, story
from raystream.dataflow.plan import Plan
from raystream.schema.types import KeyRange


@dataclass(frozen=True, slots=True)
class Worker:
    """An instance, where it is, and what it said last: None when nothing was heard of it yet.
    node: the id that Ray gave it. dead: why its process is gone, if it is."""

    name: str
    operator: str
    keys: KeyRange
    node: str
    pid: int
    progress: Progress | None = None
    dead: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """A job at one moment.

    t: seconds since the start; negative before the first row. operators: in the order of the flow.
    epoch_seconds: real ones from one epoch to the next of a job with a pace, which begins epoch 1
    at 0; None without. keepers: the nodes that have one.
    """

    run: str
    t: float
    operators: tuple[str, ...]
    workers: tuple[Worker, ...]
    floor: Floor | None
    keepers: tuple[str, ...]
    story: tuple[Told, ...]
    epoch_seconds: float | None = None

    def of(self, operator: str) -> tuple[Worker, ...]:
        """The instances of an operator, by range."""
        mine = (w for w in self.workers if w.operator == operator)
        return tuple(sorted(mine, key=lambda w: (w.keys, w.name)))


@dataclass(frozen=True, slots=True)
class Pace:
    """How an instance, or an operator, went between two looks.

    rate_in, rate_out: records a second. cpu: of a core, busy, blocked: of the time; the highest
    share of an instance where there are several. waiting, state_rows, state_bytes: at the
    later look. behind: epochs that it is behind the sources; late: seconds behind the pace of the
    job, None without one.
    """

    rate_in: float
    rate_out: float
    cpu: float
    busy: float
    blocked: float
    waiting: int
    state_rows: int
    state_bytes: int
    behind: int
    late: float | None


def status_of(
    plan: Plan,
    run: str,
    entry: Entry,
    members: Iterable[Member],
    floor: Floor | None,
    now: float,
    notes: Iterable[tuple[float, str]] = (),
) -> Status:
    """How a job stands, from what its controller knows. now: the Unix time."""
    clock = plan.clock
    paced = clock is not None and clock.speed is not None
    return Status(
        run,
        now - entry.started if entry.started else 0.0,
        tuple(v.name for v in plan.vertices),
        tuple(
            Worker(
                m.name,
                m.seat.place.operator,
                m.seat.place.keys,
                m.seat.node,
                m.seat.pid,
                m.progress,
                m.dead,
            )
            for m in members
        ),
        floor,
        tuple(p.node for p in entry.posts),
        story(entry.recoveries, entry.moved, notes),
        clock.seconds / clock.speed if clock is not None and clock.speed and paced else None,
    )


def newest(status: Status) -> int:
    """The last epoch that every source has sent."""
    said = [w.progress for w in status.workers if w.progress is not None]
    return max((p.position for p in said), default=0)


def pace(worker: Worker, now: Status, before: Status | None) -> Pace | None:
    """How an instance went since it was looked at before, or, where it was not there, since it
    began; None as long as it has said nothing."""
    p = worker.progress
    if p is None:
        return None
    olds = [w.progress for w in before.workers if w.name == worker.name] if before else []
    old = olds[0] if olds and olds[0] is not None and olds[0].seconds < p.seconds else None
    seconds = p.seconds - (old.seconds if old else 0.0)

    def share(what: str) -> float:
        """A second."""
        then = getattr(old, what) if old else 0
        return max(0.0, getattr(p, what) - then) / seconds if seconds > 0 else 0.0

    late = None
    if now.epoch_seconds is not None and not p.ended:
        late = max(0.0, now.t - (p.position + 1) * now.epoch_seconds)
    return Pace(
        share("records_in"),
        share("records_out"),
        share("cpu"),
        share("busy"),
        share("blocked"),
        p.waiting,
        p.state_rows,
        p.state_bytes,
        0 if p.ended else newest(now) - p.position,
        late,
    )


def together(paces: Iterable[Pace | None]) -> Pace | None:
    """The pace of an operator; None as long as none of its instances has said anything."""
    known = [p for p in paces if p is not None]
    if not known:
        return None
    late = [p.late for p in known if p.late is not None]
    return Pace(
        sum(p.rate_in for p in known),
        sum(p.rate_out for p in known),
        max(p.cpu for p in known),
        max(p.busy for p in known),
        max(p.blocked for p in known),
        sum(p.waiting for p in known),
        sum(p.state_rows for p in known),
        sum(p.state_bytes for p in known),
        max(p.behind for p in known),
        max(late) if late else None,
    )
