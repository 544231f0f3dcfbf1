"""What a table held at the end of an epoch, copied bit by bit while the table goes on changing.

The computing thread waits for no more than a slice of it. A thread that changes a row which was not
copied yet puts the row aside first: the epoch in the row says whether it is of the view. So a view
has exactly the rows of its epoch, whenever it is read. A copy has the slot of its row in place of
the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from raystream.errors import InternalError
from raystream.native.thread_priority import step_aside
from raystream.state.growable_array import as_words

if TYPE_CHECKING:
    from raystream.state.tables.views import Views

SLICE_BYTES = 1 << 20
"""Memory of a table that is looked through at a time."""
SLICES_MOST = 16
"""At most this many slices are copied in one turn."""


class TableView:
    """Made by `Views.view`; one of a table at a time is open (see `Copy`). `rows`, `copy`
    and `advance` are for one thread, which may be any."""

    def __init__(self, views: Views, *, of_all: bool) -> None:
        self._views = views
        self._used = views.store.used
        self._step = max(1, SLICE_BYTES // views.store.dtype.itemsize)
        self._slices = np.empty(min(SLICES_MOST * self._step, self._used), views.store.dtype)
        self._room = views.take_spare(self._used, of_all=of_all)
        self._rows = self._room.view(self._used)  # no more of it is touched than is found
        self._found = 0
        self._aside = self._rows[:0]
        self._at = 0
        self._whole = self._given = False

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are copied so far. Another thread may ask."""
        return self._found * self._views.store.dtype.itemsize

    def rows(self) -> np.ndarray:
        """The rows, in no particular order. Once: their memory is the caller's then, until it gives
        it back with `close`.

        Raises:
            InternalError: they were given away.
        """
        self.copy()
        if self._given:
            raise InternalError("the rows of a view were asked for twice")
        n = self._found + len(self._aside)
        rows, aside = self._rows, self._aside
        self._rows = self._slices = self._aside = np.empty(0, rows.dtype)
        self._given = True
        as_words(rows)[self._found : n] = as_words(aside)
        return rows[:n]

    def close(self) -> None:
        """The rows are not needed any more: their memory serves the next view of the table."""
        self._views.keep_spare(self._room, self._found)

    def copy(self) -> None:
        """Copy all that is not copied yet."""
        while not self._whole:
            self.advance()

    def advance(self) -> None:
        """Copy a slice with the table's guard, or some, as it allows.

        They are copied once more, without the guard: new memory is first touched there, and nobody
        waits for that.
        """
        with self._views.guard as may_go_on:
            if self._whole:
                return
            first, n = self._found, 0
            for _ in range(SLICES_MOST):
                n = self._copy(self._slices, n)
                if self._at == self._used or not may_go_on():
                    break
            self._found += n
            self._end()
        step_aside(n * self._views.store.dtype.itemsize)
        as_words(self._rows)[first : first + n] = as_words(self._slices[:n])

    @property
    def whole(self) -> bool:
        """Whether all of it is copied."""
        return self._whole

    def finish(self) -> None:
        """Copy what is left. The caller holds the guard."""
        while not self._whole:
            self._found = self._copy(self._rows, self._found)
            self._end()

    def _copy(self, to: np.ndarray, n: int) -> int:
        self._at = min(self._at + self._step, self._used)
        return self._views.copy_viewed(self._at, to, n)

    def _end(self) -> None:
        """After the last slice, end the view in the table, so that no more rows are put aside."""
        if self._at == self._used:
            self._aside = self._views.close()
            self._whole = True


class Copy:
    """Rows that were copied at once, while a view was open.

    A checkpoint that follows soon on a large one is a delta, of few rows most often: to copy these
    takes less time than to copy at once what the large one has not copied yet.
    """

    def __init__(self, views: Views, since: int, upto: int) -> None:
        self._views = views
        self._room = views.take_spare(views.store.used, of_all=False)
        rows = self._room.view(views.store.used)  # no more of it is touched than is found
        self._found = views.copy_since(since, upto, rows)
        self._rows = rows[: self._found]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows. Another thread may ask."""
        return self._rows.nbytes

    def rows(self) -> np.ndarray:
        """The rows, in no particular order."""
        return self._rows

    def copy(self) -> None:
        """Nothing to do: they are copied already."""

    def close(self) -> None:
        """The rows are not needed any more: their memory serves the next view of the table."""
        self._rows = self._rows[:0]
        self._views.keep_spare(self._room, self._found)
