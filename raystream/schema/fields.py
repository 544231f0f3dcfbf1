"""How an annotation becomes columns: one `Field` per field of a record or state row.

A field is stored in one of five ways: `fixed` (a NumPy number, with a second column of validity
when it may be None), `array` (a fixed number of NumPy numbers; state rows only), `text` and `bytes`
(Arrow), `decimal` (Arrow, 128 bits), or `object` (msgpack in an Arrow binary column). Where the
values of the user's type are not those of the column, `value` says how they become them (see
`raystream.schema.kinds`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from raystream.errors import GraphError
from raystream.schema.kinds import kind_of
from raystream.schema.types import Array, Width
from raystream.schema.value_kind import ValueKind

FieldKind = Literal["fixed", "array", "text", "bytes", "decimal", "object"]


class Dataclass(Protocol):
    """An object of a dataclass, for type checkers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


AnyRecord = tuple[Any, ...] | Dataclass
"""What records are, for type checkers: of a `NamedTuple` or of a frozen dataclass."""

PLAIN: dict[Any, str] = {int: "i8", float: "f8", bool: "?"}
"""The dtypes of Python's numbers."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record or state row."""

    name: str
    kind: FieldKind
    """How it is stored."""
    dtype: str = ""
    """The NumPy dtype of a number, or of the numbers of an array."""
    size: int = 1
    """How many numbers an array has."""
    optional: bool = False
    """Whether it may be None."""
    timer: bool = False
    """Whether it is the alarm of a state row."""
    hint: Any = None
    """The annotation, where the stored form alone does not say what the values are."""
    value: ValueKind | None = None
    """What turns the user's values into stored ones and back, where they differ."""

    @property
    def number(self) -> bool:
        """Whether the field is one plain number that is always there."""
        plain = self.value is None or self.value.number
        return self.kind == "fixed" and not self.optional and plain

    @property
    def integer(self) -> bool:
        """Whether it is stored as integers."""
        return self.kind == "fixed" and np.dtype(self.dtype).kind in "iu"

    @property
    def moment(self) -> bool:
        """Whether its values are datetimes."""
        return self.value is not None and self.value.python is datetime

    @property
    def declared(self) -> str:
        """The field as people wrote it, where `str` says only how it is stored."""
        if self.hint is None:
            return str(self)
        return f"{self.name}: {annotation(self.hint)}"

    def __str__(self) -> str:
        shape = self.dtype if self.kind == "fixed" else self.kind
        if self.kind == "array":
            shape = f"{self.dtype}[{self.size}]"
        if self.kind == "object":
            shape = _inside(unwrap(self.hint)[0])
        if self.value is not None:
            shape = self.value.name
        shown = "str" if shape == "text" else SHOWN.get(shape, shape)
        return f"{self.name}: {shown}{' | None' if self.optional else ''}"


def annotation(hint: Any) -> str:
    """An annotation as people wrote it."""
    shown = _WIDTH.sub(
        lambda found: f"rs.{SHOWN[found[1]].capitalize()}", inspect.formatannotation(hint)
    )
    return _DIGITS.sub(r"rs.decimal(\1, \2)", shown)


_WIDTH = re.compile(r"typing\.Annotated\[\w+, Width\(dtype='(\w+)', timer=\w+\)\]")
_DIGITS = re.compile(r"Digits\(precision=(\d+), scale=(\d+)\)")


@cache
def _inside(hint: Any, within: tuple[Any, ...] = ()) -> str:
    """What values of a type are made of, down to what is stored: two types of which one reads what
    the other wrote are the same, whatever their names.

    Args:
        within: the records that it is a part of.
    """
    base, marks, optional = unwrap(hint)
    parts = typing.get_args(base)
    origin = typing.get_origin(base)
    widths = [SHOWN[m.dtype] for m in marks if isinstance(m, Width)]
    value = kind_of(base, marks)
    if widths:
        said = widths[0]
    elif value is not None:
        said = value.name
    elif origin in (typing.Union, types.UnionType):
        said = " | ".join(_inside(part, within) for part in parts)
    elif origin is Literal:
        said = " | ".join(sorted({type(part).__name__ for part in parts}))
    elif parts:
        inner = ("..." if part is ... else _inside(part, within) for part in parts)
        said = f"{getattr(origin, '__name__', origin)}[{', '.join(inner)}]"
    elif is_record(base) and base not in within:
        hints = typing.get_type_hints(base, include_extras=True)
        fields = (
            f"{name}: {_inside(hints[name], (*within, base))}" if name in hints else name
            for name in record_names(base)
        )
        said = f"({', '.join(fields)})"
    elif base in PLAIN:
        said = SHOWN[PLAIN[base]]
    else:
        said = str(getattr(base, "__name__", base))
    return f"{said} | None" if optional else said


