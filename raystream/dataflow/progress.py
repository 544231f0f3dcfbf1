"""What an instance says of itself: `Progress`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from raystream.dataflow.instances.base import Instance
from raystream.dataflow.snapshot import rows_of
from raystream.native.memory import UNKNOWN, MemoryUse
from raystream.state.counts import AHEAD, CUT_OFF, IN, LATE, OUT
from raystream.state.images.chain import Span
from raystream.state.tables.backend import NOTHING_ON_DISK, OnDisk


class Spent(NamedTuple):
    """What an instance did with its time since it began to work, by its own clock. Of the seconds
    that are neither busy nor blocked it waited for input."""

    seconds: float
    """Seconds since the instance began."""
    busy: float
    """Seconds in which it worked."""
    blocked: float
    """Seconds in which it waited for the instances that read from it."""
    rounds: int
    """How many times it began to work after it had waited for input."""


IDLE = Spent(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one instance says of itself. All counts are since it began, and only grow."""

    vertex: str
    """The name of its operator, source or sink."""
    instance: int
    """Its index among the instances of its vertex."""
    position: int
    """The last epoch that it has applied."""
    ended: bool = False
    """Whether that is the last epoch of the input."""
    watermark: int = 0
    """No record with a lesser event time is to be expected."""
    records_in: int = 0
    """How many records it has taken."""
    records_out: int = 0
    """How many records it has emitted."""
    late: int = 0
    """How many of the records that it has taken were late."""
    cut_off: int = 0
    """How many of its rows would have rung on after the end of all input."""
    cut_off_keys: tuple[str, ...] = ()
    """The keys of some of them, as they are shown."""
    state_rows: int = 0
    """How many rows its state has now."""
    cpu: float = 0.0
    """Seconds of CPU that its process has used; where several instances share one, the seconds for
    which this one was busy."""
    ended_at: float | None = None
    """The Unix time at which it had applied the last epoch; None before."""
    name: str = ""
    """Its identity, which no other instance of the job ever has."""
    stored: int = 0
    """The newest epoch whose checkpoint is stored in all its copies."""
    since: int = 0
    """All checkpoints from this epoch up to `stored` are stored too, but for those it skipped."""
    skipped: tuple[tuple[int, int], ...] = ()
    """The first and the last epoch of each run of empty epochs with checkpoints that it did not
    take."""
    by_port: dict[str, int] = field(default_factory=dict)
    """How many records it has emitted on each of its counted outputs."""
    version: int = 0
    """The version of the newest assignment that it was told."""
    committed: int = 0
    """The newest committed checkpoint that it was told."""
    closed: bool = True
    """Whether nothing is left to do after the last epoch. A sink has to be closed."""
    kept: int = 0
    """The number of the newest choice of its keepers that it was told."""
    image_bytes: int = 0
    """The size of the checkpoint that was stored last, in bytes."""
    image_seconds: float = 0.0
    """How long it took until all copies of that checkpoint were stored."""
    view: int = 0
    """The number of the newest view of the boundary register that it was told."""
    seconds: float = 0.0
    """Seconds since it began to work, by its own clock. See `Spent`."""
    busy: float = 0.0
    """In how many of these seconds it worked."""
    blocked: float = 0.0
    """In how many of these seconds it waited for the instances that read from it."""
    rounds: int = 0
    """How many times it began to work after it had waited for input."""
    waiting: int = 0
    """How many records are at hand that it has not applied yet."""
    state_bytes: int = 0
    """About how many bytes its state takes when it is stored; 0 while that is not known."""
    load: bytes = field(default=b"", repr=False)
    """How many records it has taken, by key group of its range, as int64."""
    published_upto: int = 0
    """The epoch up to which it may publish what it wrote, as far as it was told; of a sink."""
    written: int = 0
    """Of a sink: the last epoch that a predecessor had written, as the target says."""
    reached: int = 0
    """The last epoch of which its code has made something: an operator asks the world ahead."""
    table_bytes: int = 0
    """How many bytes its structured rows take in memory. Tables never shrink."""
    on_disk: OnDisk = NOTHING_ON_DISK
    """What of its state is on disk."""
    kept_at: int = 0
    """Its present keepers hold every checkpoint that it stored after this epoch."""
    ahead: int = 0
    """Of a source: how many records it has set aside, because their times were far ahead."""
    memory: MemoryUse = UNKNOWN
    """What its process and its node use of the node's memory."""
    unstored: str = ""
    """Why its newest checkpoint is not stored, if its keepers could not; otherwise empty."""
    code: int = 0
    """The number of the newest version of the code that it has at hand; see `Switching.taken`."""
    no_code: tuple[int, str] = (0, "")
    """The number of a version of the code that its process could not get, and why."""
    marks: bytes = field(default=b"", repr=False)
    """Of a source or sink: when it had passed its newest epochs; see `marks_in`."""


