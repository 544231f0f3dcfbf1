"""The removals from a structured table, remembered until a checkpoint that holds them is stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raystream.state.keys import among
from raystream.state.tables.row_store import RowStore, head_fields

LEAST = 16
"""Removals for which there is room at first."""


class Removals:
    """The removals from a store."""

    def __init__(self, store: RowStore) -> None:
        self._store = store
        fields = [*head_fields(store.columns), ("_slot", "i8")]
        self.noted = np.zeros(LEAST, np.dtype(fields))
        """Key, epoch and slot of each removal, then free places."""

    def known(self) -> np.ndarray:
        """Those that are remembered, the oldest first: key, epoch and slot."""
        return self.noted[: int(self._store.meta[self._store.kernels.GONE])]

    def reserve(self, more: int) -> None:
        """Make room to remember this many more removals."""
        need = len(self.known()) + more
        if need > len(self.noted):
            room = np.empty(1 << (need - 1).bit_length(), self.noted.dtype)
            room[: len(self.noted)] = self.noted
            self.noted = room

    def remove(self, slots: np.ndarray, epoch: int) -> None:
        """Remove the rows in these slots and remember it; `reserve` has made room."""
        store = self._store
        for slot in slots.tolist():
            store.kernels.remove_noted(
                store.rows,
                store.index.arrays,
                store.meta,
                store.defaults,
                self.noted,
                slot,
                epoch,
            )

    def take(self, keys: Sequence[np.ndarray], epochs: np.ndarray) -> None:
        """Remember removals that another table had remembered. keys: int64 each, columns."""
        self.reserve(len(epochs))
        more = self.noted[len(self.known()) :][: len(epochs)]
        for j, column in enumerate(keys):
            more["_key"][:, j] = column
        more["_epoch"], more["_slot"] = epochs, -1
        self._store.meta[self._store.kernels.GONE] += len(epochs)

    def forget(self, keys: np.ndarray, upto: int) -> None:
        """Forget the removals by an epoch of keys whose rows have come back. keys: int64 [n, j]."""
        noted = self.known()
        back = noted["_epoch"] <= upto
        if back.any():
            back[back] = among(noted["_key"][back], keys)
            self._keep(noted[~back])

    def gone(self, since: int, *, slots: bool = False) -> np.ndarray:
        """int64 [n, columns]: keys that were removed after `since` and are not back; or with one
        more column, the slot, all that were removed there and are not back in it."""
        noted = self.known()
        noted = noted[noted["_epoch"] > since]
        keys = noted["_key"]
        if len(keys):
            found = self._store.find(list(keys.T))
            left = found != noted["_slot"] if slots else found < 0
            keys, noted = keys[left], noted[left]
        if slots:
            keys = np.column_stack((keys, noted["_slot"]))
        if not len(keys):
            return keys
        keys = keys[np.lexsort(keys.T)]  # `np.unique` of rows has the interpreter's lock meanwhile
        again = np.zeros(len(keys), bool)
        again[1:] = (keys[1:] == keys[:-1]).all(axis=1)
        return keys[~again]

    def settle(self, checkpoint: int) -> None:
        """A checkpoint is stored: removals up to it need not be remembered."""
        noted = self.known()
        self._keep(noted[noted["_epoch"] > checkpoint])

    def _keep(self, kept: np.ndarray) -> None:
        self.noted[: len(kept)] = kept
        self._store.meta[self._store.kernels.GONE] = len(kept)
