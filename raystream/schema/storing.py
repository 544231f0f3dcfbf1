"""Columns of what people have: records, lists and arrays, checked as they are stored."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.columns import (
    ARROW,
    COUNTED,
    Columns,
    empty,
    is_counted,
    is_text,
    is_text_or_bytes,
    one_array,
    read_only,
)
from raystream.schema.fields import Field
from raystream.schema.member_kinds import shown_members
from raystream.schema.objects import EncodedValue, bare, encode_all
from raystream.schema.records import RecordSchema
from raystream.schema.value_kind import Misfit, ValueKind
from raystream.schema.values import check_of


def from_records(schema: RecordSchema, records: Iterable[Any]) -> Columns:
    """Columns of records.

    Raises:
        StateError: a value does not fit its field; the message names the field.
    """
    rows = records if isinstance(records, list) else list(records)
    if not rows:
        return empty(schema)
    if issubclass(schema.cls, tuple):
        getters: Iterable[Any] = map(itemgetter, range(len(schema.fields)))
    else:
        getters = map(attrgetter, schema.names)
    return from_lists(schema, [[*map(getter, rows)] for getter in getters], len(rows))


def from_lists(schema: RecordSchema, lists: Sequence[Sequence[Any]], length: int) -> Columns:
    """Columns of one sequence of Python values per field, each of `length`."""
    arrays: list[Any] = []
    for quick, f, values in zip(_quickly(schema), schema.fields, lists, strict=True):
        array = quick(values)
        if array is None:
            arrays.extend(_store(schema.name, f, values))
        else:
            arrays.append(array)
    return Columns(schema, arrays, length)


@cache
def _quickly(schema: RecordSchema) -> list[Callable[[Sequence[Any]], Any]]:
    """For each field a function that stores values of exactly the declared type, as nearly all are,
    and gives None for all others. Epochs are often small, so what is asked of a field is asked once
    here."""
    found: list[Callable[[Sequence[Any]], Any]] = []
    for f in schema.fields:
        plain = f.value is None and not f.optional
        code = _CODES.get(np.dtype(f.dtype)) if plain and f.kind == "fixed" else None
        if code is not None and code != "f":
            found.append(partial(_quick_numbers, code, np.dtype(f.dtype), _EXACT[code]))
        elif plain and f.kind == "text":
            found.append(_quick_texts)
        else:
            found.append(_not_quickly)
    return found


def _quick_numbers(code: str, dtype: np.dtype[Any], exact: type, values: Sequence[Any]) -> Any:
    if {*map(type, values)} != {exact}:
        return None
    try:
        stored = np.frombuffer(array(code, values), dtype)
    except OverflowError:
        return None
    stored.flags.writeable = False
    return stored


def _quick_texts(values: Sequence[Any]) -> Any:
    if {*map(type, values)} != {str}:
        return None
    try:
        stored = pa.array(values, ARROW["text"])
    except UnicodeEncodeError:
        return None
    return None if isinstance(stored, pa.ChunkedArray) else stored


def _not_quickly(values: Sequence[Any]) -> None:
    return None


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
    for name, values in given.items():
        if not hasattr(values, "__len__") or isinstance(values, str | bytes | Mapping):
            raise StateError(
                f"the column {name!r} of {schema.name} is {values!r:.80}, which is no column",
                hint="A column is a NumPy array, an Arrow array, or a list of values.",
            )
    lengths = {n: len(v) for n, v in given.items()}
    if len(set(lengths.values())) > 1:
        raise StateError(f"the columns of {schema.name} have different lengths: {lengths}")
    arrays: list[Any] = []
    for f in schema.fields:
        arrays.extend(_store(schema.name, f, given[f.name]))
    return Columns(schema, arrays, next(iter(lengths.values())))


def _store(owner: str, f: Field, values: Any) -> list[Any]:
    """The physical columns of one field."""
    if f.value is not None:
        values = _plainer(owner, f, f.value, values)
    if f.kind == "fixed":
        return _store_numbers(owner, f, values)
    if f.kind == "decimal":
        return [_store_decimals(owner, f, values)]
    if f.kind in ("text", "bytes"):
        return [_store_strings(owner, f, values)]
    name = f"{owner}.{f.name}"
    try:
        values = values.to_pylist() if isinstance(values, pa.ChunkedArray | pa.Array) else values
    except (ValueError, OverflowError) as error:  # of times that Python has not
        raise StateError(f"{name}: {error}") from None
    stored = pa.array(encode_all(values, name), pa.binary())
    _refuse_unlike(name, f, values)
    return [one_array(name, stored)]


def _plainer(owner: str, f: Field, kind: ValueKind, values: Any) -> Any:
    """Values of a kind as what is stored: a list of it, or an array that is it already."""
    name = f"{owner}.{f.name}"
    if isinstance(values, pa.ChunkedArray):
        values = one_array(name, values.combine_chunks())
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    array = isinstance(values, np.ndarray | pa.Array)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if kind.name in COUNTED and array:
        plain = _counted(name, f, kind, values)
    elif isinstance(values, np.ndarray) and values.dtype.kind not in "iub":
        plain = _stored_list(name, f, kind, values.tolist())
    elif isinstance(values, pa.Array) and kind.stored == "bytes" and not kind.members:
        plain = _of_16_bytes(name, kind, values)
    elif array:
        plain = values
    else:
        return _stored_list(name, f, kind, values)
    if kind.members and isinstance(plain, np.ndarray | pa.Array):
        _refuse_strangers(name, f, kind, plain)
    return plain


def _of_16_bytes(name: str, kind: ValueKind, values: Any) -> Any:
    try:
        if not is_text(values.type):
            return values.cast(pa.binary(16))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise StateError(f"{name}: an array of {values.type} does not fit {kind.name}")


def _stored_list(name: str, f: Field, kind: ValueKind, values: Iterable[Any]) -> list[Any]:
    store, values = kind.store, list(values)
    if not f.optional and any(v is None for v in values):
        raise StateError(f"{name} is None, but is not declared optional")
    try:
        return [None if v is None else store(v) for v in values]
    except Misfit as error:
        raise StateError(f"{name}: {error}", hint=error.hint) from None


def _counted(name: str, f: Field, kind: ValueKind, values: Any) -> Any:
    """Times or lengths in an array, as numbers; refused where they would change."""
    numpy, arrow = COUNTED[kind.name]
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "Mm" and np.isnat(values).any():
            raise StateError(
                f"{name}: NaT is no time",
                hint="Declare that it may be None, and give an Arrow array or a list with None.",
            )
        if values.dtype.kind not in "Mm":
            return _stored_list(name, f, kind, values.tolist())  # which says what is wrong
        made = values.astype(numpy)
        if (made != values).any():
            raise StateError(
                f"{name}: an array of {values.dtype} does not fit {numpy}",
                hint=f"Round it: values.astype({numpy!r}).",
            )
        return made.astype(np.int64).astype(kind.dtype)
    if pa.types.is_timestamp(values.type) and values.type.tz is None and kind.name == "datetime":
        raise StateError(
            f"{name}: {values.type} has no time zone",
            hint="Say which it is in: pyarrow.compute.assume_timezone(values, 'UTC').",
        )
    if not is_counted(kind.name, values.type):
        raise StateError(f"{name}: an array of {values.type} is none of {kind.name}")
    try:
        return values.cast(arrow).view(pa.from_numpy_dtype(np.dtype(kind.dtype)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StateError(f"{name}: {_first(error)}") from None


def _store_decimals(owner: str, f: Field, values: Any) -> Any:
    assert f.value is not None and f.value.digits is not None
    kind = pa.decimal128(f.value.digits.precision, f.value.digits.scale)
    try:
        if isinstance(values, pa.Array) and not (
            pa.types.is_decimal(values.type)
            or pa.types.is_integer(values.type)
            or pa.types.is_null(values.type)
        ):
            raise StateError(f"{owner}.{f.name}: an array of {values.type} does not fit {f}")
        if isinstance(values, pa.Array) and pa.types.is_integer(values.type):
            values = values.cast(pa.decimal256(76, kind.scale))  # holds any, which is checked below
        array = values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StateError(f"{owner}.{f.name}: {_first(error)}") from None
    if array.null_count and not f.optional:
        raise StateError(f"{owner}.{f.name} is None, but is not declared optional")
    return array


def _refuse_unlike(name: str, f: Field, values: Sequence[Any]) -> None:
    """Refuse values that would come back as another type than is declared, or not at all."""
    check = check_of(f.hint, alike=True)
    if len(values) and type(values[0]) is EncodedValue:  # as all are then, that operators emitted
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
        if isinstance(values, pa.Array) and not is_text_or_bytes(values.type):
            raise StateError(f"{owner}.{f.name}: an array of {values.type} does not fit {f}")
        array = values if isinstance(values, pa.Array) else pa.array(values, kind)
        array = one_array(f"{owner}.{f.name}", array if array.type == kind else array.cast(kind))
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


_TEXTS = {
    "text": (str, pa.Scalar, type(None)),
    "bytes": (bytes, pa.Scalar, type(None)),  # what may still change would be stored as it is then
}


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
    if f.value is not None and f.value.bounds is not None:
        _refuse_outside(owner, f, f.value, array if valid is None else array[valid])
    if not f.optional:
        return [array]
    valid = np.ones(len(array), bool) if valid is None else valid
    if not valid.all():
        array = np.where(valid, array, np.zeros((), array.dtype))
    return [array, valid]


def _refuse_outside(owner: str, f: Field, kind: ValueKind, numbers: np.ndarray) -> None:
    """Refuse numbers that stand for no value, such as times after the year 9999."""
    assert kind.bounds is not None
    least, most = kind.bounds
    if len(numbers) and (numbers.min() < least or numbers.max() > most):
        bad = numbers[(numbers < least) | (numbers > most)][0]
        raise StateError(f"{owner}.{f.name}: {bad} stands for no {kind.name} of Python's")


def _refuse_strangers(name: str, f: Field, kind: ValueKind, stored: Any) -> None:
    """Refuse stored values that no member of an enumeration has."""
    if isinstance(stored, pa.Array):
        found = set(stored.unique().to_pylist()) - {None}
    else:
        found = set(np.unique(stored).tolist())
    if strange := found - set(kind.members):
        first = next(v for v in stored.tolist() if v in strange)
        shown = shown_members(kind.python) if isinstance(kind.python, type) else ""
        what = getattr(kind.python, "__name__", "value of the Literal")
        raise StateError(f"{name}: {first!r} is no {what}", hint=shown)


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


_EXACT = {code: float if code in "fd" else int for code in _CODES.values()}
"""The type of the values that need no look at each, by code."""
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
