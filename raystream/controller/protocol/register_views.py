"""Which places hold the boundary register: the controller's part of `raystream.dataflow.register`.

    state = first(places, sources)
    if due(state, places, living, sources): state = change(state, places, living, sources)
    for command in state.commands(views): ...       repeated until they are answered
    state = answered(state, ...), filled(state, ...)

A state is a value. Two things of it have to be in the journal, for `resumed`: the number of
`begun`, before the first command of a change; and `told` with `knowing`, once they have changed,
before the next command.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from raystream.dataflow.register import NO_VIEW, Boundaries, PlaceSet, merged
from raystream.errors import LostError, lost


@dataclass(frozen=True, slots=True)
class AskContent:
    """Ask a place what it holds (`Register.hand`)."""

    view: int
    """The number of the view that is to be filled."""
    place: str
    """The place."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask a source instance what it knows (`Claims.boundaries`)."""

    view: int
    """The number of the view that is to be filled."""
    source: str
    """The source instance."""
    least: int
    """The source instance must have been told this view, or a newer one: otherwise it does not know
    enough."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Fill a place (`Register.fill`)."""

    view: int
    """The number of the view."""
    place: str
    """The place."""
    content: Boundaries
    """All that was published before the view."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell a source instance the view (`Claims.follow`)."""

    view: PlaceSet[str]
    """The view."""
    source: str
    """The source instance."""
    content: Boundaries
    """All that was published before the view."""


RegisterCommand = AskContent | Recall | Fill | Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Registering:
    """The newest view, and how far it is.

    Places and source instances are names that are never used again: a replacement has another name.
    """

    begun: PlaceSet[str]
    """The newest view, under way or told."""
    readers: frozenset[str]
    """The source instances for which it is."""
    vacant: frozenset[str] = frozenset()
    """The source instances that were dead and not replaced when it began. Only the places know what
    these have published."""
    told: PlaceSet[str] = NO_VIEW
    """The newest view for which all places were filled. Each of its places holds all that was
    published before it or under it."""
    knowing: frozenset[str] = frozenset()
    """The readers of that view, and the source instances that were vacant then."""
    asked: frozenset[str] = frozenset()
    """The places that have to say what the new view is filled with; if `recalling`, the source
    instances."""
    recalling: bool = False
    """Whether source instances are asked, because no place is left."""
    answers: Mapping[str, Boundaries] = field(default_factory=dict)
    """What they answered so far."""
    content: Boundaries | None = None
    """What the new view is filled with; None until all have answered."""
    filled: frozenset[str] = frozenset()
    """The places that hold it."""

    @property
    def settled(self) -> bool:
        """Whether the newest view is ready to be told."""
        return self.begun == self.told

    def commands(self, views: Mapping[str, int]) -> list[RegisterCommand]:
        """The commands of the present step; all that were not answered are repeated.

        Args:
            views: by living source instance, the number of the newest view that it was told.
        """
        number = self.begun.number
        if self.content is None:
            waiting = sorted(self.asked - set(self.answers))
            least = self.told.number
            return [
                Recall(number, w, least) if self.recalling else AskContent(number, w)
                for w in waiting
            ]
        if not self.settled:
            missing = (p for p in self.begun.places if p not in self.filled)
            return [Fill(number, p, self.content) for p in missing]
        behind = sorted(s for s, told in views.items() if s in self.readers and told < number)
        return [Tell(self.begun, s, self.content) for s in behind]


def first(places: Collection[str], sources: Collection[str], committed: int = 0) -> Registering:
    """The state when a job begins: nothing was published after `committed`. No source may start
    before it was told this view."""
    return Registering(
        begun=PlaceSet(1, tuple(places)),
        readers=frozenset(sources),
        content=Boundaries(committed),
    )


def resumed(begun: int, told: PlaceSet[str], knowing: Collection[str]) -> Registering:
    """The state after a restart of the controller, as its journal has it. A `change` is due."""
    return Registering(
        begun=PlaceSet(begun, ()), readers=frozenset(), told=told, knowing=frozenset(knowing)
    )


def due(
    state: Registering, places: Collection[str], living: Collection[str], sources: Collection[str]
) -> bool:
    """Whether a `change` is due: there are other places or other source instances, or one that is
    asked has died before it answered."""
    return (
        tuple(places) != state.begun.places
        or frozenset(sources) != state.readers
        or not state.asked - set(state.answers) <= {*living, *sources}
    )


def change(
    state: Registering,
    places: Collection[str],
    living: Collection[str],
    sources: Collection[str],
    vacant: Collection[str] = (),
    over: Collection[str] = (),
) -> Registering:
    """The state with a new view.

    Args:
        places: of the new view, in the order in which sources claim at them.
        living: all places that are alive.
        sources: the source instances that are alive, or are about to start.
        vacant: the source instances that died and are not replaced yet.
        over: the source instances whose last epoch is committed: they are not replaced.

    Raises:
        LostError: no place is left, and neither are all source instances that know what was
            published.
    """
    begun, readers = PlaceSet(state.begun.number + 1, tuple(places)), frozenset(sources)
    new = replace(state, begun=begun, readers=readers, vacant=frozenset(vacant) - {*over})
    new = replace(new, asked=frozenset(), answers={}, filled=frozenset())
    if state.content is not None and not state.settled:
        return new  # all that was published is at hand, and nobody publishes under older views
    survivors = frozenset(state.told.places) & set(living)
    if not survivors and (gone := state.knowing - readers - set(over)):
        raise _lost(state.told.places, gone)
    asked = survivors or state.knowing & readers
    return _merged(replace(new, asked=asked, recalling=not survivors, content=None))


def answered(state: Registering, view: int, name: str, content: Boundaries | None) -> Registering:
    """The state after a place or a source instance said what it holds; None if it refused.

    Raises:
        LostError: no place is left, and a source instance does not know all that was published.
        InternalError: two of them hold different boundaries for one epoch.
    """
    if view != state.begun.number or name not in state.asked:
        return state
    if content is not None:
        return _merged(replace(state, answers={**state.answers, name: content}))
    if state.recalling:
        raise _lost(state.told.places, [name])
    return state  # it has heard of a newer view: there is a newer controller


def _merged(state: Registering) -> Registering:
    """Merge the answers, once all are there."""
    if not state.asked <= set(state.answers):
        return state
    return replace(state, content=merged(state.answers.values()), asked=frozenset(), answers={})


def filled(state: Registering, view: int, place: str) -> Registering:
    """The state after a place was filled. Once all are, the view can be told."""
    if view != state.begun.number or state.settled:
        return state
    state = replace(state, filled=state.filled | {place})
    if not state.filled >= set(state.begun.places):
        return state
    return replace(state, told=state.begun, knowing=state.readers | state.vacant)


def _lost(places: Collection[str], sources: Collection[str]) -> LostError:
    return lost(
        "the boundary register is lost: its places are gone"
        f" ({', '.join(places)}), and so is what {', '.join(sorted(sources))} knew of it"
    )
