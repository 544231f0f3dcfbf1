"""Values that are not plain columns, as msgpack: list, dict, tuple, NamedTuple and what they hold.

msgpack has no tuples, so a value is read back by its declared type. Nothing is ever unpickled.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgpack

from raystream.errors import StateError
from raystream.schema.records import record_hints


class Encoded(bytes):
    """The stored form of a value; encoding it again changes nothing."""


def encode(value: Any) -> Encoded:
    """The msgpack form of a value.

    Raises:
        StateError: the value has no stored form.
    """
    return Encoded(encode_all([value])[0])


def encode_all(values: Iterable[Any], owner: str = "a value") -> list[bytes]:
    """The msgpack forms of values, quicker than one by one. owner: what holds them, for errors.

    Raises:
        StateError: a value has no stored form.
    """
    pack = msgpack.Packer(default=_refuse).pack
    try:
        return [value if type(value) is Encoded else pack(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"{owner} cannot be stored: {error}",
            hint="Values are numbers, str, bytes, None, list, dict, tuple and"
            " NamedTuples of these.",
        ) from None


def _refuse(value: Any) -> Any:
    if isinstance(value, int):
        raise TypeError(f"{value} inside it has more than 64 bits")
    raise TypeError(f"{type(value).__name__} inside it has no stored form")


def decode(data: bytes | None, hint: Any) -> Any:
    """The value that `encode` stored, in the shape of its annotation."""
    return decode_all([data], hint)[0]


def decode_all(stored: Iterable[bytes | None], hint: Any) -> list[Any]:
    """The values that `encode_all` stored, in the shape of their annotation."""
    give = shaper(hint)
    values = (
        None
        if data is None
        else msgpack.unpackb(data, strict_map_key=False, object_pairs_hook=_dict)
        for data in stored
    )
    return list(values) if give is None else list(map(give, values))


def bare(stored: Iterable[bytes]) -> list[Any]:
    """The values that `encode_all` stored, quickly: without their types, and tuples for lists."""
    return [msgpack.unpackb(data, strict_map_key=False, use_list=False) for data in stored]


def _dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(k): v for k, v in pairs}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


Shaper = Callable[[Any], Any]


@cache
def shaper(hint: Any) -> Shaper | None:
    """What gives a decoded value the tuples, NamedTuples and IntEnums that its annotation declares;
    None where it is as declared already."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return shaper(args[0])
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        return shaper(rest[0]) if len(rest) == 1 else None
    give = _container(origin or hint, args)
    return None if give is None else lambda value: None if value is None else give(value)


def _container(kind: Any, args: tuple[Any, ...]) -> Shaper | None:
    if kind is tuple:
        return _tuple(args)
    if kind is list and args:
        inner = shaper(args[0])
        return None if inner is None else lambda values: [inner(v) for v in values]
    if kind is dict and args:
        return _items(shaper(args[0]) or _same, shaper(args[1]) or _same)
    if not isinstance(kind, type):
        return None
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        record: Any = kind
        return _fields(record._make, [shaper(h) or _same for h in record_hints(kind).values()])
    return kind if issubclass(kind, enum.IntEnum) else None


def _same(value: Any) -> Any:
    return value


def _items(key: Shaper, value: Shaper) -> Shaper | None:
    if key is _same and value is _same:
        return None
    return lambda values: {key(k): value(v) for k, v in values.items()}


def _tuple(args: tuple[Any, ...]) -> Shaper:
    if args and args[-1] is not ...:
        return _fields(tuple, [shaper(a) or _same for a in args])
    inner = shaper(args[0]) if args else None
    return tuple if inner is None else lambda values: tuple(map(inner, values))


def _fields(make: Shaper, inner: list[Shaper]) -> Shaper:
    if all(f is _same for f in inner):
        return make
    return lambda values: make([f(v) for f, v in zip(inner, values, strict=True)])
