"""Fields that are lists, dicts, tuples or records themselves, as nested Arrow values and back.

A NamedTuple is a struct of its fields, a tuple a struct of `f0`, `f1` and so on, a dict a map.
"""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from raystream.errors import GraphError
from raystream.schema.fields import Field, field_of
from raystream.schema.records import is_record, record_schema

Shape = Literal["list", "map", "struct"]


def arrow_type(f: Field) -> Any:
    """The Arrow type of a field in files.

    Raises:
        GraphError: a bare `list`, `dict` or `tuple`, which does not say what it holds.
    """
    if f.kind == "fixed":
        return pa.bool_() if f.dtype == "?" else pa.from_numpy_dtype(np.dtype(f.dtype))
    if f.kind in ("text", "bytes"):
        return pa.string() if f.kind == "text" else pa.binary()
    shape, inner = inside(f)
    if shape == "list":
        return pa.list_(_arrow_field("item", inner["item"]))
    if shape == "map":
        return pa.map_(arrow_type(inner["key"]), _arrow_field("value", inner["value"]))
    return pa.struct([_arrow_field(name, g) for name, g in inner.items()])


def _arrow_field(name: str, f: Field) -> Any:
    return pa.field(name, arrow_type(f), nullable=f.optional)


def to_plain(value: Any, f: Field) -> Any:
    """A value in the shape from which Arrow builds it."""
    if value is None:
        return None
    if f.kind != "object":  # Arrow makes no numbers of bools, nor floats of large ints
        if type(value) is bool and f.dtype != "?":
            value = int(value)
        return float(value) if f.dtype in ("f4", "f8") else value
    shape, inner = inside(f)
    if shape == "list":
        return [to_plain(v, inner["item"]) for v in value]
    if shape == "map":
        return [(to_plain(k, inner["key"]), to_plain(v, inner["value"])) for k, v in value.items()]
    return {n: to_plain(v, g) for (n, g), v in zip(inner.items(), value, strict=True)}


def from_plain(value: Any, f: Field) -> Any:
    """The value of the field's own type."""
    if value is None or f.kind != "object":
        return value if value is None or f.convert is None else f.convert(value)
    hint = bare(f.convert)
    shape, inner = inside(f)
    if shape == "map":
        return {from_plain(k, inner["key"]): from_plain(v, inner["value"]) for k, v in value}
    if shape == "list":
        items = [from_plain(v, inner["item"]) for v in value]
        return tuple(items) if typing.get_origin(hint) is tuple else items
    parts = [from_plain(value[n], g) for n, g in inner.items()]
    return hint(*parts) if is_record(hint) else tuple(parts)


def inside(f: Field) -> tuple[Shape, dict[str, Field]]:
    """How a field is built of others: the `item` of a list, the `key` and `value` of a map, or the
    fields of a struct."""
    return _parts(f.name, bare(f.convert))


@cache
def _parts(name: str, hint: Any) -> tuple[Shape, dict[str, Field]]:
    if is_record(hint):
        return "struct", {g.name: g for g in record_schema(hint).fields}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if not args:
        raise GraphError(
            f"{name}: {getattr(hint, '__name__', hint)} does not say what it holds, so"
            " it has no column in a file",
            hint="For example: list[int].",
        )
    shape: Shape = "map" if origin is dict else "struct"
    names: tuple[str, ...] = (
        ("key", "value") if origin is dict else tuple(f"f{i}" for i in range(len(args)))
    )
    if origin is list or args[-1] is ...:
        shape, names = "list", ("item",)
    return shape, {n: field_of(name, n, a, state=False) for n, a in zip(names, args, strict=False)}


def bare(hint: Any) -> Any:
    """An annotation without `Annotated` and `| None`."""
    while True:
        args = typing.get_args(hint)
        if typing.get_origin(hint) is typing.Annotated:
            hint = args[0]
        elif type(None) in args and len(args) == 2:
            hint = next(a for a in args if a is not type(None))
        else:
            return hint
