"""What a table holds of records: its columns, and batches as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import ConfigError, GraphError
from raystream.io.files.columns import renamed, written_as
from raystream.io.files.nested import json_text
from raystream.schema.fields import SHOWN, Field
from raystream.schema.records import RecordSchema, record_schema

STRUCTURED = "json"
"""What the types of columns are called that hold lists, dicts and records, as the text of JSON."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    """What it holds: `bool`, `int8` to `int64`, `float32`, `float64`, `text`, `bytes`, `datetime`,
    `date`, `timedelta`, `decimal`, `UUID` or `json`."""
    optional: bool
    """Whether it may be NULL."""
    digits: tuple[int, int] = (0, 0)
    """The digits of a decimal: how many in all, and how many after the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """How the records of a sink become rows of its table."""

    record: RecordSchema
    columns: tuple[Column, ...]
    """The columns, without the field that says what is deleted."""
    key: tuple[str, ...]
    """The columns by which rows are replaced; none if rows are only added."""
    delete: str | None
    """The field of the record that says that a row is to be deleted."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [c.name for c in self.columns]


def shape_of(
    record: type[Any],
    key: Sequence[str],
    delete: str | None,
    columns: Sequence[tuple[str, str]],
) -> TableShape:
    """How the records of one type become rows.

    Args:
        key, delete: fields of the record. columns: names of columns by field.

    Raises:
        GraphError: the record does not have them, or they do not fit.
    """
    schema = record_schema(record)
    called = dict(zip(schema.names, written_as(record, columns), strict=True))
    for name in (*key, *((delete,) if delete is not None else ())):
        if schema.field(name) is None:
            raise GraphError(
                f"{schema.name} has no field {name!r}, which the sink was told of",
                hint=f"It has {', '.join(schema.names)}.",
            )
    for name in key:
        if (f := schema.field(name)) is not None and f.optional:
            raise GraphError(f"{schema.name}.{f} is part of the key, so it may not be None")
    said = None if delete is None else schema.field(delete)
    if said is not None and (said.dtype != "?" or said.optional or delete in key):
        raise GraphError(
            f"{schema.name}.{said} cannot say that a row is to be deleted",
            hint="A bool does, which is no part of the key.",
        )
    return TableShape(
        record=schema,
        columns=tuple(_column(f, called[f.name]) for f in schema.fields if f.name != delete),
        key=tuple(called[name] for name in key),
        delete=delete,
    )


def _column(f: Field, name: str) -> Column:
    if f.kind == "object":
        return Column(name, STRUCTURED, f.optional)
    if f.value is not None and not f.value.members:
        digits = f.value.digits
        if digits is not None:
            return Column(name, "decimal", f.optional, (digits.precision, digits.scale))
        return Column(name, f.value.name, f.optional)
    kind = "bool" if f.dtype == "?" else SHOWN[f.dtype] if f.kind == "fixed" else f.kind
    return Column(name, kind, f.optional)


def table_of(shape: TableShape, batch: Batch[Any]) -> Any:
    """A batch as an Arrow table: the columns, then whether each row is deleted, if any may be."""
    called = iter(shape.columns)
    arrays, names = [], []
    for f in shape.record.fields:
        if f.name == shape.delete:
            continue
        arrays.append(_array(f, batch))
        names.append(next(called).name)
    if shape.delete is not None:
        arrays.append(pa.array(batch._columns.column(shape.delete)))
        names.append(DELETED)
    return pa.Table.from_arrays(arrays, names=names)


DELETED = "raystream_deleted"
"""The column of an Arrow table that says which rows are deleted."""


def _array(f: Field, batch: Batch[Any]) -> Any:
    columns = batch._columns
    if f.kind == "object":
        values = [None if v is None else json_text(v, f) for v in columns.shown(f)]
        return pa.array(values, pa.string())
    return columns.nullable(f)


def last_of_each(table: Any, key: Sequence[str]) -> Any:
    """The last of the rows with each key, in the order of the rows."""
    numbers = pa.array(np.arange(table.num_rows))
    numbered = table.select(list(key)).append_column("", numbers)
    last = numbered.group_by(list(key), use_threads=False).aggregate([("", "max")])["_max"]
    return table if len(last) == table.num_rows else table.take(last.combine_chunks().sort())


def to_bytes(table: Any) -> bytes:
    """An Arrow table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def of_bytes(data: bytes) -> Any:
    """The Arrow table that `to_bytes` made bytes of."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def check_table_options(
    sink: str, table: Any, key: Any, delete: Any, columns: Any
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The key, and the names of columns by field, as a user has given them.

    Raises:
        ConfigError: they are no names.
    """
    if not isinstance(table, str) or not table or "\0" in table:
        raise ConfigError(f"{sink}(table={table!r:.80}): the name of a table is text")
    names = (key,) if isinstance(key, str) else () if key is None else key
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{sink}(key={key!r:.80}): the name of a field, or a tuple of names")
    if delete is not None and not (isinstance(delete, str) and names):
        raise ConfigError(
            f"{sink}(delete={delete!r:.80}): the name of a bool field, of a sink that has a key",
            hint="Rows are deleted by their key: key=...",
        )
    return tuple(names), renamed(columns)
