"""How an annotation becomes columns: one `Field` per field of a record or state row.

A field is stored in one of four ways: `fixed` (a NumPy number, with a second column of validity
when it may be None), `array` (a fixed number of NumPy numbers; state rows only), `text` and `bytes`
(Arrow), or `object` (msgpack in an Arrow binary column).
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from raystream.errors import GraphError
from raystream.schema.types import Array, Width

Kind = Literal["fixed", "array", "text", "bytes", "object"]

_PLAIN: dict[Any, str] = {int: "i8", float: "f8", bool: "?"}

SHOWN = {
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "f4": "float32",
    "f8": "float64",
    "?": "bool",
}
"""What people read for the stored form of a number."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name, how it is stored, what turns a stored value into the user's type."""

    name: str
    kind: Kind
    dtype: str = ""
    size: int = 1
    optional: bool = False
    timer: bool = False
    convert: Any = None

    @property
    def number(self) -> bool:
        """Whether the field is one plain number that is always there."""
        return self.kind == "fixed" and not self.optional

    @property
    def integer(self) -> bool:
        return self.kind == "fixed" and np.dtype(self.dtype).kind in "iu"

    @property
    def declared(self) -> str:
        """The field as people wrote it, where `str` says only how it is stored."""
        if self.convert is None:
            return str(self)
        return f"{self.name}: {annotation(self.convert)}"

    def __str__(self) -> str:
        shape = self.dtype if self.kind == "fixed" else self.kind
        if self.kind == "array":
            shape = f"{self.dtype}[{self.size}]"
        if self.kind == "object":
            shape = _inside(_unwrap(self.convert)[0])
        shown = "str" if shape == "text" else SHOWN.get(shape, shape)
        return f"{self.name}: {shown}{' | None' if self.optional else ''}"


def annotation(hint: Any) -> str:
    """An annotation as people wrote it."""
    return _WIDTH.sub(
        lambda found: f"rs.{SHOWN[found[1]].capitalize()}", inspect.formatannotation(hint)
    )


@cache
def _inside(hint: Any, within: tuple[Any, ...] = ()) -> str:
    """What values of a type are made of, down to what is stored: two types of which one reads what
    the other wrote are the same, whatever their names.

    Args:
        within: the tuples with names that it is a part of.
    """
    base, marks, optional = _unwrap(hint)
    parts = typing.get_args(base)
    origin = typing.get_origin(base)
    widths = [SHOWN[m.dtype] for m in marks if isinstance(m, Width)]
    if widths:
        said = widths[0]
    elif origin in (typing.Union, types.UnionType):
        said = " | ".join(_inside(part, within) for part in parts)
    elif parts:
        inner = ("..." if part is ... else _inside(part, within) for part in parts)
        said = f"{getattr(origin, '__name__', origin)}[{', '.join(inner)}]"
    elif hasattr(base, "_fields") and base not in within:
        hints = typing.get_type_hints(base, include_extras=True)
        fields = (
            f"{name}: {_inside(hints[name], (*within, base))}" if name in hints else name
            for name in base._fields
        )
        said = f"({', '.join(fields)})"
    elif isinstance(base, type) and issubclass(base, enum.IntEnum):
        said = SHOWN["i8"]
    elif base in _PLAIN:
        said = SHOWN[_PLAIN[base]]
    else:
        said = str(getattr(base, "__name__", base))
    return f"{said} | None" if optional else said


_WIDTH = re.compile(r"typing\.Annotated\[\w+, Width\(dtype='(\w+)', timer=\w+\)\]")


