"""Fields that are lists, dicts, tuples or records themselves, as nested Arrow values and back.

A NamedTuple is a struct of its fields, a tuple a struct of `f0`, `f1` and so on, a dict a map.
"""

from __future__ import annotations

import base64
import json
import types
import typing
from datetime import datetime
from functools import cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from raystream.errors import GraphError
from raystream.schema.fields import Field, annotation, field_of, is_record, unwrap
from raystream.schema.records import defaults_of, record_maker, record_schema, values_of
from raystream.schema.value_kind import ValueKind
from raystream.schema.values import check_of

NestedKind = Literal["list", "map", "struct", "any"]


Form = Literal["typed", "text", "json"]
"""What files have for times, decimals and UUIDs: types of their own, as Parquet, or text, as CSV
and JSON. In `json` what is built of other values is text, too, until it is written."""

JSON = {b"raystream": b"json"}
"""What the field of an Arrow schema says of itself that holds JSON as text."""


def arrow_type(f: Field, form: Form = "typed", *, inner: bool = False) -> Any:
    """The Arrow type of a field in files. inner: whether it is part of another field.

    Raises:
        GraphError: a bare `list`, `dict` or `tuple`, which does not say what it holds; or one of
            several types, which Arrow has no columns for.
    """
    if f.value is not None and not f.value.members:
        return _typed(f.value, inner) if form == "typed" else pa.string()
    if f.kind == "fixed":
        return pa.bool_() if f.dtype == "?" else pa.from_numpy_dtype(np.dtype(f.dtype))
    if f.kind in ("text", "bytes"):
        return pa.string() if f.kind == "text" else pa.binary()
    try:
        return _of_parts(f, form)
    except GraphError as error:  # it names a part, of which nobody knows where it is
        told = f"{f.name}: {error.message.partition(': ')[2]}"
        raise GraphError(told, hint=error.hint) from None


def _of_parts(f: Field, form: Form) -> Any:
    shape, parts = inside(f)
    if form == "json":
        for part in parts.values():
            arrow_type(part, form)  # refuses what does not say what it holds
        return pa.string()
    if shape == "any":
        raise GraphError(
            f"{f.name}: a column of a file is of one type, and not {annotation(bare(f.hint))}",
            hint="Write it with rs.io.json, or give each of them a field that may be None.",
        )
    if shape == "list":
        return pa.list_(_arrow_field("item", parts["item"]))
    if shape == "map":
        key = arrow_type(parts["key"], form, inner=True)
        return pa.map_(key, _arrow_field("value", parts["value"]))
    return pa.struct([_arrow_field(name, g) for name, g in parts.items()])


def _typed(kind: ValueKind, inner: bool) -> Any:
    if kind.digits is not None:
        return pa.decimal128(kind.digits.precision, kind.digits.scale)
    if kind.stored == "bytes":  # Arrow builds no UUIDs inside of lists
        return pa.binary(16) if inner else pa.uuid()
    return {"datetime": pa.timestamp("us", "UTC"), "date": pa.date32()}.get(
        kind.name, pa.duration("us")
    )


def _arrow_field(name: str, f: Field) -> Any:
    return pa.field(name, arrow_type(f, inner=True), nullable=f.optional)


def to_plain(value: Any, f: Field) -> Any:
    """A value in the shape from which Arrow builds it."""
    if value is None:
        return None
    if f.value is not None:
        if f.value.members:
            return f.value.store(value)
        return f.value.store(value) if f.value.stored == "bytes" else f.value.settle(value)
    if f.kind != "object":  # Arrow makes no numbers of bools, nor floats of large ints
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) is bool and f.dtype != "?":
            value = int(value)
        return float(value) if f.dtype in ("f4", "f8") else value
    shape, parts = inside(f)
    if shape == "list":
        return [to_plain(v, parts["item"]) for v in value]
    if shape == "map":
        key, of = parts["key"], parts["value"]
        return [(to_plain(k, key), to_plain(v, of)) for k, v in value.items()]
    values = value if isinstance(value, list | tuple) else values_of(type(value))(value)
    return {n: to_plain(v, g) for (n, g), v in zip(parts.items(), values, strict=True)}


def json_text(value: Any, f: Field) -> str:
    """A value as the text of JSON."""
    return json.dumps(as_json(value, f), ensure_ascii=False)


