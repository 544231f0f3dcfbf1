"""The kinds of values that are one of a few: enumerations and literals."""

from __future__ import annotations

import enum
import typing
from functools import cache
from typing import Any

import numpy as np

from raystream.errors import GraphError
from raystream.schema.value_kind import INT64, Misfit, Stored, ValueKind


@cache
def enum_kind(cls: type[enum.Enum]) -> ValueKind:
    """The kind of an enumeration: stored are its values, if all are ints or all are text, otherwise
    its names."""
    if not len(cls) or issubclass(cls, enum.Flag):
        raise GraphError(
            f"{cls.__name__} is no enumeration of one value out of a few",
            hint="An enum.Enum with members; of flags declare an int.",
        )
    values = [m.value for m in cls]
    by_int = all(isinstance(v, int) and type(v) is not bool for v in values)
    by_text = all(isinstance(v, str) for v in values)
    if by_int and not all(v in INT64 for v in values):
        raise GraphError(f"{cls.__name__} has values of more than 64 bits, which are not stored")
    if by_int:
        known: dict[Any, Any] = (
            {int(m): m for m in cls} if issubclass(cls, int) else {int(m.value): m for m in cls}
        )
    elif by_text:
        known = {str.__str__(m.value): m for m in cls}
    else:
        known = {m.name: m for m in cls}
    plain: type = int if by_int else str
    made_of = issubclass(cls, plain) and (by_int or by_text)
    stored = {m: s for s, m in known.items()}

    def store(value: Any) -> Any:
        if type(value) is cls:
            return stored[value]
        if made_of and isinstance(value, plain) and type(value) is not bool:
            found = known.get(plain(value) if by_int else str.__str__(value))
            if found is not None:
                return stored[found]
        if by_int and isinstance(value, np.integer) and int(value) in known:
            return int(value)
        raise Misfit(f"{value!r:.80} is no {cls.__name__}", shown_members(cls))

    return ValueKind(
        name="int64" if by_int else "str",
        python=cls,
        stored="fixed" if by_int else "text",
        dtype="i8" if by_int else "",
        store=store,
        restore=lambda found: _found(known, found, cls.__name__),
        exact=lambda v: type(v) is cls,
        by_class=True,
        parse=lambda text: _found(known, int(text) if by_int else text, cls.__name__),
        text=lambda v: str(stored[v]),
        members=tuple(known),
        number=issubclass(cls, enum.IntEnum),
    )


def _found(known: dict[Any, Any], stored: Any, name: str) -> Any:
    try:
        return known[stored]
    except KeyError:
        raise Misfit(f"{stored!r} is not a valid {name}") from None


def shown_members(cls: type[enum.Enum]) -> str:
    """The members of an enumeration, for people."""
    return f"{cls.__name__} has {', '.join(f'{m.name}={m.value}' for m in cls)}."


_LITERALS: dict[type, tuple[Stored, str, str]] = {
    bool: ("fixed", "?", "bool"),
    int: ("fixed", "i8", "int64"),
    str: ("text", "", "str"),
    bytes: ("bytes", "", "bytes"),
}


@cache
def literal_kind(hint: Any) -> ValueKind | None:
    """The kind of a `Literal` of values of one type; None where they are of several."""
    values = [v for v in typing.get_args(hint) if v is not None]
    types = set(map(type, values))
    if len(types) != 1 or (plain := types.pop()) not in _LITERALS:
        return None
    stored, dtype, name = _LITERALS[plain]
    known = frozenset(values)

    def store(value: Any) -> Any:
        found = value.item() if isinstance(value, np.generic) else value
        if type(found) is plain and found in known:
            return found
        raise Misfit(
            f"{value!r:.80} is none of {', '.join(map(repr, values))}",
            "Declare what it may be.",
        )

    return ValueKind(
        name=name,
        python=hint,
        stored=stored,
        dtype=dtype,
        store=store,
        restore=lambda found: _found({v: v for v in known}, found, "value of the Literal"),
        exact=lambda v: type(v) is plain and v in known,
        parse=lambda text: (
            store({"true": True, "false": False}[text.lower()])
            if plain is bool
            else store(int(text) if plain is int else text)
        ),
        members=tuple(values),
        number=plain in (int, bool),
        described=True,
    )
