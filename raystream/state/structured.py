"""Checkpoint and restore of structured rows: the columns of an image from a table, and back.

Who takes a checkpoint opens a view; the rest is made on any thread. A restore puts in what each key
had last: where the images are of one table the slots of the rows say which that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raystream.schema.fields import Field
from raystream.schema.types import NEVER
from raystream.state.checkpoint import (
    COUNTED,
    Made,
    Shape,
    Taken,
    field_type,
    in_groups,
    key_type,
    number_type,
)
from raystream.state.image import SLOT, Image
from raystream.state.partition import count_keys, key_order, offsets_of
from raystream.state.priority import step_aside
from raystream.state.room import as_words
from raystream.state.rows import BLOCK, NONE_OLD, Part, StructuredTable
from raystream.state.texts import TextNumbers

ALIGN = 64
"""Columns begin at multiples of so many bytes."""
KEY_DTYPE = np.dtype(np.int64)
SLOT_DTYPE = np.dtype("<i4")
"""Of the slot of a copy, which is where its epoch would be: the lower half of it."""

Texts = Sequence[TextNumbers | None]
"""Per key field what its numbers stand for, where it is text or bytes; () where none is."""


def take_rows(
    table: StructuredTable,
    shape: Shape,
    groups: int,
    since: int,
    upto: int,
    texts: Texts = (),
    before: tuple[int, int] = NONE_OLD,
    *,
    named: bool = False,
) -> Taken:
    """View what changed after the cut `since`, 0 is all; and old rows, see `StructuredTable.view`.

    Args:
        upto: the last epoch that was applied.
        named: name the slots, too.
    """
    view = table.view(since or -1, upto, before)
    gone = table.gone(since if since else NEVER, slots=named)

    def finish(most: int) -> Iterator[Made]:
        rows, left = view.rows(), _with_slots(shape.nothing_gone, named)
        try:
            if len(gone):
                columns = _matrix_columns(shape, gone, texts)
                left = in_groups(columns, left.schema, groups)
            if not len(rows):
                yield Made(groups, _with_slots(shape.no_rows, named), left)
                return
            columns = _matrix_columns(shape, rows["_key"], texts)
            keys = pa.RecordBatch.from_arrays(columns, schema=shape.gone)
            order, offsets = key_order(keys, groups)
            ends = part_ends(offsets, max(1, most // rows.itemsize))
            begins = offsets_of(left, groups, [0, *ends])
            for i, end in enumerate(ends):
                here = order[offsets[ends[i - 1] if i else 0] : offsets[end]]
                some = left.slice(begins[i], begins[i + 1] - begins[i])
                yield Made(end, _columns(shape, rows, keys, here, texts, named), some)
        finally:
            view.close()

    return Taken(finish, lambda: view.nbytes, view.copy)


def count_rows(table: StructuredTable, shape: Shape, groups: int, texts: Texts = ()) -> np.ndarray:
    """int64 [groups]: how many rows there are of each key group."""
    counts = np.zeros(groups, np.int64)
    for keys in table.keys_in_blocks(COUNTED):
        columns = _matrix_columns(shape, keys, texts)
        counts += count_keys(pa.RecordBatch.from_arrays(columns, schema=shape.gone), groups)
    return counts


def part_ends(offsets: np.ndarray, most: int) -> list[int]:
    """Cut key groups into ranges of at most so many rows, or one key group: where each ends.

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


def _with_slots(batch: Any, named: bool, slots: Any = None) -> Any:
    """A batch with the column of its slots, if they are named; of no rows it is empty."""
    if not named:
        return batch
    return batch.append_column(_SLOTS, pa.array([], pa.int32()) if slots is None else slots)


def _columns(
    shape: Shape, rows: np.ndarray, keys: Any, order: np.ndarray, texts: Texts, named: bool
) -> Any:
    """Structured rows as columns, in this order. keys: the columns of their keys, as they lie."""
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
    columns += [_structured(f, next(fields)) for f in shape.state.fields]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.rows)
    return _with_slots(batch, named, pa.array(next(fields)) if named else None)


def _shuffled(
    rows: np.ndarray, order: np.ndarray, parts: Sequence[tuple[np.dtype[Any], int]]
) -> list[np.ndarray]:
    """Parts of structured rows as columns, in this order, in one piece of memory.

    parts: of each its dtype, and where its bytes begin in a row.
    """
    from raystream.state.image_kernels import to_columns

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


