"""Keys whose rows were removed from memory, while older records of them may lie on disk."""

from __future__ import annotations

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
    """A set of keys, by their words.

    Args:
        words: how many words a key has.
    """

    def __init__(self, words: int) -> None:
        self._words = words
        self._table = self._empty()

    def _empty(self) -> StructuredTable:
        return StructuredTable(_schema(), keys=self._words, groups=1)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._table.nbytes if len(self._table) else 0

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
        if not len(self._table) or not len(words):
            return np.zeros(len(words), bool)
        found: np.ndarray = self._table.find(list(np.ascontiguousarray(words.T))) >= 0
        return found

    def words(self) -> np.ndarray:
        """int64 [n, words]: a copy of the keys."""
        found: np.ndarray = self._table.ordered()["_key"]
        return found

    def take(self, dtype: np.dtype[np.void]) -> RecordBlock:
        """The keys as records, which say that rows were removed; the set is empty then."""
        rows = self._table.ordered()
        records = np.zeros(len(rows), dtype)
        records["_hash"] = rows["hash"].view(np.uint64)
        records["_key"] = rows["_key"]
        records["_epoch"] = removed_at(rows["_epoch"])
        records["_due"] = NEVER
        if len(rows):
            self._table = self._empty()
        return RecordBlock(records)
