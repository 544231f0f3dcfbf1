"""When the rows of a structured table are due: their timers, or the ends of their windows.

For each block of slots an alarm says before which time none of its rows is due, so that a search
looks at few blocks. An alarm may be early, never late: a row that is set to a later time leaves the
old alarm behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from raystream.schema.types import NEVER, KeyRange
from raystream.state.growable_array import Room
from raystream.state.tables.row_store import RowStore

DUE_ROOM = 1 << 12
"""Due rows for which there is room at first."""
DUE_MOST = 1 << 20
"""Due rows for which there is room at most: more come in parts."""


class Timers:
    """The due times of the rows of a store.

    Args:
        ends: see `StructuredTable`.
    """

    def __init__(
        self, store: RowStore, ends: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> None:
        self._store = store
        self._ends = ends
        self._room = Room(np.dtype(np.int64))
        self.within: KeyRange | None = None
        """If given, rows of these key groups alone are found due."""
        self.alarms = np.zeros(0, np.int64)
        """For each block of slots a time before which none of its rows is due."""

    @property
    def next_due(self) -> int:
        """Nothing is due before this time."""
        return int(self._store.meta[self._store.kernels.NEXT])

    def reach(self) -> None:
        """Have an alarm for each block of slots that there is."""
        slots = len(self._store.rows)
        known, many = len(self.alarms), -(-slots >> self._store.kernels.ALARM_BITS)
        self.alarms = np.zeros(0, np.int64)
        self._room.grow(many)
        self.alarms = self._room.view(many)
        self.alarms[known:] = NEVER

    def _times(self, where: np.ndarray) -> np.ndarray:
        """int64: when the rows in these slots are due; NEVER for a timer that is not set."""
        store = self._store
        if self._ends is not None:
            return self._ends(store.rows["_key"][where, -1])
        if store.window is not None:
            return store.rows["_key"][where, -1] + store.window
        return store.rows[store.schema.timer or ""][where]

    def arm(self, slots: np.ndarray) -> None:
        """Set the alarms of the rows in these slots, whose due times are new."""
        store = self._store
        if store.window is not None or store.schema.timer is not None:
            store.loops.set_alarms(self.alarms, store.meta, slots, self._times(slots))

    def due(self, watermark: int) -> np.ndarray:
        """int64: the slots of the rows due at `watermark`, in no particular order. They are the
        caller's to fire: `next_due` forgets them."""
        return np.concatenate(list(self.due_in_parts(watermark)))

    def due_in_parts(self, watermark: int) -> Iterator[np.ndarray]:
        """The same in one part or more: one may be fired before the next is looked for."""
        if self.next_due > watermark or self.next_due == NEVER:
            yield np.zeros(0, np.int64)
            return
        store = self._store
        rows, window = store.rows, store.window
        # Not a slice: one row alone would be another layout, and compiled for itself.
        times = rows["_key"][:, -1] if window is not None else rows[store.schema.timer or ""]
        epochs, meta, scan = rows["_epoch"], store.meta, store.loops.scan_due
        at, room = 0, DUE_ROOM
        while at >= 0:
            out = np.empty(room, np.int64)
            at, n = scan(times, epochs, window or 0, watermark, self.alarms, meta, at, out)
            yield self._inside(out[:n] if self._ends is None else self._ended(out[:n], watermark))
            room = min(2 * room, DUE_MOST)

    def _inside(self, slots: np.ndarray) -> np.ndarray:
        """Those of the rows in these slots that are `within`; the others are found again."""
        if self.within is None or not len(slots):
            return slots
        from raystream.state.kernels import key_groups

        store = self._store
        keys = store.rows["_key"][slots, : store.keys].T.copy()
        groups = key_groups(list(keys), store.groups)
        inside = (groups >= self.within.lo) & (groups < self.within.hi)
        rest = slots[~inside]
        store.loops.set_alarms(self.alarms, store.meta, rest, self._times(rest))
        return slots[inside]

    def due_times(self, slots: np.ndarray) -> np.ndarray:
        """int64: when the rows in these slots are due; NEVER for those that never are."""
        if self._store.window is None and self._store.schema.timer is None:
            return np.full(len(slots), NEVER)
        return self._times(slots)

    def _ended(self, slots: np.ndarray, watermark: int) -> np.ndarray:
        """Those of the rows in these slots whose windows have ended; the rest is found again. All
        their windows have begun, which is what a search sees where windows differ in length."""
        times = self._times(slots)
        rest = times > watermark
        self._store.loops.set_alarms(self.alarms, self._store.meta, slots[rest], times[rest])
        return slots[~rest]

    def due_again(self, slots: np.ndarray, watermark: int) -> np.ndarray:
        """As `due`, among the rows in these slots that are still there."""
        times = self._times(slots)
        there = self._store.rows["_epoch"][slots] != self._store.kernels.FREE
        return slots[there & (times <= watermark) & (times != NEVER)]

    def in_firing_order(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Due rows in the canonical order of a round.

        Returns (their slots by key group, time and key; where each key group begins among these,
        [groups + 1]): int64 both.
        """
        from raystream.state.kernels import key_groups, sort_by_group

        store = self._store
        keys = store.rows["_key"][slots, : store.keys].T.copy()
        order = np.argsort(keys[0]) if store.keys == 1 else np.lexsort(keys[::-1])
        if self._ends is not None:  # two windows of a key may end at one moment
            order = np.lexsort([store.rows["_key"][slots, -1], *keys[::-1]])
        times = self._times(slots)
        if len(times) and times.min() != times.max():
            order = order[np.argsort(times[order], kind="stable")]
        by_key_group = key_groups(list(keys), store.groups)[order]
        by_group, offsets = sort_by_group(by_key_group, store.groups)
        return slots[order[by_group]], offsets
