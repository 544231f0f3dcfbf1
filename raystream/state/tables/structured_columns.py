"""The second half of a checkpoint of structured rows: the columns of an image from a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from raystream.native.thread_priority import step_aside
from raystream.schema.fields import Field
from raystream.schema.types import NEVER
from raystream.state.growable_array import as_words
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import SLOT
from raystream.state.images.partition import in_groups, key_order, offsets_of
from raystream.state.images.row_shape import RowShape, field_type, key_type, number_type
from raystream.state.tables.backend import MadePart, PendingRows
from raystream.state.tables.string_dictionary import Texts

if TYPE_CHECKING:
    from raystream.state.tables.structured_table import StructuredTable

ALIGN = 64
"""Columns begin at multiples of this many bytes."""
KEY_DTYPE = np.dtype(np.int64)
SLOT_DTYPE = np.dtype("<i4")
"""The type of the slot of a copy. The slot is in the lower half of where the epoch would be."""


class ViewedRows(PendingRows):
    """Rows of a structured table in view, copied bit by bit while the table goes on changing."""

    def __init__(
        self, table: StructuredTable, wanted: CheckpointRequest, upto: int, *, named: bool
    ) -> None:
        """See `Table.capture`."""
        since = wanted.base
        self._shape, self._groups, self._texts = table.shape, table.groups, table.texts
        self._named = named
        self._view = table.view(since or -1, upto, wanted.before)
        self._gone = table.removals.gone(since if since else NEVER, slots=named)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are copied so far."""
        return self._view.nbytes

    def copy(self) -> None:
        """Copy what is in view and not copied yet."""
        self._view.copy()

    def parts(self, nbytes: int) -> Iterator[MadePart]:
        """The parts, each of about `nbytes` bytes of rows."""
        shape, groups, texts, named = self._shape, self._groups, self._texts, self._named
        rows, left = self._view.rows(), with_slots(shape.nothing_gone, named)
        try:
            if len(self._gone):
                columns = matrix_columns(shape, self._gone, texts)
                left = in_groups(columns, left.schema, groups)
            if not len(rows):
                yield MadePart(groups, with_slots(shape.no_rows, named), left)
                return
            columns = matrix_columns(shape, rows["_key"], texts)
            keys = pa.RecordBatch.from_arrays(columns, schema=shape.gone)
            order, offsets = key_order(keys, groups)
            ends = part_ends(offsets, max(1, nbytes // rows.itemsize))
            begins = offsets_of(left, groups, [0, *ends])
            for i, end in enumerate(ends):
                here = order[offsets[ends[i - 1] if i else 0] : offsets[end]]
                some = left.slice(begins[i], begins[i + 1] - begins[i])
                yield MadePart(end, row_columns(shape, rows, keys, here, texts, named), some)
        finally:
            self._view.close()


def part_ends(offsets: np.ndarray, most: int) -> list[int]:
    """Cut key groups into ranges of at most `most` rows, or of one key group. Returns where each
    ends.

    offsets: where each key group begins among the rows, [groups + 1].
    """
    ends, at = list[int](), 0
    while offsets[-1] - at > most:
        one, several = np.searchsorted(offsets, [at, at + most], "right").tolist()
        ends.append(max(one, several - 1))
        at = int(offsets[ends[-1]])
    if at == offsets[-1] and ends:
        ends.pop()
    return [*ends, len(offsets) - 1]


_SLOTS = pa.field(SLOT, pa.int32(), nullable=False)


def with_slots(batch: Any, named: bool, slots: Any = None) -> Any:
    """A batch with the column of its slots, if they are named; of no rows it is empty."""
    if not named:
        return batch
    return batch.append_column(_SLOTS, pa.array([], pa.int32()) if slots is None else slots)


def row_columns(
    shape: RowShape, rows: np.ndarray, keys: Any, order: np.ndarray, texts: Texts, named: bool
) -> Any:
    """Structured rows as columns.

    Args:
        order: of the rows. keys: the columns of their keys, in the order in which the rows lie.
        named: with a column of their slots, which a copy has in place of its epoch.
    """
    is_text = [known is not None for known in texts] + [False] * (keys.num_columns - len(texts))
    layout: Mapping[str, Any] = rows.dtype.fields or {}
    first = layout["_key"][1]
    parts: list[tuple[np.dtype[Any], int]]
    parts = [(KEY_DTYPE, first + 8 * j) for j, text in enumerate(is_text) if not text]
    parts += [layout[f.name][:2] for f in shape.state.fields]
    if named:
        parts.append((SLOT_DTYPE, layout["_epoch"][1]))
    fields = iter(_shuffled(rows, order, parts))
    columns = [
        keys.column(j).take(pa.array(order)) if text else pa.array(next(fields))
        for j, text in enumerate(is_text)
    ]
    columns += [structured_column(f, next(fields)) for f in shape.state.fields]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.rows)
    return with_slots(batch, named, pa.array(next(fields)) if named else None)


def _shuffled(
    rows: np.ndarray, order: np.ndarray, parts: Sequence[tuple[np.dtype[Any], int]]
) -> list[np.ndarray]:
    """Parts of structured rows as columns, in this order, in one piece of memory.

    parts: of each its dtype, and where its bytes begin in a row.
    """
    from raystream.state.images.image_kernels import to_columns

    n = len(order)
    sizes = [-(-n * dtype.itemsize // ALIGN) * ALIGN for dtype, _ in parts]
    begins = [0, *accumulate(sizes)]
    memory = np.empty(begins.pop() // 8, np.int64)
    told = [(at, dtype.itemsize, begin) for (dtype, at), begin in zip(parts, begins, strict=True)]
    step_aside(memory.nbytes)
    to_columns(as_words(rows), order, np.array(told, np.int64).reshape(-1, 3), memory)
    whole = memory.view(np.uint8)
    return [
        whole[begin : begin + n * dtype.itemsize].view(dtype.base).reshape(n, *dtype.shape)
        for (dtype, _), begin in zip(parts, begins, strict=True)
    ]


def matrix_columns(shape: RowShape, keys: np.ndarray, texts: Texts) -> list[Any]:
    """Columns of keys, and of their slots if these are there too."""
    columns = []
    for j in range(keys.shape[1]):
        step_aside(len(keys) * keys.itemsize)
        numbers = np.ascontiguousarray(keys[:, j])
        known = texts[j] if j < len(texts) else None
        if known is not None:
            columns.append(known.text(numbers, key_type(shape.keys[j])))
        elif j < len(shape.gone):
            columns.append(pa.array(numbers))
        else:
            columns.append(pa.array(numbers, pa.int32()))
    return columns


def structured_column(f: Field, values: np.ndarray) -> Any:
    """The Arrow column of a field of structured rows."""
    if f.kind == "array":
        flat = values.reshape(-1)
        return pa.FixedSizeListArray.from_arrays(
            pa.array(flat, number_type(f.dtype)), type=field_type(f)
        )
    return pa.array(values, field_type(f))
