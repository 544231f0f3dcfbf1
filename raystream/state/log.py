"""The epoch log: buffer state of one edge at its producer.

An entry holds the rows of one epoch sorted by the *consumer's* key group, with all G + 1 offsets,
so that any consumer range is a slice. A log keeps what is newer than the floor and answers from its
first epoch on; beyond a memory budget the oldest entries are spilled to disk as Arrow IPC.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from raystream.errors import InternalError
from raystream.schema.columns import Columns, empty
from raystream.schema.types import KeyRange

H = TypeVar("H")


class Entry(NamedTuple, Generic[H]):
    """One epoch of an edge. rows: sorted by consumer key group; offsets: int64 [G + 1].

    Never changed: whoever serves a log holds entries while the log spills or drops them.
    """

    epoch: int
    header: H
    rows: Columns
    offsets: np.ndarray

    def part(self, keys: KeyRange) -> tuple[Columns, np.ndarray]:
        """The rows of a consumer range and their offsets, without a copy."""
        first, end = keys
        if end - first == len(self.offsets) - 1:
            return self.rows, self.offsets
        lo, hi = int(self.offsets[first]), int(self.offsets[end])
        offsets = self.offsets[first : end + 1]
        return self.rows.slice(lo, hi), offsets - lo if lo else offsets


class Spill(Protocol):
    """Where entries go that memory has no room for. bytes: what they occupy there."""

    bytes: int

    def write(self, epoch: int, rows: Columns) -> None: ...
    def read(self, epoch: int) -> Columns: ...
    def drop(self, epoch: int) -> None: ...


class EpochLog(Generic[H]):
    """Entries of consecutive epochs. Not thread-safe: its owner locks."""

    def __init__(self, *, budget: int = 1 << 62, spill: Spill | None = None) -> None:
        self.budget = budget
        self.spill = spill
        self.entries: deque[Entry[H]] = deque()
        self.memory = 0
        self.spilled: set[int] = set()
        self._resident = 1  # epochs before this one are spilled, or hold no rows

    @property
    def held(self) -> int:
        """Bytes in memory and on disk; 0 of a log that never spills."""
        return self.memory + (0 if self.spill is None else self.spill.bytes)

    @property
    def first(self) -> int:
        """The first epoch that the log can still serve."""
        return self.entries[0].epoch if self.entries else self.next

    next: int = 1

    def append(self, entry: Entry[H]) -> None:
        """Add the next epoch."""
        if entry.epoch != self.next:
            raise InternalError(f"epoch {entry.epoch} appended to a log that is at {self.next}")
        self.entries.append(entry)
        self.next = entry.epoch + 1
        if self.spill is not None:
            self.memory += entry.rows.nbytes()
            self._make_room(self.spill)

    def _make_room(self, spill: Spill) -> None:
        """Move the oldest entries in memory to disk until the rest is within the budget."""
        self._resident = max(self._resident, self.first)
        while self.memory > self.budget and self._resident < self.next:
            at = self._resident - self.first
            entry = self.entries[at]
            if len(entry.rows):
                spill.write(entry.epoch, entry.rows)
                self.memory -= entry.rows.nbytes()
                nothing = empty(entry.rows.schema)  # a slice would hold the memory
                self.entries[at] = entry._replace(rows=nothing)
                self.spilled.add(entry.epoch)
            self._resident += 1

    def entry(self, epoch: int) -> Entry[H]:
        """The entry of an epoch that the log holds.

        Raises:
            LookupError: the epoch was trimmed, or is not there yet.
        """
        first = self.first
        if not first <= epoch < self.next:
            raise LookupError(
                f"epoch {epoch} is not in the log, which holds {first} to {self.next - 1}"
            )
        entry = self.entries[epoch - first]
        if self.spill is not None and epoch in self.spilled:
            return Entry(epoch, entry.header, self.spill.read(epoch), entry.offsets)
        return entry

    def trim(self, floor: int, most: int | None = None) -> bool:
        """Drop the epochs up to and including `floor`, but not more than `most`; whether all of
        them are gone."""
        while self.entries and self.entries[0].epoch <= floor:
            if most == 0:
                return False
            most = None if most is None else most - 1
            entry = self.entries.popleft()
            if self.spill is None:
                continue
            if entry.epoch in self.spilled:
                self.spilled.remove(entry.epoch)
                self.spill.drop(entry.epoch)
            else:
                self.memory -= entry.rows.nbytes()
        return True
