"""The rows of a structured table: dense slots of one array, and an index over their keys; how a row
lies in memory.

Both grow in small steps: the rows by a block, in memory that grows where it is (`growable_array`),
the index by a page (`row_index`). Compiled functions work on `rows` and `meta` directly, see
`row_kernels`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from raystream.errors import StateError
from raystream.schema.state import StateSchema
from raystream.schema.types import NEVER
from raystream.state.growable_array import Room, as_words
from raystream.state.tables.row_index import RowIndex

HIDDEN = ("_key", "_epoch")
GROWTH_BYTES = 1 << 18
"""Up to so much memory is made ready when there is no room for a row: half a millisecond."""


def head_fields(columns: int) -> list[Any]:
    """The fields that every row begins with, for keys of that many columns."""
    return [("_key", "i8", (columns,)), ("_epoch", "i8")]


def row_dtype(schema: StateSchema, columns: int) -> np.dtype[Any]:
    """The aligned dtype of the rows of a table, for keys of that many columns."""
    fields = head_fields(columns)
    for name in schema.dtype.names or ():
        shaped = schema.dtype[name].subdtype
        fields.append((name, schema.dtype[name]) if shaped is None else (name, *shaped))
    return np.dtype(fields, align=True)


def key_columns(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Key columns as the one kind of array that kernels are compiled for."""
    return tuple(np.require(c, np.int64, ("C", "A", "W")) for c in columns)


def in_key_order(rows: np.ndarray) -> np.ndarray:
    """Structured rows, sorted by key (numeric, column by column)."""
    return rows[np.lexsort(rows["_key"].T[::-1])]


class RowStore:
    """Rows in slots. Slots are not stable: a removal frees them for other keys.

    Args:
        schema: of the user's fields, all of fixed width.
        keys: how many integer columns a key has.
        groups: the number of key groups of the job.
        window: for windowed operators the length of a window in time units; the window's start is
            one more key column then, the last.
    """

    def __init__(
        self, schema: StateSchema, *, keys: int, groups: int, window: int | None = None
    ) -> None:
        from raystream.state.tables import loop_kernels
        from raystream.state.tables import row_kernels as kernels

        if clash := set(HIDDEN) & {f.name for f in schema.fields}:
            raise StateError(f"{schema.name}.{clash.pop()}: this name is raystream's own")
        self.schema = schema
        self.keys = keys
        self.groups = groups
        self.window = window
        self.kernels, self.loops = kernels, loop_kernels
        self.columns = keys + (window is not None)
        """How many key columns a row has, with that of its window."""
        self.dtype = row_dtype(schema, self.columns)
        self.head = np.dtype(head_fields(self.columns))
        self.defaults = np.zeros(1, self.dtype)
        """What a free slot holds."""
        for f in schema.fields:
            self.defaults[f.name] = schema.defaults[f.name]
        self.defaults["_epoch"] = kernels.FREE
        self.meta = np.zeros(kernels.FIELDS, np.int64)
        """What kernels count and note, for all parts of the table; see `row_kernels`."""
        self.meta[kernels.CHAIN] = -1
        self.meta[kernels.NEXT] = NEVER
        self.meta[kernels.UPTO] = kernels.NO_VIEW
        self.none = np.zeros(0, self.dtype)
        self.rows = self.none
        """All slots that were made ready."""
        self._room, self.index = Room(self.dtype), RowIndex()
        self._seen, self._numbered = Room(np.dtype(np.int64)), 1

    def __len__(self) -> int:
        return int(self.meta[self.kernels.LIVE])

    @property
    def used(self) -> int:
        """The slots from here on were never used."""
        return int(self.meta[self.kernels.USED])

    @property
    def nbytes(self) -> int:
        """Bytes of the slots that were ever used, and of their index."""
        return self.used * self.dtype.itemsize + self.index.nbytes

    @property
    def heads(self) -> np.ndarray:
        """Key and epoch of the rows, over the same memory: alike for all state classes."""
        return np.ndarray(len(self.rows), self.head, self.rows, 0, self.rows.strides)

    # ------------------------------------------------------------ room

    def reach(self, size: int) -> None:
        """Have this many slots. The content of new ones is undefined."""
        self.rows = self.none  # with a view of it memory would be copied, not grow where it is
        self._room.grow(size)
        self.rows = self._room.view(size)

    def clear(self, first: int) -> None:
        """Let all slots from `first` on hold the defaults."""
        as_words(self.rows)[first:] = as_words(self.defaults)  # NumPy would go field by field

    def split_page(self) -> bool:
        """Make room in the index if that is where a key found none; otherwise False."""
        page = int(self.meta[self.kernels.CROWDED])
        if page < 0:
            return False
        self.index.split(self.heads, page)
        return True

    @property
    def next_size(self) -> int:
        """How many slots there are to be when one more is needed."""
        size = len(self.rows)
        return size + min(size, max(1, GROWTH_BYTES // self.dtype.itemsize))

    # ------------------------------------------------------------ keys

    def insert(self, at: int, keys: tuple[np.ndarray, ...], epoch: int, slots: np.ndarray) -> int:
        """Find or insert keys from position `at` on, and note the slot of each; where it stopped
        for want of room, or how many keys there are."""
        arrays = self.index.arrays
        return int(self.loops.insert_all(self.heads, arrays, self.meta, keys, epoch, slots, at))

    def free(self, slots: np.ndarray) -> None:
        """Free the slots of rows."""
        words, defaults = as_words(self.rows), as_words(self.defaults)
        self.loops.free_all(self.heads, words, self.index.arrays, self.meta, defaults, slots)

    def distinct(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the distinct ones of these slots in order of first appearance, for each slot its number
        among them): int64 both. `slots` is overwritten."""
        self._seen.grow(len(self.rows))
        seen, inverse = self._seen.view(len(self.rows)), np.empty(len(slots), np.int64)
        n = self.loops.distinct(slots, seen, self._numbered, inverse)
        self._numbered += n
        return slots[:n], inverse

    def find(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """int64: the slot of each key, -1 where there is none."""
        slots = np.empty(len(columns[0]), np.int64)
        self.loops.find_all(self.heads, self.index.arrays, key_columns(columns), slots)
        return slots

    def keys_in_blocks(self, rows: int) -> Iterator[np.ndarray]:
        """int64 [n, columns]: the keys of all rows, in blocks of about this many rows."""
        for first in range(0, self.used, rows):
            block = self.rows[first : min(first + rows, self.used)]
            yield block["_key"][block["_epoch"] != self.kernels.FREE]

    def read(self, slots: np.ndarray, name: str) -> np.ndarray:
        """A copy of one of the user's fields of rows.

        Raises:
            StateError: there is no such field.
        """
        names = self.schema.dtype.names or ()
        if name not in names:
            raise StateError(
                f"{self.schema.name} has no field {name!r}", hint=f"It has {', '.join(names)}."
            )
        found: np.ndarray = self.rows[name][slots]
        return found

    def filled(self, rows: int) -> None:
        """Index the rows that were put into the first slots of an empty table."""
        self.meta[[self.kernels.USED, self.kernels.LIVE]] = rows
        self.index.fill(self.heads, rows)
