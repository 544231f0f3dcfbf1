"""Record schemas: a user's `NamedTuple` class read as columns."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from raystream.errors import GraphError, Where
from raystream.schema.fields import Field, field_of, refuse_inside

_SCHEMAS: dict[type, RecordSchema] = {}
_HINTS: dict[type, dict[str, Any]] = {}


class RecordSchema:
    """The fields of a record type, in order. One object per class: compare with `is`."""

    def __init__(self, cls: type, fields: tuple[Field, ...]) -> None:
        self.cls = cls
        self.fields = fields

    @property
    def name(self) -> str:
        return self.cls.__name__

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    def has_integer(self, name: str) -> bool:
        """Whether a field is there, an integer and never None: event time is one."""
        return any(f.name == name and f.number and f.integer for f in self.fields)

    @cached_property
    def fingerprint(self) -> str:
        """Names and stored types: equal for two classes whose columns are alike."""
        return f"{self.name}({', '.join(map(str, self.fields))})"

    def __repr__(self) -> str:
        return self.fingerprint

    def __reduce__(self) -> tuple[object, ...]:
        return (record_schema, (self.cls,))


def is_record(cls: Any) -> bool:
    """Whether a class is a `NamedTuple`."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def apart(one: type, two: type) -> tuple[str, str]:
    """The names of two classes; with their modules where they are called the same."""
    if one.__name__ != two.__name__ or one is two:
        return one.__name__, two.__name__
    told = tuple(f"{c.__module__}.{c.__qualname__}" for c in (one, two))
    return (told[0], told[1]) if told[0] != told[1] else (f"{told[0]} (another class)", told[1])


def record_schema(cls: type, scope: Mapping[str, Any] | None = None) -> RecordSchema:
    """The schema of a record class; `scope` holds names of the place where it was defined.

    Raises:
        GraphError: the class is not a `NamedTuple` or a field has no stored form.
    """
    known = _SCHEMAS.get(cls)
    if known is None:
        if not is_record(cls):
            raise GraphError(
                f"{cls!r} is not a record: records are typing.NamedTuple classes",
                where=where_is(cls),
            )
        hints = record_hints(cls, scope)
        with located_at(cls):
            fields = tuple(field_of(cls.__name__, n, h, state=False) for n, h in hints.items())
        for hint in hints.values():
            look_inside(hint, scope, state=False, within=(cls,))
        if not fields:
            raise GraphError(f"{cls.__name__} has no fields", where=where_is(cls))
        known = _SCHEMAS[cls] = RecordSchema(cls, fields)
    return known


def record_hints(cls: type, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The annotation of each field of a record class, as it was first found: `scope` is known where
    a flow is built, and not where a value is stored.

    Raises:
        GraphError: an annotation is missing or names something unknown.
    """
    known = _HINTS.get(cls)
    if known is None:
        hints = resolve_hints(cls, scope)
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        if lacking := [n for n in names if n not in hints]:
            raise GraphError(
                f"{cls.__name__}.{lacking[0]} has no annotation: annotations are the schema",
                where=where_is(cls),
                hint=f"Write class {cls.__name__}(typing.NamedTuple), with a type for each field.",
            )
        known = _HINTS[cls] = {n: hints[n] for n in names}
    return known


def look_inside(
    hint: Any, scope: Mapping[str, Any] | None, *, state: bool, within: tuple[type, ...] = ()
) -> None:
    """Read the annotations of the records that a field holds, however deep.

    Raises:
        GraphError: one has no stored form, or a record holds itself.
    """
    cls = typing.get_origin(hint) or hint
    if is_record(cls):
        if cls in within:
            raise GraphError(
                f"{cls.__name__} holds records of its own type, which have no columns",
                where=where_is(cls),
                hint="Let records name each other by a number or a text.",
            )
        within = (*within, cls)
        for name, inner in record_hints(cls, scope).items():
            with located_at(cls):
                refuse_inside(cls.__name__, name, inner, state)
            look_inside(inner, scope, state=state, within=within)
    for arg in typing.get_args(hint):
        look_inside(arg, scope, state=state, within=within)


def resolve_hints(obj: Any, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`typing.get_type_hints` that also knows names local to the caller's function.

    Raises:
        GraphError: an annotation is missing or names something unknown.
    """
    try:
        return typing.get_type_hints(obj, localns=dict(scope or {}), include_extras=True)
    except NameError as error:
        raise GraphError(
            f"{getattr(obj, '__qualname__', obj)}: the annotation {error.name!r} is not"
            " known where it is used",
            where=where_is(obj),
            hint="Define or import the type before the operator.",
        ) from None
    except TypeError as error:
        raise GraphError(
            f"{getattr(obj, '__qualname__', obj)}: {error}", where=where_is(obj)
        ) from None


def where_is(obj: Any) -> Where | None:
    """The file and line where a class or function was defined, if they can be found."""
    try:
        file = inspect.getsourcefile(obj)
        line = (
            obj.__code__.co_firstlineno
            if inspect.isfunction(obj)
            else inspect.getsourcelines(obj)[1]
        )
    except (TypeError, OSError):
        return None
    return Where(file or "?", line)


@contextmanager
def located_at(obj: Any) -> Iterator[None]:
    """Give a `GraphError` that names no place that of a class. To find it takes a while."""
    try:
        yield
    except GraphError as error:
        error.where = error.where or where_is(obj)
        raise


@contextmanager
def located(where: Where | None) -> Iterator[None]:
    """Give a `GraphError` that names no place this one."""
    try:
        yield
    except GraphError as error:
        error.where = error.where or where
        raise


def caller(depth: int = 1) -> tuple[Where, dict[str, Any]]:
    """Where the nearest frame outside raystream is, and the names that it can see there."""
    frame: Any = sys._getframe(depth)
    package = __name__.partition(".")[0] + "."
    while frame.f_back is not None and (frame.f_globals.get("__name__", "") + ".").startswith(
        package
    ):
        frame = frame.f_back
    import linecache

    file, line = frame.f_code.co_filename, frame.f_lineno
    return Where(file, line, linecache.getline(file, line).strip()), dict(frame.f_locals)