def is_record(cls: Any) -> bool:
    """Whether a class is a `NamedTuple` or a frozen dataclass."""
    if not isinstance(cls, type):
        return False
    if issubclass(cls, tuple):
        return hasattr(cls, "_fields")
    told = getattr(cls, "__dataclass_params__", None)
    return told is not None and told.frozen


def record_names(cls: Any) -> tuple[str, ...]:
    """The names of the fields of a record class, in order."""
    if issubclass(cls, tuple):
        names: tuple[str, ...] = cls._fields
        return names
    return tuple(f.name for f in dataclasses.fields(cls))


def field_of(owner: str, name: str, hint: Any, *, state: bool) -> Field:
    """The field that an annotation stands for; `owner` names the class in errors.

    Raises:
        GraphError: the annotation has no stored form.
    """
    base, marks, optional = unwrap(hint)
    for mark in marks:
        if isinstance(mark, Array):
            return _array(owner, name, mark, state)
        if isinstance(mark, Width):
            return Field(
                name=name, kind="fixed", dtype=mark.dtype, optional=optional, timer=mark.timer
            )
    value = _kind(owner, name, base, marks)
    if value is not None:
        return Field(
            name=name,
            kind=value.stored,
            dtype=value.dtype,
            optional=optional,
            hint=hint,
            value=value,
        )
    if base in PLAIN:
        return Field(name=name, kind="fixed", dtype=PLAIN[base], optional=optional)
    if base is str or base is bytes:
        return Field(name=name, kind="text" if base is str else "bytes", optional=optional)
    if typing.get_origin(base) in (typing.Union, types.UnionType, Literal):
        refuse_inside(owner, name, base, state)
    else:
        _refuse(owner, name, base, state)
    return Field(name=name, kind="object", optional=optional, hint=hint)


def _array(owner: str, name: str, mark: Array, state: bool) -> Field:
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
    return Field(name=name, kind="array", dtype=mark.dtype, size=mark.size)


def _kind(owner: str, name: str, base: Any, marks: tuple[Any, ...]) -> ValueKind | None:
    try:
        return kind_of(base, marks)
    except GraphError as error:
        raise GraphError(f"{owner}.{name}: {error.message}", hint=error.hint) from None


_ADVICE = {
    "DataFrame": "Send its rows as records, or its columns in rs.Batch.",
    "Series": "Declare a list of its values.",
    "ndarray": "Declare a list of its values; in state rs.Array(dtype, size).",
    "Timestamp": "Declare datetime: pandas' are taken, of whole microseconds.",
    "Timedelta": "Declare timedelta: pandas' are taken, of whole microseconds.",
    "datetime64": "Declare datetime, or date: NumPy's are taken, in UTC.",
    "timedelta64": "Declare timedelta: NumPy's are taken.",
    "time": "Declare timedelta since midnight, or text: value.isoformat().",
    "Fraction": "Declare two ints, or a Decimal.",
    "complex": "Declare two floats.",
    "Path": "Declare str: str(path).",
    "PosixPath": "Declare str: str(path).",
    "bytearray": "Declare bytes, which are not changed but replaced.",
}
"""What to declare in the place of types that people have and that have no stored form."""


def _refuse(owner: str, name: str, base: Any, state: bool) -> None:
    """Refuse a type of which a field of `object` cannot hold values."""
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
            if hint is not ...:
                refuse_inside(owner, name, hint, state)
        return
    if is_record(origin):
        return
    shown = getattr(base, "__name__", str(base))
    advice = _ADVICE.get(shown, "")
    if getattr(base, "__dataclass_params__", None) is not None:
        advice = "A record inside a record is a frozen dataclass: @dataclass(frozen=True)."
    elif hasattr(base, "model_fields"):
        advice = "Declare a NamedTuple or a frozen dataclass with the fields of the model."
    raise GraphError(
        f"{owner}.{name}: {shown} has no stored form",
        hint=advice
        or "Fields are int, float, bool, str, bytes, rs.Int8 to rs.Int64, rs.Float32, datetime,"
        " date, timedelta, Decimal, UUID, Enum, Literal, list, dict, tuple, a NamedTuple or a"
        " frozen dataclass of these.",
    )


