"""The boundary register in a simulation: its places, claims, and the controller's part.

registrar.poll()                 now and then, by the controller: does what is due
claimer.want(split, epoch, wanted, then)       by a source instance: `then(held)` when all agree
ledger.publish(split, epoch, boundary)         checks that nobody publishes anything else
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raystream.controller.protocol.register_views import (
    AskContent,
    Fill,
    Recall,
    Registering,
    answered,
    change,
    due,
    filled,
    first,
    resumed,
)
from raystream.dataflow.asking.answers import is_answer
from raystream.dataflow.register import (
    NO_VIEW,
    Ask,
    Boundaries,
    Boundary,
    Claims,
    HeldBoundary,
    PlaceSet,
    Register,
    claim,
)
from raystream.dataflow.sources.live import decoded
from raystream.errors import JobError
from raystream.schema.columns import Columns
from raystream.schema.records import RecordSchema
from raystream.simulation.world import Box, World, Wrong

LINK = 0.03
AGAIN = 0.3
"""How soon a question without an answer is asked again."""


class Ledger:
    """The boundaries that any source has published."""

    def __init__(self) -> None:
        self.published: dict[tuple[str, int], Boundary] = {}
        self.acknowledged: set[int] = set()
        """The numbers of the records of live sources that are promised to come out."""
        self._received: dict[tuple[str, str, int], list[int]] = {}
        self._schema: RecordSchema | None = None
        self._number = 0
        self._pushers: dict[tuple[str, str], Pusher] = {}

    def pusher(self, split: str, name: str) -> Pusher:
        """A client that pushes into a live split."""
        return self._pushers.setdefault((split, name), Pusher(name))

    def next_number(self) -> int:
        """The number of the next record that a live source receives."""
        self._number += 1
        return self._number

    def received(self, split: str, writer: str, batch: int, rows: Columns) -> None:
        """Note that a process has received a batch of a live source."""
        self._schema = rows.schema
        self._received[split, writer, batch] = rows.column("number").tolist()

    def acknowledge(self, split: str, writer: str, upto: int) -> None:
        """Note that the source may forget the batches of a process up to this one."""
        for batch in range(upto, 0, -1):
            numbers = self._received.pop((split, writer, batch), None)
            if numbers is None:
                return
            self.acknowledged.update(numbers)
            for pusher in self._pushers.values():
                pusher.answered(numbers)

    def goes_on(self, before: Ledger, checkpoint: int) -> None:
        """Hold what an earlier job has published up to a saved checkpoint; the rest is lost."""
        kept = {at: b for at, b in before.published.items() if at[1] <= checkpoint}
        self.published |= kept
        self._number, self._schema = before._number, before._schema
        self._pushers = before._pushers

    def check_recorded(self) -> None:
        """Check that each record of a live source is recorded once, and each that its source was
        told to forget is recorded."""
        counted: Counter[int] = Counter()
        for (name, _), boundary in self.published.items():
            if not is_answer(name) and boundary.rows and self._schema is not None:
                rows = decoded(self._schema, boundary.rows).rows
                counted.update([] if rows is None else rows.column("number").tolist())
        if twice := [n for n, times in counted.items() if times > 1]:
            raise Wrong(f"records are recorded twice: {twice}")
        if lost := self.acknowledged - set(counted):
            raise Wrong(f"records are acknowledged and not recorded: {sorted(lost)}")

    def publish(self, split: str, epoch: int, boundary: Boundary) -> None:
        """Note that a source instance publishes an epoch of a split."""
        before = self.published.setdefault((split, epoch), boundary)
        if before != boundary:
            raise Wrong(f"epoch {epoch} of {split} was published to {before} and to {boundary}")


class Pusher:
    """A client that sends one batch after the other into a split, each until it is answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = 0
        self.batch: Columns | None = None
        """The batch that has no answer yet; the next process that feeds the split gets it, too."""

    def send(self, batch: Columns) -> None:
        """Send a new batch."""
        self.sequence += 1
        self.batch = batch

    def answered(self, numbers: list[int]) -> None:
        """Some process says that these records are recorded."""
        if self.batch is not None and self.batch.column("number").tolist() == numbers:
            self.batch = None


