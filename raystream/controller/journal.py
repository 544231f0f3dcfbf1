"""The journal: what the controller has to know again after its own death.

An entry is the whole of it, and replaces all that came before. It is written before anything that
follows from it is done, and refused when a controller with a newer incarnation has written: so a
controller that was thought dead can decide nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from raystream.controller.moves import Move
from raystream.controller.recovery import Place
from raystream.controller.report import Moved, Progress, Recovery
from raystream.dataflow.register import NO_VIEW
from raystream.dataflow.register import View as Places
from raystream.state.assignment import Assignment

E = TypeVar("E")


NOBODY = ""
"""Stands for a keeper that there is not."""


@dataclass(frozen=True, slots=True)
class Seat:
    """An instance at work. process: the name of its process, never used again; address: where its
    logs are served; keepers: the processes that hold its checkpoints, the choice number `kept`;
    held: those that hold what its range was at the floor, and at cuts that passed before it knew
    its keepers, `NOBODY` for a copy that is missing; last: what it said at its end, if that is
    committed, or at the end of the job."""

    place: Place
    process: str
    node: str
    pid: int
    address: str
    keepers: tuple[str, ...] = ()
    kept: int = 0
    held: frozenset[str] = frozenset()
    last: Progress | None = None

    @property
    def name(self) -> str:
        return self.place.name


@dataclass(frozen=True, slots=True)
class Post:
    """A keeper: the node that it serves, and its process."""

    node: str
    process: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known for sure. kept: how often keepers were chosen. started: the Unix time at which
    the job began, or its first row is released; 0 before. view: the number of the newest view of
    the boundary register; told, knowing: see `registering`. saved: the newest cut in the durable
    tier; stop_after: the job is to end with the first cut after this one, -1 if it is not. moves:
    those under way, one per operator at most; moved: those that have ended; indices: by vertex how
    many its instances may have had, where ranges were moved; drained: nodes that are to be left.
    over: it has come to its end."""

    incarnation: int = 0
    number: int = 0
    committed: int = 0
    assignment: Assignment = field(default_factory=Assignment)
    seats: tuple[Seat, ...] = ()
    posts: tuple[Post, ...] = ()
    kept: int = 1
    started: float = 0.0
    recoveries: tuple[Recovery, ...] = ()
    view: int = 0
    told: Places[str] = NO_VIEW
    knowing: frozenset[str] = frozenset()
    saved: int = 0
    stop_after: int = -1
    moves: tuple[Move, ...] = ()
    moved: tuple[Moved, ...] = ()
    indices: Mapping[int, int] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    over: Any = None

    @property
    def order(self) -> tuple[int, int]:
        """Entries are ordered by who wrote them, then by number."""
        return self.incarnation, self.number

    @property
    def lasting(self) -> tuple[Post, ...]:
        """The keepers that are to stay, the oldest first; all, if none is. One that is new may not
        have begun: it is not to take the journal from those that hold it."""
        if not self.drained:
            return self.posts
        return tuple(p for p in self.posts if p.node not in self.drained) or self.posts

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
        """A controller begins: from now on no older one writes. Whether it was in time; the newest
        entry, and its order. It is read only now, so that none comes after it unseen."""
        if incarnation <= self.incarnation:
            return False, self.order, self.entry
        self.incarnation = incarnation
        return True, self.order, self.entry

    def write(self, order: tuple[int, int], entry: E) -> bool:
        """Keep an entry; False when a newer controller has begun, which ends the writer."""
        if order[0] < self.incarnation:
            return False
        self.incarnation = order[0]
        if order > self.order:
            self.order, self.entry = order, entry
        return True

    def leave(self, order: tuple[int, int]) -> bool:
        """The journal is kept elsewhere, from the entry of this order on: forget what is older.
        False when a newer controller has begun."""
        if order[0] < self.incarnation:
            return False
        if order >= self.order:
            self.order, self.entry = order, None
        return True


def newest(found: Iterable[tuple[tuple[int, int], E | None]]) -> E | None:
    """The entry to go on from, of what the keepers hold."""
    held = [(order, entry) for order, entry in found if entry is not None]
    return max(held, key=lambda h: h[0])[1] if held else None
