"""From the values of Python rows to the columns of an image, and back. Values that do not fit their
field are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.fields import Field
from raystream.schema.objects import decode_all, encode_all
from raystream.schema.state import State
from raystream.schema.value_kind import Misfit
from raystream.schema.values import check_of, exact_text
from raystream.state.images.image import KEY, START
from raystream.state.images.row_shape import RowShape, field_type, key_type, number_type


def lasting_values(
    f: Field, rows: Sequence[State], shape: RowShape, keys: Sequence[Any]
) -> list[Any]:
    """One field of all rows, as values that do not change when the rows do.

    Args:
        keys: of the rows, for errors.

    Raises:
        StateError: a value has no stored form.
    """
    values = list(map(attrgetter(f.name), rows))
    if f.kind == "object":
        try:
            if check_of(f.hint)(values):
                return encode_all(values)
        except StateError:
            pass
        raise _misfit(shape, f, values, keys)
    return [tuple(v) for v in values] if f.kind == "array" else values


def state_columns(shape: RowShape, rows: Sequence[State], keys: list[Any]) -> list[Any]:
    """Columns of the fields of Python rows. keys: of the rows, for errors.

    Raises:
        StateError: a value does not fit its field.
    """
    return [
        column_of(shape, f, lasting_values(f, rows, shape, keys), keys) for f in shape.state.fields
    ]


def key_columns(shape: RowShape, keys: Sequence[Any]) -> list[Any]:
    """Columns of the keys of Python rows; in windows with a column of window starts."""
    starts = []
    if shape.window:
        keys, starts = [k for k, _ in keys], [pa.array([s for _, s in keys], pa.int64())]
    parts = (
        [keys] if len(shape.keys) == 1 else [[k[i] for k in keys] for i in range(len(shape.keys))]
    )
    columns = []
    for f, values in zip(shape.keys, parts, strict=True):
        if f.value is not None:
            values = [None if v is None else f.value.store(v) for v in values]
        elif f.kind == "fixed":
            values = [None if v is None else int(v) for v in values]
        columns.append(pa.array(values, key_type(f)))
    return columns + starts


def column_of(shape: RowShape, f: Field, values: list[Any], keys: list[Any]) -> Any:
    """The Arrow column of what `lasting_values` found.

    Raises:
        StateError: a value does not fit the field.
    """
    try:
        if f.kind == "array":
            if any(len(v) != f.size for v in values):
                raise ValueError
            flat = pa.array(_plain(f, [n for v in values for n in v]), number_type(f.dtype))
            return pa.FixedSizeListArray.from_arrays(flat, type=field_type(f))
        return pa.array(values if f.kind == "object" else _plain(f, values), field_type(f))
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        raise _misfit(shape, f, values, keys) from None


def _misfit(shape: RowShape, f: Field, values: Sequence[Any], keys: Sequence[Any]) -> StateError:
    """The error that names the first value that does not fit its field."""
    at = next((i for i, v in enumerate(values) if not _fits(f, v)), 0)
    return StateError(
        f"{shape.state.name}.{f.name} of key {keys[at]!r} holds {values[at]!r:.80}, which does"
        f" not fit {f.declared}",
        hint=_remedy(f, values[at]),
    )


def _remedy(f: Field, value: Any) -> str:
    """The hint for a value that does not fit."""
    if value is None:
        return f"Declare that it may be: {f.name}: ... | None"
    if f.kind == "object":
        return (
            "All that it holds is of the declared types, or would come back as something else;"
            " integers have at most 64 bits."
        )
    if f.value is not None:
        try:
            f.value.store(value)
        except Misfit as error:
            return error.hint
    if f.integer and isinstance(value, float):
        return "int(...) or round(...) makes it whole; or declare a float."
    if f.integer and isinstance(value, int):
        info = np.iinfo(f.dtype)
        return f"It holds integers from {info.min} to {info.max}."
    return ""


_PYTHON: dict[str, tuple[Any, tuple[type, ...]]] = {
    "i": (int, (int, np.integer, np.bool_)),
    "f": (float, (float, int, np.floating, np.integer, np.bool_)),
    "b": (bool, (bool, np.bool_)),
    "text": (str, (str,)),
    "bytes": (bytes, (bytes,)),
}


def _plain(f: Field, values: list[Any]) -> list[Any]:
    """Values in the types that are stored."""
    kinds = set(map(type, values))
    if type(None) in kinds and not f.optional:
        raise TypeError
    if f.value is not None:
        store = f.value.store
        return [None if v is None else store(v) for v in values]
    wanted, allowed = _PYTHON[np.dtype(f.dtype).kind if f.dtype else f.kind]
    kinds.discard(type(None))
    if not all(issubclass(k, allowed) for k in kinds):
        raise TypeError
    if kinds <= {wanted}:
        return values
    make = exact_text if f.kind in ("text", "bytes") else wanted
    return [None if v is None else make(v) for v in values]


def _fits(f: Field, value: Any) -> bool:
    try:
        if f.kind == "object":
            return check_of(f.hint)([value]) and bool(encode_all([value]))
        if f.kind == "array":
            return len(value) == f.size and all(_fits(_item(f), v) for v in value)
        pa.array(_plain(f, [value]), field_type(f))
    except (ValueError, TypeError, OverflowError, pa.ArrowException, StateError):
        return False
    return True


def _item(f: Field) -> Field:
    return Field(name=f.name, kind="fixed", dtype=f.dtype)


def row_keys(shape: RowShape, batch: Any) -> list[Any]:
    """The keys of Python rows, from the columns of an image.

    Raises:
        ValueError: an enumeration has no member for one of them any more.
    """
    parts = []
    for f in shape.keys:
        values = batch.column(KEY + f.name).to_pylist()
        restore: Callable[[Any], Any] | None = bool if f.dtype == "?" else None
        if f.value is not None:
            restore = f.value.restore
        if restore is not None:
            values = [None if v is None else restore(v) for v in values]
        parts.append(values)
    keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    return list(zip(keys, batch.column(START).to_pylist(), strict=True)) if shape.window else keys


def values_of(f: Field, column: Any) -> list[Any]:
    """The values of a field, from a stored column.

    Raises:
        ValueError: an enumeration has no member for one of them any more.
    """
    values: list[Any] = column.to_pylist()
    if f.kind == "object":
        return decode_all(values, f.hint)
    if f.value is not None:
        return [None if v is None else f.value.restore(v) for v in values]
    return values
