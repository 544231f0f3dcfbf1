"""Columns of records: the form in which records are moved, kept and handed to batch functions.

A `Columns` holds the rows of one record type as *physical columns*: a NumPy array for each number
(and a second one of validity where the field may be None), an Arrow array for text and bytes, an
Arrow binary array of msgpack for everything else. Columns are never changed once made, so slices
share memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.fields import Field
from raystream.schema.objects import decode_all
from raystream.schema.records import RecordSchema

_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # of NumPy's flags


class Columns:
    """Rows of one record type.

    rank: the hidden int64 column of an edge that is merged with others of its producer (see
    `dataflow.order`).
    """

    __slots__ = ("arrays", "length", "rank", "schema")

    def __init__(
        self,
        schema: RecordSchema,
        arrays: Sequence[Any],
        length: int,
        rank: np.ndarray | None = None,
    ) -> None:
        self.schema = schema
        self.arrays = tuple(arrays)
        self.length = length
        self.rank = rank

    def __len__(self) -> int:
        return self.length

    def column(self, name: str) -> Any:
        """The values of a field: a NumPy or Arrow array of `len(self)`."""
        return self.arrays[column_index(self.schema)[name]]

    def shown(self, f: Field) -> Any:
        """The values of a field as users see them: numbers as a NumPy array that is read-only, as
        others see the same rows; what has no form as numbers or in Arrow as a list. Where numbers
        may be None they are in Arrow too: NumPy has nothing that is neither them nor an error."""
        values = self.column(f.name)
        if f.kind == "object":
            return decode_all(values.to_pylist(), f.hint)
        if f.kind != "fixed":
            return values
        if f.optional:
            return self.nullable(f)
        if f.value is not None and f.value.name in COUNTED:
            values = values.astype(np.int64, copy=False).view(COUNTED[f.value.name][0])
        return read_only(values)

    def nullable(self, f: Field) -> Any:
        """The values of a field as an Arrow array: of times and lengths such, of numbers that may
        be None with nulls."""
        values = self.column(f.name)
        if f.kind != "fixed":
            return values
        mask = ~self.column(f"{f.name}?") if f.optional else None
        array = pa.array(values, mask=mask)
        if f.value is not None and f.value.name in COUNTED:
            return array.view(COUNTED[f.value.name][1])
        return array

    def key(self, name: str) -> Any:
        """The values of a field as keys are hashed: numbers that may be None in Arrow."""
        f = self.schema.field(name)
        if f is not None and f.kind == "fixed" and f.optional:
            return pa.array(self.column(name), mask=~self.column(f"{name}?"))
        return self.column(name)

    def slice(self, lo: int, hi: int) -> Columns:
        """Rows `lo` to `hi`, without a copy."""
        if lo == 0 and hi == self.length:
            return self
        if lo == hi and self.rank is None:
            return empty(self.schema)
        arrays = [
            a[lo:hi] if isinstance(a, np.ndarray) else a.slice(lo, hi - lo) for a in self.arrays
        ]
        return Columns(
            self.schema, arrays, hi - lo, None if self.rank is None else self.rank[lo:hi]
        )

    def take(self, order: np.ndarray) -> Columns:
        """The rows at the positions `order`."""
        at = None
        arrays = []
        for a in self.arrays:
            if not isinstance(a, np.ndarray):
                at = pa.array(order) if at is None else at
            arrays.append(a.take(order if isinstance(a, np.ndarray) else at))
        return Columns(
            self.schema, arrays, len(order), None if self.rank is None else self.rank.take(order)
        )

    def typed(self, schema: RecordSchema) -> Columns:
        """The same rows as records of another class with the same fields."""
        return Columns(schema, self.arrays, self.length, self.rank)

    def ranked(self, rank: np.ndarray | None) -> Columns:
        """The same rows with this rank column."""
        return Columns(self.schema, self.arrays, self.length, rank)

    def records(self) -> Iterator[Any]:
        """The rows as records of the user's class, holding Python values only."""
        return map(self.schema.make, zip(*self.lists(), strict=True)) if self.length else iter(())

    def lists(self) -> list[Any]:
        """One list of Python values per field."""
        out, at = [], 0
        for f in self.schema.fields:
            if f.kind == "fixed":
                values = self.arrays[at].tolist()
                if f.optional:
                    at += 1
                    valid = self.arrays[at].tolist()
                    values = [v if ok else None for v, ok in zip(values, valid, strict=True)]
            elif f.kind == "object":
                values = decode_all(self.arrays[at].to_pylist(), f.hint)
            else:
                values = self.arrays[at].to_pylist()
            if f.value is not None:
                restore = f.value.restore
                values = [None if v is None else restore(v) for v in values]
            out.append(values)
            at += 1
        return out

    def nbytes(self) -> int:
        """Bytes that the rows occupy."""
        return sum([a.nbytes for a in self.arrays])


