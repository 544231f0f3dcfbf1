"""What the next checkpoint of an instance holds, and which of its checkpoints are stored.

A checkpoint is a delta on the one before. It also *refreshes* rows that have not changed: those
that were stored the longest ago. The oldest image is not needed any more when all its rows were
stored again, because they changed or because they were refreshed. So only the first checkpoint of a
large state is full, and each takes about as long as the others. That is how a log-structured file
system cleans its log (Rosenblum and Ousterhout, SOSP 1991), oldest segment first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

IMAGE_BYTES = 1 << 20
"""To read one more image costs a restore about as much as to read this many bytes."""
SMALL_BYTES = 8 * IMAGE_BYTES
"""A restore may always read this much in addition: it costs little."""
CHAIN_MAX = 256
"""A chain has fewer images than this. Where there are no rows to refresh, or they cannot be
refreshed, the next checkpoint is full after this many deltas."""
HASTE, SLACK = 2.0, 0.25
"""How fast rows are refreshed, and from when on, see `Chain`."""


class Span(NamedTuple):
    """A range of checkpoints all of which are stored, in all their copies."""

    since: int
    """The first of them; 0 if none is stored."""
    upto: int
    """The last of them; 0 if none is stored."""


class Size(NamedTuple):
    """The size of an image."""

    nbytes: int
    """The bytes that it takes when it is stored."""
    rows: int
    """The number of its rows."""

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.nbytes + other.nbytes, self.rows + other.rows)


NOTHING = Size(0, 0)


class CheckpointRequest(NamedTuple):
    """What a checkpoint is to hold."""

    base: int = 0
    """The checkpoint since which all changes are wanted; 0 for all rows."""
    before: tuple[int, int] = (0, 0)
    """Rows whose epoch and slot come before these are refreshed."""
    oldest: int = 0
    """See `ImageHeader`."""
    rows: int = 0
    """About how many rows are refreshed."""


FULL = CheckpointRequest()


class _Link(NamedTuple):
    """A checkpoint that a restore needs."""

    checkpoint: int
    """Its epoch."""
    own: bool = False
    """Whether it is a delta that this instance made."""
    refreshed: int = 0
    """About how many of its rows had not changed."""
    size: Size = NOTHING
    """Its size, once it is stored."""


NO_LINK = _Link(0)


class Chain:
    """The checkpoints that an instance has made and that are stored, one after the other.

    A restore should read 1.4 to 1.8 times the state as it is. Little should be written of a state
    that changes little, only grows, or soon changes as a whole. Let `over` be what a restore reads
    in addition to the state, as a fraction of it: for each row that changes, `HASTE * (over -
    SLACK)` rows are refreshed. Where rows cannot be refreshed, a full checkpoint is due when a
    restore would read twice the state.

    Each row has the last epoch that touched it, and a row that is refreshed counts as touched at
    the checkpoint. So a row of epoch `e` is in the first image of a checkpoint not before `e`; and
    when all rows before `e` were refreshed, the images of checkpoints before `e` are not needed.

    Args:
        stored: the checkpoint that is stored already, 0 for none.
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
        """The last checkpoint that was made; 0 if the next one may not build on it."""
        self._links: deque[_Link] = deque()
        """The checkpoints that a restore needs, the oldest first."""
        self._row_bytes = 0.0
        self._gap = False
        self._guard = guard or nullcontext()

    def next(self, rows: int, sample: Callable[[], np.ndarray] | None = None) -> CheckpointRequest:
        """What the next checkpoint is to hold.

        Args:
            rows: the number of rows of state now.
            sample: samples the rows that can be refreshed: the epoch and the slot of each, int64
                [n, 2], in order. It may find none. None if no row can ever be refreshed.
        """
        with self._guard:
            over = self._over(rows)
            due = over >= 1 or len(self._links) > CHAIN_MAX
            if not self._made or (due and (sample is None or not rows)):
                return FULL
            if sample is None or not rows or not (many := self._many(rows, over)):
                return CheckpointRequest(self._made)
            before, refreshed = self._before(many / rows, sample())
            needed = self._needed(before)
            if not needed:
                return FULL
            oldest = needed[0].checkpoint if needed[0].own else 0
            return CheckpointRequest(self._made, before, oldest, int(refreshed * rows))

    def _before(self, share: float, sample: np.ndarray) -> tuple[tuple[int, int], float]:
        """(the epoch and slot before which this share of the rows lies; about what share that is).

        If fewer rows are unchanged since the last checkpoint, it is the share of those.
        """
        if not len(sample):
            return FULL.before, 0.0
        at, clean = int(share * len(sample)), np.searchsorted(sample[:, 0], self._made, "right")
        if at >= clean:
            return (self._made + 1, 0), float(clean / len(sample))
        epoch, slot = sample[at].tolist()
        return (epoch, slot), at / len(sample)

    def _needed(self, before: tuple[int, int]) -> list[_Link]:
        """The links that are needed once all rows before this epoch and slot are refreshed."""
        return [link for link in self._links if link.checkpoint >= before[0]]

    def _over(self, rows: int) -> float:
        """What a restore would read in addition to the state, as a fraction of it."""
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
        """About how many bytes a stored row takes, headers included. Any thread may ask."""
        return self._row_bytes

    @property
    def stored(self) -> Span:
        """The newest checkpoints that are stored without a gap. Any thread may ask."""
        return self._stored

    def continues(self, sizes: Sequence[Size]) -> None:
        """Note that the keepers of the instance hold the checkpoint with which it began.

        Args:
            sizes: the sizes of the images of that checkpoint.
        """
        with self._guard:
            self._made = self._stored.upto
            self._links = deque(_Link(self._made, size=size) for size in sizes)
            self._learn()

    def restart(self) -> None:
        """Make the next checkpoint a full one: it goes to other keepers."""
        with self._guard:
            self._made = 0

    def made(self, wanted: CheckpointRequest, checkpoint: int) -> None:
        """Note that a checkpoint was made, which is stored after those before it.

        If a keeper refused its base meanwhile, the next checkpoint is full.
        """
        with self._guard:
            if not wanted.base:
                self._links = deque([_Link(checkpoint)])
                self._made = checkpoint
                return
            self._links = deque(self._needed(wanted.before))
            self._links.append(_Link(checkpoint, True, wanted.rows))
            self._made = checkpoint if wanted.base == self._made else 0

    def answered(self, checkpoint: int, size: Size, *, held: bool) -> None:
        """Note whether all keepers hold this checkpoint (`held`). If not, the next one is full."""
        with self._guard:
            if held:
                self._stored = Span(checkpoint if self._gap else self._stored.since, checkpoint)
                self._links = deque(
                    link._replace(size=size) if link.checkpoint == checkpoint else link
                    for link in self._links
                )
                self._learn()
            else:
                self._made = 0
            self._gap = not held

    def _learn(self) -> None:
        """Learn how many bytes a row takes: the image with the most rows tells it best."""
        nbytes, rows = max(
            (link.size for link in self._links), key=attrgetter("rows"), default=NOTHING
        )
        if rows:
            self._row_bytes = nbytes / rows
