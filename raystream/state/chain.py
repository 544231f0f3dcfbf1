"""What the next checkpoint of an instance holds, and which of its cuts are stored.

A checkpoint is a delta on the one before, and holds some of the rows beside that have not changed:
it *refreshes* those that were stored the longest ago. The oldest image is not needed any more when
all its rows were stored again, be it because they changed or because they were refreshed; so of a
large state there are no full checkpoints but the first, and each takes about as long as the others.
That is how a log-structured file system cleans its log (Rosenblum and Ousterhout, SOSP 1991),
oldest segment first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

IMAGE_BYTES = 1 << 20
"""To read one more image costs a restore about as much as so many bytes."""
SMALL_BYTES = 8 * IMAGE_BYTES
"""So much may always be read in addition: it costs little."""
CHAIN_MAX = 256
"""A chain has fewer images. Where there is nothing to refresh, or it cannot be, the next checkpoint
is a full one after so many deltas."""
HASTE, SLACK = 2.0, 0.25
"""How fast rows are refreshed, and from when on, see `Chain`."""


class Span(NamedTuple):
    """Every cut from `since` to `upto` is stored in all its copies; 0 is no cut."""

    since: int
    upto: int


class Size(NamedTuple):
    """What an image takes when it is stored, and how many rows it has."""

    nbytes: int
    rows: int

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.nbytes + other.nbytes, self.rows + other.rows)


NOTHING = Size(0, 0)


class Wanted(NamedTuple):
    """What a checkpoint is to hold: what has changed since the cut `base`, 0 for all; and the rows
    whose epoch and slot come before these. oldest: see `ImageHeader`. rows: about so many are
    refreshed."""

    base: int = 0
    before: tuple[int, int] = (0, 0)
    oldest: int = 0
    rows: int = 0


FULL = Wanted()


class _Link(NamedTuple):
    """A checkpoint that a restore needs. own: a delta that this instance made. refreshed: about so
    many of its rows had not changed."""

    cut: int
    own: bool = False
    refreshed: int = 0
    size: Size = NOTHING


NO_LINK = _Link(0)


class Chain:
    """The checkpoints that an instance has made and that are stored, one after the other.

    A restore is to read 1.4 to 1.8 times the state as it is, and little is to be written of state
    that changes little, or only grows, or all of which changes soon anyway. Let `over` be what a
    restore reads beside the state, in parts of it: for each row that changes
    `HASTE * (over - SLACK)` rows are refreshed. Where rows cannot be refreshed, a full checkpoint
    is due when a restore would read twice the state.

    Each row has the last epoch that touched it, and a row that is refreshed counts as touched at
    the cut. So a row of epoch `e` is in the first image of a cut not before `e`; and when all rows
    before `e` were refreshed, the images of cuts before `e` are not needed.

    Args:
        stored: the cut that is stored already, 0 for none.
        image: bytes that one more image costs a restore, about.
        guard: a lock, where one thread makes checkpoints and another one stores them.
    """

    def __init__(
        self,
        stored: int,
        *,
        image: int = IMAGE_BYTES,
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._stored = Span(stored, stored)
        self._image = image
        self._made = 0
        """The cut of the last one; 0 when the next may not build on it."""
        self._links: deque[_Link] = deque()
        """Those that a restore needs, the oldest first."""
        self._row_bytes = 0.0
        self._gap = False
        self._guard = guard or nullcontext()

    def next(self, rows: int, sample: Callable[[], np.ndarray] | None = None) -> Wanted:
        """What the next checkpoint is to hold.

        Args:
            rows: of the state now.
            sample: makes a sample of the rows that can be refreshed: the epoch and the slot of
                each, int64 [n, 2], in order; of none if that is so just now. None if none ever can.
        """
        with self._guard:
            over = self._over(rows)
            due = over >= 1 or len(self._links) > CHAIN_MAX
            if not self._made or (due and (sample is None or not rows)):
                return FULL
            if sample is None or not rows or not (many := self._many(rows, over)):
                return Wanted(self._made)
            before, refreshed = self._before(many / rows, sample())
            needed = self._needed(before)
            if not needed:
                return FULL
            oldest = needed[0].cut if needed[0].own else 0
            return Wanted(self._made, before, oldest, int(refreshed * rows))

    def _before(self, share: float, sample: np.ndarray) -> tuple[tuple[int, int], float]:
        """The epoch and slot before which such a share of the rows is, or all that have not
        changed since the last checkpoint; and what share that is, about."""
        if not len(sample):
            return FULL.before, 0.0
        at, clean = int(share * len(sample)), np.searchsorted(sample[:, 0], self._made, "right")
        if at >= clean:
            return (self._made + 1, 0), float(clean / len(sample))
        epoch, slot = sample[at].tolist()
        return (epoch, slot), at / len(sample)

    def _needed(self, before: tuple[int, int]) -> list[_Link]:
        """The links that are needed still when all rows before these were refreshed."""
        return [link for link in self._links if link.cut >= before[0]]

    def _over(self, rows: int) -> float:
        """What a restore would read beside the state as it is, in parts of it."""
        state = rows * self._row_bytes
        if not any(link.size.nbytes for link in self._links):
            return 0.0  # nothing is stored yet
        read = sum(link.size.nbytes for link in self._links) + (len(self._links) - 1) * self._image
        small = self._image * (SMALL_BYTES // IMAGE_BYTES)  # in a simulation images cost less
        return max(0.0, read - small - state) / max(state, 1.0)

    def _many(self, rows: int, over: float) -> int:
        """How many rows are to be refreshed."""
        least = -(-4 * rows // CHAIN_MAX) if len(self._links) > CHAIN_MAX // 2 else 0
        if not over:
            return least
        if not self._row_bytes:
            return rows
        last = next((link for link in reversed(self._links) if link.size.rows), NO_LINK)
        changed = max(0, last.size.rows - last.refreshed)
        haste = HASTE * max(0.0, over - SLACK)
        return max(least, int(haste * (changed + self._image / self._row_bytes)))

    @property
    def row_bytes(self) -> float:
        """What a row takes when it is stored, about, headers included. Another thread may ask."""
        return self._row_bytes

    @property
    def stored(self) -> Span:
        """The newest cuts without a gap that was made. Another thread may ask."""
        return self._stored

    def continues(self, sizes: Sequence[Size]) -> None:
        """Those who are to hold the checkpoints have the cut with which the instance began.

        Args:
            sizes: of the images of that cut.
        """
        with self._guard:
            self._made = self._stored.upto
            self._links = deque(_Link(self._made, size=size) for size in sizes)
            self._learn()

    def restart(self) -> None:
        """Others hold the checkpoints from now on: the next one is full."""
        with self._guard:
            self._made = 0

    def made(self, wanted: Wanted, cut: int) -> None:
        """A checkpoint was made, to be stored in turn.

        If what it builds on was refused while it was made, the next one is full all the same.
        """
        with self._guard:
            if not wanted.base:
                self._links = deque([_Link(cut)])
                self._made = cut
                return
            self._links = deque(self._needed(wanted.before))
            self._links.append(_Link(cut, True, wanted.rows))
            self._made = cut if wanted.base == self._made else 0

    def answered(self, cut: int, size: Size, *, held: bool) -> None:
        """All keepers hold the checkpoint at `cut`; or not, so the next one is full."""
        with self._guard:
            if held:
                self._stored = Span(cut if self._gap else self._stored.since, cut)
                self._links = deque(
                    link._replace(size=size) if link.cut == cut else link for link in self._links
                )
                self._learn()
            else:
                self._made = 0
            self._gap = not held

    def _learn(self) -> None:
        """The one with the most rows tells best what a row takes."""
        nbytes, rows = max(
            (link.size for link in self._links), key=attrgetter("rows"), default=NOTHING
        )
        if rows:
            self._row_bytes = nbytes / rows
