"""What a job did: totals per operator, and how its rates went."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.snapshot import rows_of
from raystream.schema.types import KeyRange, SinkContext
from raystream.state.chain import Span
from raystream.state.counts import IN, LATE, OUT

SAMPLE_SECONDS = 1.0
"""How often a sample is taken."""
SAMPLES_MAX = 4096
"""So many samples are kept of a job; of an hour all of them."""


class Spent(NamedTuple):
    """Seconds since an instance began, by its own clock, and how many of them it worked, and waited
    for those who read from it; in the rest it waited for input."""

    seconds: float
    busy: float
    blocked: float


IDLE = Spent(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one instance says of itself.

    name: its identity. stored: the newest cut of which a checkpoint is stored in all its copies;
    since: so are all cuts from this one on.
    cpu: seconds of CPU that its process used since the start. ended_at: the Unix time at which it
    had applied its last epoch. version, floor: of the newest assignment and commit that it was
    told; shown: up to which epoch a sink may show what it wrote, as far as it was told; kept: of
    its keepers, which hold all that it stored after the epoch `kept_at`; view: of the boundary
    register. closed: nothing is left to do after its last epoch; a sink has to be closed.
    image_bytes, image_seconds: of the checkpoint that was stored last, its size in bytes and how
    long it took until all its copies were there.
    seconds: since it began to work, by its own clock. busy, blocked: how many of them it worked,
    and waited for those who read from it; in the rest it waited for input. waiting: records at
    hand and not yet applied. state_bytes: about what its state takes when it is stored; 0 while
    that is not known. load: the records it has taken so far, by key group of its range, as int64.
    table_bytes: what structured rows take in memory; tables never shrink. unstored: why its newest
    checkpoint is not stored, if its keepers could not.
    """

    vertex: str
    instance: int
    position: int
    ended: bool
    watermark: int
    records_in: int
    records_out: int
    late: int
    state_rows: int
    cpu: float
    ended_at: float | None = None
    name: str = ""
    stored: int = 0
    since: int = 0
    by_port: dict[str, int] = field(default_factory=dict)
    version: int = 0
    floor: int = 0
    closed: bool = True
    kept: int = 0
    image_bytes: int = 0
    image_seconds: float = 0.0
    view: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    waiting: int = 0
    state_bytes: int = 0
    load: bytes = field(default=b"", repr=False)
    shown: int = 0
    table_bytes: int = 0
    kept_at: int = 0
    unstored: str = ""


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Totals of one operator over its instances. position: of the one that is furthest behind among
    those that have not ended, if not all have; ended: they have."""

    name: str
    instances: int
    position: int
    records_in: int
    records_out: int
    late: int
    state_rows: int
    cpu: float
    by_port: dict[str, int]
    image_bytes: int = 0
    image_seconds: float = 0.0
    table_bytes: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Floor:
    """The newest committed cut. age: seconds since it was committed. short: how many ranges have
    fewer copies of their checkpoint than they should, until they are stored anew; the boundary
    register counts as one. saved: the newest cut in the durable tier, None without one; unsaved:
    why the newest that was to be there is not, if it is not. unstored: why a checkpoint is not
    stored that is to be, if its keepers could not. stopping: the job ends with the next cut that
    is saved."""

    epoch: int
    age: float
    short: int = 0
    saved: int | None = None
    unsaved: str = ""
    unstored: str = ""
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals of all operators at one moment. t: seconds since the start. processes: the ids
    of the processes of instances and keepers, by name, where there are any; floor: where there are
    checkpoints."""

    t: float
    operators: dict[str, OperatorReport]
    processes: dict[str, int] = field(default_factory=dict)
    floor: Floor | None = None


