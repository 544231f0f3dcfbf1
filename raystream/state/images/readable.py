"""Stored rows as people read them: with the names of their fields, and values instead of msgpack.

A field that is kept as msgpack is read as far as Arrow has a type for all its values, otherwise as
text. No class of the user's is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from raystream.schema.objects import bare
from raystream.state.images.image import END, KEY, START
from raystream.state.images.row_shape import OBJECT


def readable(table: pa.Table, shape: str) -> pa.Table:
    """A table with the names of the user's fields, and with values instead of msgpack.

    Args:
        table: rows as an image holds them. shape: what they hold, in words.
    """
    names, columns = [], []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        plain = plain_name(name)
        if pa.types.is_binary(column.type) and name == plain and not _is_bytes(name, shape):
            column = _values(column.to_pylist())
        names.append(plain)
        columns.append(column)
    return pa.table(columns, names=names)


def plain_rows(rows: Any) -> list[dict[str, Any]]:
    """The fields of rows, without their keys, as Python's values.

    Args:
        rows: an Arrow batch with the schema of `RowShape.rows`, which says what is msgpack.
    """
    columns = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.name.startswith(KEY) or field.name == START:
            continue
        values = column.to_pylist()
        if field.metadata == OBJECT:
            values = [None if data is None else bare([data])[0] for data in values]
        columns[plain_name(field.name)] = values
    return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]


def plain_name(column: str) -> str:
    """What people call a stored column."""
    return {START: "window_start", END: "window_end"}.get(column, column.removeprefix(KEY))


def _is_bytes(field: str, shape: str) -> bool:
    """Whether a field was declared as bytes, as the shape of the state says in words."""
    return re.search(rf"[(, ]{re.escape(field)}: bytes\b", shape) is not None


def _values(stored: Sequence[bytes | None]) -> Any:
    values = [None if data is None else bare([data])[0] for data in stored]
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if v is None else repr(v) for v in values])
