"""Processing state with Python rows: one `rs.State` object per key, or key and window.

A row carries the last epoch that touched it, its `_mark`: a row that was handed out is dirty.
Removed rows are remembered with their epoch until a stored checkpoint has seen them go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.state import State
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import END, Image
from raystream.state.images.object_columns import (
    column_of,
    key_columns,
    lasting_values,
    row_keys,
    state_columns,
    values_of,
)
from raystream.state.images.partition import count_keys, in_groups, key_order
from raystream.state.images.row_shape import RowShape
from raystream.state.keys import key_order as order_of
from raystream.state.tables.backend import COUNTED, FoundRows, MadePart, PendingRows, Table

VALUE_BYTES = 64
"""What a value of a Python row takes in memory, about."""


class ObjectTable(Table):
    """Rows by key; for windows by (key, window start).

    The loops that call the user's function for each record use `get` and `new`, and set the mark of
    the row themselves: one more call for each record would show. All other code uses `touch`.
    """

    def __init__(self, shape: RowShape, groups: int) -> None:
        self.shape = shape
        self.groups = groups
        self.schema = shape.state
        self.rows: dict[Any, State] = {}
        self.get = self.rows.get
        """The row of a key, or None. It is the dict's own method, as it is called per record."""
        self.ends: dict[Any, int] = {}
        """When each row of a session ends."""
        self.removed: dict[Any, int] = {}
        """The epoch in which a key's row was removed last."""

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, key: Any) -> bool:
        return key in self.rows

    def __iter__(self) -> Iterator[Any]:
        """The keys, the oldest row first."""
        return iter(self.rows)

    def warm(self) -> None:
        """Load what sorts rows by key group."""
        key_order(self.shape.nothing_gone, self.groups)

    # ------------------------------------------------------------ rows

    def new(self, key: Any) -> State:
        """A new row for a key that has none. The caller marks it."""
        row = self.rows[key] = self.schema.fresh()
        return row

    def touch(self, key: Any, epoch: int) -> tuple[State, bool]:
        """The row of a key, marked as touched; and whether it is new."""
        row = self.get(key)
        new = row is None
        if row is None:
            row = self.new(key)
        row._mark = epoch
        return row, new

    def remove(self, key: Any, epoch: int) -> None:
        """Remove a row; a later delta will say so."""
        del self.rows[key]
        self.ends.pop(key, None)
        self.removed[key] = epoch

    def move(self, key: Any, to: Any, epoch: int) -> None:
        """Give the row of a key to another key, which has none."""
        row = self.rows[key]
        self.remove(key, epoch)
        self.rows[to] = row

    def end_of(self, key: Any) -> int | None:
        """When a session ends; None if it is over."""
        return self.ends.get(key)

    def set_end(self, key: Any, end: int) -> None:
        """A session ends then, unless it is extended."""
        self.ends[key] = end

    def sessions(self) -> list[tuple[Any, int]]:
        """The keys of all sessions and when each ends, in key order."""
        return sorted(self.ends.items(), key=lambda item: order_of(item[0]))

    def look_up(self, keys: Any) -> FoundRows:
        """The rows of some keys, copied."""
        try:
            asked = row_keys(self.shape, keys)
        except ValueError as error:
            raise StateError(f"no row can have this key: {error}") from None
        at = [i for i, key in enumerate(asked) if key in self.rows]
        copied = CopiedRows(self, [asked[i] for i in at], [self.rows[asked[i]] for i in at])
        return FoundRows(np.array(at, np.int64), copied.in_order)

    # ------------------------------------------------------------ checkpoints

    def capture(self, wanted: CheckpointRequest, upto: int, *, named: bool = False) -> CopiedRows:
        """Copy what changed after the checkpoint `wanted.base`; 0 copies all."""
        since = wanted.base
        return CopiedRows(self, *self.changed(since), list(self.gone(since)) if since else ())

    def check(self, since: int) -> None:
        """Check that what changed after the checkpoint `since` could be stored."""
        keys, rows = self.changed(since)
        if keys:
            state_columns(self.shape, rows, keys)

    def changed(self, since: int) -> tuple[list[Any], list[State]]:
        """The keys and rows that changed after the checkpoint `since`."""
        oldest = since or -1
        dirty = [row._mark > oldest for row in self.rows.values()]
        return list(compress(self.rows, dirty)), list(compress(self.rows.values(), dirty))

    def gone(self, since: int) -> Iterable[Any]:
        """Keys whose rows were removed after `since` and are not back, in key order."""
        gone = (k for k, e in self.removed.items() if e > since and k not in self.rows)
        return sorted(gone, key=order_of)

    def settle(self, checkpoint: int) -> None:
        """A checkpoint is stored: removals up to it need not be remembered."""
        self.removed = {k: e for k, e in self.removed.items() if e > checkpoint}

    def count_by_group(self) -> np.ndarray:
        """int64 [groups]: how many rows there are of each key group."""
        counts, left = np.zeros(self.groups, np.int64), iter(self.rows)
        while keys := list(islice(left, COUNTED)):
            columns = key_columns(self.shape, keys)
            batch = pa.RecordBatch.from_arrays(columns, schema=self.shape.gone)
            counts += count_keys(batch, self.groups)
        return counts

    # ------------------------------------------------------------ restore

    def apply(self, image: Image) -> None:
        """Put the rows of an image in, and take out those that it says are gone.

        Raises:
            StateError: it holds a value that its enumeration has no member for any more.
        """
        shape, checkpoint = self.shape, image.header.checkpoint
        try:
            gone, keys = row_keys(shape, image.gone), row_keys(shape, image.rows)
            fields = [(f.name, values_of(f, image.rows.column(f.name))) for f in shape.state.fields]
        except ValueError as error:
            raise StateError(
                f"the {image.header} holds what {shape.state.name} or its key cannot: {error}",
                hint="An enumeration keeps the members that stored rows have.",
            ) from None
        for key in gone:
            if key in self.rows:
                self.remove(key, checkpoint)
        for i, key in enumerate(keys):
            row = self.new(key)
            row._mark = checkpoint
            for name, values in fields:
                setattr(row, name, values[i])
        if shape.sessions:
            self.ends.update(zip(keys, image.rows.column(END).to_pylist(), strict=True))


