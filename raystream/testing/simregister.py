"""The boundary register in a simulation: its places, those who claim, and the controller's part.

registrar.poll()                 now and then, by the controller: does what is due
claimer.want(split, epoch, wanted, then)       by a source instance: `then(held)` when all agree
ledger.publish(split, epoch, boundary)         checks that nobody publishes anything else
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raystream.controller.registering import (
    Fill,
    Hand,
    Recall,
    Registering,
    answered,
    change,
    due,
    filled,
    first,
    resumed,
)
from raystream.dataflow.register import (
    NO_VIEW,
    Ask,
    Boundaries,
    Boundary,
    Claims,
    Held,
    Register,
    View,
    claim,
)
from raystream.errors import JobError
from raystream.testing.simworld import Box, World, Wrong

LINK = 0.03
AGAIN = 0.3
"""How soon is asked again what was not answered."""


class Ledger:
    """What was published, by whomever."""

    def __init__(self) -> None:
        self.published: dict[tuple[str, int], Boundary] = {}

    def publish(self, split: str, epoch: int, boundary: Boundary) -> None:
        """An epoch of a split leaves a source instance."""
        before = self.published.setdefault((split, epoch), boundary)
        if before != boundary:
            raise Wrong(f"epoch {epoch} of {split} was published to {before} and to {boundary}")


class RegisterPlace(Box):
    """A process that may be a place of the register."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.boundaries = Register()

    def claimed(self, world: World, by: Claimer, number: int, ask: Ask[Any], split: str,
                epoch: int) -> None:  # fmt: skip
        """A claim comes in."""
        held = self.boundaries.claim(ask.view, split, epoch, ask.wanted)
        world.send(LINK, by.box, by.answered, number, held)


class Claimer:
    """The claims of a source instance, which runs in `box`; one at a time."""

    def __init__(self, world: World, box: Box) -> None:
        self.world = world
        self.box = box
        self.claims: Claims[RegisterPlace] = Claims()
        self._wants: tuple[str, int, Boundary, Callable[[Held], None]] | None = None
        self._round: Generator[Ask[RegisterPlace], Held | None, Held | None] | None = None
        self._under = 0
        self._number = 0

    def want(self, split: str, epoch: int, wanted: Boundary, then: Callable[[Held], None]) -> None:
        """Claim until all places of a view hold the boundary; `then` it is handed on."""
        self._wants = (split, epoch, wanted, then)
        self._try(self._number)

    def _try(self, number: int) -> None:
        """Begin a round, unless something came of the last one meanwhile."""
        if number != self._number or self._wants is None:
            return
        split, epoch, wanted, _ = self._wants
        known, view = self.claims.known(split, epoch), self.claims.view
        if known is not None:
            self._hand_on(known)
        elif view is None:
            self._later()
        else:
            self._round, self._under = claim(view, split, epoch, wanted), view.number
            self._ask(next(self._round))

    def _later(self) -> None:
        self._number += 1
        self.world.at(self.world.now + AGAIN, self.box, self._try, self._number)

    def _ask(self, ask: Ask[RegisterPlace]) -> None:
        assert self._wants is not None
        split, epoch, _, _ = self._wants
        self._later()
        place, number = ask.place, self._number
        self.world.send(LINK, place, place.claimed, self.world, self, number, ask, split, epoch)

    def answered(self, number: int, held: Held | None) -> None:
        """A place answers. What comes late or twice is dropped."""
        if number != self._number or self._wants is None or self._round is None:
            return
        split, epoch, _, _ = self._wants
        try:
            self._ask(self._round.send(held))
        except StopIteration as end:
            self._round = None
            agreed: Held | None = end.value
            if agreed and self.claims.settle(self._under, split, epoch, agreed.boundary):
                self._hand_on(agreed)
            else:
                self._later()

    def _hand_on(self, held: Held) -> None:
        assert self._wants is not None
        then = self._wants[3]
        self._number += 1
        self._wants = None
        then(held)


@dataclass
class Cast:
    """Who is there, as the controller sees it. places: those to choose, in order; living: all.
    sources: source instances by name; vacant: those that died and were not replaced so far."""

    places: Sequence[RegisterPlace]
    living: Sequence[RegisterPlace]
    sources: Mapping[str, Claimer]
    vacant: frozenset[str] = frozenset()


