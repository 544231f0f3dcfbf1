"""What was read, as batches of a declared type; what does not conform is named with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import InputError, StateError
from raystream.io.files.nested import (
    JSON,
    Form,
    arrow_type,
    from_plain,
    inside,
    json_text,
    may_lack,
    moment,
    to_plain,
)
from raystream.schema.columns import Columns
from raystream.schema.fields import AnyRecord, Field
from raystream.schema.records import RecordSchema, apart, record_schema, values_of
from raystream.schema.types import TimeFormat
from raystream.schema.value_kind import ValueKind

U = TypeVar("U", bound=AnyRecord)

At = Callable[[int], str]
"""Says where the nth row (from 0) of a batch is: `rows.parquet, row 17`."""


def _can_hold(f: Field, held: Any) -> bool:
    if isinstance(held, pa.DictionaryType):
        held = held.value_type
    if pa.types.is_null(held):
        return f.optional
    if f.value is not None and not f.value.members:
        return _can_hold_kind(f.value, held)
    kind = np.dtype(f.dtype).kind if f.kind == "fixed" else f.kind
    return {
        "b": pa.types.is_boolean,
        "i": pa.types.is_integer,
        "f": lambda t: pa.types.is_floating(t) or pa.types.is_integer(t) or pa.types.is_decimal(t),
        "text": _is_text,
        "bytes": lambda t: (
            pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t)
        ),
        "object": lambda t: _can_hold_inside(f, t),
    }[kind](held)


def _is_text(held: Any) -> bool:
    return pa.types.is_string(held) or pa.types.is_large_string(held)


def _can_hold_kind(kind: ValueKind, held: Any) -> bool:
    """Text is parsed, whatever it stands for."""
    if _is_text(held):
        return True
    if kind.digits is not None:
        return pa.types.is_decimal(held) or pa.types.is_integer(held)
    if kind.name == "datetime":
        number = pa.types.is_integer(held) or pa.types.is_floating(held)
        by_number = kind.written is not None and kind.written.unit is not None
        return pa.types.is_timestamp(held) or (number and by_number)
    if kind.name == "date":
        return pa.types.is_date(held)
    if kind.name == "timedelta":
        return pa.types.is_duration(held)
    return held == pa.uuid() or held == pa.binary(16)


def _can_hold_inside(f: Field, held: Any) -> bool:
    shape, parts = inside(f)
    if shape == "any":
        return False
    if held.id != arrow_type(f).id and not pa.types.is_large_list(held):
        return False
    if shape == "struct":
        there = {name: held.get_field_index(name) for name in parts}
        if any(at < 0 and not may_lack(f, name) for name, at in there.items()):
            return False
        types = [held.field(at).type if at >= 0 else pa.null() for at in there.values()]
    else:
        types = [held.value_type] if shape == "list" else [held.key_type, held.item_type]
    # Where no list had an item, nothing says of which type they are.
    return all(
        pa.types.is_null(t) or _can_hold(g, t) for g, t in zip(parts.values(), types, strict=True)
    )


def batch_of(schema: RecordSchema, rows: Any, at: At) -> Batch[Any]:
    """The rows of an Arrow record batch whose columns were checked.

    Raises:
        InputError: a value is missing or does not fit its field.
    """
    arrays = {f.name: _decoded(rows.column(f.name)) for f in schema.fields}
    try:
        for f in schema.fields:
            _check_values(f, arrays[f.name])
        columns = {f.name: _values(f, arrays[f.name]) for f in schema.fields}
        return Batch(schema.cls, columns)
    except (StateError, _BadRow, ValueError, ArithmeticError) as error:
        raise _named(schema, arrays, at, error) from None


def batch_of_records(record: type[U], records: Sequence[Any], at: At) -> Batch[U]:
    """A batch of records in Python.

    Raises:
        InputError: one is of another type, or a value does not fit its field.
    """
    for n, found in enumerate(records):
        if type(found) is not record:
            is_a, wanted = apart(type(found), record)
            raise InputError(
                f"{at(n)}: {found!r} is a {is_a}, not a {wanted}.",
                hint=_made_of(found, record),
                bare=f"{at(n)}: a {is_a}, not a {wanted}",
            )
    names = record_schema(record).names
    rows = records if issubclass(record, tuple) else map(values_of(record), records)
    columns = zip(*rows, strict=True) if records else ((),) * len(names)
    try:
        return Batch(record, dict(zip(names, columns, strict=True)))
    except StateError as error:
        if len(records) == 1:
            raise InputError(
                f"{at(0)}: {error.message}",
                hint=error.hint,
                bare=f"{at(0)}: a value does not fit its field",
            ) from None
        # Say which: the first half that fails alone holds it.
        half = len(records) // 2
        batch_of_records(record, records[:half], at)
        batch_of_records(record, records[half:], lambda n: at(half + n))
        raise


def _made_of(found: Any, record: type) -> str:
    """How to make a record of what people have instead."""
    if isinstance(found, dict):
        return f"Make a record of it: {record.__name__}(**row)."
    if type(found) in (tuple, list):
        return f"Make a record of it: {record.__name__}(*row)."
    return ""


def file_schema(schema: RecordSchema, form: Form = "typed") -> Any:
    """The Arrow schema of records in files."""
    return pa.schema(
        [
            pa.field(
                f.name,
                arrow_type(f, form),
                nullable=f.optional,
                metadata=JSON if form == "json" and f.kind == "object" else None,
            )
            for f in schema.fields
        ]
    )


def table_of(batch: Batch[Any], form: Form = "typed") -> Any:
    """A batch as an Arrow table: what `batch_of` reads."""
    schema = record_schema(batch.record)
    arrays = [_array(f, batch._columns, form) for f in schema.fields]
    return pa.Table.from_arrays(arrays, schema=file_schema(schema, form))


def _array(f: Field, columns: Columns, form: Form) -> Any:
    if f.kind == "object":
        plain: Callable[[Any, Field], Any] = json_text if form == "json" else to_plain
        values = [None if v is None else plain(v, f) for v in columns.shown(f)]
        return pa.array(values, arrow_type(f, form))
    array = columns.nullable(f)
    if f.value is None or f.value.members:
        return array
    if form != "typed":
        return pa.array(_texts(f.value, columns.column(f.name), array), pa.string())
    if f.value.stored == "bytes":
        return pa.ExtensionArray.from_storage(pa.uuid(), array.cast(pa.binary(16)))
    return array


def _texts(kind: ValueKind, stored: Any, array: Any) -> list[str | None]:
    """The text of values, where they are not None in `array`."""
    values = stored.tolist() if isinstance(stored, np.ndarray) else stored.to_pylist()
    there = array.is_valid().to_pylist()
    return [kind.text(kind.restore(v)) if ok else None for v, ok in zip(values, there, strict=True)]


def _decoded(array: Any) -> Any:
    """A column without a dictionary. Of times, nanoseconds are cut off: fields of times and lengths
    have microseconds, and text has lost them, too."""
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return _cut(array) if _has_nanoseconds(array.type) else array


def _has_nanoseconds(kind: Any) -> bool:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return bool(kind.unit == "ns")
    if isinstance(kind, pa.DictionaryType):
        return _has_nanoseconds(kind.value_type)
    return any(_has_nanoseconds(kind.field(i).type) for i in range(kind.num_fields))


def _cut(array: Any) -> Any:
    """A column of times, or of values that hold some, without their nanoseconds."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts, names = [*map(_decoded, array.flatten())], [part.name for part in kind]
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    if pa.types.is_nested(kind):  # of a part of a column the offsets do not begin at 0
        parts = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        offsets = pa.array(array.offsets.to_numpy())
        return type(array).from_arrays(offsets, *map(_decoded, parts), mask=array.is_null())
    import pyarrow.compute as pc  # takes a while, and few columns need it

    times = pc.floor_temporal(array.view(pa.timestamp("ns")), unit="microsecond")
    times = times.cast(pa.timestamp("us"))
    return times.view(
        pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
    )


