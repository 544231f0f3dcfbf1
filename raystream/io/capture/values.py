"""The text in which a server sends values, as columns of records.

Connections ask for texts that are the same on every server: see `slot.OPTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.capture.changes import Row
from raystream.io.capture.pgoutput import UNCHANGED
from raystream.io.files.declared import batch_of
from raystream.io.files.json_values import EXACT
from raystream.io.files.jsonlines import _value
from raystream.io.files.nested import inside
from raystream.io.formats.base import joined, part_of
from raystream.schema.fields import Field
from raystream.schema.records import record_schema


@dataclass(frozen=True, kw_only=True)
class ToldFields:
    """Fields of the record that say what the table does not: by name, None where there is none."""

    operation: str | None = None
    unchanged: str | None = None
    lsn: str | None = None
    number: str | None = None
    committed: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """Those that there are."""
        return {what: name for what, name in vars(self).items() if name is not None}


class RowDecoder:
    """Makes batches of rows.

    Args:
        record: their type. told: its fields that are no columns.
        columns: the columns of its other fields, in its order.
        name: of the table, for messages.
    """

    def __init__(
        self, record: type[Any], told: ToldFields, columns: Sequence[str], name: str
    ) -> None:
        self._schema = record_schema(record)
        self._told, self._columns, self._name = told, tuple(columns), name
        special = set(told.names.values())
        self._fields = [f for f in self._schema.fields if f.name not in special]
        listed = [f.name for f in self._schema.fields if f.kind == "object"]
        self._objects = set(listed)
        self._part = None
        if len(listed) < len(self._schema.fields):
            self._part = part_of(record, tuple(n for n in self._schema.names if n not in listed))

    def batch(self, rows: Sequence[Row]) -> Batch[Any]:
        """The records of rows.

        Raises:
            InputError: a value does not fit its field.
        """
        if self._told.unchanged is None:
            self._refuse_unchanged(rows)
        flat, objects = self._told_columns(rows)
        for i, f in enumerate(self._fields):
            texts = [None if (v := row.values[i]) is UNCHANGED else v for row in rows]
            if f.name in self._objects:
                objects[f.name] = [
                    self._object(v, f, row) for v, row in zip(texts, rows, strict=True)
                ]
            else:
                flat[f.name] = column_of(texts, f)
        parts = []
        if self._part is not None:
            schema = record_schema(self._part)
            arrays = [flat[name] for name in schema.names]
            table = pa.RecordBatch.from_arrays(arrays, names=list(schema.names))
            try:
                parts = [batch_of(schema, table, self._at(rows))]
            except InputError as error:
                raise self._explained(error) from None
        if parts and not objects:
            return parts[0]
        return (
            joined(self._schema.cls, parts, objects) if parts else Batch(self._schema.cls, objects)
        )

    def _told_columns(self, rows: Sequence[Row]) -> tuple[dict[str, Any], dict[str, Any]]:
        told, flat, objects = self._told, dict[str, Any](), dict[str, Any]()
        if told.operation is not None:
            flat[told.operation] = pa.array([row.operation for row in rows], pa.string())
        if told.lsn is not None:
            flat[told.lsn] = pa.array([row.lsn for row in rows], pa.int64())
        if told.number is not None:
            flat[told.number] = pa.array([row.number for row in rows], pa.int64())
        if told.committed is not None:
            moments = np.array([row.micros for row in rows], "M8[us]")
            flat[told.committed] = pa.array(moments, pa.timestamp("us")).cast(
                pa.timestamp("us", "UTC")
            )
        if told.unchanged is not None:
            objects[told.unchanged] = [
                [c for c, v in zip(self._columns, row.values, strict=True) if v is UNCHANGED]
                for row in rows
            ]
        return flat, objects

    def _refuse_unchanged(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if UNCHANGED in row.values:
                column = self._columns[row.values.index(UNCHANGED)]
                raise InputError(
                    f"{self._place(row)}: {column!r} is stored apart (TOAST) and an update left it"
                    " alone, so the server does not send it",
                    hint=f"ALTER TABLE {self._name} REPLICA IDENTITY FULL, or name a field of type"
                    " list[str] by unchanged=, which gets the names of such columns.",
                )

    def _object(self, text: Any, f: Field, row: Row) -> Any:
        if text is None:
            if not f.optional:
                raise self._lacks(self._place(row), f.name)
            return None
        try:
            return _value(plain_of(text.decode(), f), f, f.name)
        except (ValueError, RecursionError):
            raise InputError(f"{self._place(row)}: {f.name!r} is no JSON and no array") from None
        except InputError as error:
            raise InputError(f"{self._place(row)}: {error.message}", hint=error.hint) from None

    def _place(self, row: Row) -> str:
        of = f" of the commit at {row.lsn:X}" if row.lsn else ""
        return f"{self._name}, {row.operation}{of}"

    def _at(self, rows: Sequence[Row]) -> Callable[[int], str]:
        return lambda n: self._place(rows[n])

    def _lacks(self, place: str, name: str) -> InputError:
        return InputError(
            f"{place}: {name!r} is missing, and {self._schema.name} does not say that it may be",
            hint=f"Declare `{name}: ... | None`. A delete has the columns of the primary key alone,"
            f" unless ALTER TABLE {self._name} REPLICA IDENTITY FULL.",
        )

    def _explained(self, error: InputError) -> InputError:
        found = re.match(r"(.*): '(\w+)' is missing", error.message)
        if found is not None:
            return self._lacks(found[1], found[2])
        return InputError(error.message, hint="Declare a type that holds it.")


def column_of(texts: Sequence[bytes | None], f: Field) -> Any:
    """A column of text as an Arrow array that fits a field, or as text that says what does not."""
    array = pa.array(texts, pa.binary())
    kind = f.value
    if f.kind == "bytes" and kind is None:
        return pa.array(
            [None if v is None else bytes.fromhex(v[2:].decode()) for v in texts], pa.binary()
        )
    words = array.cast(pa.string())
    if kind is not None and not kind.members:
        if kind.name == "timedelta":
            return pa.array(
                [None if v is None else seconds_of(v.decode()) for v in texts], pa.string()
            )
        wanted = {"date": pa.date32()}.get(kind.name)
        if kind.name == "datetime" and kind.written is None:
            zoned = pc.all(pc.match_substring_regex(words, r"[+-]\d\d(:\d\d)?$")).as_py()
            wanted = pa.timestamp("us", "UTC") if zoned is not False else None
        return words if wanted is None else _cast(words, wanted)
    if f.kind == "fixed" and f.dtype == "?":
        return pc.equal(words, "t")
    if f.kind == "fixed":
        return _cast(words, pa.float64() if f.dtype in ("f4", "f8") else pa.int64())
    return words


def _cast(words: Any, wanted: Any) -> Any:
    """Text as values, or as it is if some of it is none: `batch_of` says where."""
    try:
        return words.cast(wanted)
    except pa.ArrowException:
        return words


_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)


def seconds_of(interval: str) -> str:
    """The seconds of an interval in ISO 8601, as text; one of months as it is, which is no length.

    >>> seconds_of("P1DT-1H0.5S")
    '82800.500000'
    """
    found = _INTERVAL.fullmatch(interval)
    if found is None or any(found[i] for i in (1, 2)):
        return interval
    weeks, days, hours, minutes = (int(found[i] or 0) for i in (3, 4, 5, 6))
    whole, _, rest = (found[7] or "0").partition(".")
    sign = -1 if whole.startswith("-") else 1
    micros = (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60_000_000
    micros += int(whole) * 1_000_000 + sign * int((rest + "000000")[:6])
    seconds, rest_micros = divmod(abs(micros), 1_000_000)
    return f"{'-' * (micros < 0)}{seconds}.{rest_micros:06d}"


def plain_of(text: str, f: Field) -> Any:
    """A value that is built of others, as JSON has it: the server sends JSON, or an array.

    Raises:
        ValueError: it is neither.
    """
    if inside(f)[0] == "list" and text.startswith("{"):
        return _items(array_of(text), inside(f)[1]["item"])
    return EXACT.decode(text)


def _items(found: list[Any], item: Field) -> list[Any]:
    nested = item.kind == "object"
    return [
        _items(v, inside(item)[1]["item"])
        if isinstance(v, list)
        else None
        if v is None
        else EXACT.decode(v)
        if nested
        else _scalar(v, item)
        for v in found
    ]


def _scalar(text: str, f: Field) -> Any:
    if f.kind != "fixed" or (f.value is not None and not f.value.members):
        return seconds_of(text) if f.value is not None and f.value.name == "timedelta" else text
    if f.dtype == "?":
        return text == "t"
    return float(text) if f.dtype in ("f4", "f8") else int(text)


_TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)


def array_of(text: str) -> list[Any]:
    r"""An array as the server writes it.

    >>> array_of('{a,"b \\"c\\"",NULL,{1,2}}')
    ['a', 'b "c"', None, ['1', '2']]

    Raises:
        ValueError: it is none.
    """
    stack: list[list[Any]] = [[]]
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == "{":
            stack.append([])
        elif token == "}":
            if len(stack) < 2:
                raise ValueError("no array")
            done = stack.pop()
            stack[-1].append(done)
        elif token != ",":
            quoted = found[1]
            plain = None if token == "NULL" else token
            stack[-1].append(plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
    match stack:
        case [[[*items]]]:
            return items
    raise ValueError("no array")
