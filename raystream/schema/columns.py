"""Columns of records: the form in which records are moved, kept and handed to batch functions.

A `Columns` holds the rows of one record type as *physical columns*: a NumPy array for each number
(and a second one of validity where the field may be None), an Arrow array for text and bytes, an
Arrow binary array of msgpack for everything else. Columns are never changed once made, so slices
share memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.fields import Field
from raystream.schema.objects import Encoded, bare, decode_all, encode_all
from raystream.schema.records import RecordSchema
from raystream.schema.values import check_of, shown

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
            return decode_all(values.to_pylist(), f.convert)
        if f.kind != "fixed":
            return values
        if f.optional:
            return pa.array(values, mask=~self.column(f"{f.name}?"))
        return read_only(values)

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

    def ranked(self, rank: np.ndarray | None) -> Columns:
        """The same rows with this rank column."""
        return Columns(self.schema, self.arrays, self.length, rank)

    def records(self) -> Iterator[Any]:
        """The rows as records of the user's class, holding Python values only."""
        make = partial(tuple.__new__, self.schema.cls)  # as `_make`, which is a Python function
        return map(make, zip(*self.lists(), strict=True)) if self.length else iter(())

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
                if f.convert is not None:
                    values = [None if v is None else f.convert(v) for v in values]
            elif f.kind == "object":
                values = decode_all(self.arrays[at].to_pylist(), f.convert)
            else:
                values = self.arrays[at].to_pylist()
            out.append(values)
            at += 1
        return out

    def nbytes(self) -> int:
        """Bytes that the rows occupy."""
        return sum(a.nbytes for a in self.arrays)


@cache
def physical(schema: RecordSchema) -> tuple[tuple[str, str, str], ...]:
    """(name, stored kind, dtype) of each physical column; kinds `number`, `text`, `bytes`."""
    out: list[tuple[str, str, str]] = []
    for f in schema.fields:
        if f.kind == "fixed":
            out.append((f.name, "number", f.dtype))
            if f.optional:
                out.append((f"{f.name}?", "number", "?"))
        else:
            out.append((f.name, "text" if f.kind == "text" else "bytes", ""))
    return tuple(out)


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
        np.zeros(0, d) if kind == "number" else pa.array([], ARROW[kind])
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
        raise _too_much(f"{schema.name}.{name}", sum(map(len, parts))) from None


def _too_much(name: str, rows: int) -> StateError:
    return StateError(
        f"{name} of {rows} records takes more than 2 GB, which is what an instance takes or emits"
        " of it in one epoch at most",
        hint="Cut shorter epochs, or let more instances share the records.",
    )


def _one(name: str, array: Any) -> Any:
    """What Arrow made of values, if it is one array: of more than 2 GB it makes several."""
    if isinstance(array, pa.ChunkedArray):
        raise _too_much(name, len(array))
    return array


def from_records(schema: RecordSchema, records: Iterable[Any]) -> Columns:
    """Columns of records.

    Raises:
        StateError: a value does not fit its field; the message names the field.
    """
    rows = records if isinstance(records, list) else list(records)
    if not rows:
        return empty(schema)
    fields = range(len(schema.fields))
    return from_lists(schema, [list(map(itemgetter(i), rows)) for i in fields], len(rows))


def from_lists(schema: RecordSchema, lists: Sequence[Sequence[Any]], length: int) -> Columns:
    """Columns of one sequence of Python values per field, each of `length`."""
    arrays: list[Any] = []
    for f, values in zip(schema.fields, lists, strict=True):
        arrays.extend(_store(schema.name, f, values))
    return Columns(schema, arrays, length)


def from_columns(schema: RecordSchema, given: dict[str, Any]) -> Columns:
    """Columns of what a user's batch holds: per field a NumPy array, an Arrow array or a sequence.

    Raises:
        StateError: a column is missing, unknown, of another length or of a wrong type.
    """
    for name in given:
        if schema.field(name) is None:
            raise StateError(
                f"{schema.name} has no field {name!r}", hint=f"It has {', '.join(schema.names)}."
            )
    missing = [n for n in schema.names if n not in given]
    if missing:
        raise StateError(f"the batch of {schema.name} lacks the column {missing[0]!r}")
    lengths = {n: len(v) for n, v in given.items()}
    if len(set(lengths.values())) > 1:
        raise StateError(f"the columns of {schema.name} have different lengths: {lengths}")
    arrays: list[Any] = []
    for f in schema.fields:
        arrays.extend(_store(schema.name, f, given[f.name]))
    return Columns(schema, arrays, next(iter(lengths.values())))