class CopiedRows(PendingRows):
    """Python rows that were copied field by field; what could still change is encoded already."""

    def __init__(
        self, table: ObjectTable, keys: list[Any], rows: list[State], gone: Sequence[Any] = ()
    ) -> None:
        """
        Args:
            keys: of the rows. gone: the keys of removed rows, in key order.
        """
        shape = table.shape
        self._shape, self._groups = shape, table.groups
        self._keys, self._gone = keys, gone
        self._ends = [table.ends[k] for k in self._keys] if shape.sessions else None
        self._fields = [lasting_values(f, rows, shape, self._keys) for f in shape.state.fields]

    @property
    def nbytes(self) -> int:
        """About what the copies take."""
        return len(self._keys) * (1 + len(self._fields)) * VALUE_BYTES

    def parts(self, nbytes: int) -> Iterator[MadePart]:
        """One part, whatever was asked for: the copy is there, and larger than the columns."""
        shape, groups = self._shape, self._groups
        rows = self._rows() if self._keys else shape.no_rows
        gone = shape.nothing_gone
        if self._gone:
            gone = in_groups(key_columns(shape, self._gone), shape.gone, groups)
        yield MadePart(groups, rows, gone)

    def in_order(self) -> Any:
        """The Arrow batch of the rows, in the order of the keys that were given."""
        return pa.RecordBatch.from_arrays(self._columns(), schema=self._shape.rows)

    def _rows(self) -> Any:
        return in_groups(self._columns(), self._shape.rows, self._groups)

    def _columns(self) -> list[Any]:
        shape, keys = self._shape, self._keys
        columns = key_columns(shape, keys)
        if self._ends is not None:
            columns.append(pa.array(self._ends, pa.int64()))
        for f, values in zip(shape.state.fields, self._fields, strict=True):
            columns.append(column_of(shape, f, values, keys))
        return columns