@cache
def physical(schema: RecordSchema) -> tuple[tuple[str, str, str], ...]:
    """(name, stored kind, dtype) of each physical column; kinds `number`, `text`, `bytes`, and
    `decimal`, whose dtype is its digits."""
    out: list[tuple[str, str, str]] = []
    for f in schema.fields:
        if f.kind == "fixed":
            out.append((f.name, "number", f.dtype))
            if f.optional:
                out.append((f"{f.name}?", "number", "?"))
        elif f.value is not None and f.value.digits is not None:
            digits = f.value.digits
            out.append((f.name, "decimal", f"{digits.precision},{digits.scale}"))
        else:
            out.append((f.name, "text" if f.kind == "text" else "bytes", ""))
    return tuple(out)


@cache
def arrow_of(kind: str, dtype: str) -> Any:
    """The Arrow type of a physical column that is none of numbers."""
    return pa.decimal128(*map(int, dtype.split(","))) if kind == "decimal" else ARROW[kind]


@cache
def column_index(schema: RecordSchema) -> dict[str, int]:
    """Where each physical column is."""
    return {name: i for i, (name, _, _) in enumerate(physical(schema))}


def empty(schema: RecordSchema) -> Columns:
    """No rows."""
    return _empty(schema)


@cache
def _empty(schema: RecordSchema) -> Columns:
    arrays = [
        np.zeros(0, d) if kind == "number" else pa.array([], arrow_of(kind, d))
        for _, kind, d in physical(schema)
    ]
    for column in arrays:
        if isinstance(column, np.ndarray):
            column.flags.writeable = False
    return Columns(schema, arrays, 0)


ARROW = {"text": pa.string(), "bytes": pa.binary()}
"""How text and bytes are held."""


def read_only(array: np.ndarray) -> np.ndarray:
    """The same numbers as the one kind of array that loops are compiled for."""
    flags = array.flags.num
    if flags & (_CONTIGUOUS | _ALIGNED) != _CONTIGUOUS | _ALIGNED:
        array = array.copy()
        flags = _WRITEABLE
    if flags & _WRITEABLE:
        array = array.view()
        array.flags.writeable = False
    return array


def concat(parts: Sequence[Columns]) -> Columns:
    """The rows of all parts in order; parts have one schema and there is at least one.

    Raises:
        StateError: they have more text than a column holds.
    """
    full = [p for p in parts if p.length]
    if not full:
        return parts[0]
    if len(full) == 1:
        return full[0]
    schema = full[0].schema
    arrays = [
        _joined(schema, name, [p.arrays[i] for p in full])
        for i, (name, _, _) in enumerate(physical(schema))
    ]
    rank = (
        None
        if full[0].rank is None
        else np.concatenate([p.rank for p in full if p.rank is not None])
    )
    return Columns(schema, arrays, sum(p.length for p in full), rank)


def _joined(schema: RecordSchema, name: str, parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowInvalid:  # its offsets have 32 bits
        raise too_much(f"{schema.name}.{name}", sum(map(len, parts))) from None


def too_much(name: str, rows: int) -> StateError:
    return StateError(
        f"{name} of {rows} records takes more than 2 GB, which is what an instance takes or emits"
        " of it in one epoch at most",
        hint="Cut shorter epochs, or let more instances share the records.",
    )


COUNTED: dict[str, tuple[str, Any]] = {
    "datetime": ("datetime64[us]", pa.timestamp("us", "UTC")),
    "date": ("datetime64[D]", pa.date32()),
    "timedelta": ("timedelta64[us]", pa.duration("us")),
}
"""By kind, how NumPy and Arrow count what is stored as numbers; in NumPy it has 64 bits."""


def is_counted(name: str, kind: Any) -> bool:
    """Whether an Arrow type holds values of a kind that is stored as numbers, or their text. A cast
    would make a date of any time."""
    if name == "datetime":
        return is_text(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)
    if name == "date":
        return is_text(kind) or pa.types.is_date(kind) or pa.types.is_null(kind)
    return pa.types.is_duration(kind) or pa.types.is_null(kind)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text."""
    return str(kind).removeprefix("large_") in ("string", "string_view")


def is_text_or_bytes(kind: Any) -> bool:
    """Whether an Arrow type is one of text, bytes or nothing: a cast makes text of numbers, too."""
    held = str(kind).removeprefix("large_") in ("binary", "binary_view", "null")
    return held or is_text(kind) or pa.types.is_fixed_size_binary(kind)


def one_array(name: str, array: Any) -> Any:
    """What Arrow made of values, if it is one array: of more than 2 GB it makes several."""
    if isinstance(array, pa.ChunkedArray):
        raise too_much(name, len(array))
    return array