def _store(owner: str, f: Field, values: Any) -> list[Any]:
    """The physical columns of one field."""
    if f.kind == "fixed":
        return _store_numbers(owner, f, values)
    if f.kind in ("text", "bytes"):
        return [_store_strings(owner, f, values)]
    if isinstance(values, pa.ChunkedArray | pa.Array):
        values = values.to_pylist()
    name = f"{owner}.{f.name}"
    stored = pa.array(encode_all(values, name), pa.binary())
    _refuse_unlike(name, f, values)
    return [_one(name, stored)]


def _refuse_unlike(name: str, f: Field, values: Sequence[Any]) -> None:
    """Refuse values that would come back as another type than is declared, or not at all."""
    check = check_of(f.convert, alike=True)
    if len(values) and type(values[0]) is Encoded:  # as all are then, that operators emitted
        values = bare(values)
    if check(values):
        return
    bad = next(v for v in values if not check([v]))
    if bad is None:
        raise StateError(f"{name} is None, but is not declared optional")
    raise StateError(f"{name}: {bad!r:.80} does not fit {f.declared}")


def _store_strings(owner: str, f: Field, values: Any) -> Any:
    kind = ARROW[f.kind]
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if type(values) in (list, tuple):
        _refuse_other_texts(owner, f, values)
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        if isinstance(values, pa.Array) and not _textual(values.type):
            raise StateError(f"{owner}.{f.name}: an array of {values.type} does not fit {f}")
        array = values if isinstance(values, pa.Array) else pa.array(values, kind)
        array = _one(f"{owner}.{f.name}", array if array.type == kind else array.cast(kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise StateError(f"{owner}.{f.name}: {_first(error)}") from None
    except UnicodeEncodeError as error:  # half of a pair of surrogates, from broken JSON
        raise StateError(
            f"{owner}.{f.name}: {error.object!r} is no text that can be stored: {error.reason}"
        ) from None
    if array.null_count and not f.optional:
        raise StateError(f"{owner}.{f.name} is None, but is not declared optional")
    return array


def _refuse_other_texts(owner: str, f: Field, values: Sequence[Any]) -> None:
    """Refuse bytes where text is declared, and text for bytes: Arrow takes either for the other."""
    known = _TEXTS[f.kind]
    if not all(issubclass(k, known) for k in set(map(type, values))):
        bad = next(v for v in values if not isinstance(v, known))
        raise StateError(f"{owner}.{f.name}: {bad!r:.80} does not fit {f}")


def _textual(kind: Any) -> bool:
    """Whether an Arrow type is one of text, bytes or nothing: a cast makes text of numbers, too."""
    return pa.types.is_fixed_size_binary(kind) or str(kind).removeprefix("large_") in _TEXTUAL


_TEXTS = {
    "text": (str, pa.Scalar, type(None)),
    "bytes": (bytes, pa.Scalar, type(None)),  # what may still change would be stored as it is then
}
_TEXTUAL = {"string", "string_view", "binary", "binary_view", "null"}


_NOTHING = {"?": False}
"""What stands in a number column where there is none, if not 0."""


def _store_numbers(owner: str, f: Field, values: Any) -> list[np.ndarray]:
    valid: np.ndarray | None = None
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ma.MaskedArray) or getattr(values, "dtype", None) == np.object_:
        values = values.tolist()  # what is masked is None
    if isinstance(values, pa.Array):
        if values.null_count:
            valid = np.asarray(values.is_valid())
            values = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
        values = values.to_numpy(zero_copy_only=False)
    elif f.optional and not isinstance(values, np.ndarray):
        valid = np.array([v is not None for v in values], bool)
        values = [_NOTHING.get(f.dtype, 0) if v is None else v for v in values]
    if valid is not None and not f.optional and not valid.all():
        raise StateError(f"{owner}.{f.name} is None, but is not declared optional")
    array = _taken(numbers(owner, f, values))
    if array.ndim != 1:
        raise StateError(f"{owner}.{f.name}: an array of shape {array.shape} is no column")
    if f.convert is not None:
        _refuse_strangers(owner, f, array if valid is None else array[valid])
    if not f.optional:
        return [array]
    valid = np.ones(len(array), bool) if valid is None else valid
    if not valid.all():
        array = np.where(valid, array, np.zeros((), array.dtype))
    return [array, valid]


def _refuse_strangers(owner: str, f: Field, numbers: np.ndarray) -> None:
    """Refuse numbers that no member of the field's enumeration has."""
    known = np.array([int(m) for m in f.convert], numbers.dtype)
    strange = ~np.isin(numbers, known)
    if strange.any():
        raise StateError(
            f"{owner}.{f.name}: {numbers[strange][0]} is no {f.convert.__name__}",
            hint=shown(f.convert),
        )


_CODES = {
    np.dtype(d): c for d, c in zip(("i1", "i2", "i4", "i8", "f4", "f8"), "bhiqfd", strict=True)
}
"""Numbers for which Python has arrays, that take what fits and nothing else."""


def numbers(owner: str, f: Field, values: Any) -> np.ndarray:
    """Numbers in the field's dtype, without a copy where they are.

    Raises:
        StateError: a value would change.
    """
    dtype = np.dtype(f.dtype)
    if isinstance(values, np.ndarray) and values.dtype == dtype:
        return values
    try:
        if type(values) in (list, tuple) and dtype in _CODES:
            if dtype.kind == "f" and not all(issubclass(k, _REAL) for k in set(map(type, values))):
                raise TypeError  # a Decimal would be rounded
            return read_only(_finite(np.frombuffer(array(_CODES[dtype], values), dtype), values))
        raw = np.asarray(values)
        if len(raw) == 0:
            return np.zeros(0, dtype)
        fits = raw.dtype.kind in {"b": "b", "i": "iub", "f": "fiub"}[dtype.kind]
        if not fits:
            raise TypeError
        if dtype.kind == "i":
            info = np.iinfo(dtype)
            if raw.dtype.kind != "b" and (raw.max() > info.max or raw.min() < info.min):
                raise OverflowError
        with np.errstate(over="ignore"):
            return _finite(raw.astype(dtype, copy=False), raw)
    except (TypeError, ValueError, OverflowError):
        bad = next((v for v in _plain(values) if not _fits(v, dtype)), "a value")
        raise StateError(f"{owner}.{f.name}: {bad!r} does not fit {f}") from None


_REAL = (float, int, np.floating, np.integer, np.bool_)
"""What a float may be made of."""


def _finite(stored: np.ndarray, given: Any) -> np.ndarray:
    """Numbers as they are stored, if none of them became infinite in 32 bits."""
    if stored.dtype == np.float32:
        infinite = np.isinf(stored)
        if infinite.any() and np.isfinite(np.asarray(given, np.float64)[infinite]).any():
            raise OverflowError
    return stored


def _taken(values: np.ndarray) -> np.ndarray:
    """A user's numbers as a column, which nobody changes any more. His array is taken over where it
    is all there is to its memory: it becomes read-only, so that a buffer that is used again is an
    error. What others may write to is copied."""
    array = np.ascontiguousarray(values)  # of no subclass: those of memory maps are slow to cut
    if array.flags.writeable:
        array = array if array.base is None else array.copy()
        array.flags.writeable = False
    return array


def _plain(values: Any) -> Iterable[Any]:
    return values.ravel().tolist() if isinstance(values, np.ndarray) else values


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.kind == "b":
        return isinstance(value, bool)
    if dtype.kind == "f":
        return isinstance(value, int | float) and not too_large(value, dtype)
    info = np.iinfo(dtype)
    return isinstance(value, int) and info.min <= value <= info.max


def too_large(value: float, dtype: np.dtype[Any]) -> bool:
    """Whether a number would be stored as an infinite one."""
    try:
        with np.errstate(over="ignore"):
            return math.isfinite(value) and not np.isfinite(dtype.type(value))
    except OverflowError:  # an int beyond all floats
        return True


def _first(error: BaseException) -> str:
    return str(error).partition("\n")[0]
