"""The members of a job, as its controller knows them, and the processes without a place."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from raystream.controller.protocol.journal import InstanceRecord
from raystream.controller.protocol.recovery import ALONE, Place
from raystream.controller.protocol.strategies import RecoveryMode
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress

STALL_SECONDS = 300.0
"""How long an instance that has all its input may stay at an epoch before it counts as dead."""
STALL_LOOKS = 10
"""How many times it must be seen there, too, because the clock may be set forward."""
STAND_BY_SECONDS = 30.0
"""The first spare processes are started this long after the job began, and not before its first
commit. A job that ends soon does without them, and their start would take half a processor when
there is most to do."""


SWITCH_SECONDS = 1.5
"""The epoch after which a job goes over to other code is this far ahead, so that all instances have
heard of it, and are known to have, before the first of them comes there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolOptions:
    """How a job is run, as far as the machine has to know. See `raystream.controller.options`."""

    copies: int = 1
    """How many keepers hold a checkpoint, and the journal."""
    spares: int = 2
    """How many processes stand by."""
    recovery: RecoveryMode = "state"
    """What a recovery starts from."""
    restore_into: int = 1
    """How many instances share the range of an operator's instance that died."""
    stand_by: float = STAND_BY_SECONDS
    """How many seconds after the job began spare processes are started."""
    together: bool = False
    """Whether instances of different vertices share a process: those that have the same index when
    the job begins, so that an operator with several instances still uses several processors."""
    switch_seconds: float = SWITCH_SECONDS
    """How far ahead, in seconds, the epoch is after which a job goes over to other code."""


@dataclass(eq=False)
class Member:
    """An instance that has a place."""

    record: InstanceRecord
    """What the journal has of it, or will have with the next entry that is written."""
    progress: Progress | None = None
    """What it said last."""
    dead: str = ""
    """Why its process is gone; empty if it lives."""
    stays: tuple[float, int] | None = None
    """Since when, and how many times, it was seen at one epoch with all that it needs to go on."""

    @property
    def name(self) -> str:
        """Its identity."""
        return self.record.place.name

    def note_held(self, committed: int) -> None:
        """Note whether its keepers hold its range at the committed checkpoint: they do if it stored
        that after it had heard of them. An instance that has ended keeps its final state: every
        later checkpoint reuses it."""
        p = self.progress
        if p is not None and p.kept >= self.record.kept:
            checkpoint = min(committed, p.position) if p.ended else committed
            keepers = frozenset(self.record.keepers)
            if p.kept_at < checkpoint and self.record.held != keepers:
                self.record = replace(self.record, held=keepers)


class SpareProcess(NamedTuple):
    """A process without a place."""

    process: str
    """Its name."""
    node: str
    """Its node."""
    pid: int
    """Its process id on that node."""


class BundleThread(NamedTuple):
    """A thread that the instances of a bundle share."""

    here: list[Member]
    """Those on it."""
    apart: list[Member]
    """Those that have left it for now."""


def home_of(
    place: Place, members: Iterable[Member], elsewhere: Collection[int] = ()
) -> Member | None:
    """A living instance on the thread of a place's bundle; None if there is none.

    Args:
        elsewhere: see `sharing`.
    """
    for m in members:
        there = m.record.place
        together = there.bundle == place.bundle != ALONE and not there.apart and not m.dead
        if together and (there.vertex in elsewhere) == (place.vertex in elsewhere):
            return m
    return None


def sharing(places: Iterable[Place], elsewhere: Collection[int] = ()) -> list[list[Place]]:
    """The places, in groups that share a process each: those of one bundle.

    Args:
        elsewhere: vertices whose instances belong on other nodes than the rest, and share no
            process with it.
    """
    groups: dict[Hashable, list[Place]] = {}
    for place in places:
        shares = place.bundle != ALONE and not place.apart
        group = (place.bundle, place.vertex in elsewhere) if shares else place
        groups.setdefault(group, []).append(place)
    return [sorted(group, key=lambda place: place.vertex) for group in groups.values()]


def process_of(instance: str) -> str:
    """The name by which the process was started that an instance of this name is in."""
    return seat_of(instance)[0]


def in_seat(process: str, seat: int) -> str:
    """The name under which a process has its instance number `seat`.

    A process that was started as 1.7 has the first instance by this name, others as 1.7.1, 1.7.2
    and so on.
    """
    return f"{process}.{seat}" if seat else process


def seat_of(process: str) -> tuple[str, int]:
    """The name by which a process was started, and the number of the instance in it."""
    first, *rest = process.split(".", 2)
    return (".".join([first, rest[0]]), int(rest[1])) if len(rest) > 1 else (process, 0)


def whose_turn(
    members: Iterable[Member], moving: Collection[str], nth: int, turns: int
) -> list[str]:
    """The processes that are asked for their progress in one of several turns that follow each
    other.

    Instances of an operator that is being moved are asked in the same turn, because they are
    compared, and between two turns there may be several epochs.

    Args:
        moving: the operators that are being moved.
        nth: the number of the turn.
        turns: how many there are."""
    alive = enumerate(m.record for m in members if not m.dead)
    return [s.process for i, s in alive if nth == (0 if s.place.operator in moving else i % turns)]


def positions(members: Iterable[Member]) -> dict[int, int]:
    """By vertex the least position of its members; 0 for one that has not said anything yet."""
    at: dict[int, int] = {}
    for m in members:
        position, vertex = m.progress.position if m.progress else 0, m.record.place.vertex
        at[vertex] = min(position, at.get(vertex, position))
    return at


def stalled(members: list[Member], plan: Plan, now: float) -> list[Member]:
    """Members that have all they need and do not go on: they hold the next commit back."""
    at = positions(members)
    found = []
    for m in members:
        if m.dead or m.progress is None or m.progress.ended:
            continue
        vertex, position = plan.vertices[m.record.place.vertex], m.progress.position
        fed = vertex.inputs and all(at[e.producer] > position for e in vertex.inputs)
        if not fed or any(at[e.consumer] < position for e in vertex.outputs):
            m.stays = None
            continue
        since, looks = m.stays or (now, 0)
        m.stays = since, looks + 1
        if looks >= STALL_LOOKS and now - since > STALL_SECONDS:
            found.append(m)
    return found
