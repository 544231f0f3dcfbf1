"""The boundary register: where the epochs of sources that are cut by arrival end, decided once.

It lives in several *places*, one at each of some keepers, and a *view* is a numbered choice of
them. A place takes claims under the one view that it was filled for, and the first writer of a
(split, epoch) wins there. A source publishes an epoch when all places of its view hold its end.

Why that gives one boundary for all, whatever dies, wakes up late, or comes twice:

- *In one view.* Everybody claims at the first place first and takes what that answers to the
  others, one after the other. So the other places hold nothing that the first does not, and none
  ever answers another value: one round is enough.
- *From view to view.* A view is filled with all that was published before. It comes from places of
  the view before, each of which holds all of it and refuses older views from the moment it hands it
  over (`Register.hand`). Whoever claims under an older view needs that place as well, so he cannot
  end his round any more. Filling replaces what a place held: claims whose rounds did not end are
  forgotten, or kept by all.
- *Where no place is left*, it comes from the sources themselves (`Claims.boundaries`): each knows
  what it published, and settles nothing under an older view from then on. That needs every source
  instance that the newest view was for, and each has to be told it. Who replaced one, or read the
  same splits beside one that is gone, knows what that had published, because a replacement is a
  change of view too, and a view is told with what it is filled with; and the predecessor, which may
  be alive, is not told, so that it publishes nothing that its successor does not know.

`raystream.controller.registering` decides about views.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from raystream.errors import InternalError

P = TypeVar("P")
"""A place, as whoever calls it knows it: a name, or the handle of an actor."""


class Boundary(NamedTuple):
    """Where an arrival epoch of a split ends: position after it, watermark, end flag."""

    position: int
    watermark: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Boundaries by (split, epoch), of the epochs after `floor`."""

    floor: int = 0
    held: Mapping[tuple[str, int], Boundary] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest epoch that was closed."""
        return max((epoch for _, epoch in self.held), default=self.floor)

    def after(self, floor: int) -> Boundaries:
        """Without the epochs up to and including `floor`."""
        if floor <= self.floor:
            return self
        return Boundaries(floor, {at: b for at, b in self.held.items() if at[1] > floor})


def merged(parts: Iterable[Boundaries]) -> Boundaries:
    """All boundaries of several parts, after the newest of their floors.

    Raises:
        InternalError: they hold different boundaries for one epoch of a split.
    """
    parts = list(parts)
    floor = max((part.floor for part in parts), default=0)
    held: dict[tuple[str, int], Boundary] = {}
    for part in parts:
        for at, boundary in part.after(floor).held.items():
            if held.setdefault(at, boundary) != boundary:
                raise _conflict(*at, held[at], boundary)
    return Boundaries(floor, held)


class Held(NamedTuple):
    """A boundary that holds, and the newest epoch that any source has closed."""

    boundary: Boundary
    newest: int


class _Table:
    """Boundaries that change; newest: the newest epoch that was ever put."""

    def __init__(self) -> None:
        self.floor = 0
        self.newest = 0
        self.held: dict[tuple[str, int], Boundary] = {}

    @property
    def content(self) -> Boundaries:
        return Boundaries(self.floor, dict(self.held))

    def put(self, split: str, epoch: int, wanted: Boundary) -> Boundary:
        """What is held, which is `wanted` if nothing was."""
        self.newest = max(self.newest, epoch)
        return self.held.setdefault((split, epoch), wanted)

    def replace(self, content: Boundaries) -> None:
        """Hold exactly this, after the newer floor."""
        content = content.after(self.floor)
        self.floor, self.held = content.floor, dict(content.held)
        self.newest = max(self.newest, content.newest)


class Register:
    """The register at one place.

    view: the newest that it has heard of; older ones are refused. filled: the view that it was
    filled for, which is the one under which it takes claims.
    """

    def __init__(self) -> None:
        self.view = 0
        self.filled = 0
        self._table = _Table()

    def claim(self, view: int, split: str, epoch: int, wanted: Boundary) -> Held | None:
        """The boundary that holds here, which is `wanted` if none was written before.

        None: refused. It takes no claims under this view, or the epoch is not above the floor, as
        only somebody asks who was replaced.
        """
        if not view == self.view == self.filled or epoch <= self._table.floor:
            return None
        return Held(self._table.put(split, epoch, wanted), self._table.newest)

    def hand(self, view: int) -> Boundaries | None:
        """What is held here; older views are refused from now on. None: this one is older."""
        if view < self.view:
            return None
        self.view = view
        return self._table.content

    def fill(self, view: int, content: Boundaries) -> bool:
        """Hold exactly this, and take claims under `view`. False: the view is an older one.

        A second call for the same view changes nothing.
        """
        if view < self.view:
            return False
        if view > self.filled:
            self.view = self.filled = view
            self._table.replace(content)
        return True

    def trim(self, floor: int) -> None:
        """Forget the epochs up to and including `floor`."""
        self._table.replace(self._table.content.after(floor))


class View(NamedTuple, Generic[P]):
    """A numbered choice of places."""

    number: int
    places: tuple[P, ...]


NO_VIEW: View[Any] = View(0, ())
"""Before the first."""


class Ask(NamedTuple, Generic[P]):
    """What a claim asks next: `place` to hold `wanted` under `view`."""

    place: P
    view: int
    wanted: Boundary


def claim(
    view: View[P], split: str, epoch: int, wanted: Boundary
) -> Generator[Ask[P], Held | None, Held | None]:
    """One round of a claim: yields what to ask, is sent what `Register.claim` answered, and returns
    what all places of the view hold, or None when one of them refused.

    A question without an answer may be asked again.

    Raises:
        InternalError: two places hold different boundaries.
    """
    held = Held(wanted, 0)
    for i, place in enumerate(view.places):
        answer = yield Ask(place, view.number, held.boundary)
        if answer is None:
            return None
        if i and answer.boundary != held.boundary:
            raise _conflict(split, epoch, held.boundary, answer.boundary)
        held = Held(answer.boundary, max(held.newest, answer.newest))
    return held


class Claims(Generic[P]):
    """What a source instance knows of the register: the newest view that it was told, and all
    boundaries of its splits that were or may have been published since the floor.

    Not thread-safe: its owner locks.

    told: the newest view that it was told, number 0 before the first.
    """

    def __init__(self) -> None:
        self.told: View[P] = NO_VIEW
        self._asked = 0
        self._table = _Table()

    @property
    def view(self) -> View[P] | None:
        """The view under which to claim; None: wait for a newer one."""
        return self.told if self.told.number >= max(self._asked, 1) else None

    def follow(self, view: View[P], content: Boundaries) -> None:
        """Claim under a new view, whose places hold `content`; an older one is ignored.

        Raises:
            InternalError: something else was published than they hold.
        """
        if view.number > self.told.number:
            self.told = view
            self._table.replace(merged([self._table.content, content]))

    def boundaries(self, view: int, least: int = 1) -> Boundaries | None:
        """All that it knows; nothing is settled under older views from now on.

        None: it was not told the view `least` or a newer one, and does not know what was published
        before by whoever read the same splits; or it has heard of a newer one than `view`.
        """
        if view < max(self._asked, self.told.number) or self.told.number < max(least, 1):
            return None
        self._asked = view
        return self._table.content

    def known(self, split: str, epoch: int) -> Held | None:
        """The boundary of an epoch, if it is known without asking: all places hold it."""
        boundary = self._table.held.get((split, epoch))
        return None if boundary is None else Held(boundary, self._table.newest)

    def settle(self, view: int, split: str, epoch: int, boundary: Boundary) -> bool:
        """All places of a view hold a boundary: remember it, before it is published.

        False: there is a newer view; claim again.

        Raises:
            InternalError: another one was published before.
        """
        if self.view is None or self.view.number != view:
            return False
        if (held := self._table.put(split, epoch, boundary)) != boundary:
            raise _conflict(split, epoch, held, boundary)
        return True

    def trim(self, floor: int) -> None:
        """Forget the epochs up to and including `floor`."""
        self._table.replace(self._table.content.after(floor))


def _conflict(split: str, epoch: int, one: Boundary, other: Boundary) -> InternalError:
    return InternalError(f"epoch {epoch} of {split} ends both at {one} and at {other}")
