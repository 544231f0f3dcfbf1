"""When rows are due, and how many of them make up a batch. Pure: `now` is handed in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from spark_ingest.layout import SLOTS

BATCH_ROWS = 200_000
"""A batch has about this many rows at most: some 10 MB for each of four lanes."""
NOT_DUE = -1
"""Of rows that are released as fast as they are taken: they are due at no moment."""


@dataclass(frozen=True)
class Pace:
    """Releases whole seconds of event time. first, end: the first second, and the one after the
    last. speed: event seconds per second; None for as fast as they are taken. started: the Unix
    time at which second `first` begins. per_second: rows of each second from `first` on."""

    first: int
    end: int
    speed: float | None
    started: float
    per_second: tuple[int, ...]

    def released(self, now: float) -> int:
        """The first second that is not over at a moment."""
        if self.speed is None:
            return self.end
        over = math.floor((now - self.started) * self.speed + 1e-6)
        return min(max(self.first + over, self.first), self.end)

    def upto(self, begin: int, now: float, rows: int = BATCH_ROWS) -> int:
        """Where a batch ends that begins at a second: all that is released, unless that is more
        than so many rows; at least one second of it."""
        most = self.released(now)
        if most <= begin:
            return begin
        counts: Sequence[int] = self.per_second[begin - self.first : most - self.first]
        within = sum(total <= rows for total in accumulate(counts))
        return begin + max(within, 1)

    def due(self, release: int) -> int:
        """The Unix time, in microseconds, at which a slot of a second is due; NOT_DUE without a
        pace. release: in slots since second 0."""
        if self.speed is None:
            return NOT_DUE
        seconds = (release / SLOTS - self.first) / self.speed
        return round((self.started + seconds) * 1e6)