def _values(f: Field, array: Any) -> Any:
    if f.kind == "object":
        return [from_plain(v, f) for v in array.to_pylist()]
    if pa.types.is_null(array.type):
        return array.cast(arrow_type(f))
    if f.value is not None and not f.value.members and _is_text(array.type):
        parse = f.value.parse
        return [None if v is None else parse(v) for v in array.to_pylist()]
    if f.value is not None and f.value.written is not None:
        return _moments(f.value.written, f.value, array)
    if pa.types.is_decimal(array.type) and f.kind == "fixed":
        return array.cast(pa.float64())
    if pa.types.is_floating(array.type) and f.integer:
        return array.cast(pa.int64())  # refuses a fraction
    return array


def _moments(written: TimeFormat, kind: ValueKind, array: Any) -> Any:
    """Times that are numbers, or in a zone that they do not name."""
    if pa.types.is_timestamp(array.type):
        if written.zone is None or array.type.tz is not None:
            return array
        array = array.cast(pa.timestamp("us"))
    return [None if v is None else moment(v, kind) for v in array.to_pylist()]


class _BadRow(Exception):
    """A row that `schema.columns` would let pass."""


def _check_values(f: Field, array: Any) -> None:
    if f.kind == "text":
        array.validate(full=True)  # files may hold bytes that are not UTF-8
    elif (f.kind == "object" or f.value is not None) and _first_bad(f, array) is not None:
        raise _BadRow


