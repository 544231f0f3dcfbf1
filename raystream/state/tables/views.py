"""The views of a structured table: which one is open, what is put aside for it, and the memory that
copies are made in.

A view has exactly the rows of its epoch, whenever it is read: a row that changes before it was
copied is put aside first. How a view is copied is in `view`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from weakref import ref

import numpy as np

from raystream.state.growable_array import Room, as_words
from raystream.state.tables.backend import Guard
from raystream.state.tables.row_store import RowStore
from raystream.state.tables.view import Copy, TableView

NONE_OLD = (0, 0)
"""No row has an epoch and a slot that come before these."""
SPARE_BYTES = 256 << 20
"""At least this much memory is kept for the copies of the next view, once it was needed. Otherwise
new memory would be touched for the first time at each checkpoint, which can stop a virtual
machine's processor for milliseconds."""
LEAST_ASIDE = 16
"""Rows that there is room to put aside at first."""


class Views:
    """The views of a store. One at a time is open; see `Copy` for a second."""

    def __init__(self, store: RowStore) -> None:
        self.store = store
        self.guard: Guard = nullcontext(lambda: False)
        """Held while a view copies rows. A process that lets another thread do that sets its lock,
        and holds it whenever it changes the table. Its holder is told whether to go on."""
        self.aside = store.none
        """Rows that were put aside for the open view, then free places."""
        self._aside: Room | None = None
        self._spares: list[Room] = []
        self._open: Callable[[], TableView | None] = lambda: None

    @property
    def copying(self) -> bool:
        """Whether a view is open and not copied yet."""
        view = self._open()
        return view is not None and not view.whole

    def view(self, since: int, upto: int, before: tuple[int, int] = NONE_OLD) -> TableView | Copy:
        """The rows that an epoch after `since` touched last, and old ones, whose epoch and slot
        come before these, as they are at the end of epoch `upto`, which is now. Of two views at a
        time one is copied at once: the later one, unless it is of all rows or has old ones;
        otherwise what is left of the earlier one."""
        store = self.store
        k = store.kernels
        with self.guard:
            if (earlier := self._open()) is not None and not earlier.whole:
                if since > 0 and before == NONE_OLD:
                    return Copy(self, since, upto)
                earlier.finish()
            store.meta[[k.SINCE, k.UPTO, k.TAKEN, k.KEPT]] = max(since, k.FREE), upto, 0, 0
            store.meta[[k.OLD, k.OLD_SLOT]] = before
            view = TableView(self, of_all=since <= 0)
            self._open = ref(view)
            return view

    # ------------------------------------------------------------ memory

    def take_spare(self, size: int, *, of_all: bool) -> Room:
        """Room for copies of `size` rows: what an earlier view gave back, if one did. Two rooms are
        kept: one for all rows, one for rows that changed. The caller holds the guard."""
        itemsize = self.store.dtype.itemsize
        known = len(self._spares)  # more may come meanwhile, none is taken but here
        spares = sorted(self._spares[:known], key=lambda room: room.touched)
        room = spares.pop(-1 if of_all else 0) if spares else Room(self.store.dtype)
        self._spares[:known] = spares[-1:]
        most = size if of_all or not spares else size // 4
        room.shrink(max(most, SPARE_BYTES // itemsize))
        room.grow(size)
        return room

    def keep_spare(self, room: Room, rows: int) -> None:
        """Keep a room, into which `rows` rows were copied, for the next view. On any thread."""
        room.touched = max(room.touched, rows)
        self._spares.append(room)

    def prepare(self, rows: int, step: int) -> None:
        """Make room for copies of `rows` rows, `step` rows at a time, before any are needed."""
        spare = Room(self.store.dtype)
        spare.grow(rows)
        copies = as_words(spare.view(rows))
        for at in range(0, len(copies), step):
            copies[at : at + step] = 0
        self.keep_spare(spare, len(copies))

    # ------------------------------------------------------------ copying

    def copy_since(self, since: int, upto: int, out: np.ndarray) -> int:
        """Copy the rows that an epoch after `since` touched last; how many there are."""
        store = self.store
        k, words = store.kernels, (as_words(store.rows), as_words(out))
        meta = store.meta.copy()  # the open view's is left as it is
        meta[[k.SINCE, k.UPTO, k.TAKEN]] = since, upto, 0
        meta[[k.OLD, k.OLD_SLOT]] = NONE_OLD
        take = store.loops.take_viewed
        return int(take(store.heads, words[0], meta, store.used, words[1], 0))

    def copy_viewed(self, last: int, out: np.ndarray, n: int) -> int:
        """Copy rows of the open view up to a slot to `out`, from n on; how many are there then."""
        store, words = self.store, (as_words(self.store.rows), as_words(out))
        return int(store.loops.take_viewed(store.heads, words[0], store.meta, last, words[1], n))

    def close(self) -> np.ndarray:
        """End the view, all of which is copied. Returns the rows that were put aside."""
        meta, k = self.store.meta, self.store.kernels
        kept = self.aside[: int(meta[k.KEPT])]
        meta[k.UPTO] = k.NO_VIEW
        self.aside, self._aside = self.store.none, None
        return kept

    # ------------------------------------------------------------ rows that change

    def put_aside(self, slots: np.ndarray) -> None:
        """Copy the rows in these slots, which are about to change, if the open view has yet to."""
        at = 0
        if self.store.meta[self.store.kernels.UPTO] != self.store.kernels.NO_VIEW:
            while (at := self._put_aside_from(at, slots)) < len(slots):
                self.reserve()

    def _put_aside_from(self, at: int, slots: np.ndarray) -> int:
        store = self.store
        words = as_words(store.rows), as_words(self.aside)
        return int(store.loops.put_aside(store.heads, words[0], store.meta, slots, at, words[1]))

    def reserve(self) -> None:
        """Make room to put more rows aside for the view that is open."""
        self._aside = self._aside or Room(self.store.dtype)
        size, self.aside = max(LEAST_ASIDE, 2 * len(self.aside)), self.store.none
        self._aside.grow(size)
        self.aside = self._aside.view(size)
