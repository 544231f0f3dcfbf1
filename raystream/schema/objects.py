"""Values that are not plain columns, as msgpack: lists, dicts, tuples, records and what they hold.

msgpack has no tuples, so a value is read back by its declared type. Times, decimals and UUIDs are
extensions, which say themselves what they are. Nothing is ever unpickled.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import msgpack
import numpy as np

from raystream.errors import StateError
from raystream.schema.fields import forms_of, is_record, unwrap
from raystream.schema.kinds import kind_of, plain_scalar
from raystream.schema.member_kinds import enum_kind
from raystream.schema.records import record_hints, record_maker, values_of
from raystream.schema.time_kinds import DAY, LENGTH, MOMENT, days, length, micros
from raystream.schema.value_kind import Misfit, ValueKind


class EncodedValue(bytes):
    """The stored form of a value; encoding it again changes nothing."""


def encode(value: Any) -> EncodedValue:
    """The msgpack form of a value.

    Raises:
        StateError: the value has no stored form.
    """
    return EncodedValue(encode_all([value])[0])


def encode_all(values: Iterable[Any], owner: str = "a value") -> list[bytes]:
    """The msgpack forms of values, quicker than one by one. owner: what holds them, for errors.

    Raises:
        StateError: a value has no stored form.
    """
    pack = msgpack.Packer(default=_plainer).pack
    try:
        return [value if type(value) is EncodedValue else pack(value) for value in values]
    except Misfit as error:
        raise StateError(f"{owner} cannot be stored: {error}", hint=error.hint) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"{owner} cannot be stored: {error}",
            hint="Values are numbers, str, bytes, None, datetime, date, timedelta, Decimal, UUID,"
            " enumerations, list, dict, tuple and records of these.",
        ) from None


_MOMENT, _DAY, _LENGTH, _DECIMAL, _UUID = range(1, 6)
"""The types of msgpack's extensions: part of the stored format."""


def _plainer(value: Any) -> Any:
    """What msgpack can hold of a value that it does not know."""
    if isinstance(value, np.generic):
        value = plain_scalar(value)
        if isinstance(value, int | float | str | bytes):
            return value
    if isinstance(value, enum.Enum):
        return enum_kind(type(value)).store(value)
    if isinstance(value, datetime):
        return msgpack.ExtType(_MOMENT, micros(value).to_bytes(8, "big", signed=True))
    if isinstance(value, date):
        return msgpack.ExtType(_DAY, days(value).to_bytes(4, "big", signed=True))
    if isinstance(value, timedelta):
        return msgpack.ExtType(_LENGTH, length(value).to_bytes(8, "big", signed=True))
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    if is_record(type(value)):
        return values_of(type(value))(value)
    if isinstance(value, int):
        raise TypeError(f"{value} inside it has more than 64 bits")
    raise TypeError(f"{type(value).__name__} inside it has no stored form")


def _extension(code: int, data: bytes) -> Any:
    """What `_plainer` made an extension of."""
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _UUID:
        return UUID(bytes=data)
    kinds = {_MOMENT: MOMENT, _DAY: DAY, _LENGTH: LENGTH}
    if code not in kinds:
        raise ValueError(f"an extension {code}, which is not raystream's")
    return kinds[code].restore(int.from_bytes(data, "big", signed=True))


def decode(data: bytes | None, hint: Any) -> Any:
    """The value that `encode` stored, in the shape of its annotation."""
    return decode_all([data], hint)[0]


def decode_all(stored: Iterable[bytes | None], hint: Any) -> list[Any]:
    """The values that `encode_all` stored, in the shape of their annotation."""
    give = shaper(hint)
    values = (
        None
        if data is None
        else msgpack.unpackb(
            data, strict_map_key=False, object_pairs_hook=_dict, ext_hook=_extension
        )
        for data in stored
    )
    return list(values) if give is None else list(map(give, values))


def bare(stored: Iterable[bytes]) -> list[Any]:
    """The values that `encode_all` stored, quickly: without their types, and tuples for lists."""
    return [
        msgpack.unpackb(data, strict_map_key=False, use_list=False, ext_hook=_extension)
        for data in stored
    ]


def _dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(k): v for k, v in pairs}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


Shaper = Callable[[Any], Any]


@cache
def shaper(hint: Any) -> Shaper | None:
    """What gives a decoded value the tuples, records and enumerations that its annotation declares;
    None where it is as declared already."""
    base, marks, _ = unwrap(hint)
    kind = kind_of(base, marks)
    if kind is not None:
        give: Shaper | None = _of_kind(kind)
    elif typing.get_origin(base) in (typing.Union, types.UnionType):
        give = _either(typing.get_args(base))
    else:
        give = _container(typing.get_origin(base) or base, typing.get_args(base))
    return None if give is None else lambda value: None if value is None else give(value)


def _of_kind(kind: ValueKind) -> Shaper | None:
    if kind.digits is not None:
        return kind.settle
    return None if kind.described else kind.restore


def _either(parts: tuple[Any, ...]) -> Shaper | None:
    """A shaper of values of several types: it takes that of the form in which a value is stored."""
    give = {form: made for p in parts if (made := shaper(p)) for form in forms_of(p)}
    return (lambda value: give.get(type(value).__name__, _same)(value)) if give else None


def _container(kind: Any, args: tuple[Any, ...]) -> Shaper | None:
    if kind is tuple:
        return _tuple(args)
    if kind is list and args:
        inner = shaper(args[0])
        return None if inner is None else lambda values: [inner(v) for v in values]
    if kind is dict and args:
        return _items(shaper(args[0]) or _same, shaper(args[1]) or _same)
    if is_record(kind):
        return _fields(
            record_maker(kind), [shaper(h) or _same for h in record_hints(kind).values()]
        )
    return None


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