def field_of(owner: str, name: str, hint: Any, *, state: bool) -> Field:
    """The field that an annotation stands for; `owner` names the class in errors.

    Raises:
        GraphError: the annotation has no stored form.
    """
    base, marks, optional = _unwrap(hint)
    for mark in marks:
        if isinstance(mark, Array):
            if not state:
                raise GraphError(
                    f"{owner}.{name}: rs.Array is for state rows, not for records",
                    hint="Use one field per number, or a list.",
                )
            if mark.dtype not in SHOWN:
                raise GraphError(
                    f"{owner}.{name}: an array of {mark.dtype!r} has no stored form",
                    hint=f"Its numbers are one of {', '.join(map(repr, SHOWN))}.",
                )
            return Field(name, "array", mark.dtype, mark.size)
        if isinstance(mark, Width):
            return Field(name, "fixed", mark.dtype, optional=optional, timer=mark.timer)
    if base in _PLAIN:
        return Field(name, "fixed", _PLAIN[base], optional=optional)
    if isinstance(base, type) and issubclass(base, enum.IntEnum):
        return Field(name, "fixed", "i8", optional=optional, convert=base)
    if base is str:
        return Field(name, "text", optional=optional)
    if base is bytes:
        return Field(name, "bytes", optional=optional)
    _refuse(owner, name, base, state)
    return Field(name, "object", optional=optional, convert=hint)


def _refuse(owner: str, name: str, base: Any, state: bool) -> None:
    origin = typing.get_origin(base) or base
    if origin in (set, frozenset):
        raise GraphError(
            f"{owner}.{name}: a set has no stable order, so it cannot be replayed",
            hint="Use dict[K, None], which keeps the order of insertion.",
        )
    if origin is typing.Any or origin is object:
        raise GraphError(f"{owner}.{name}: declare what it holds; Any has no stored form")
    if origin in (list, dict, tuple) or origin is types.NoneType:
        for hint in typing.get_args(base):
            refuse_inside(owner, name, hint, state)
        return
    if isinstance(origin, type) and (issubclass(origin, tuple) and hasattr(origin, "_fields")):
        return
    raise GraphError(
        f"{owner}.{name}: {getattr(base, '__name__', base)} has no stored form",
        hint="Fields are int, float, bool, str, bytes, rs.Int8 to rs.Int64, rs.Float32, IntEnum,"
        " list, dict, tuple or a NamedTuple of these.",
    )


def refuse_inside(owner: str, name: str, hint: Any, state: bool) -> None:
    """Refuse classes that would come back as another, or not at all. What is no class says too
    little to be refused; so does Any, which records may hold."""
    base, _, _ = _unwrap(hint)
    if typing.get_origin(base) in (typing.Union, types.UnionType):
        for each in typing.get_args(base):
            refuse_inside(owner, name, each, state)
        if lost := [a for a in typing.get_args(base) if _shaped(a)]:
            raise GraphError(
                f"{owner}.{name}: what is stored of {annotation(base)} does not say which of them"
                f" it was, and {annotation(lost[0])} would come back as a list or a number",
                hint="Use a field for each of them, that may be None; or one class with a field"
                " that says what it is.",
            )
        return
    kind = typing.get_origin(base) or base
    plain = (*_PLAIN, str, bytes, *(() if state else (object, typing.Any)))
    if isinstance(kind, type) and kind not in plain and not issubclass(kind, enum.IntEnum):
        _refuse(owner, name, base, state)


def _shaped(hint: Any) -> bool:
    """Whether a value comes back in its type only because its annotation says so."""
    base, _, _ = _unwrap(hint)
    kind = typing.get_origin(base) or base
    if isinstance(kind, type) and issubclass(kind, tuple | enum.IntEnum):
        return True
    return any(_shaped(a) for a in typing.get_args(base) if a is not ...)


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Take `Annotated` and `| None` apart: (the bare type, its marks, may it be None)."""
    optional = False
    marks: tuple[Any, ...] = ()
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            marks += tuple(hint.__metadata__)
            hint = hint.__origin__
        elif origin in (typing.Union, types.UnionType):
            rest = [a for a in typing.get_args(hint) if a is not type(None)]
            if len(rest) == len(typing.get_args(hint)) or len(rest) != 1:
                return hint, marks, optional
            optional, hint = True, rest[0]
        else:
            return hint, marks, optional