def as_json(value: Any, f: Field) -> Any:
    """A value as `json` writes it."""
    if value is None:
        return None
    if f.value is not None:
        return f.value.store(value) if f.value.members else f.value.text(f.value.settle(value))
    if f.kind == "bytes":
        return base64.b64encode(value).decode()
    if f.kind != "object":
        return to_plain(value, f)
    shape, parts = inside(f)
    if shape == "any":
        return as_json(value, next(g for g in parts.values() if _is_a(value, g)))
    if shape == "list":
        return [as_json(v, parts["item"]) for v in value]
    if shape == "map":
        return {
            _name(as_json(k, parts["key"])): as_json(v, parts["value"]) for k, v in value.items()
        }
    values = value if isinstance(value, list | tuple) else values_of(type(value))(value)
    return {n: as_json(v, g) for (n, g), v in zip(parts.items(), values, strict=True)}


def _is_a(value: Any, f: Field) -> bool:
    plain = {"text": str, "bytes": bytes}.get(f.kind, {"?": bool, "f8": float}.get(f.dtype, int))
    return check_of(plain if f.hint is None else f.hint, alike=True)([value])


def _name(key: Any) -> str:
    """A key as JSON has it, where all are text."""
    return key if isinstance(key, str) else json.dumps(key)


def from_plain(value: Any, f: Field) -> Any:
    """The value of the field's own type.

    Raises:
        ValueError: there is none.
    """
    if value is None:
        return None
    if f.value is not None:
        if f.value.members or isinstance(value, bytes):
            return f.value.restore(value)
        if isinstance(value, str):
            return f.value.parse(value)
        return f.value.settle(value) if f.value.written is None else moment(value, f.value)
    if f.kind != "object":
        return float(value) if f.dtype in ("f4", "f8") else value
    hint = bare(f.hint)
    shape, parts = inside(f)
    if shape == "map":
        return {from_plain(k, parts["key"]): from_plain(v, parts["value"]) for k, v in value}
    if shape == "list":
        items = [from_plain(v, parts["item"]) for v in value]
        return tuple(items) if typing.get_origin(hint) is tuple else items
    if not is_record(hint):
        return tuple(from_plain(value[n], g) for n, g in parts.items())
    return record_maker(hint)(
        [
            from_plain(value[n], g) if n in value else defaults_of(hint)[n]()
            for n, g in parts.items()
        ]
    )


def may_lack(f: Field, part: str) -> bool:
    """Whether records in files may lack a part of a field, as a file may lack a column: the part
    has a default."""
    hint = bare(f.hint)
    return is_record(hint) and part in defaults_of(hint)


def moment(value: Any, kind: ValueKind) -> datetime:
    """A time that is a number, or in a zone that it does not name.

    Raises:
        ValueError: it is none.
    """
    assert kind.written is not None
    if not isinstance(value, datetime):
        found: datetime = kind.parse(repr(value))
        return found
    named = value.tzinfo is not None or kind.written.zone is None
    return kind.settle(value if named else value.replace(tzinfo=ZoneInfo(kind.written.zone or "")))


def inside(f: Field) -> tuple[NestedKind, dict[str, Field]]:
    """How a field is built of others: the `item` of a list, the `key` and `value` of a map, the
    fields of a struct, or `any` of several types."""
    return _parts(f.name, bare(f.hint))


@cache
def _parts(name: str, hint: Any) -> tuple[NestedKind, dict[str, Field]]:
    if is_record(hint):
        return "struct", {g.name: g for g in record_schema(hint).fields}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        some = [a for a in args if a is not types.NoneType]
        return "any", {f"{i}": field_of(name, f"{i}", a, state=False) for i, a in enumerate(some)}
    if origin is Literal:
        some = list(dict.fromkeys(type(a) for a in args))
        return "any", {f"{i}": field_of(name, f"{i}", a, state=False) for i, a in enumerate(some)}
    if not args:
        raise GraphError(
            f"{name}: {getattr(hint, '__name__', hint)} does not say what it holds, so"
            " it has no column in a file",
            hint="For example: list[int].",
        )
    shape: NestedKind = "map" if origin is dict else "struct"
    names: tuple[str, ...] = (
        ("key", "value") if origin is dict else tuple(f"f{i}" for i in range(len(args)))
    )
    if origin is list or args[-1] is ...:
        shape, names = "list", ("item",)
    return shape, {n: field_of(name, n, a, state=False) for n, a in zip(names, args, strict=False)}


def bare(hint: Any) -> Any:
    """An annotation without `Annotated` and `| None`."""
    return unwrap(hint)[0]
