"""A placement: places that are taken together, the phases that it goes through, and its events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from raystream.controller.protocol.members import Member, SpareProcess, process_of
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Attempt, Command
from raystream.controller.protocol.phases import Subject
from raystream.controller.protocol.recovery import Place


class PlacementPhase(Enum):
    """How far a placement is."""

    WAITING = "a place has no process yet"
    RESTORING = "every place has a process; some of these do not have their state yet"
    READY = "all processes have their state: what is next depends on why places are taken"
    DELIVERING = "owners bring the processes that take their ranges to where they are themselves"
    STOPPING = "the instances of a sink that give up their places are being ended"
    BROKEN = "it came to nothing: its processes are about to be ended"
    OVER = "its processes have begun, or were ended"


class PlacementEvent(Enum):
    """What can happen to a placement."""

    GIVE = "there is a process for every place that waits"
    WIDENED = "more instances have died, and others are to begin together with these"
    RESTORED = "a process has its place and its state"
    STATE_LOST = "no keeper has the state of a process"
    KEEPER_DIED = "a keeper died while a process fetched its state from it"
    TAKEN = "another controller has given the process a place"
    DIED = "a process died before it began"
    UNHIRED = "no process can be started where one has to be"
    GO_ON = "all processes have their state"
    DELIVERED = "an owner has delivered what has changed since the checkpoint"
    UNDELIVERED = "an owner could not deliver"
    STOPPED = "an instance that gives up its place has ended"
    TICK = "time has passed"
    ABANDON = "the move that it belongs to ends this attempt"


class Purpose(Protocol):
    """Why places are taken, and what that means for how they are: see `Replacement` and
    `MoveAttempt`."""

    operator: str
    """The operator that is moved; empty unless it is a move."""

    def may_give(self, p: Placement) -> tuple[bool, list[Command]]:
        """Whether processes may be given the places now."""
        ...

    def given(self, p: Placement) -> list[Command]:
        """There are processes for all places, which are given to them now."""
        ...

    def donor(self, p: Placement, place: Place) -> Member | None:
        """The owner that must send its changes since the committed checkpoint to the new instance
        before that one starts; None if the new instance replays them."""
        ...

    def go_on(self, p: Placement) -> tuple[PlacementPhase, list[Command]]:
        """All processes have their state."""
        ...

    def delivered(self, p: Placement, event: on.Delivered) -> list[Command]:
        """The last owner has delivered."""
        ...

    def stopped(self, p: Placement) -> list[Command]:
        """All instances that give up their places have ended."""
        ...

    def overdue(self, p: Placement) -> str:
        """Why owners that deliver are not waited for any longer; empty while they are."""
        ...

    def broken(self, p: Placement) -> list[Command]:
        """The placement came to nothing: see `Placement.why`."""
        ...


@dataclass(eq=False, kw_only=True)
class Placement(Subject[PlacementPhase]):
    """Places that are to be taken, all at once."""

    number: int
    """Its number among the placements of this controller."""
    purpose: Purpose = field(repr=False)
    """Why the places are taken."""
    committed: int
    """The checkpoint from which the new instances begin; -1 for the one that is committed when they
    are given their places."""
    gone: tuple[Member, ...]
    """The instances whose places are taken: the dead, or owners that give up their ranges."""
    began: float
    """When it began."""
    because: str
    """Why, in words."""
    waiting: list[Place]
    """Places without a process."""
    node: str = ""
    """The node where its processes have to be, "" for anywhere."""
    newest: bool = False
    """Whether it begins from the newest committed checkpoint when its places are given: one may be
    committed while it waits for processes."""
    phase: PlacementPhase = PlacementPhase.WAITING
    preparing: dict[str, tuple[SpareProcess, Place]] = field(default_factory=dict)
    """Processes that were given a place and do not have their state yet, by name."""
    ready: dict[str, tuple[SpareProcess, Place, str]] = field(default_factory=dict)
    """Processes that have their state, by name, with the address where their logs are served."""
    failures: Counter[Place] = field(default_factory=Counter)
    """How many processes have failed to take each place."""
    attempts: dict[str, int] = field(default_factory=dict)
    """By process the number of the request that it has not answered yet."""
    drawn: int = 0
    """How many requests were made."""
    delivering: set[str] = field(default_factory=set)
    """Owners that have not delivered yet."""
    bases: dict[str, int] = field(default_factory=dict)
    """By process the epoch with whose state it begins, where an owner has delivered."""
    stopping: set[str] = field(default_factory=set)
    """Processes that have to end before others take their places."""
    told: float = 0.0
    """When it was first seen, after these were told to end, that they had not."""
    owners_end: bool = False
    """Whether the instances that give up their places are ended before others have them."""
    nbytes: int = 0
    """Bytes of state that its processes were given."""
    why: str = ""
    """Why it came to nothing."""

    @property
    def operator(self) -> str:
        """The operator that is moved; empty unless it is a move."""
        return self.purpose.operator

    @property
    def undecided(self) -> bool:
        """Whether it is a move that can still come to nothing, with the owners still at work."""
        return bool(self.operator) and not self.owners_end

    @property
    def processes(self) -> set[str]:
        """The processes that have one of its places."""
        return {*self.preparing, *self.ready}

    @property
    def places(self) -> list[Place]:
        """All of its places."""
        found = [*self.waiting, *(place for _, place in self.preparing.values())]
        return found + [place for _, place, _ in self.ready.values()]

    def given(self, process: str) -> list[Place]:
        """Those of its places that were given to a process."""
        given = {s: place for s, (_, place) in self.preparing.items()}
        given |= {s: place for s, (_, place, _) in self.ready.items()}
        return [place for s, place in given.items() if process_of(s) == process]

    def attempt(self, process: str, incarnation: int) -> Attempt:
        """Number a request to a process, so that its answer is known again."""
        self.drawn += 1
        self.attempts[process] = self.drawn
        return Attempt(incarnation, self.number, self.drawn)
