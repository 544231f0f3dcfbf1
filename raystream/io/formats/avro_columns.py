"""Avro, a column at a time: flat records whose messages all have one schema.

A value takes as many bytes as it needs, so where a field begins in a message depends on those
before it. Fields are therefore taken one after the other, each in all messages at once. What is not
as it should be is left to the code that goes message by message, and says what is wrong: so both
give the same records, and differ in speed only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, np.dtype[Any]]

PAD = 16
"""How many bytes may be read behind the last message."""
VARINT_BYTES = 10
"""How many bytes a number has at most."""
_SIMPLE = ("boolean", "int", "long", "float", "double", "string", "bytes")
_LIMITS = {
    "int": (-(1 << 31), (1 << 31) - 1),
    "time": (-62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""What a number may be; times are those of the years 1 to 9999, in microseconds since 1970."""
_STEPS = np.array([1 << (7 * n) for n in range(1, VARINT_BYTES)], np.uint64)
"""From each of these numbers on a number has one byte more."""


class Unfit(Exception):
    """Columns cannot stand for the messages: they are to be taken one by one."""


class AvroField(NamedTuple):
    """A field of a schema."""

    name: str
    kind: str
    """A simple type of Avro, or `time`: microseconds since 1970."""
    null: int | None
    """Which of its two types is null; None if it may not be null."""


