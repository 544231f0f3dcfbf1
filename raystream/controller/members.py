"""Who works for a job, as its controller knows it: members, processes without a place, and those
that are about to take one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from raystream.controller.journal import Seat
from raystream.controller.policy import Policy
from raystream.controller.pool import PoolOptions
from raystream.controller.recovery import Mode, Place
from raystream.controller.report import Progress
from raystream.dataflow.plan import Plan

STALL_SECONDS = 300.0
"""How long an instance that has all its input may stay at an epoch before it counts as dead."""
STALL_LOOKS = 10
"""So often it must be seen there, too: the clock may be set forward."""


STAND_BY_SECONDS = 30.0
"""The first spare processes are started so long after the job began, and not before its first
commit: a job that ends soon does without them, and they would take half a processor from its start,
when there is most to do."""


class Options(NamedTuple):
    """How a job is run.

    copies: how many keepers hold a checkpoint, and the journal. spares: how many processes stand
    by. recovery: what a recovery starts from. restore_into: how many instances share the range of
    an operator's instance that died. policy: what decides by itself which ranges operators have,
    None for nothing; bounds: by operator how few and how many instances. pool: of spare nodes.
    stand_by: so many seconds after the job began spare processes are started.
    """

    copies: int = 1
    spares: int = 2
    recovery: Mode = "state"
    restore_into: int = 1
    policy: Policy | None = None
    bounds: Mapping[str, tuple[int, int]] | None = None
    pool: PoolOptions | None = None
    stand_by: float = STAND_BY_SECONDS


@dataclass(eq=False)
class Member:
    """An instance as the controller knows it. dead: why its process is gone, if it is. stays: since
    when it is seen where it is with all that it needs to go on, and how often it was."""

    seat: Seat
    progress: Progress | None = None
    dead: str = ""
    stays: tuple[float, int] | None = None

    @property
    def name(self) -> str:
        return self.seat.place.name

    def note_held(self, floor: int) -> None:
        """Its keepers hold what it was at the floor if it stored that after it had heard of them.
        Who has ended is at every later cut as it was at its end."""
        p = self.progress
        if p is not None and p.kept >= self.seat.kept:
            cut = min(floor, p.position) if p.ended else floor
            if p.kept_at < cut and self.seat.held != (keepers := frozenset(self.seat.keepers)):
                self.seat = replace(self.seat, held=keepers)


class Hand(NamedTuple):
    """A process without a place."""

    process: str
    node: str
    pid: int


@dataclass(eq=False)
class Engagement:
    """Places that are to be taken, all at once.

    gone: who gives up its own for them. waiting: without a process. preparing: by process, who was
    given a place. ready: who has it, and the address. failures: of each place. began: when;
    because: why. operator: of a move, "" unless it is one; node: where its processes have to be, ""
    for anywhere. stopping: processes that have to end before others take their places; told: when
    it was first looked whether they had, after they were told. delivering: owners that have not yet
    brought those who take their places to where they are; bases: where these are then, by process.
    nbytes: of state that was given.
    """

    floor: int
    gone: tuple[Member, ...]
    began: float
    because: str
    waiting: list[Place]
    operator: str = ""
    node: str = ""
    preparing: dict[str, tuple[Hand, Place]] = field(default_factory=dict)
    ready: dict[str, tuple[Hand, Place, str]] = field(default_factory=dict)
    failures: Counter[Place] = field(default_factory=Counter)
    stopping: set[str] | None = None
    told: float = 0.0
    delivering: set[str] | None = None
    bases: dict[str, int] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def undecided(self) -> bool:
        """Whether it is a move that can still come to nothing."""
        return bool(self.operator) and self.stopping is None

    @property
    def processes(self) -> set[str]:
        return {*self.preparing, *self.ready}


def whose_turn(
    members: Iterable[Member], moving: Collection[str], nth: int, turns: int
) -> list[str]:
    """The processes that are asked for their progress in one of so many turns, which follow each
    other. Those of an operator that is being moved are asked in the same: they are compared, and in
    the time between two turns there may be several epochs."""
    alive = enumerate(m.seat for m in members if not m.dead)
    return [s.process for i, s in alive if nth == (0 if s.place.operator in moving else i % turns)]


def positions(members: Iterable[Member]) -> dict[int, int]:
    """By vertex the least position of its members; 0 of who has not said anything yet."""
    at: dict[int, int] = {}
    for m in members:
        position, vertex = m.progress.position if m.progress else 0, m.seat.place.vertex
        at[vertex] = min(position, at.get(vertex, position))
    return at


def stalled(members: list[Member], plan: Plan, now: float) -> list[Member]:
    """Who has all it needs and does not move: it holds the floor back."""
    at = positions(members)
    found = []
    for m in members:
        if m.dead or m.progress is None or m.progress.ended:
            continue
        vertex, position = plan.vertices[m.seat.place.vertex], m.progress.position
        fed = vertex.inputs and all(at[e.producer] > position for e in vertex.inputs)
        if not fed or any(at[e.consumer] < position for e in vertex.outputs):
            m.stays = None
            continue
        since, looks = m.stays or (now, 0)
        m.stays = since, looks + 1
        if looks >= STALL_LOOKS and now - since > STALL_SECONDS:
            found.append(m)
    return found
