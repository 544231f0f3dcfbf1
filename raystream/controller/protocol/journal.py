"""The journal: what the controller has to know again after its own death.

An entry holds all of it and replaces every entry before it. The controller writes an entry before
it does anything that follows from it. Keepers refuse the entries of a controller once a newer
incarnation has claimed the journal: a controller that was thought dead can decide nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from raystream.controller.protocol.history import MoveRecord, Recovery, UpgradeRecord
from raystream.controller.protocol.move_requests import Move
from raystream.controller.protocol.recovery import Place
from raystream.controller.protocol.totals import Totals
from raystream.controller.protocol.upgrading.requests import Upgrade
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import NO_VIEW
from raystream.dataflow.register import PlaceSet as Places

E = TypeVar("E")


NOBODY = ""
"""Stands for a keeper that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRecord:
    """What the journal has of an instance at work."""

    place: Place
    """Its place."""
    process: str
    """The name of its process, which is never used again."""
    node: str
    """The node of its process."""
    pid: int
    """The id of its process on that node."""
    address: str
    """Where its logs are served."""
    keepers: tuple[str, ...] = ()
    """The processes of the keepers that hold its checkpoints."""
    kept: int = 0
    """The number of the choice by which it has these keepers."""
    held: frozenset[str] = frozenset()
    """The processes of the keepers that hold its range at the committed checkpoint, and at
    checkpoints that it passed before it knew its own keepers. `NOBODY` stands for a missing
    copy."""
    last: Progress | None = None
    """Its last progress, once its end is committed or the job has ended; otherwise None."""

    @property
    def name(self) -> str:
        return self.place.name


@dataclass(frozen=True, slots=True)
class KeeperRecord:
    """What the journal has of a keeper."""

    node: str
    """The node that it serves."""
    process: str
    """Its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """All that a controller knows for sure at one moment."""

    incarnation: int = 0
    """The incarnation of the controller that wrote the entry."""
    number: int = 0
    """The number of the entry among those of this controller."""
    committed: int = 0
    """The newest committed checkpoint."""
    assignment: Assignment = field(default_factory=Assignment)
    """The newest assignment."""
    instances: tuple[InstanceRecord, ...] = ()
    """The instances at work: owners and candidates."""
    keepers: tuple[KeeperRecord, ...] = ()
    """All keepers, the oldest first."""
    kept: int = 1
    """How often keepers were chosen for instances: the number of the newest choice."""
    started: float = 0.0
    """The Unix time at which the job began, or at which its first row is released; 0 before it is
    known."""
    recoveries: tuple[Recovery, ...] = ()
    """The recoveries so far."""
    view: int = 0
    """The number of the newest view of the boundary register."""
    told: Places[str] = NO_VIEW
    """The newest view that was ready to be told; see `Registering.told`."""
    knowing: frozenset[str] = frozenset()
    """The source instances that know what was published before that view; see
    `Registering.knowing`."""
    saved: int = 0
    """The newest checkpoint in the durable tier; 0 for none."""
    stop_after: int = -1
    """The job ends with the first checkpoint after this one; -1 if it was not asked to stop."""
    moves: tuple[Move, ...] = ()
    """The moves under way, at most one for each operator."""
    moved: tuple[MoveRecord, ...] = ()
    """The moves that have ended."""
    indices: Mapping[int, int] = field(default_factory=dict)
    """By vertex, how many indices its instances may have used; only vertices whose ranges were
    moved are there."""
    drained: frozenset[str] = frozenset()
    """The nodes that the job leaves and does not use again."""
    upgrade: Upgrade | None = None
    """The upgrade of the code that is under way."""
    upgraded: tuple[UpgradeRecord, ...] = ()
    """The upgrades that are settled or were given up."""
    versions: int = 0
    """How many numbers were given to versions of the code."""
    totals: Totals = field(default_factory=Totals)
    """What the job has done in all, as far as it is shown."""
    over: Any = None
    """How the job has ended: its error, or "ended"; None while it runs."""

    @property
    def order(self) -> tuple[int, int]:
        """Entries are ordered by the incarnation that wrote them, then by number."""
        return self.incarnation, self.number

    @property
    def lasting(self) -> tuple[KeeperRecord, ...]:
        """The keepers on nodes that are not left, the oldest first; all keepers if every node is
        left. The oldest come first because a new keeper may not have begun, and must not take the
        journal from those that hold it."""
        if not self.drained:
            return self.keepers
        return tuple(p for p in self.keepers if p.node not in self.drained) or self.keepers

    def given_up_since(self, t: float) -> frozenset[str]:
        """The operators whose last move was given up after a Unix time."""
        last = {r.operator: r for r in self.moved}
        return frozenset(o for o, r in last.items() if r.failed and r.ended > t - self.started)

    def places(self, copies: int) -> tuple[str, ...]:
        """The keepers that hold the journal."""
        return tuple(p.process for p in self.lasting[:copies])


class Shelf(Generic[E]):
    """The journal at one keeper: its newest entry, and the incarnation that may write the next."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.order = (0, 0)
        self.entry: E | None = None

    def claim(self, incarnation: int) -> tuple[bool, tuple[int, int], E | None]:
        """Let a new controller begin: from now on older ones cannot write.

        Returns whether the claim was accepted (False if this incarnation or a newer one has claimed
        before), the order of the newest entry, and that entry. The entry is read together with the
        claim, so that no entry can be written after it unseen.
        """
        if incarnation <= self.incarnation:
            return False, self.order, self.entry
        self.incarnation = incarnation
        return True, self.order, self.entry

    def write(self, order: tuple[int, int], entry: E) -> bool:
        """Keep an entry. False if a newer controller has begun: the writer has to end then."""
        if order[0] < self.incarnation:
            return False
        self.incarnation = order[0]
        if order > self.order:
            self.order, self.entry = order, entry
        return True

    def leave(self, order: tuple[int, int]) -> bool:
        """Forget this entry and older ones: from this entry on other keepers hold the journal.
        False if a newer controller has begun."""
        if order[0] < self.incarnation:
            return False
        if order >= self.order:
            self.order, self.entry = order, None
        return True


def newest(found: Iterable[tuple[tuple[int, int], E | None]]) -> E | None:
    """The newest of the entries that keepers hold, each with its order; None if there is none."""
    held = [(order, entry) for order, entry in found if entry is not None]
    return max(held, key=lambda h: h[0])[1] if held else None


def first_entry(plan: Plan) -> JournalEntry:
    """What is known when a job begins."""
    versions = () if plan.durable is None else plan.durable.versions
    return JournalEntry(
        committed=plan.begins,
        saved=plan.begins,
        assignment=Assignment(versions=versions),
        versions=max((v.number for v in versions), default=0),
    )
