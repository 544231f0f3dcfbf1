"""What an instance spends its time with, counted without touching a record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from raystream.controller.report import Spent

Doing = Literal["idle", "busy", "blocked"]


class _Mark(NamedTuple):
    """What is being done since when, and what was done up to then."""

    doing: Doing
    since: float
    busy: float
    blocked: float


class Meter:
    """Counts the seconds of one thread by what it does; others may ask at any time.

    What is known is one value, replaced whole, so nobody sees half of a change.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count from now on, idle."""
        self._began = time.monotonic()
        self._mark = _Mark("idle", self._began, 0.0, 0.0)

    def turn(self, doing: Doing) -> None:
        """From now on the thread does this."""
        now = time.monotonic()
        spent = self._spent(now)
        self._mark = _Mark(doing, now, spent.busy, spent.blocked)

    @contextmanager
    def meanwhile(self, doing: Doing) -> Iterator[None]:
        """Inside the block the thread does this, and then again what it did before."""
        before = self._mark.doing
        self.turn(doing)
        try:
            yield
        finally:
            self.turn(before)

    def spent(self) -> Spent:
        """Seconds so far."""
        return self._spent(time.monotonic())

    def _spent(self, now: float) -> Spent:
        mark = self._mark
        open_ = max(0.0, now - mark.since)
        return Spent(
            now - self._began,
            mark.busy + (open_ if mark.doing == "busy" else 0.0),
            mark.blocked + (open_ if mark.doing == "blocked" else 0.0),
        )
