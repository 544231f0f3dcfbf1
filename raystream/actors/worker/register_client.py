"""How a source instance asks the boundary register: at all places of the newest view, in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raystream.dataflow.register import (
    Ask,
    Boundaries,
    Boundary,
    Claims,
    HeldBoundary,
    PlaceSet,
    claim,
)
from raystream.errors import JobError

CLAIM_SECONDS = 180.0
"""How long a source waits for the boundary register, changes of its places included. That is longer
than it takes until a keeper that hangs counts as dead and the controller, which may have to be
restarted first, has chosen other places."""
AGAIN_SECONDS = 0.1
"""How soon a place that did not answer is asked again, unless there is a newer view before."""

Asking = Callable[[Ask[Any], str, int], HeldBoundary | None]
"""Asks a place for an epoch of a split; None when it refuses, or does not answer in time."""
AskingAll = Callable[[Any, int, int, Mapping[str, Boundary]], Mapping[str, HeldBoundary] | None]
"""Asks a place under a view for several entries of an epoch at once."""
Looking = Callable[[Any, int, str, int], Boundary | None]
"""Looks what a place holds under a view for a split and an epoch; None when it holds nothing, or
does not answer in time."""
LookingAll = Callable[[Any, int, int, Sequence[str]], Mapping[str, Boundary]]
"""Looks what a place holds under a view for several names and an epoch."""


class Claimer:
    """The claims of one instance of a source, or of an operator that asks the world. Any thread may
    call it.

    Args:
        ask: asks a place for one entry. ask_all: for several of an epoch; one after the other
            unless given.
        look, look_all: look what a place holds.
    """

    def __init__(
        self,
        ask: Asking,
        look: Looking | None = None,
        ask_all: AskingAll | None = None,
        look_all: LookingAll | None = None,
    ) -> None:
        self._ask = ask
        self._look = look
        self._ask_all = ask_all
        self._look_all = look_all
        self._claims: Claims[Any] = Claims()
        self._changed = threading.Condition()
        self._stopping = False

    @property
    def view(self) -> int:
        """The newest view that it was told."""
        return self._claims.told.number

    def __call__(self, split: str, epoch: int, wanted: Boundary) -> HeldBoundary:
        """Where an epoch of a split ends, which all places hold.

        Raises:
            JobError: they did not answer, nor did the controller choose others.
        """
        return self.all(epoch, {split: wanted})[split]

    def all(self, epoch: int, wanted: Mapping[str, Boundary]) -> dict[str, HeldBoundary]:
        """What all places hold of several entries of an epoch, each of which is decided by itself.

        Raises:
            JobError: the places did not answer, nor did the controller choose others.
        """
        give_up = time.monotonic() + CLAIM_SECONDS
        found: dict[str, HeldBoundary] = {}
        while not self._stopping:
            with self._changed:
                left = [name for name in wanted if name not in found]
                known = {name: self._claims.known(name, epoch) for name in left}
                found |= {name: held for name, held in known.items() if held is not None}
                view = self._claims.view
            missing = {name: wanted[name] for name in wanted if name not in found}
            if not missing:
                return found
            held = None if view is None else self._round(view, epoch, missing)
            with self._changed:
                if held is not None and view is not None:
                    settled = [
                        self._claims.settle(view.number, name, epoch, one.boundary)
                        for name, one in held.items()
                    ]
                    found |= held if all(settled) else {}
                elif time.monotonic() > give_up:
                    raise JobError(
                        "the boundary register did not say within"
                        f" {CLAIM_SECONDS:g} s where epoch {epoch} of {next(iter(missing))} ends",
                        hint="Are there nodes that hang, or that cannot reach each other?",
                    )
                elif self._claims.view is view:
                    self._changed.wait(AGAIN_SECONDS)
        raise JobError("the instance was stopped")

    def known(self, epoch: int, names: Sequence[str]) -> dict[str, Boundary]:
        """What all places hold, as far as that is known here."""
        with self._changed:
            known = {name: self._claims.known(name, epoch) for name in names}
        return {name: held.boundary for name, held in known.items() if held is not None}

    def find(self, epoch: int, names: Sequence[str]) -> dict[str, Boundary] | None:
        """As `look`, for several names. None: no view was told yet, so that nothing is known."""
        found = self.known(epoch, names)
        missing = [name for name in names if name not in found]
        with self._changed:
            view = self._claims.view
        if missing and view is None:
            return None
        if missing and view is not None and view.places and self._look_all is not None:
            found |= self._look_all(view.places[0], view.number, epoch, missing)
        return found

    def look(self, split: str, epoch: int) -> Boundary | None:
        """What another process has claimed for an epoch of a split, as far as the first place
        knows; None if that is nothing so far. It counts once it was claimed here, too."""
        with self._changed:
            known, view = self._claims.known(split, epoch), self._claims.view
        if known is not None:
            return known.boundary
        if view is None or not view.places or self._look is None:
            return None
        return self._look(view.places[0], view.number, split, epoch)

    @property
    def row_bytes(self) -> int:
        """See `Claims.row_bytes`."""
        with self._changed:
            return self._claims.row_bytes

    def _round(
        self, view: PlaceSet[Any], epoch: int, wanted: Mapping[str, Boundary]
    ) -> dict[str, HeldBoundary] | None:
        """One round for each of the entries, side by side; None when a place refused or did not
        answer."""
        rounds = {name: claim(view, name, epoch, boundary) for name, boundary in wanted.items()}
        answers: Mapping[str, HeldBoundary | None] | None = dict.fromkeys(rounds)
        while answers is not None:
            asks: dict[str, Ask[Any]] = {}
            ended: dict[str, HeldBoundary | None] = {}
            for name, asking in rounds.items():
                try:
                    asks[name] = asking.send(answers[name])
                except StopIteration as end:
                    ended[name] = end.value
            if ended:  # refused, or all have asked as many places
                return {n: held for n, held in ended.items() if held is not None} or None
            answers = self._asked(epoch, asks)
        return None

    def _asked(
        self, epoch: int, asks: Mapping[str, Ask[Any]]
    ) -> Mapping[str, HeldBoundary | None] | None:
        """The answers to questions that all go to one place."""
        first = next(iter(asks.values()))
        if len(asks) > 1 and self._ask_all is not None:
            wanted = {name: ask.wanted for name, ask in asks.items()}
            return self._ask_all(first.place, first.view, epoch, wanted)
        return {name: self._ask(ask, name, epoch) for name, ask in asks.items()}

    def follow(self, view: PlaceSet[Any], content: Boundaries) -> None:
        """Claim under a new view from now on; see `Claims.follow`."""
        with self._changed:
            self._claims.follow(view, content)
            self._changed.notify_all()

    def boundaries(self, view: int, least: int = 1) -> Boundaries | None:
        """All boundaries that are known here; see `Claims.boundaries`."""
        with self._changed:
            return self._claims.boundaries(view, least)

    def trim(self, committed: int) -> None:
        """Forget the epochs up to and including `committed`."""
        with self._changed:
            self._claims.trim(committed)

    def stop(self) -> None:
        """Wake waiting threads and let their calls fail."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()


class RegisterKeeping:
    """The register as an operator that asks the world needs it (`raystream.local.asking`).

    Args:
        owns: whether the instance owns its range by now.
    """

    def __init__(self, claimer: Claimer, owns: Callable[[], bool]) -> None:
        self.owns = owns
        self.known, self.find = claimer.known, claimer.find
        self._claimer = claimer

    def claim(self, epoch: int, wanted: Mapping[str, Boundary]) -> Mapping[str, Boundary]:
        """What all places hold of these entries, once they do."""
        held = self._claimer.all(epoch, wanted)
        return {name: one.boundary for name, one in held.items()}