class Samples:
    """The samples of a job, which may run for years: the newest, and ever fewer of what was long
    ago."""

    def __init__(self) -> None:
        self._kept: list[Sample] = []

    def due(self, t: float) -> bool:
        """Whether one is to be taken at t seconds after the start."""
        last = self._kept[-1].t if self._kept else 0.0
        return t >= last // SAMPLE_SECONDS * SAMPLE_SECONDS + SAMPLE_SECONDS

    def add(self, sample: Sample) -> None:
        """The next one."""
        self._kept.append(sample)
        if len(self._kept) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            self._kept[:half] = self._kept[:half:2]

    def after(self, t: float) -> list[Sample]:
        """Those that are later than t."""
        return self._kept[bisect_right(self._kept, t, key=lambda s: s.t) :]

    def ended(self, last: Sample) -> tuple[Sample, ...]:
        """All, at the end of the job, which may be known late."""
        return (*(s for s in self._kept if s.t < last.t), last)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Instances that died and others that took their place. t: seconds since the start; floor: the
    cut from which they went on; seconds: until they were at work, catching up not included."""

    t: float
    gone: tuple[str, ...]
    new: tuple[str, ...]
    floor: int
    seconds: float
    because: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Ranges of an operator that went to other instances, or were to go.

    t: seconds since the start at which that was asked for. gone, new: who gave up its range, and
    who took one, by name, these in the order of what they took; ranges: all that the operator was
    to have. floor: the cut from which
    these began; tries: how often they began. place, restore, replay: seconds until there were
    processes for all, until these had their state, and until they were level and at work. failed:
    why it was given up, empty if it was not. nbytes: of state that those who took ranges were
    given, from keepers and owners; what they read again from logs is not counted.
    """

    t: float
    operator: str
    gone: tuple[str, ...]
    new: tuple[str, ...]
    ranges: tuple[KeyRange, ...]
    floor: int
    mode: str
    tries: int
    place: float
    restore: float
    replay: float
    because: str
    failed: str = ""
    nbytes: int = 0

    @property
    def ended(self) -> float:
        """Seconds since the start at which it was done, or given up."""
        return self.t + self.place + self.restore + self.replay


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a finished job did. elapsed: seconds from the first row to the last. saved: the newest
    cut in its durable tier; unsaved: why that is not the newest that was to be there, if it is not;
    notes: from where it went on.
    """

    job: str
    cluster: str
    started: float
    elapsed: float
    operators: tuple[OperatorReport, ...]
    samples: tuple[Sample, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    moved: tuple[Moved, ...] = ()
    saved: int = 0
    unsaved: str = ""
    notes: tuple[str, ...] = ()

    def operator(self, name: str) -> OperatorReport:
        """The totals of one operator."""
        return next(o for o in self.operators if o.name == name)


def older(one: Progress, other: Progress | None) -> bool:
    """Whether an instance had said this before the other: answers may overtake each other."""
    if other is None:
        return False
    at = (one.position, one.ended, one.seconds)
    return at < (other.position, other.ended, other.seconds)


def totals(progress: Iterable[Progress]) -> tuple[OperatorReport, ...]:
    """Totals per operator, in the order in which operators first appear."""
    by_name: dict[str, list[Progress]] = {}
    for p in progress:
        by_name.setdefault(p.vertex, []).append(p)
    return tuple(_total(name, ps) for name, ps in by_name.items())


def _total(name: str, ps: list[Progress]) -> OperatorReport:
    ports: dict[str, int] = {}
    for p in ps:
        for port, n in p.by_port.items():
            ports[port] = ports.get(port, 0) + n
    going = [p.position for p in ps if not p.ended]
    return OperatorReport(
        name,
        len(ps),
        min(going) if going else max(p.position for p in ps),
        sum(p.records_in for p in ps),
        sum(p.records_out for p in ps),
        sum(p.late for p in ps),
        sum(p.state_rows for p in ps),
        sum(p.cpu for p in ps),
        ports,
        sum(p.image_bytes for p in ps),
        max(p.image_seconds for p in ps),
        sum(p.table_bytes for p in ps),
        not going,
    )


def progress_of(
    machine: SourceInstance | Instance,
    index: int,
    *,
    name: str = "",
    stored: Span | None = None,
    cpu: float = 0.0,
    ended_at: float | None = None,
    version: int = 0,
    floor: int = 0,
    closed: bool = True,
    kept: int = 0,
    image: tuple[int, float] = (0, 0.0),
    view: int = 0,
    row_bytes: float = 0.0,
    shown: int = 0,
    kept_at: int = 0,
    spent: Spent = IDLE,
) -> Progress:
    """What an instance says of itself. stored: unless given, all that it has applied. row_bytes:
    what a row of its state takes when it is stored, about.

    The machine may step meanwhile, on another thread.
    """
    missed = 0 if stored is None else machine.cuts.missed(machine.position)
    ended = machine.ended  # before the position: who is said to have ended is at its end
    table = getattr(getattr(machine, "logic", None), "table", None)
    c, rows = machine.counts, rows_of(machine)
    return Progress(
        machine.vertex.name,
        index,
        machine.position,
        ended,
        machine.watermark,
        c.total(IN),
        c.total(OUT),
        c.total(LATE),
        rows,
        cpu,
        ended_at,
        name or f"{machine.vertex.name}/{index}",
        machine.position if stored is None else stored.upto,
        0 if stored is None else max(stored.since, missed + 1 if missed else 0),
        {name: c.total(at) for name, at in machine.outlets.counted},
        version,
        floor,
        closed,
        kept,
        *image,
        view,
        seconds=spent.seconds,
        busy=spent.busy,
        blocked=spent.blocked,
        waiting=sum([inlet.rows for inlet in getattr(machine, "inlets", {}).values()]),
        state_bytes=round(rows * row_bytes),
        load=machine.load.tobytes(),
        shown=shown,
        table_bytes=getattr(table, "nbytes", 0),
        kept_at=kept_at,
    )


def sink_context(
    plan: Plan,
    vertex: Vertex,
    keys: KeyRange,
    run: str,
    paced_from: float | None,
    committed: int = 0,
    generation: int = 0,
) -> SinkContext:
    """What a sink instance is told before its first write. generation: the version of the
    assignment with which it begins."""
    clock = plan.clock
    paced = clock is not None and clock.speed is not None and paced_from is not None
    return SinkContext(
        run,
        vertex.name,
        keys,
        paced_from if paced else None,
        clock.origin if clock is not None else 0.0,
        clock.speed if clock is not None and paced else None,
        committed,
        "" if plan.resumed is None else plan.resumed.run,
        plan.durable is not None,
        generation,
        0 if plan.durable is None else plan.durable.number,
    )