def _matrix_columns(shape: Shape, keys: np.ndarray, texts: Texts) -> list[Any]:
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


def _structured(f: Field, values: np.ndarray) -> Any:
    if f.kind == "array":
        flat = values.reshape(-1)
        return pa.FixedSizeListArray.from_arrays(
            pa.array(flat, number_type(f.dtype)), type=field_type(f)
        )
    return pa.array(values, field_type(f))


def fill_rows(
    table: StructuredTable, shape: Shape, chains: Sequence[Sequence[Image]], texts: Texts = ()
) -> None:
    """Put the rows of images into an empty table. Of each range, which are apart, there is one, or
    those of one table that hold all its rows together, the oldest first."""
    newest = [each for chain in chains for each in _newest(chain)]
    known = texts[0] if texts and len(shape.gone) == 1 else None
    if known is None or len(known):
        batches = _batches(newest)
        table.fill(_part(shape, cut, b, _numbered(shape, b, texts)) for cut, b in batches)
        return
    # Where a text alone is the key, none comes twice, so its numbers are known beforehand. To learn
    # the texts takes about as long as to fill the table, and both let the interpreter's lock go.
    with ThreadPoolExecutor(1) as aside:
        keys = _batches(newest, shape.gone.names)
        learnt = aside.submit(known.learn, (batch.column(0) for _, batch in keys))
        table.fill(_in_turn(shape, _batches(newest)))
        learnt.result()


def _in_turn(shape: Shape, batches: Iterable[tuple[int, Any]]) -> Iterator[Part]:
    """Rows whose keys are numbered as they come."""
    at = 0
    for cut, batch in batches:
        numbers = np.arange(at, at + batch.num_rows)
        yield _part(shape, cut, batch, [numbers])
        at += batch.num_rows


class _Newest(NamedTuple):
    """An image, and the positions of those of its rows that no later one has: int32, None if these
    are all."""

    image: Image
    rows: np.ndarray | None


def _newest(chain: Sequence[Image]) -> list[_Newest]:
    """What is to be put in of images of one table. What is in a slot says the newest of them that
    names it: nothing, if that says only that a row has gone from there."""
    if len(chain) == 1:
        return [_Newest(chain[0], None)]
    from raystream.state.image_kernels import mark, unmarked

    named = [[batch.column(SLOT).to_numpy() for batch in (i.rows, i.gone)] for i in chain]
    most = max((int(slots.max()) for each in named for slots in each if len(slots)), default=-1)
    seen, found = np.zeros((most >> 3) + 1, np.uint8), []
    for image, (rows, gone) in zip(reversed(chain), reversed(named), strict=True):
        found.append(_Newest(image, unmarked(rows, seen)))
        mark(gone, seen)
    return found


def _batches(
    newest: Sequence[_Newest], columns: list[str] | None = None
) -> Iterator[tuple[int, Any]]:
    """The cuts and rows (all columns, or these) of images, a block at a time where some are left
    out."""
    for image, rows in newest:
        batch = image.rows if columns is None else image.rows.select(columns)
        if rows is None:
            yield image.header.cut, batch
            continue
        for first in range(0, len(rows), BLOCK):
            yield image.header.cut, batch.take(pa.array(rows[first : first + BLOCK]))


def put_rows(table: StructuredTable, shape: Shape, image: Image, texts: Texts = ()) -> None:
    """Put the rows of an image into a table, and take out those that it says are gone."""
    if image.gone.num_rows:
        slots = np.unique(
            table.find(_numbered(shape, image.gone, texts))
        )  # a key may be there twice
        table.remove(slots[slots >= 0], image.header.cut)
    keys = _numbered(shape, image.rows, texts)
    table.put(_part(shape, image.header.cut, image.rows, keys))


def _part(shape: Shape, cut: int, batch: Any, keys: list[np.ndarray]) -> Part:
    fields = {}
    for f in shape.state.fields:
        column = batch.column(f.name)
        if f.kind == "array":
            fields[f.name] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, f.size)
        else:
            fields[f.name] = column.to_numpy(zero_copy_only=False)
    return Part(keys, cut, fields)


def _numbered(shape: Shape, batch: Any, texts: Texts) -> list[np.ndarray]:
    columns = []
    for j in range(len(shape.gone)):
        column = batch.column(j)
        known = texts[j] if j < len(texts) else None
        columns.append(column.to_numpy() if known is None else known.number(column))
    return columns
