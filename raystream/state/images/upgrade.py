"""Turns rows of an older version of a state class into rows of the class as it is now.

The user's `State.upgrade` does that row by row. It is given what the image holds, because the old
class is gone: numbers, text, bytes, lists and dicts by field. What it returns goes through the
stored form like any checkpoint, so that it is checked against the declared fields and comes out in
their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from raystream.errors import StateError, user_frame
from raystream.schema.objects import decode, decode_all, encode
from raystream.schema.state import FORGOTTEN, State
from raystream.state.images.image import END, KEY, SLOT, START, Image
from raystream.state.images.object_columns import row_keys, state_columns
from raystream.state.images.row_shape import OBJECT, RowShape


def upgraded(image: Image, shape: RowShape) -> Image:
    """An image of another version of a state class as one of this shape, which may take it.

    Raises:
        StateError: the user's `upgrade` raised, or returned something that is no row of the class.
    """
    keys = row_keys(shape, image.rows)
    rows = [
        _upgrade(shape, old, key, image) for key, old in zip(keys, _stored(image.rows), strict=True)
    ]
    _reshape(shape, rows)
    kept = [image.rows.column(name) for name in image.rows.schema.names if _of_key(name)]
    columns = [*kept, *state_columns(shape, rows, keys)]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.rows)
    if image.header.table:
        batch = batch.append_column(SLOT, image.rows.column(SLOT))
    return Image(replace(image.header, shape=shape.fingerprint), batch, image.gone)


def _upgrade(shape: RowShape, old: dict[str, Any], key: Any, image: Image) -> State:
    name, upgrade = shape.state.name, shape.state.upgrade
    assert upgrade is not None
    place = f"at key {key!r} of the {image.header}"
    try:
        new = upgrade(old)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        where = user_frame(error)
        raise StateError(f"{name}.upgrade raised {raised}", where=where, hint=place) from error
    if type(new) is not shape.state.cls or new._mark == FORGOTTEN:
        raise StateError(f"{name}.upgrade returned no row but {new!r:.80}", hint=place)
    return new


def _reshape(shape: RowShape, rows: list[State]) -> None:
    """Turn what `upgrade` passed on of the stored form into the declared tuples and classes.

    A value for which that fails stays as it is, and is refused later as one that does not fit.
    """
    for f in (f for f in shape.state.fields if f.kind == "object"):
        for row in rows:
            with suppress(StateError, TypeError, ValueError):
                setattr(row, f.name, decode(encode(getattr(row, f.name)), f.hint))


def _stored(batch: Any) -> Iterator[dict[str, Any]]:
    """Rows as they were stored, by field."""
    fields = [f for f in batch.schema if not _of_key(f.name) and f.name != SLOT]
    columns = []
    for f in fields:
        values = batch.column(f.name).to_pylist()
        columns.append(decode_all(values, None) if f.metadata == OBJECT else values)
    names = [f.name for f in fields]
    return (
        dict(zip(names, (column[i] for column in columns), strict=True))
        for i in range(batch.num_rows)
    )


def _of_key(column: str) -> bool:
    return column.startswith(KEY) or column in (START, END)