@dataclass
class Noted:
    """What the controller has in its journal of the register."""

    begun: int = 0
    told: View[str] = NO_VIEW
    knowing: frozenset[str] = frozenset()


@dataclass
class Registrar:
    """The controller's part; another one goes on from the same journal.

    cast: says who is there. lost: is told when the register is.
    """

    world: World
    box: Box
    journal: Noted
    cast: Callable[[], Cast]
    lost: Callable[[JobError], None]
    state: Registering | None = None
    _told: dict[str, int] = field(default_factory=dict)
    _places: dict[str, RegisterPlace] = field(default_factory=dict)

    def poll(self) -> None:
        """Do what is due, and say again what was not answered."""
        cast = self.cast()
        self._places |= {p.name: p for p in cast.living}
        places = [p.name for p in cast.places]
        living = [p.name for p in cast.living]
        old = self.state
        if old is None and self.journal.begun:
            old = resumed(self.journal.begun, self.journal.told, self.journal.knowing)
        if old is None:
            self._take(first(places, cast.sources))
        elif due(old, places, living, cast.sources):
            try:
                self._take(change(old, places, living, cast.sources, cast.vacant))
            except JobError as error:
                self.lost(error)
                return
        self._act(cast.sources)

    def _take(self, state: Registering) -> None:
        """Journal a state, then act on it."""
        if state.begun.number > self.journal.begun:
            self.world.tell("view", state.begun, "for", sorted(state.readers))
        self.state = state
        self.journal.begun = state.begun.number
        self.journal.told, self.journal.knowing = state.told, state.knowing

    def _act(self, sources: Mapping[str, Claimer]) -> None:
        assert self.state is not None
        for command in self.state.commands({name: self._told.get(name, 0) for name in sources}):
            if isinstance(command, Recall):
                by = sources.get(command.source)
                if by is not None:
                    self.world.send(LINK, by.box, self._recall, by, command)
            elif isinstance(command, Hand):
                place = self._places[command.place]
                self.world.send(LINK, place, self._hand, place, command)
            elif isinstance(command, Fill):
                place = self._places[command.place]
                self.world.send(LINK, place, self._fill, place, command)
            else:
                by, at = sources[command.source], [self._places[p] for p in command.view.places]
                view = View(command.view.number, tuple(at))
                args = (by, command.source, view, command.content)
                self.world.send(LINK, by.box, self._tell, *args)

    # What is done at those who are asked.

    def _recall(self, by: Claimer, command: Recall) -> None:
        content = by.claims.boundaries(command.view, command.least)
        self.world.send(LINK, self.box, self._answered, command.view, command.source, content)

    def _hand(self, place: RegisterPlace, command: Hand) -> None:
        content = place.boundaries.hand(command.view)
        self.world.send(LINK, self.box, self._answered, command.view, command.place, content)

    def _fill(self, place: RegisterPlace, command: Fill) -> None:
        if place.boundaries.fill(command.view, command.content):
            self.world.send(LINK, self.box, self._filled, command.view, command.place)

    def _tell(
        self, by: Claimer, source: str, view: View[RegisterPlace], content: Boundaries
    ) -> None:
        by.claims.follow(view, content)
        self.world.send(LINK, self.box, self._heard, source, by.claims.told.number)

    # What is answered.

    def _answered(self, view: int, who: str, content: Boundaries | None) -> None:
        assert self.state is not None
        try:
            self._next(self.state, answered(self.state, view, who, content))
        except JobError as error:
            self.lost(error)

    def _filled(self, view: int, place: str) -> None:
        assert self.state is not None
        self._next(self.state, filled(self.state, view, place))

    def _next(self, old: Registering, new: Registering) -> None:
        """Go on when there is something else to do. (What was not answered is said again at the
        next poll; were it at every answer, answers would breed questions.)"""
        self._take(new)
        if (old.content is None, old.settled) != (new.content is None, new.settled):
            self._act(self.cast().sources)

    def _heard(self, source: str, view: int) -> None:
        self._told[source] = max(view, self._told.get(source, 0))
