"""Rows leave memory in rounds, of which each epoch does a small part.

A round is of the rows that were touched last by some epoch, which is over. It

    1. finds them
    2. writes those that are not on disk as they are, with the keys that were removed, as a segment
    3. takes them out of memory; a round for a manifest lets them stay

A row that is touched meanwhile stays in memory: it was touched after that epoch. What is in memory
replaces what is on disk, so nobody sees what the segment has of it. A row that is removed meanwhile
is noted as removed from disk, whether or not the segment has it already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raystream.state.segments.cold_rows import even_stretches, in_order, place_of
from raystream.state.segments.segment import RecordBlock

if TYPE_CHECKING:
    from raystream.state.tiers.tiered_table import TieredTable

STRETCH_BYTES = 1 << 19
"""Bytes of rows that are written to disk at a time, about."""
BEGIN_SHARE = 0.85
"""Rows begin to leave when there are so many in memory, of those that may be there. The further
there are, the more of them leave with each epoch; with all that may be there a round is done at
once."""
LEAVE = 1 / 4
"""Which part of the rows leaves in a round."""
LEAVE_LEAST = 1 / 8
"""No round begins for a smaller part, before there are as many rows as may be."""
STEP_BYTES = 1 << 19
"""After an epoch a round goes on with so many bytes of rows at least, if they are large."""
ALL = 1 << 62
SAMPLE = 1 << 12
"""Of so many rows it is looked when they were touched last, before a round begins."""


class SortedRows(NamedTuple):
    """Some rows of a round, in order of the hashes of their keys."""

    hashes: np.ndarray
    """uint64, ascending."""
    which: np.ndarray
    """int64: which rows these are."""
    dirty: np.ndarray
    """bool: which of them are not on disk as they are."""


class Rounds:
    """When a round of a tier begins, and how far it goes after an epoch."""

    def __init__(self, tier: TieredTable) -> None:
        self._tier = tier
        self._round: Iterator[int] | None = None
        self._before = 0
        """How many rows were in memory after the epoch before."""
        self.wanted = 0
        """A round is to begin that writes all rows up to this checkpoint; 0: none is."""
        self.ended = 0
        """How many rounds have ended."""

    @property
    def under_way(self) -> bool:
        """Whether there is one now."""
        return self._round is not None

    def go_on(self, *, at_once: bool = False) -> None:
        """An epoch is over. at_once: no part of a round is left for later."""
        share, grown = self._tier.share(), len(self._tier.hot) - self._before
        if share > 1:
            self._advance(ALL)
            if self._tier.share() > 1:
                self._round = round_of(self._tier, _oldest(self._tier.epochs(ALL)), leave=True)
                self._advance(ALL)
        elif not at_once:
            self._begin(share)
            self._advance(self._pace(share, grown))
        self._before = len(self._tier.hot)

    def want(self, checkpoint: int) -> None:
        """Write all rows that were touched last by a checkpoint, which is of now."""
        self.wanted = checkpoint
        if self._round is None:
            self._begin(0.0)
            self._advance(self._tier.step_rows)

    def _begin(self, share: float) -> None:
        """Begin a round, if none is under way and there is something to do."""
        if self._round is not None:
            return
        tier, upto, self.wanted = self._tier, self.wanted, 0
        if upto and upto >= tier.newest:  # no rows have left since that are newer
            self._round = round_of(tier, upto, leave=False)
        elif share > BEGIN_SHARE:
            epochs = tier.epochs(SAMPLE)
            upto = min(_oldest(epochs), tier.epoch - 1)  # of this epoch more records may come
            if np.count_nonzero(epochs <= upto) >= LEAVE_LEAST * len(epochs):
                self._round = round_of(tier, upto, leave=True)

    def _pace(self, share: float, grown: int) -> int:
        """With how many rows a round goes on, so that it ends before memory is full."""
        least = min(self._tier.step_rows, 1 + int(STEP_BYTES // self._tier.row_bytes()))
        return max(least, int(grown * share / max(1e-9, 1 - share)))

    def _advance(self, rows: int) -> None:
        """Go on with the round that is under way."""
        while self._round is not None and rows > 0:
            if (done := next(self._round, None)) is None:
                self._round, self.ended = None, self.ended + 1
            rows -= done or 0


class Candidates(ABC):
    """The rows of a round. They are sorted a part at a time, so that no epoch waits for all."""

    def __init__(self) -> None:
        self._parts: list[SortedRows] = []
        self.rows = self.dirty = 0
        """How many rows there are, and how many of them are to be written."""
        self.ends: list[int] = []
        """Hashes, among which are the least and the greatest of those."""

    def add(self, hashes: np.ndarray, which: np.ndarray, dirty: np.ndarray) -> None:
        """Add rows. hashes: of their keys, in any order. which, dirty: see `SortedRows`."""
        if not len(hashes):
            return
        order = np.argsort(hashes, kind="stable")
        part = SortedRows(hashes[order], which[order], dirty[order])
        self._parts.append(part)
        self.rows += len(order)
        self.dirty += int(np.count_nonzero(dirty))
        self.ends += [int(part.hashes[0]), int(part.hashes[-1])]

    def between(self, low: int, high: int) -> SortedRows:
        """The rows whose hashes are from one up to another, without that."""
        parts = []
        for part in self._parts:
            begin, end = place_of(part.hashes, low), place_of(part.hashes, high)
            parts.append(SortedRows(*(column[begin:end] for column in part)))
        joined = SortedRows(*map(np.concatenate, zip(*parts, strict=True)))
        order = np.argsort(joined.hashes, kind="stable")
        return SortedRows(*(column[order] for column in joined))

    @abstractmethod
    def records(self, rows: SortedRows) -> RecordBlock:
        """The records of these rows, without those that were touched since."""

    @abstractmethod
    def take_out(self, rows: SortedRows) -> tuple[np.ndarray, np.ndarray]:
        """Take these rows out of memory, but for those that were touched since. Returns (uint64,
        the hashes; int64, the epochs) of those that left."""

    @abstractmethod
    def stay(self) -> None:
        """The rows are on disk as they are, and stay in memory, too."""


Finding = Generator[int, None, Candidates]
"""Says now and then how many rows it has looked at, and returns those of the round."""


def round_of(tier: TieredTable, upto: int, *, leave: bool) -> Iterator[int]:
    """A round; says after each part about how many rows that had.

    Args:
        upto: of the rows that were touched last in this epoch, or before. None is any more.
        leave: whether they leave memory.
    """
    found = yield from tier.candidates(upto, clean=leave)
    stretch = max(1, STRETCH_BYTES // tier.cold.row_bytes)
    with tier.writing() as removed:
        gone = in_order([removed])
        most, of_gone = found.dirty + len(gone.records), gone.records["_hash"]
        if most:
            ends = [*found.ends, *(int(of_gone[at]) for at in (0, -1) if len(of_gone))]
            low, high = min(ends), max(ends)
            stretches = even_stretches(most, stretch, low, high + 1)
            for many in tier.cold.adding(_parts(found, gone, stretches), most, low, high):
                tier.wrote(many)
                yield many
    tier.written(upto, leave=leave)
    if not leave:
        found.stay()
    elif found.rows:
        for low, high in even_stretches(found.rows, stretch, min(found.ends), max(found.ends) + 1):
            rows = found.between(low, high)
            tier.left(*found.take_out(rows))
            yield len(rows.which)


def _parts(
    found: Candidates, gone: RecordBlock, stretches: Iterable[tuple[int, int]]
) -> Iterator[RecordBlock]:
    """Records of rows that are to be written, and of keys that were removed, in order of hashes."""
    removed = np.ascontiguousarray(gone.records["_hash"])
    at = 0
    for low, high in stretches:
        last = place_of(removed, high)
        parts = [RecordBlock(gone.records[at:last], gone.heap)]
        if found.dirty:
            rows = found.between(low, high)
            parts.append(found.records(SortedRows(*(column[rows.dirty] for column in rows))))
        yield in_order(parts)  # of a row that was removed and is back the second one stays
        at = last


def _oldest(epochs: np.ndarray) -> int:
    """The epoch up to which rows leave, of rows that were touched last in these epochs."""
    at = int(len(epochs) * LEAVE)
    return int(np.partition(epochs, at)[at])
