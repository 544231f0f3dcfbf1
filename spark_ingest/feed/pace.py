"""When rows are due, and how many of them make up a batch. Pure: `now` is handed in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise

BATCH_ROWS = 200_000
"""A batch has about this many rows at most: some 10 MB for all lanes."""
NOT_DUE = -1
"""Of rows that are released as fast as they are taken: they are due at no moment."""


@dataclass(frozen=True)
class Pace:
    """Releases whole seconds of event time.

    first, end: the first second, and the one after the last. per_second: rows of each second from
    `first` on. speed: event seconds per second; None for as fast as rows are taken. started: the
    Unix time at which second `first` begins; None before that is known.
    """

    first: int
    end: int
    per_second: tuple[int, ...]
    speed: float | None
    started: float | None = None

    def released(self, now: float) -> int:
        """The first second that is not over at a moment."""
        if self.speed is None:
            return self.end
        if self.started is None or now <= self.started:
            return self.first
        over = math.floor((now - self.started) * self.speed + 1e-6)
        return min(self.first + over, self.end)

    def upto(self, begin: int, now: float, rows: int = BATCH_ROWS) -> int:
        """Where a batch ends that begins at a second: all that is released, unless that is more
        than so many rows; at least one second of it. Seconds before the first are batches of their
        own."""
        if begin < self.first:
            return begin + 1
        most = self.released(now)
        if most <= begin:
            return begin
        counts = self.per_second[begin - self.first : most - self.first]
        within = sum(total <= rows for total in accumulate(counts))
        return begin + max(within, 1)

    def due(self, second: int) -> int:
        """The Unix time, in microseconds, at which a second begins; NOT_DUE without a pace."""
        if self.speed is None or self.started is None:
            return NOT_DUE
        return round((self.started + (second - self.first) / self.speed) * 1e6)


@dataclass(frozen=True)
class Part:
    """What a task reads: seconds of some splits. last: of the splits nothing of the batch follows,
    so a mark does."""

    splits: tuple[int, ...]
    begin: int
    end: int
    last: bool


def parts(splits: int, begin: int, end: int, tasks: int) -> list[Part]:
    """About `tasks` parts of a batch. Those of each split are in order of time."""
    groups = min(tasks, splits)
    pieces = min(max(tasks // splits, 1), max(end - begin, 1))
    cuts = [begin + (end - begin) * piece // pieces for piece in range(pieces + 1)]
    return [
        Part(tuple(range(group, splits, groups)), cut, until, until == end)
        for group in range(groups)
        for cut, until in pairwise(cuts)
    ]
