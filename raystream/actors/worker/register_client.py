"""How a source instance asks the boundary register: at all places of the newest view, in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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

Asking = Callable[[Any, int, int, Mapping[str, Boundary]], Mapping[str, HeldBoundary] | None]
"""Asks a place under a view for entries of an epoch; see `Register.claim_all`. None when the place
refuses, or does not answer in time."""
Looking = Callable[[Any, int, int, Sequence[str]], Mapping[tuple[str, int], Boundary] | None]
"""Asks a place what it holds under a view, for some names, from an epoch on; see `Register.look`.
None when the place refuses, or does not answer in time."""


class Claimer:
    """The claims of one instance of a source, or of an operator that asks the world. Any thread may
    call it.

    Args:
        ask: asks a place for entries of an epoch.
        look: asks what a place holds. Without it, an instance that is behind claims each epoch.
    """

    def __init__(self, ask: Asking, look: Looking | None = None) -> None:
        self._ask = ask
        self._look = look
        self._claims: Claims[Any] = Claims()
        self._newest = 0
        """The newest epoch that any answer to a claim has named."""
        self._leads = False
        """Whether the last look found nothing: nobody is ahead of this instance."""
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
        if self._newest > epoch and not self._leads:
            self.find(epoch, [*wanted])
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
                    self._newest = max(self._newest, *(one.newest for one in held.values()))
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

    def find(
        self, epoch: int, names: Sequence[str], among: Sequence[str] = ()
    ) -> dict[str, Boundary] | None:
        """The boundaries of an epoch that all places hold. If one is not known here, this asks the
        last place for this epoch and those after it, so an instance that is behind asks seldom.

        Args:
            names: the entries that are wanted now. among: all entries that will be wanted in later
                epochs; `names` unless given.

        Returns:
            The boundaries that are held by now, by name. None: no view was told yet.
        """
        found = self.known(epoch, names)
        with self._changed:
            view = self._claims.view
        if len(found) == len(names):
            return found
        if view is None:
            return None
        if not view.places or self._look is None:
            return found
        held = self._look(view.places[-1], view.number, epoch, among or names) or {}
        with self._changed:
            self._leads = not held
            settled = [
                self._claims.settle(view.number, name, at, boundary)
                for (name, at), boundary in held.items()
            ]
        return self.known(epoch, names) if all(settled) else found

    @property
    def row_bytes(self) -> int:
        """See `Claims.row_bytes`."""
        with self._changed:
            return self._claims.row_bytes

    def _round(
        self, view: PlaceSet[Any], epoch: int, wanted: Mapping[str, Boundary]
    ) -> dict[str, HeldBoundary] | None:
        """Claim several boundaries of an epoch, by name, in one round of questions to the places.

        Returns the boundaries that the places hold then; None if a place refused or did not answer.
        """
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

    def _asked(self, epoch: int, asks: Mapping[str, Ask[Any]]) -> Mapping[str, HeldBoundary] | None:
        """The answers to questions that all go to one place."""
        first = next(iter(asks.values()))
        wanted = {name: ask.wanted for name, ask in asks.items()}
        return self._ask(first.place, first.view, epoch, wanted)

    def follow(self, view: PlaceSet[Any], content: Boundaries) -> None:
        """Claim under a new view from now on; see `Claims.follow`."""
        with self._changed:
            self._leads = False
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
        names: the names of all entries that the instance may have.
        owns: whether the instance owns its range by now.
    """

    def __init__(self, claimer: Claimer, names: Sequence[str], owns: Callable[[], bool]) -> None:
        self.owns = owns
        self.known = claimer.known
        self.find = partial(claimer.find, among=names)
        self._claimer = claimer

    def claim(self, epoch: int, wanted: Mapping[str, Boundary]) -> Mapping[str, Boundary]:
        """What all places hold of these entries, once they do."""
        held = self._claimer.all(epoch, wanted)
        return {name: one.boundary for name, one in held.items()}
