"""The boundary register: where the epochs of sources that are cut by arrival end, decided once.

It lives in several *places*, one at each of some keepers, and a *view* is a numbered choice of
them. A place takes claims under the one view that it was filled for, and the first writer of a
(split, epoch) wins there. A source publishes an epoch when all places of its view hold its end.

Why that gives one boundary for all, whichever process dies or wakes up late, and whichever message
comes twice:

- *In one view.* Every source instance claims at the first place first, and takes the boundary that
  this place answers to the others, one after the other. So the other places hold nothing that the
  first does not, and none ever answers another value: one round is enough. All other places hold
  what the last one holds, so its boundaries count without a claim (`Register.look`).
- *From view to view.* A view is filled with all that was published before. Its content comes from
  places of the view before, each of which holds all of it and refuses older views from the moment
  it hands it over (`Register.hand`). A source instance that claims under an older view needs that
  place as well, so it cannot end its round any more. Filling replaces what a place held: claims
  whose rounds did not end are forgotten, or kept by all places.
- *Where no place is left*, the content comes from the source instances themselves
  (`Claims.boundaries`): each knows what it published, and settles nothing under an older view from
  then on. That needs an answer of every source instance that the newest view was for, and each of
  them must have been told that view. An instance that replaced another one, or read the same splits
  beside one that is gone, knows what that one had published: a replacement is a change of view too,
  and a view is told together with its content. The predecessor may still be alive. It is not told
  the new view, so it publishes nothing that its successor does not know.

`raystream.controller.protocol.register_views` decides about views.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from raystream.errors import InternalError

LOOK_EPOCHS = 64
"""A look returns boundaries of at most this many epochs."""
LOOK_BYTES = 4 << 20
"""A look stops after the entry with which its rows reach this many bytes."""

P = TypeVar("P")
"""A place, as its callers address it: by a name, or by the handle of an actor."""


class Boundary(NamedTuple):
    """Where an epoch of a split ends, in a source that is cut by arrival."""

    position: int
    """The position in the split after the epoch."""
    watermark: int
    """The watermark of the split after the epoch."""
    ended: bool
    """Whether the split ends with the epoch."""
    idle: bool = False
    """Whether the split is idle after the epoch: it holds no watermark back."""
    beyond: int = 0
    """Of an idle split: how far the clock has carried event time beyond the split's watermark, in
    the flow's unit; it counts where all splits are idle."""
    rows: bytes = b""
    """The rows of the epoch, where they cannot be read again; see `dataflow.sources.live`."""

    def __repr__(self) -> str:
        """Without the rows: what users record stays out of messages and logs."""
        held = f", {len(self.rows):,} bytes of rows" if self.rows else ""
        state = ", its end" if self.ended else ", idle" if self.idle else ""
        return f"{self.position} (watermark {self.watermark}{state}{held})"


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Boundaries of the epochs after a committed checkpoint."""

    committed: int = 0
    """The committed checkpoint: boundaries up to it are forgotten."""
    held: Mapping[tuple[str, int], Boundary] = field(default_factory=dict)
    """The boundaries by (split, epoch)."""

    @property
    def newest(self) -> int:
        """The newest epoch that was closed."""
        return max((epoch for _, epoch in self.held), default=self.committed)

    def after(self, committed: int) -> Boundaries:
        """These boundaries without those of the epochs up to and including `committed`."""
        if committed <= self.committed:
            return self
        return Boundaries(committed, {at: b for at, b in self.held.items() if at[1] > committed})


def merged(parts: Iterable[Boundaries]) -> Boundaries:
    """All boundaries of several parts, after the newest of their committed checkpoints.

    Raises:
        InternalError: two parts hold different boundaries for one epoch of a split.
    """
    parts = list(parts)
    committed = max((part.committed for part in parts), default=0)
    held: dict[tuple[str, int], Boundary] = {}
    for part in parts:
        for at, boundary in part.after(committed).held.items():
            if held.setdefault(at, boundary) != boundary:
                raise _conflict(*at, held[at], boundary)
    return Boundaries(committed, held)


class HeldBoundary(NamedTuple):
    """The answer to a claim."""

    boundary: Boundary
    """The boundary that holds."""
    newest: int
    """The newest epoch that any source has closed."""


class _Table:
    """Boundaries that change."""

    def __init__(self) -> None:
        self.committed = 0
        self.newest = 0
        """The newest epoch that was ever put."""
        self.held: dict[tuple[str, int], Boundary] = {}

    @property
    def content(self) -> Boundaries:
        return Boundaries(self.committed, dict(self.held))

    def put(self, split: str, epoch: int, wanted: Boundary) -> Boundary:
        """Hold `wanted` unless a boundary is held already; returns the one that is held."""
        self.newest = max(self.newest, epoch)
        return self.held.setdefault((split, epoch), wanted)

    def replace(self, content: Boundaries) -> None:
        """Hold exactly this content, after the newer of the two committed checkpoints."""
        content = content.after(self.committed)
        self.committed, self.held = content.committed, dict(content.held)
        self.newest = max(self.newest, content.newest)


class Register:
    """The register at one place."""

    def __init__(self) -> None:
        self.view = 0
        """The newest view that it has heard of; calls under older ones are refused."""
        self.filled = 0
        """The view that it was filled for, which is the one under which it takes claims."""
        self._table = _Table()

    def claim(self, view: int, split: str, epoch: int, wanted: Boundary) -> HeldBoundary | None:
        """The boundary that holds here, which is `wanted` if none was written before.

        None: refused. Either this place takes no claims under this view, or the epoch is not after
        the committed checkpoint; only an instance that was replaced asks for such an epoch.
        """
        if not view == self.view == self.filled or epoch <= self._table.committed:
            return None
        return HeldBoundary(self._table.put(split, epoch, wanted), self._table.newest)

    def claim_all(
        self, view: int, epoch: int, wanted: Mapping[str, Boundary]
    ) -> dict[str, HeldBoundary] | None:
        """As `claim`, of several entries of an epoch: each is decided by itself. None: refused."""
        held = {name: self.claim(view, name, epoch, b) for name, b in wanted.items()}
        found = {name: answer for name, answer in held.items() if answer is not None}
        return found if len(found) == len(wanted) else None

    def look(
        self, view: int, epoch: int, names: Sequence[str]
    ) -> dict[tuple[str, int], Boundary] | None:
        """The boundaries that this place holds of some splits, by (split, epoch), from `epoch` on:
        of up to `LOOK_EPOCHS` epochs, and up to about `LOOK_BYTES` of rows.

        All places of a view hold what its last place returns.
        None: this place takes no claims under this view.
        """
        if not view == self.view == self.filled:
            return None
        found: dict[tuple[str, int], Boundary] = {}
        left, held = LOOK_BYTES, self._table.held
        for at in range(epoch, min(epoch + LOOK_EPOCHS, self._table.newest + 1)):
            for name in names:
                if (boundary := held.get((name, at))) is not None:
                    found[name, at] = boundary
                    left -= len(boundary.rows)
                    if left <= 0:
                        return found
        return found

    def hand(self, view: int) -> Boundaries | None:
        """The content of this place, which refuses views older than `view` from now on.

        None: it has heard of a newer view.
        """
        if view < self.view:
            return None
        self.view = view
        return self._table.content

    def fill(self, view: int, content: Boundaries) -> bool:
        """Hold exactly this content, and take claims under `view`. False: the place has heard of a
        newer view.

        A second call for the same view changes nothing.
        """
        if view < self.view:
            return False
        if view > self.filled:
            self.view = self.filled = view
            self._table.replace(content)
        return True

    def trim(self, committed: int) -> None:
        """Forget the epochs up to and including `committed`."""
        self._table.replace(self._table.content.after(committed))


class PlaceSet(NamedTuple, Generic[P]):
    """A view: a numbered choice of places."""

    number: int
    """Its number; the newest view has the highest."""
    places: tuple[P, ...]
    """Its places, in the order in which they are asked."""


NO_VIEW: PlaceSet[Any] = PlaceSet(0, ())
"""What holds before the first view."""


class Ask(NamedTuple, Generic[P]):
    """The next question of a claim."""

    place: P
    """The place that is asked."""
    view: int
    """The number of the view under which it is asked."""
    wanted: Boundary
    """The boundary that it is asked to hold."""


def claim(
    view: PlaceSet[P], split: str, epoch: int, wanted: Boundary
) -> Generator[Ask[P], HeldBoundary | None, HeldBoundary | None]:
    """One round of a claim. The generator yields what to ask and is sent what `Register.claim`
    answered. It returns what all places of the view hold, or None when one of them refused.

    A question without an answer may be asked again.

    Raises:
        InternalError: two places hold different boundaries.
    """
    held = HeldBoundary(wanted, 0)
    for i, place in enumerate(view.places):
        answer = yield Ask(place, view.number, held.boundary)
        if answer is None:
            return None
        if i and answer.boundary != held.boundary:
            raise _conflict(split, epoch, held.boundary, answer.boundary)
        held = HeldBoundary(answer.boundary, max(held.newest, answer.newest))
    return held


class Claims(Generic[P]):
    """What a source instance knows of the register: the newest view that it was told, and all
    boundaries of its splits that were or may have been published since the committed checkpoint.

    Not thread-safe: its owner locks.
    """

    def __init__(self) -> None:
        self.told: PlaceSet[P] = NO_VIEW
        """The newest view that the instance was told; number 0 before the first."""
        self._asked = 0
        self._table = _Table()

    @property
    def view(self) -> PlaceSet[P] | None:
        """The view under which to claim; None: wait for a newer one."""
        return self.told if self.told.number >= max(self._asked, 1) else None

    def follow(self, view: PlaceSet[P], content: Boundaries) -> None:
        """Claim under a new view, whose places hold `content`; an older one is ignored.

        Raises:
            InternalError: the instance knows another boundary than the places hold.
        """
        if view.number > self.told.number:
            self.told = view
            self._table.replace(merged([self._table.content, content]))

    @property
    def row_bytes(self) -> int:
        """The bytes of all rows that it knows to be recorded since the committed checkpoint."""
        return sum(len(boundary.rows) for boundary in self._table.held.values())

    def boundaries(self, view: int, least: int = 1) -> Boundaries | None:
        """All boundaries that the instance knows; it settles nothing under older views from now on.

        None: it was not told the view `least` or a newer one, so it does not know what earlier
        readers of the same splits published; or it has heard of a newer view than `view`.
        """
        if view < max(self._asked, self.told.number) or self.told.number < max(least, 1):
            return None
        self._asked = view
        return self._table.content

    def known(self, split: str, epoch: int) -> HeldBoundary | None:
        """The boundary of an epoch, if it is known without asking: all places hold it."""
        boundary = self._table.held.get((split, epoch))
        return None if boundary is None else HeldBoundary(boundary, self._table.newest)

    def settle(self, view: int, split: str, epoch: int, boundary: Boundary) -> bool:
        """Remember a boundary that all places of a view hold, before it is published.

        False: there is a newer view, so claim again.

        Raises:
            InternalError: another boundary was published before.
        """
        if self.view is None or self.view.number != view:
            return False
        if (held := self._table.put(split, epoch, boundary)) != boundary:
            raise _conflict(split, epoch, held, boundary)
        return True

    def trim(self, committed: int) -> None:
        """Forget the epochs up to and including `committed`."""
        self._table.replace(self._table.content.after(committed))


def _conflict(split: str, epoch: int, one: Boundary, other: Boundary) -> InternalError:
    return InternalError(f"epoch {epoch} of {split} ends both at {one} and at {other}")
