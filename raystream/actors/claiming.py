"""How a source instance asks the boundary register: at all places of the newest view, in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from raystream.dataflow.register import Ask, Boundaries, Boundary, Claims, Held, View, claim
from raystream.errors import JobError

CLAIM_SECONDS = 180.0
"""How long a source waits for the boundary register, changes of its places included: longer than it
takes until a keeper that hangs counts as dead and others are told, by a controller that may have to
be restarted."""
AGAIN_SECONDS = 0.1
"""How soon a place is asked again that did not answer, unless there is a newer view before."""

Asking = Callable[[Ask[Any], str, int], Held | None]
"""Asks a place for an epoch of a split; None when it refuses, or does not answer in time."""


class Claimer:
    """The claims of one source instance. Any thread may call it."""

    def __init__(self, ask: Asking) -> None:
        self._ask = ask
        self._claims: Claims[Any] = Claims()
        self._changed = threading.Condition()
        self._stopping = False

    @property
    def view(self) -> int:
        """The newest view that it was told."""
        return self._claims.told.number

    def __call__(self, split: str, epoch: int, wanted: Boundary) -> Held:
        """Where an epoch of a split ends, which all places hold.

        Raises:
            JobError: they did not answer, nor did the controller choose others.
        """
        give_up = time.monotonic() + CLAIM_SECONDS
        while not self._stopping:
            with self._changed:
                known, view = self._claims.known(split, epoch), self._claims.view
            if known is not None:
                return known
            held = None if view is None else self._round(view, split, epoch, wanted)
            with self._changed:
                if held is not None and view is not None:
                    if self._claims.settle(view.number, split, epoch, held.boundary):
                        return held
                elif time.monotonic() > give_up:
                    raise JobError(
                        "the boundary register did not say within"
                        f" {CLAIM_SECONDS:g} s where epoch {epoch} of {split} ends",
                        hint="Are there nodes that hang, or that cannot reach each other?",
                    )
                elif self._claims.view is view:
                    self._changed.wait(AGAIN_SECONDS)
        raise JobError("the instance was stopped")

    def _round(self, view: View[Any], split: str, epoch: int, wanted: Boundary) -> Held | None:
        """One round; None when a place refused or did not answer."""
        asking = claim(view, split, epoch, wanted)
        try:
            ask = next(asking)
            while True:
                ask = asking.send(self._ask(ask, split, epoch))
        except StopIteration as end:
            held: Held | None = end.value
            return held

    def follow(self, view: View[Any], content: Boundaries) -> None:
        """Claim under a new view from now on; see `Claims.follow`."""
        with self._changed:
            self._claims.follow(view, content)
            self._changed.notify_all()

    def boundaries(self, view: int, least: int = 1) -> Boundaries | None:
        """All that is known here; see `Claims.boundaries`."""
        with self._changed:
            return self._claims.boundaries(view, least)

    def trim(self, floor: int) -> None:
        """Forget the epochs up to and including `floor`."""
        with self._changed:
            self._claims.trim(floor)

    def stop(self) -> None:
        """Let those who wait go."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