class RegisterPlace(Box):
    """A process that may be a place of the register."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.boundaries = Register()

    def claim(self, view: int, split: str, epoch: int, wanted: Boundary) -> HeldBoundary | None:
        """See `Register.claim`."""
        return self.boundaries.claim(view, split, epoch, wanted)

    def look(
        self, view: int, epoch: int, names: Sequence[str]
    ) -> dict[tuple[str, int], Boundary] | None:
        """See `Register.look`."""
        return self.boundaries.look(view, epoch, names)

    def hand(self, view: int) -> Boundaries | None:
        """See `Register.hand`."""
        return self.boundaries.hand(view)

    def fill(self, view: int, content: Boundaries) -> bool:
        """See `Register.fill`."""
        return self.boundaries.fill(view, content)

    def looked(self, world: World, by: SimulatedClaimer, number: int, view: int, epoch: int,
               names: Sequence[str]) -> None:  # fmt: skip
        """Answer what is held."""
        world.send(LINK, by.box, by.found, number, view, self.look(view, epoch, names))

    def claimed(self, world: World, by: SimulatedClaimer, number: int, ask: Ask[Any], split: str,
                epoch: int) -> None:  # fmt: skip
        """Answer a claim."""
        held = self.claim(ask.view, split, epoch, ask.wanted)
        world.send(LINK, by.box, by.answered, number, held)


class SimulatedClaimer:
    """The claims of a source instance, which runs in `box`; one at a time."""

    def __init__(self, world: World, box: Box) -> None:
        self.world = world
        self.box = box
        self.claims: Claims[RegisterPlace] = Claims()
        self._wants: tuple[str, int, Boundary, Callable[[HeldBoundary], None]] | None = None
        self._round: (
            Generator[Ask[RegisterPlace], HeldBoundary | None, HeldBoundary | None] | None
        ) = None
        self._under = 0
        self._number = 0
        self._looks: Callable[[], None] | None = None

    def look(
        self, epoch: int, names: Sequence[str], then: Callable[[dict[str, Boundary]], None]
    ) -> None:
        """Look what all places hold of an epoch and of later ones; see `Claimer.find`."""
        found, view = self._known(epoch, names), self.claims.view
        if len(found) == len(names) or view is None or not view.places:
            then(found)
            return
        self._number += 1
        self._looks = lambda: then(self._known(epoch, names))
        place, number = view.places[-1], self._number
        self.world.send(LINK, place, place.looked, self.world, self, number, view.number, epoch,
                        names)  # fmt: skip
        self.world.at(self.world.now + AGAIN, self.box, self.found, number, 0, None)

    def found(self, number: int, view: int, held: dict[tuple[str, int], Boundary] | None) -> None:
        """A place has answered, or has not in time."""
        then = self._looks
        if number == self._number and then is not None:
            self._number += 1
            self._looks = None
            for (name, epoch), boundary in (held or {}).items():
                self.claims.settle(view, name, epoch, boundary)
            then()

    def _known(self, epoch: int, names: Sequence[str]) -> dict[str, Boundary]:
        known = {name: self.claims.known(name, epoch) for name in names}
        return {name: held.boundary for name, held in known.items() if held is not None}

    def want(
        self, split: str, epoch: int, wanted: Boundary, then: Callable[[HeldBoundary], None]
    ) -> None:
        """Claim until all places of a view hold the boundary, and call `then` with it."""
        self._wants = (split, epoch, wanted, then)
        self._try(self._number)

    def _try(self, number: int) -> None:
        """Begin a round, unless the last one has got on meanwhile."""
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

    def answered(self, number: int, held: HeldBoundary | None) -> None:
        """Take the answer of a place. Answers that come late or twice are dropped."""
        if number != self._number or self._wants is None or self._round is None:
            return
        split, epoch, _, _ = self._wants
        try:
            self._ask(self._round.send(held))
        except StopIteration as end:
            self._round = None
            agreed: HeldBoundary | None = end.value
            if agreed and self.claims.settle(self._under, split, epoch, agreed.boundary):
                self._hand_on(agreed)
            else:
                self._later()

    def _hand_on(self, held: HeldBoundary) -> None:
        assert self._wants is not None
        then = self._wants[3]
        self._number += 1
        self._wants = None
        then(held)


@dataclass
class Cast:
    """The processes that exist, as the controller sees them."""

    places: Sequence[RegisterPlace]
    """The places that are to be chosen, in order."""
    living: Sequence[RegisterPlace]
    """All places that live."""
    sources: Mapping[str, SimulatedClaimer]
    """Source instances by name."""
    vacant: frozenset[str] = frozenset()
    """The source instances that died and were not replaced so far."""


@dataclass
class Noted:
    """What the journal of the controller holds about the register."""

    begun: int = 0
    """The number of the newest view that was begun."""
    told: PlaceSet[str] = NO_VIEW
    """The newest view that source instances were told."""
    knowing: frozenset[str] = frozenset()
    """The source instances that were told it."""


@dataclass
class Registrar:
    """The controller's part of the register. A new one goes on from the same journal."""

    world: World
    box: Box
    """The process of the controller."""
    journal: Noted
    """What it has written of the register."""
    cast: Callable[[], Cast]
    """Tells which processes exist."""
    lost: Callable[[JobError], None]
    """Called when the register is lost."""
    state: Registering | None = field(default=None, init=False)
    """The change of view that it is at work on, if there is one."""
    _told: dict[str, int] = field(default_factory=dict, init=False)
    """By source instance the newest view that it was told."""
    _places: dict[str, RegisterPlace] = field(default_factory=dict, init=False)
    """Every place that it has known, by name."""

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

    def _act(self, sources: Mapping[str, SimulatedClaimer]) -> None:
        assert self.state is not None
        for command in self.state.commands({name: self._told.get(name, 0) for name in sources}):
            if isinstance(command, Recall):
                by = sources.get(command.source)
                if by is not None:
                    self.world.send(LINK, by.box, self._recall, by, command)
            elif isinstance(command, AskContent):
                place = self._places[command.place]
                self.world.send(LINK, place, self._hand, place, command)
            elif isinstance(command, Fill):
                place = self._places[command.place]
                self.world.send(LINK, place, self._fill, place, command)
            else:
                by, at = sources[command.source], [self._places[p] for p in command.view.places]
                view = PlaceSet(command.view.number, tuple(at))
                args = (by, command.source, view, command.content)
                self.world.send(LINK, by.box, self._tell, *args)

    # What is done at those that are asked.

    def _recall(self, by: SimulatedClaimer, command: Recall) -> None:
        content = by.claims.boundaries(command.view, command.least)
        self.world.send(LINK, self.box, self._answered, command.view, command.source, content)

    def _hand(self, place: RegisterPlace, command: AskContent) -> None:
        content = place.hand(command.view)
        self.world.send(LINK, self.box, self._answered, command.view, command.place, content)

    def _fill(self, place: RegisterPlace, command: Fill) -> None:
        if place.fill(command.view, command.content):
            self.world.send(LINK, self.box, self._filled, command.view, command.place)

    def _tell(
        self, by: SimulatedClaimer, source: str, view: PlaceSet[RegisterPlace], content: Boundaries
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
        """Act on a state that is new. Questions without an answer are asked again at the next poll
        only: asked at every answer, they would multiply."""
        self._take(new)
        if (old.content is None, old.settled) != (new.content is None, new.settled):
            self._act(self.cast().sources)

    def _heard(self, source: str, view: int) -> None:
        self._told[source] = max(view, self._told.get(source, 0))
