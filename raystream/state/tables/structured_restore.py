"""Restore of structured rows: what the images of a checkpoint hold, as columns of whole rows.

A restore puts in what each key had last. Where the images are of one table, the slots of the rows
say which image that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raystream.state.images.image import SLOT, Image
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.string_dictionary import Texts

BLOCK = 1 << 14
"""Rows that are filled field by field at a time: they stay in the cache meanwhile."""


class RowColumns(NamedTuple):
    """Whole rows as columns."""

    keys: Sequence[np.ndarray]
    """int64 each."""
    epoch: int
    """The epoch that counts as the last that touched them."""
    fields: Mapping[str, np.ndarray]
    """Columns of the user's fields, by name."""


class Newest(NamedTuple):
    """The rows of an image that no later image replaces."""

    image: Image
    rows: np.ndarray | None
    """int32: the positions of these rows; None if these are all."""


def of_one_table(chain: Sequence[Image]) -> list[Image]:
    """The first image, and those after it whose rows name slots of the same table."""
    table = chain[0].header.table
    rest = takewhile(lambda image: table and image.header.table == table, chain[1:])
    return [chain[0], *rest]


def newest_of(chain: Sequence[Image]) -> list[Newest]:
    """The rows that are to be restored from images of one table. The newest image that names a slot
    determines its content: nothing, if the image only says that a row was removed from it."""
    if len(chain) == 1:
        return [Newest(chain[0], None)]
    from raystream.state.images.image_kernels import mark, unmarked

    named = [[batch.column(SLOT).to_numpy() for batch in (i.rows, i.gone)] for i in chain]
    most = max((int(slots.max()) for each in named for slots in each if len(slots)), default=-1)
    seen, found = np.zeros((most >> 3) + 1, np.uint8), []
    for image, (rows, gone) in zip(reversed(chain), reversed(named), strict=True):
        found.append(Newest(image, unmarked(rows, seen)))
        mark(gone, seen)
    return found


def batches_of(
    newest: Sequence[Newest], columns: list[str] | None = None
) -> Iterator[tuple[int, Any]]:
    """The checkpoints and rows (all columns, or these) of images, a block at a time where some are
    left out."""
    for image, rows in newest:
        batch = image.rows if columns is None else image.rows.select(columns)
        if rows is None:
            yield image.header.checkpoint, batch
            continue
        for first in range(0, len(rows), BLOCK):
            yield image.header.checkpoint, batch.take(pa.array(rows[first : first + BLOCK]))


def newest_of_each(chains: Iterable[Sequence[Image]], rest: list[Image]) -> Iterator[list[Newest]]:
    """Of each chain the rows of the images of one table with which it begins. rest: gets the images
    after these."""
    for images in chains:
        those = of_one_table(images)
        rest.extend(images[len(those) :])
        yield newest_of(those)


def rows_of(
    shape: RowShape,
    texts: Texts,
    newest: Iterable[Sequence[Newest]],
    aside: Executor,
    indexed: list[Future[None]],
) -> Iterator[RowColumns]:
    """The rows of images, whose keys are all distinct.

    Where a text alone is the key, none comes twice, so its numbers are known beforehand. To learn
    the texts takes about as long as to fill the table, and both let the interpreter's lock go.

    Args:
        texts: those of the table.
        aside: texts are learnt there.
        indexed: gets what indexes the texts, aside.
    """
    known = texts[0] if len(shape.gone) == 1 else None
    if known is None or len(known):
        for each in newest:
            for checkpoint, batch in batches_of(each):
                yield whole_rows(shape, checkpoint, batch, numbered(shape, batch, texts))
        return
    at = 0
    for each in newest:
        keys = (batch.column(0) for _, batch in batches_of(each, shape.gone.names))
        learnt = aside.submit(known.learn, keys)
        yield from in_turn(shape, batches_of(each), at)
        learnt.result()
        at = len(known)
    indexed.append(aside.submit(known.learnt))


def in_turn(shape: RowShape, batches: Iterable[tuple[int, Any]], at: int) -> Iterator[RowColumns]:
    """Rows whose keys are numbered as they come, from `at` on."""
    for checkpoint, batch in batches:
        numbers = np.arange(at, at + batch.num_rows)
        yield whole_rows(shape, checkpoint, batch, [numbers])
        at += batch.num_rows


def whole_rows(shape: RowShape, checkpoint: int, batch: Any, keys: list[np.ndarray]) -> RowColumns:
    """The rows of a batch, with these keys."""
    fields = {}
    for f in shape.state.fields:
        column = batch.column(f.name)
        if f.kind == "array":
            fields[f.name] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, f.size)
        else:
            fields[f.name] = column.to_numpy(zero_copy_only=False)
    return RowColumns(keys, checkpoint, fields)


def numbered(shape: RowShape, batch: Any, texts: Texts, *, new: bool = True) -> list[np.ndarray]:
    """int64 each: the key columns of a batch; text and bytes are numbered.

    new: whether a text without a number gets one. Otherwise it stands as -1, like no text.
    """
    columns = []
    for j in range(len(shape.gone)):
        column = batch.column(j)
        known = texts[j] if j < len(texts) else None
        if known is None:
            columns.append(column.to_numpy())
        else:
            columns.append(known.number(column) if new else known.find(column))
    return columns
