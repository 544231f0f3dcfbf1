"""What an instance spends its time on, measured without any work for each record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from raystream.dataflow.progress import Spent

Doing = Literal["idle", "busy", "blocked"]


class _Mark(NamedTuple):
    """What a thread is doing, and what it did before that."""

    doing: Doing
    """What it is doing now."""
    since: float
    """Since when, by the monotonic clock."""
    busy: float
    """Seconds for which it was busy before that."""
    blocked: float
    """Seconds for which it was blocked before that."""
    rounds: int
    """How many times it began to work after it had waited for input."""


class Meter:
    """Counts the seconds of one thread by what it does. Other threads may ask at any time.

    All that it knows is one value, which is replaced as a whole: no reader sees half of a change.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin to count. The thread is idle."""
        self._began = time.monotonic()
        self._mark = _Mark("idle", self._began, 0.0, 0.0, 0)

    def turn(self, doing: Doing) -> None:
        """Note that the thread does this from now on."""
        now, (did, since, busy, blocked, rounds) = time.monotonic(), self._mark
        if now > since:
            if did == "busy":
                busy += now - since
            elif did == "blocked":
                blocked += now - since
        if did == "idle" and doing == "busy":
            rounds += 1
        self._mark = _Mark(doing, now, busy, blocked, rounds)

    @contextmanager
    def meanwhile(self, doing: Doing) -> Iterator[None]:
        """Note that the thread does this inside the block, and afterwards what it did before."""
        before = self._mark.doing
        self.turn(doing)
        try:
            yield
        finally:
            self.turn(before)

    def rounds(self) -> int:
        """How many times the thread began to work after it had waited for input."""
        return self._mark.rounds

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
            mark.rounds,
        )
