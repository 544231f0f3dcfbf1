"""Values of messages that have a schema of their own, as columns and back.

Avro and Protobuf give values of Python: numbers, text, dates, dicts for what is nested. Arrow makes
columns of them, and the rest is as of a Parquet file (`raystream.io.files.declared`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
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

    @property
    def zones(self) -> dict[str, str | None]:
        """The zone in which a record says that messages have a time, by the names of values."""
        written = [None if f.value is None else f.value.written for f in self.schema.fields]
        return {name: w.zone if w else None for name, w in zip(self._names, written, strict=True)}

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
        if f.value is not None and f.value.written is not None:
            if _are_numbers(values):
                return pa.array(values)  # in the unit that the record says
            if f.value.written.zone is not None and any(map(_is_naive, values)):
                return pa.array(values, pa.timestamp("us"))  # in the zone that it says
        if (cut := _cut_off(values, kind)) is not None:
            raise InputError(
                f"{f.name!r} is {cut!r:.80}, which does not fit {f.declared}",
                hint=NAIVE if _is_naive(cut) else "",
            )
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            parsed = f.value is not None and not f.value.members
            if parsed and all(v is None or isinstance(v, str) for v in values):
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


_FLOAT32_MOST = float(np.finfo(np.float32).max)
NAIVE = "It names no zone. Say which: Annotated[datetime, rs.timestamp(zone='Europe/Berlin')]."


def _is_naive(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is None


def _are_numbers(values: Sequence[Any]) -> bool:
    return set(map(type, values)) <= {int, float, type(None)}


def _cut_off(values: Iterable[Any], kind: Any) -> Any:
    """The first of some values of which Arrow would cut something off to make it one of a type,
    without a word: the fraction of a number, the time of a day; None if there is none.

    A number is no time either, as nothing says what it counts; nor is a time of an unknown zone.
    """
    values = [v for v in values if v is not None]
    parts = _parts_of(values, kind)
    if parts is not None:
        return next((cut for part in parts if (cut := _cut_off(*part)) is not None), None)
    if pa.types.is_float32(kind):
        floats = (v for v in values if isinstance(v, float))
        return next((v for v in floats if _FLOAT32_MOST < abs(v) < math.inf), None)
    if pa.types.is_date(kind):
        return next((v for v in values if isinstance(v, datetime | float)), None)
    if pa.types.is_timestamp(kind):
        return next((v for v in values if isinstance(v, int | float) or _is_naive(v)), None)
    if pa.types.is_integer(kind) or pa.types.is_duration(kind):
        if not any(issubclass(k, float | Decimal) for k in set(map(type, values))):
            return None  # nearly always, and quicker than to look at each
        return next((v for v in values if _has_fraction(v)), None)
    return None


def _has_fraction(value: Any) -> bool:
    if isinstance(value, float):
        return not value.is_integer()
    return isinstance(value, Decimal) and value != value.to_integral_value()


def _parts_of(values: list[Any], kind: Any) -> list[tuple[list[Any], Any]] | None:
    """What values of a nested type hold, and of which type it is to be; None of another type."""
    if pa.types.is_list(kind):
        return [([item for v in values for item in v], kind.value_type)]
    if pa.types.is_map(kind):
        pairs = [p for v in values for p in (v.items() if isinstance(v, Mapping) else v)]
        return [([k for k, _ in pairs], kind.key_type), ([v for _, v in pairs], kind.item_type)]
    if pa.types.is_struct(kind):
        return [([v.get(f.name) for v in values if isinstance(v, Mapping)], f.type) for f in kind]
    return None


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
