"""Values of messages that have a schema of their own, as columns and back.

Avro and Protobuf give values of Python: numbers, text, dates, dicts for what is nested. Arrow makes
columns of them, and the rest is as of a Parquet file (`raystream.io.files.declared`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar, cast

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.files.declared import batch_of, file_schema, table_of
from raystream.schema.fields import AnyRecord, Field
from raystream.schema.records import RecordSchema, defaults_of, record_schema

U = TypeVar("U", bound=AnyRecord)

_MICROSECOND = timedelta(microseconds=1)
ABSENT = object()
"""A value that a message does not have."""


class ValueRows:
    """Makes records of values by name, and values of records.

    Args:
        names: of values by field, where they are others.

    Raises:
        GraphError: a field has no type in such a message.
    """

    def __init__(self, record: type[Any], names: Mapping[str, str]) -> None:
        self.schema: RecordSchema = record_schema(record)
        self.types = file_schema(self.schema)
        self._names = [names.get(f.name, f.name) for f in self.schema.fields]
        self._defaults: dict[str, Any] = defaults_of(cast("Any", record))

    @cached_property
    def named(self) -> Any:
        """The Arrow schema with the names of values."""
        return pa.schema(
            [f.with_name(name) for f, name in zip(self.types, self._names, strict=True)]
        )

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> Batch[Any]:
        """The records of rows.

        Raises:
            InputError: a value does not fit, or is missing.
        """
        arrays = [
            self._column(f, [row.get(name, ABSENT) for row in rows])
            for f, name in zip(self.schema.fields, self._names, strict=True)
        ]
        return self.batch_of_arrays(arrays)

    def batch_of_arrays(self, arrays: Sequence[Any]) -> Batch[Any]:
        """The records of Arrow arrays, one for each field.

        Raises:
            InputError: a value does not fit.
        """
        found = pa.RecordBatch.from_arrays(arrays, names=list(self.schema.names))
        return batch_of(self.schema, found, lambda n: f"value {n}")

    def rows(self, batch: Batch[Any]) -> list[dict[str, Any]]:
        """The values of records by name."""
        table = table_of(batch)
        plain = [_plain(f.type) for f in table.schema]
        columns = [
            [None if v is None else make(v) for v in column.to_pylist()]
            for make, column in zip(plain, table.columns, strict=True)
        ]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _column(self, f: Field, values: list[Any]) -> Any:
        if any(v is ABSENT for v in values):
            default = self._default(f)
            values = [default if v is ABSENT else v for v in values]
        kind = self.types.field(f.name).type
        if isinstance(kind, pa.BaseExtensionType):
            values = [v if v is None else getattr(v, "bytes", v) for v in values]
            if all(v is None or isinstance(v, str) for v in values):
                return pa.array(values, pa.string())
            kind = pa.binary(16)
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if f.value is not None and all(v is None or isinstance(v, str) for v in values):
                return pa.array(values, pa.string())
            said = str(error).partition("\n")[0]
            raise InputError(f"{f.name!r} does not fit {f.declared}: {said}") from None

    def _default(self, f: Field) -> Any:
        if f.name in self._defaults:
            value = self._defaults[f.name]()
            if value is None or f.kind != "object":
                return value
        elif f.optional:
            return None
        raise InputError(
            f"{f.name!r} is missing", hint=f"Give {self.schema.name}.{f.name} a default."
        )


def _plain(kind: Any) -> Callable[[Any], Any]:
    """Makes of what Arrow gives for a value of a type what a message holds."""
    if pa.types.is_duration(kind):
        return lambda v: v // _MICROSECOND
    if pa.types.is_list(kind):
        inner = _plain(kind.value_type)
        return lambda v: [None if x is None else inner(x) for x in v]
    if pa.types.is_map(kind):
        key, item = _plain(kind.key_type), _plain(kind.item_type)
        return lambda v: {key(k): None if x is None else item(x) for k, x in v}
    if pa.types.is_struct(kind):
        parts = {f.name: _plain(f.type) for f in kind}
        return lambda v: {n: None if v[n] is None else make(v[n]) for n, make in parts.items()}
    return lambda v: v