def _named(schema: RecordSchema, arrays: dict[str, Any], at: At, error: Exception) -> InputError:
    """The error for the first row that does not conform. Slow, and only for that."""
    found = [(row, f) for f in schema.fields if (row := _first_bad(f, arrays[f.name])) is not None]
    if not found:
        return _alone(schema, arrays, at, error)
    row, f = min(found, key=lambda x: x[0])
    array = arrays[f.name]
    if not array[row].is_valid:
        return InputError(
            f"{at(row)}: {f.name!r} is missing, but {schema.name} does not declare that it may be.",
            hint=f"Declare `{f.name}: ... | None`, or give it a value in the file.",
        )
    shown = array[row].as_py() if f.kind != "text" else _text(array[row])
    return InputError(
        f"{at(row)}: {f.name!r} is {shown!r}, which does not fit {f.declared}.",
        hint=_to_mend(f),
    )


def _text(value: Any) -> str | bytes:
    """Text of a file, or the bytes where they are no UTF-8."""
    stored: bytes = value.as_buffer().to_pybytes()
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


_MEND = "Mend the file, or declare a type that holds it."


def _to_mend(f: Field) -> str:
    if f.moment and f.kind != "text":
        return (
            f"If the whole file has times like that, say how they are written, for example"
            f" {f.name}: Annotated[datetime, rs.timestamp('%d.%m.%Y %H:%M', zone='UTC')]."
            " Otherwise mend the file."
        )
    if f.value is not None and f.value.members:
        return f"It is one of {', '.join(map(repr, f.value.members))}."
    return _MEND


def _alone(schema: RecordSchema, arrays: dict[str, Any], at: At, error: Exception) -> InputError:
    """The error for the first row that could not be taken by itself."""
    for row in range(len(arrays[schema.names[0]])):
        one = {}
        for f in schema.fields:
            try:
                one[f.name] = _values(f, arrays[f.name].slice(row, 1))
            except (ValueError, ArithmeticError) as alone:
                hint = getattr(alone, "hint", "") or _MEND
                return InputError(f"{at(row)}: {f.name!r}: {alone}", hint=hint)
        try:
            Batch(schema.cls, one)
        except StateError as alone:
            return InputError(f"{at(row)}: {alone.message}", hint=alone.hint or _MEND)
    return InputError(f"{at(0)} and on: {error}")


def _first_bad(f: Field, array: Any) -> int | None:
    """The first position whose value does not fit the field."""
    import pyarrow.compute as pc  # takes a while, and few fields need it

    bad = array.is_null() if not f.optional else pa.array(np.zeros(len(array), bool))
    if f.value is not None and f.value.members:
        plain = pa.string() if f.kind == "text" else pa.int64()
        plain = array.type if f.kind == "bytes" or f.dtype == "?" else plain
        known = pa.array(f.value.members, plain)
        outside = pc.invert(pc.is_in(array.cast(plain, safe=False), value_set=known))
        bad = pc.or_(bad, pc.and_(array.is_valid(), outside))
    elif f.value is not None:
        return _first_misfit(f, f.value, array, bad)
    elif f.integer and pa.types.is_integer(array.type):
        info = np.iinfo(f.dtype)
        wide = array.cast(pa.uint64() if array.type == pa.uint64() else pa.int64())
        low = pa.scalar(max(info.min, 0) if wide.type == pa.uint64() else info.min, wide.type)
        outside = pc.or_(pc.less(wide, low), pc.greater(wide, pa.scalar(info.max, wide.type)))
        bad = pc.or_(bad, pc.fill_null(outside, False))
    elif f.integer and pa.types.is_floating(array.type):
        info = np.iinfo(f.dtype)
        exact = pc.and_(pc.equal(array, pc.trunc(array)), pc.less(array, float(info.max) + 1))
        fits = pc.and_(exact, pc.greater_equal(array, float(info.min)))
        bad = pc.or_(bad, pc.fill_null(pc.invert(fits), False))
    elif f.kind == "text":
        return _first_undecodable(array, bad)
    at = pc.index(bad, True).as_py()
    return at if at >= 0 else None


def _first_misfit(f: Field, kind: ValueKind, array: Any, bad: Any) -> int | None:
    """The first value that does not fit: text is parsed, or each value is checked by itself."""
    import pyarrow.compute as pc

    if not _is_text(array.type):
        at = pc.index(bad, True).as_py()
        return at if at >= 0 else None
    for row, value in enumerate(array.to_pylist()):
        if value is None:
            if not f.optional:
                return row
            continue
        try:
            kind.parse(value)
        except (ValueError, ArithmeticError):
            return row
    return None


def _first_undecodable(array: Any, bad: Any) -> int | None:
    for row in range(len(array)):
        if bad[row].as_py():
            return row
        if array[row].is_valid:
            try:
                array[row].as_py()
            except UnicodeDecodeError:
                return row
    return None