def fields_of(schema: Any) -> tuple[AvroField, ...] | None:
    """The fields of a schema (JSON in Python), if it is that of flat records of simple types."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return None
    found = [_field(f["name"], f["type"]) for f in schema["fields"]]
    return None if None in found else tuple(f for f in found if f is not None)


def _field(name: str, kind: Any) -> AvroField | None:
    null = None
    if isinstance(kind, list):
        if len(kind) != 2 or kind.count("null") != 1:
            return None
        null = kind.index("null")
        kind = kind[1 - null]
    if isinstance(kind, Mapping):
        logical, kind = kind.get("logicalType"), kind.get("type")
        if logical is not None:
            kind = "time" if (kind, logical) == ("long", "timestamp-micros") else None
    elif kind not in _SIMPLE:
        return None  # the name of another type, or what is nested
    return AvroField(name, kind, null) if kind in (*_SIMPLE, "time") else None


def local_times(schema: Any) -> list[str]:
    """The fields of a schema that are times without a zone."""
    fields = schema.get("fields", ()) if isinstance(schema, Mapping) else ()
    return [f["name"] for f in fields if _is_local(f["type"])]


def _is_local(kind: Any) -> bool:
    if isinstance(kind, list):
        return any(map(_is_local, kind))
    logical = kind.get("logicalType") if isinstance(kind, Mapping) else None
    return str(logical).startswith("local-timestamp")


def fits(kind: Any, field: AvroField) -> bool:
    """Whether values of an Arrow type are those of a field."""
    test = {
        "boolean": pa.types.is_boolean, "int": pa.types.is_integer, "long": pa.types.is_integer,
        "float": pa.types.is_float32, "double": pa.types.is_float64,
        "string": pa.types.is_string, "bytes": pa.types.is_binary,
        "time": lambda t: pa.types.is_timestamp(t) and t.unit == "us",
    }[field.kind]  # fmt: skip
    return bool(test(kind)) and kind != pa.uint64()


# ---------------------------------------------------------------- reading


def decoded(
    fields: Sequence[AvroField], messages: Sequence[bytes], skip: int
) -> dict[str, tuple[Array | pa.Array, Array | None]]:
    """The columns of messages: for each field its values, and where there are some (bool); None
    where there are everywhere. Text is an Arrow array of bytes.

    Args:
        skip: how many bytes come before the record in each message.

    Raises:
        Unfit: a message is not as it should be.
    """
    data = np.frombuffer(b"".join([*messages, bytes(PAD)]), np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    at = _Cursor(data, np.cumsum(lengths) - lengths + skip, np.cumsum(lengths))
    found = {field.name: at.take(field) for field in fields}
    if not np.array_equal(at.at, at.ends):
        raise Unfit
    return found


class _Cursor:
    """A place in each of n messages.

    Args:
        data: uint8, all messages one after the other, and PAD bytes.
        at, ends: int64 of shape (n,): the place in each message, and its end.

    Methods take `rows`, the numbers of some messages (int64), and move on in these. They raise
    `Unfit` where a message ends too early.
    """

    def __init__(self, data: Array, at: Array, ends: Array) -> None:
        self.data, self.at, self.ends = data, at, ends
        self._check()

    def take(self, field: AvroField) -> tuple[Array | pa.Array, Array | None]:
        """The values of the next field, and where there are some."""
        every = np.arange(len(self.at))
        if field.null is None:
            return self._values(field.kind, every), None
        which = self._varints(every)
        if ((which != 0) & (which != 1)).any():
            raise Unfit
        there = which != field.null
        return self._values(field.kind, np.flatnonzero(there)), there

    def _values(self, kind: str, rows: Array) -> Array | pa.Array:
        """The values of some messages; 0, or no bytes, for the others."""
        if kind in ("string", "bytes"):
            return self._bytes(rows)
        found: Array = np.zeros(
            len(self.at), {"boolean": "?", "float": "<f4", "double": "<f8"}.get(kind, np.int64)
        )
        if kind in ("float", "double"):
            width = found.dtype.itemsize
            found[rows] = self._taken(rows, width).view(found.dtype).ravel()
        elif kind == "boolean":
            bits = self._taken(rows, 1).ravel()
            if (bits > 1).any():
                raise Unfit
            found[rows] = bits == 1
        else:
            found[rows] = self._varints(rows)
        return found

    def _taken(self, rows: Array, width: int) -> Array:
        """The next `width` bytes of each of these rows: uint8 of shape (rows, width)."""
        begins = self.at[rows]
        self._advance(rows, width)
        taken: Array = self.data[begins[:, None] + np.arange(width)]
        return taken

    def _varints(self, rows: Array) -> Array:
        """The next number of each of these rows: int64."""
        found = np.zeros(len(rows), np.uint64)
        begins, left = self.at[rows], np.arange(len(rows))
        size = np.zeros(len(rows), np.int64)
        for n in range(VARINT_BYTES):
            byte = self.data[begins[left] + n]
            if n == VARINT_BYTES - 1 and (byte > 1).any():
                raise Unfit
            found[left] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * n)
            size[left] += 1
            if not len(left := left[byte > 0x7F]):
                break
        self._advance(rows, size)
        half = (found >> np.uint64(1)).astype(np.int64)
        signed: Array = half ^ -(found & np.uint64(1)).astype(np.int64)
        return signed

    def _bytes(self, rows: Array) -> pa.Array:
        """Bytes of each, which begin with their number; none of the other messages."""
        sizes = np.zeros(len(self.at), np.int64)
        sizes[rows] = self._varints(rows)
        if ((sizes < 0) | (sizes > len(self.data))).any():  # the sum of larger ones has no room
            raise Unfit
        begins = self.at.copy()
        self._advance(rows, sizes[rows])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        if offsets[-1] >= 1 << 31:
            raise Unfit
        whence = np.repeat(begins - offsets[:-1], sizes) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self.data[whence])]
        return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)

    def _advance(self, rows: Array, by: Array | int) -> None:
        self.at[rows] += by
        self._check()

    def _check(self) -> None:
        if (self.at > self.ends).any():
            raise Unfit


def array_of(
    kind: Any, field: AvroField, values: Array | pa.Array, there: Array | None
) -> pa.Array:
    """A column as an Arrow array of a type that fits its field.

    Raises:
        Unfit: a value does not fit.
    """
    try:
        if isinstance(values, pa.Array):
            if there is not None:
                bits = pa.py_buffer(np.packbits(there, bitorder="little"))
                buffers = [bits, *values.buffers()[1:]]
                values = pa.Array.from_buffers(values.type, len(values), buffers)
            return values.cast(kind)
        _check_limits(field, values)
        return pa.array(values, mask=None if there is None else ~there).cast(kind)
    except pa.ArrowException:
        raise Unfit from None


# ---------------------------------------------------------------- writing


def encoded(fields: Sequence[AvroField], columns: Sequence[pa.Array]) -> list[bytes]:
    """The messages of columns, one for each field, of types that fit.

    Raises:
        Unfit: the schema cannot hold a value.
    """
    parts = [part for f, column in zip(fields, columns, strict=True) for part in _parts(f, column)]
    number = len(columns[0])
    sizes = np.zeros(number, np.int64)
    for part in parts:
        sizes += part.sizes
    ends = np.cumsum(sizes)
    data, at = np.zeros(int(ends[-1]), np.uint8), ends - sizes
    for part in parts:
        part.put(data, at)
        at += part.sizes
    text, bounds = data.tobytes(), [0, *ends.tolist()]
    return [text[lo:hi] for lo, hi in pairwise(bounds)]


class _Fixed:
    """As many bytes of each row, and none of rows without a value.

    Args:
        rows: uint8 of shape (n, bytes). there: which rows have a value (bool); None: all.

    Attributes:
        sizes: int64 of shape (n,): how many bytes each row has.
    """

    def __init__(self, rows: Array, there: Array | None) -> None:
        self._rows, self._there = rows, there
        size = rows.shape[1]
        self.sizes: Array = np.full(len(rows), size) if there is None else there * size

    def put(self, data: Array, at: Array) -> None:
        """Write the bytes of each row into `data`, from its place `at` on."""
        rows = self._rows if self._there is None else self._rows[self._there]
        begins = at if self._there is None else at[self._there]
        data[begins[:, None] + np.arange(rows.shape[1])] = rows


class _Varints:
    """As `_Fixed`, of numbers: int64."""

    def __init__(self, values: Array, there: Array | None) -> None:
        self._zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
        self.sizes: Array = np.searchsorted(_STEPS, self._zigzag, side="right") + 1
        if there is not None:
            self.sizes *= there

    def put(self, data: Array, at: Array) -> None:
        for n in range(int(self.sizes.max(initial=0))):
            rows = np.flatnonzero(self.sizes > n)
            byte = (self._zigzag[rows] >> np.uint64(7 * n)) & np.uint64(0x7F)
            more = (self.sizes[rows] > n + 1) * np.uint64(0x80)
            data[at[rows] + n] = (byte | more).astype(np.uint8)


class _Bytes:
    """As `_Fixed`, of bytes. Row i has `data[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, offsets: Array, data: Array) -> None:
        self._data, self._begins = data, offsets[:-1]
        self.sizes: Array = np.diff(offsets)

    def put(self, data: Array, at: Array) -> None:
        number = np.arange(int(self.sizes.sum()))
        before = np.cumsum(self.sizes) - self.sizes
        data[np.repeat(at - before, self.sizes) + number] = self._data[
            np.repeat(self._begins - before, self.sizes) + number
        ]


def _parts(field: AvroField, column: Any) -> list[_Fixed | _Varints | _Bytes]:
    """What a field is made of, in order."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    found: list[_Fixed | _Varints | _Bytes] = []
    there = None
    if field.null is None:
        if column.null_count:
            raise Unfit
    else:
        there = np.asarray(column.is_valid())
        found.append(_Varints(np.where(there, 1 - field.null, field.null), None))
    if field.kind in ("string", "bytes"):
        column = column.cast(pa.binary()).fill_null(b"")
        _, offsets, data = column.buffers()
        upto = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
        text = _Bytes(upto.astype(np.int64), np.frombuffer(data or b"", np.uint8))
        return [*found, _Varints(text.sizes.astype(np.int64), there), text]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = np.asarray(column.fill_null(False if field.kind == "boolean" else 0))
    if field.kind in ("boolean", "float", "double"):
        kind = {"boolean": "u1", "float": "<f4", "double": "<f8"}[field.kind]
        rows = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(len(values), -1)
        return [*found, _Fixed(rows, there)]
    values = values.astype(np.int64)
    _check_limits(field, values)
    return [*found, _Varints(values, there)]


def _check_limits(field: AvroField, values: Array) -> None:
    low, high = _LIMITS.get(field.kind, (None, None))
    if low is not None and len(values) and not (low <= values.min() and values.max() <= high):
        raise Unfit
