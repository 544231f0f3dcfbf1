"""Keys whose rows were removed from memory, while older records of them may lie on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from raystream.schema.state import State, StateSchema, state_schema
from raystream.schema.types import NEVER
from raystream.state.segments.record import removed_at
from raystream.state.segments.segment import RecordBlock
from raystream.state.tables.structured_table import StructuredTable


class RemovedKey(State):
    """What is known of a key whose row was removed."""

    hash: int = 0


def _schema() -> StateSchema:
    return state_schema(RemovedKey)


class RemovedKeys:
    """A set of keys, by their words. While records are written that say which were removed, those
    keys are in the set still.

    Args:
        words: how many words a key has.
    """

    def __init__(self, words: int) -> None:
        self._words = words
        self._table = self._empty()
        self._noted = self._empty()
        """The keys that records are written of just now."""

    def _empty(self) -> StructuredTable:
        return StructuredTable(_schema(), keys=self._words, groups=1)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(t.nbytes for t in (self._table, self._noted) if len(t))

    def add(self, hashes: np.ndarray, words: np.ndarray, epochs: np.ndarray) -> None:
        """Add keys. epochs: int64, in which each was removed; a later one comes later."""
        if len(words):
            slots, index = self._table.slots_of(list(np.ascontiguousarray(words.T)), 0)
            last = np.empty(len(slots), np.int64)
            last[index] = np.arange(len(index))
            self._table.write(slots, {"hash": hashes.view(np.int64)[last]}, 0)
            self._table.rows["_epoch"][slots] = epochs[last]

    def has(self, words: np.ndarray) -> np.ndarray:
        """bool [n]: which keys are in the set."""
        found = np.zeros(len(words), bool)
        for table in (self._table, self._noted):
            if len(table) and len(words):
                found |= table.find(list(np.ascontiguousarray(words.T))) >= 0
        return found

    def words(self) -> np.ndarray:
        """int64 [n, words]: a copy of the keys. One may be there twice."""
        return np.concatenate([t.ordered()["_key"] for t in (self._table, self._noted)])

    @contextmanager
    def writing(self, dtype: np.dtype[np.void]) -> Iterator[RecordBlock]:
        """The keys as records, which say that rows were removed. When they are written, the set has
        no other keys than those that were added meanwhile."""
        self._table, self._noted = self._empty(), self._table
        rows = self._noted.ordered()
        records = np.zeros(len(rows), dtype)
        records["_hash"] = rows["hash"].view(np.uint64)
        records["_key"] = rows["_key"]
        records["_epoch"] = removed_at(rows["_epoch"])
        records["_due"] = NEVER
        yield RecordBlock(records)
        self._noted = self._empty()