def marks_of(passed: Iterable[tuple[int, float]]) -> bytes:
    """Epochs and the Unix times at which they were passed, as they travel."""
    return array("d", [x for mark in passed for x in mark]).tobytes()


def marks_in(marks: bytes) -> Iterator[tuple[int, float]]:
    """What `marks_of` was made of."""
    flat = array("d", marks)
    return ((int(flat[i]), flat[i + 1]) for i in range(0, len(flat), 2))


def older(one: Progress, other: Progress | None) -> bool:
    """Whether an instance said the first before the second: answers may overtake each other."""
    if other is None:
        return False
    at = (one.position, one.ended, one.seconds)
    return at < (other.position, other.ended, other.seconds)


def progress_of(
    machine: Instance,
    index: int,
    *,
    name: str = "",
    stored: Span | None = None,
    cpu: float = 0.0,
    ended_at: float | None = None,
    version: int = 0,
    committed: int = 0,
    closed: bool = True,
    image: tuple[int, float] = (0, 0.0),
    view: int = 0,
    row_bytes: float = 0.0,
    published_upto: int = 0,
    spent: Spent = IDLE,
) -> Progress:
    """What an instance says of itself. It may step meanwhile, on another thread.

    Args:
        stored: the checkpoints that are stored; all that it has applied, unless given.
        image: bytes and seconds of the checkpoint that was stored last.
        row_bytes: about how many bytes a row of its state takes when it is stored.
        spent: what it did with its time.
        others: see the fields of `Progress`.
    """
    missed = 0 if stored is None else machine.checkpoints.missed(machine.position)
    ended = machine.ended  # read before the position: one that says so is at its end
    c, rows = machine.counts, rows_of(machine)
    return Progress(
        vertex=machine.vertex.name,
        instance=index,
        position=machine.position,
        ended=ended,
        watermark=machine.watermark,
        records_in=c.total(IN),
        records_out=c.total(OUT),
        late=c.total(LATE),
        cut_off=c.total(CUT_OFF),
        cut_off_keys=machine.cut_off_keys,
        ahead=c.total(AHEAD),
        state_rows=rows,
        written=machine.written_upto,
        reached=machine.reached,
        cpu=cpu,
        ended_at=ended_at,
        name=name or f"{machine.vertex.name}/{index}",
        stored=machine.position if stored is None else stored.upto,
        since=0 if stored is None else max(stored.since, missed + 1 if missed else 0),
        by_port={name: c.total(at) for name, at in machine.outlets.counted},
        version=version,
        committed=committed,
        closed=closed,
        image_bytes=image[0],
        image_seconds=image[1],
        view=view,
        seconds=spent.seconds,
        busy=spent.busy,
        rounds=spent.rounds,
        blocked=spent.blocked,
        waiting=sum([inlet.rows for inlet in machine.inlets.values()]),
        state_bytes=round(rows * row_bytes),
        load=machine.load.tobytes(),
        published_upto=published_upto,
        code=machine.switching.taken,
        no_code=machine.switching.failed,
        table_bytes=0 if machine.table is None else machine.table.nbytes,
        skipped=machine.checkpoints.skipped,  # after the position, and so at least as new
    )
