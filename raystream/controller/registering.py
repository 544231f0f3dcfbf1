"""Which places hold the boundary register: the controller's part of `raystream.dataflow.register`.

    state = first(places, sources)
    if due(state, places, living, sources): state = change(state, places, living, sources)
    for command in state.commands(views): ...       now and then, until they are answered
    state = answered(state, ...), filled(state, ...)

A state is a value. Two things of it have to be journalled, for `resumed`: the number of `begun`
before the first command of a change, and `told` with `knowing`, once they changed, before the next
command.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from raystream.dataflow.register import NO_VIEW, Boundaries, View, merged
from raystream.errors import LostError, lost


@dataclass(frozen=True, slots=True)
class Hand:
    """Ask a place what it holds (`Register.hand`)."""

    view: int
    place: str


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask a source instance what it knows (`Claims.boundaries`). least: the view that it needs to
    have been told, or it does not know enough."""

    view: int
    source: str
    least: int


@dataclass(frozen=True, slots=True)
class Fill:
    """Fill a place (`Register.fill`)."""

    view: int
    place: str
    content: Boundaries


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell a source instance the view (`Claims.follow`)."""

    view: View[str]
    source: str
    content: Boundaries


Command = Hand | Recall | Fill | Tell


@dataclass(frozen=True, slots=True)
class Registering:
    """The newest view, and how far it is. Places and source instances are names that are never
    used again: whoever takes the place of one that died has another.

    begun: the newest view, under way or told; readers: the source instances that it is for; vacant:
    those that had died then and were not replaced: nobody but the places knows what they published.
    told: the newest view that all its places were filled for, each of which holds all that was
    published before it or under it; knowing: its readers, and who was vacant. asked: places or, if
    `recalling`, source instances that have to say what the new view is filled with; answers: what
    they said. content: all of it, once it is known. filled: places that hold it.
    """

    begun: View[str]
    readers: frozenset[str]
    vacant: frozenset[str] = frozenset()
    told: View[str] = NO_VIEW
    knowing: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    recalling: bool = False
    answers: Mapping[str, Boundaries] = field(default_factory=dict)
    content: Boundaries | None = None
    filled: frozenset[str] = frozenset()

    @property
    def settled(self) -> bool:
        """Whether the newest view is ready to be told."""
        return self.begun == self.told

    def commands(self, views: Mapping[str, int]) -> list[Command]:
        """What is to be told now, or to be told again because no answer came.

        Args:
            views: the newest view that each living source instance was told.
        """
        number = self.begun.number
        if self.content is None:
            waiting = sorted(self.asked - set(self.answers))
            least = self.told.number
            return [
                Recall(number, w, least) if self.recalling else Hand(number, w) for w in waiting
            ]
        if not self.settled:
            missing = (p for p in self.begun.places if p not in self.filled)
            return [Fill(number, p, self.content) for p in missing]
        behind = sorted(s for s, told in views.items() if s in self.readers and told < number)
        return [Tell(self.begun, s, self.content) for s in behind]


def first(places: Collection[str], sources: Collection[str], floor: int = 0) -> Registering:
    """The state when a job begins: nothing was published after `floor`. No source may start before
    it was told this view."""
    return Registering(View(1, tuple(places)), frozenset(sources), content=Boundaries(floor))


def resumed(begun: int, told: View[str], knowing: Collection[str]) -> Registering:
    """The state after a restart of the controller, as its journal has it. A `change` is due."""
    return Registering(View(begun, ()), frozenset(), told=told, knowing=frozenset(knowing))


def due(
    state: Registering, places: Collection[str], living: Collection[str], sources: Collection[str]
) -> bool:
    """Whether a `change` is due: other places, other source instances, or the death of somebody
    who is asked."""
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
        places: of the new view, in the order of claims; living: all that live. sources: the source
            instances that live, or are about to; vacant: those that died and were not replaced so
            far; over: those whose last epoch is committed, which nobody replaces.

    Raises:
        LostError: no place is left, and not all who know what was published.
    """
    begun, readers = View(state.begun.number + 1, tuple(places)), frozenset(sources)
    new = replace(state, begun=begun, readers=readers, vacant=frozenset(vacant) - {*over})
    new = replace(new, asked=frozenset(), answers={}, filled=frozenset())
    if state.content is not None and not state.settled:
        return new  # all that was published is at hand, and nobody publishes under older views
    survivors = frozenset(state.told.places) & set(living)
    if not survivors and (gone := state.knowing - readers - set(over)):
        raise _lost(state.told.places, gone)
    asked = survivors or state.knowing & readers
    return _merged(replace(new, asked=asked, recalling=not survivors, content=None))


def answered(state: Registering, view: int, who: str, content: Boundaries | None) -> Registering:
    """A place or a source instance said what it holds; None: it refused.

    Raises:
        LostError: no place is left, and a source instance does not know what was published.
        InternalError: two hold different boundaries for one epoch.
    """
    if view != state.begun.number or who not in state.asked:
        return state
    if content is not None:
        return _merged(replace(state, answers={**state.answers, who: content}))
    if state.recalling:
        raise _lost(state.told.places, [who])
    return state  # it has heard of a newer view: there is a newer controller


def _merged(state: Registering) -> Registering:
    """Merge what was said, once all have."""
    if not state.asked <= set(state.answers):
        return state
    return replace(state, content=merged(state.answers.values()), asked=frozenset(), answers={})


def filled(state: Registering, view: int, place: str) -> Registering:
    """A place was filled. When all are, the view is the one to be told."""
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