def refuse_inside(owner: str, name: str, hint: Any, state: bool) -> None:
    """Refuse classes that would come back as another, or not at all. What is no class says too
    little to be refused; so does Any, which records may hold."""
    base, marks, _ = unwrap(hint)
    if _kind(owner, name, base, marks) is not None:
        return
    if typing.get_origin(base) in (typing.Union, types.UnionType):
        for each in typing.get_args(base):
            refuse_inside(owner, name, each, state)
        if lost := _ambiguous(typing.get_args(base)):
            raise GraphError(
                f"{owner}.{name}: what is stored of {annotation(base)} does not say which of them"
                f" it was, and {annotation(lost)} would come back as something else",
                hint="Use a field for each of them, that may be None; or one class with a field"
                " that says what it is.",
            )
        return
    if typing.get_origin(base) is Literal:
        return
    kind = typing.get_origin(base) or base
    plain = (*PLAIN, str, bytes, *(() if state else (object, typing.Any)))
    if isinstance(kind, type) and kind not in plain:
        _refuse(owner, name, base, state)


def _ambiguous(parts: tuple[Any, ...]) -> Any:
    """Of the types of a union one that comes back in its type only because its annotation says so,
    beside another one that is stored alike; None if there is none."""
    forms = [forms_of(part) for part in parts]
    for i, part in enumerate(parts):
        others = frozenset().union(*(f for j, f in enumerate(forms) if j != i))
        if shaped(part) and (forms[i] & others or "any" in forms[i] | others):
            return part
    return None


def forms_of(hint: Any) -> frozenset[str]:
    """In which forms msgpack holds the values of a type: names of types, `list` of all sequences,
    `dict`, or `any`."""
    base, marks, optional = unwrap(hint)
    none = frozenset({"NoneType"} if optional else ())
    value = kind_of(base, marks)
    origin = typing.get_origin(base) or base
    if origin in (typing.Union, types.UnionType):
        return none.union(*map(forms_of, typing.get_args(base)))
    if origin is Literal:
        return none | {type(v).__name__ for v in typing.get_args(base)}
    if value is not None:
        plain = {"text": "str", "bytes": "bytes"}.get(value.stored, "int")
        return none | {value.python.__name__ if value.described else plain}
    if isinstance(origin, type) and (issubclass(origin, tuple | list) or is_record(origin)):
        return none | {"list"}
    if base is float:
        return none | {"float", "int"}
    known = (int, bool, str, bytes, dict, types.NoneType)
    return none | {origin.__name__ if origin in known else "any"}


def shaped(hint: Any) -> bool:
    """Whether a value comes back in its type only because its annotation says so."""
    base, marks, _ = unwrap(hint)
    if (value := kind_of(base, marks)) is not None:
        return not value.described
    if typing.get_origin(base) is Literal:
        return False
    kind = typing.get_origin(base) or base
    if is_record(kind) or (isinstance(kind, type) and issubclass(kind, tuple)):
        return True
    return any(shaped(a) for a in typing.get_args(base) if a is not ...)


def unwrap(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Take `Annotated`, `NewType`, `type X = ...` and `| None` apart: (the bare type, its marks,
    whether it may be None)."""
    optional = False
    marks: tuple[Any, ...] = ()
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            marks += tuple(hint.__metadata__)
            hint = hint.__origin__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # from Python 3.12 on
            hint = hint.__value__
        elif origin in (typing.Union, types.UnionType):
            rest = [a for a in typing.get_args(hint) if a is not type(None)]
            if len(rest) == len(typing.get_args(hint)):
                return hint, marks, optional
            optional, hint = True, typing.Union[tuple(rest)]  # noqa: UP007 - of one it is that one
        elif origin is Literal and None in typing.get_args(hint):
            rest = [a for a in typing.get_args(hint) if a is not None]
            if not rest:
                return type(None), marks, True
            optional, hint = True, Literal[tuple(rest)]
        else:
            return hint, marks, optional
