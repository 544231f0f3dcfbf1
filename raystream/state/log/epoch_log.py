"""The epoch log: buffer state of one edge at its producer.

An entry holds the rows of one epoch sorted by the *consumer's* key group, with all G + 1 offsets,
so that any consumer range is a slice. A run of epochs without rows is one entry. A log keeps what
is newer than the committed checkpoint and answers from its first epoch on. Beyond a memory budget
the oldest entries are spilled to disk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from raystream.errors import InternalError
from raystream.schema.columns import Columns, empty
from raystream.schema.types import KeyRange

H = TypeVar("H")


class LogEntry(NamedTuple, Generic[H]):
    """One epoch of an edge, or a run of epochs without rows; see `Header.epochs`.

    An entry is never changed: a server of the log may hold it while the log spills or drops it.
    """

    epoch: int
    """The number of the epoch; of a run, of its last one."""
    header: H
    """What travels with every piece of the epoch."""
    rows: Columns
    """The rows, sorted by the consumer's key group."""
    offsets: np.ndarray
    """int64 [G + 1]: where the rows of each of the consumer's key groups begin, and the end."""
    epochs: int = 1
    """How many epochs it is of."""

    @property
    def first(self) -> int:
        """The first epoch that it is of."""
        return self.epoch - self.epochs + 1

    def part(self, keys: KeyRange) -> tuple[Columns, np.ndarray]:
        """The rows of a consumer range and their offsets, without a copy."""
        first, end = keys
        if end - first == len(self.offsets) - 1 or (self.epochs > 1 and self.rows.length):
            return self.rows, self.offsets
        lo, hi = int(self.offsets[first]), int(self.offsets[end])
        offsets = self.offsets[first : end + 1]
        return self.rows.slice(lo, hi), offsets - lo if lo else offsets


class Spill(Protocol):
    """Where the rows of entries go that memory has no room for."""

    bytes: int
    """How many bytes they occupy there."""

    def write(self, epoch: int, rows: Columns) -> None: ...
    def read(self, epoch: int) -> Columns: ...
    def drop(self, epoch: int) -> None: ...


class Bound(NamedTuple):
    """How many entries one may be behind the end of a log."""

    entries: int
    """This many, whatever their size."""
    nbytes: int
    """More, as long as their rows have no more bytes than that in memory."""
    most: int
    """Never more than this many."""


_epoch_of = attrgetter("epoch")


class EpochLog(Generic[H]):
    """Entries of consecutive epochs. Not thread-safe: its owner locks."""

    def __init__(self, *, budget: int = 1 << 62, spill: Spill | None = None) -> None:
        self.budget = budget
        self.spill = spill
        self.entries: deque[LogEntry[H]] = deque()
        self._before: deque[int] = deque()
        """For each entry the bytes of the rows that were added before its own."""
        self._added = 0
        """The bytes of all rows that were ever added."""
        self.memory = 0
        self.spilled: set[int] = set()
        self._resident = 0  # this many of the oldest entries are spilled, or hold no rows

    @property
    def held(self) -> int:
        """Bytes in memory and on disk; 0 of a log that never spills."""
        return self.memory + (0 if self.spill is None else self.spill.bytes)

    @property
    def first(self) -> int:
        """The first epoch that the log can still serve."""
        if not self.entries:
            return self.next
        return self.entries[0].first

    next: int = 1

    def append(self, entry: LogEntry[H]) -> None:
        """Add the next epoch, or the next run of them."""
        if entry.first != self.next:
            raise InternalError(f"epoch {entry.first} appended to a log that is at {self.next}")
        nbytes = entry.rows.nbytes() if entry.rows.length else 0
        self.entries.append(entry)
        self._before.append(self._added)
        self._added += nbytes
        self.next = entry.epoch + 1
        if self.spill is not None:
            self.memory += nbytes
            self._make_room(self.spill)

    def _make_room(self, spill: Spill) -> None:
        """Move the oldest entries in memory to disk until the rest is within the budget."""
        while self.memory > self.budget and self._resident < len(self.entries):
            entry = self.entries[self._resident]
            if len(entry.rows):
                spill.write(entry.epoch, entry.rows)
                self.memory -= entry.rows.nbytes()
                nothing = empty(entry.rows.schema)  # a slice would hold the memory
                self.entries[self._resident] = entry._replace(rows=nothing)
                self.spilled.add(entry.epoch)
            self._resident += 1

    def _at(self, epoch: int) -> int:
        """Which of the entries is of an epoch."""
        if not self.first <= epoch < self.next:
            raise LookupError(
                f"epoch {epoch} is not in the log, which holds {self.first} to {self.next - 1}"
            )
        after = self.next - 1 - epoch  # the last entries are asked for most
        entries = self.entries
        if after < len(entries) and entries[-1 - after].epoch == epoch:
            return len(entries) - 1 - after
        return bisect_left(entries, epoch, key=_epoch_of)

    def _read(self, entry: LogEntry[H]) -> LogEntry[H]:
        if self.spill is not None and entry.epoch in self.spilled:
            return entry._replace(rows=self.spill.read(entry.epoch))
        return entry

    def since(self, epoch: int, most: int) -> list[LogEntry[H]]:
        """The entries from that of an epoch on, but `most` of them at the most.

        Raises:
            LookupError: the epoch was trimmed, or is not there yet.
        """
        at = self._at(epoch)
        return [self._read(self.entries[i]) for i in range(at, min(at + most, len(self.entries)))]

    def is_beyond(self, epoch: int, bound: Bound) -> bool:
        """Whether the entries that end at an epoch or later are more than a bound allows."""
        if self.next - epoch <= bound.entries:  # as most often, and asked for at each epoch
            return False
        if not self.entries:
            return False
        at = self._at(max(epoch, self.first))
        behind = len(self.entries) - at
        if behind <= bound.entries:
            return False
        return behind > bound.most or self._added - self._before[at] > bound.nbytes

    def entry(self, epoch: int) -> LogEntry[H]:
        """The entry of an epoch that the log holds, which may be that of a run.

        Raises:
            LookupError: the epoch was trimmed, or is not there yet.
        """
        return self._read(self.entries[self._at(epoch)])

    def trim(self, committed: int, most: int | None = None) -> bool:
        """Drop the epochs up to and including `committed`, but at most `most` of them. Returns
        whether all of them are gone."""
        while self.entries and self.entries[0].epoch <= committed:
            if most == 0:
                return False
            most = None if most is None else most - 1
            entry = self.entries.popleft()
            self._before.popleft()
            if self.spill is None:
                continue
            self._resident = max(0, self._resident - 1)
            if entry.epoch in self.spilled:
                self.spilled.remove(entry.epoch)
                self.spill.drop(entry.epoch)
            else:
                self.memory -= entry.rows.nbytes()
        return True
