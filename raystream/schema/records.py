"""Record schemas: a user's `NamedTuple` or frozen dataclass read as columns."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from operator import attrgetter, itemgetter
from typing import Any

from raystream.errors import GraphError, Where
from raystream.errors import caller as caller
from raystream.schema.fields import Field, field_of, is_record, record_names, refuse_inside

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

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}

    def field(self, name: str) -> Field | None:
        """The field of this name, if there is one."""
        return self._by_name.get(name)

    def has_time(self, name: str) -> bool:
        """Whether a field is there that may be event time: an integer or a datetime, never None."""
        f = self.field(name)
        return f is not None and f.integer and (f.number or (f.moment and not f.optional))

    @cached_property
    def make(self) -> Callable[[Sequence[Any]], Any]:
        """Makes a record of its values in order."""
        return record_maker(self.cls)

    def getter(self, *names: str) -> Callable[[Any], Any]:
        """Gives the value of a field of a record, or of several a tuple."""
        if issubclass(self.cls, tuple):
            return itemgetter(*(self.names.index(n) for n in names))
        return attrgetter(*names)

    @cached_property
    def fingerprint(self) -> str:
        """Names and stored types: equal for two classes whose columns are alike."""
        return f"{self.name}({', '.join(map(str, self.fields))})"

    def __repr__(self) -> str:
        return self.fingerprint

    def __reduce__(self) -> tuple[object, ...]:
        return (record_schema, (self.cls,))


def apart(one: type, two: type) -> tuple[str, str]:
    """The names of two classes; with their modules where they are called the same."""
    if one.__name__ != two.__name__ or one is two:
        return one.__name__, two.__name__
    told = tuple(f"{c.__module__}.{c.__qualname__}" for c in (one, two))
    return (told[0], told[1]) if told[0] != told[1] else (f"{told[0]} (another class)", told[1])


def record_schema(cls: type, scope: Mapping[str, Any] | None = None) -> RecordSchema:
    """The schema of a record class; `scope` holds names of the place where it was defined.

    Raises:
        GraphError: the class is no record or a field has no stored form.
    """
    known = _SCHEMAS.get(cls) if isinstance(cls, type) else None
    if known is None:
        if not is_record(cls):
            thawed = getattr(cls, "__dataclass_params__", None) is not None
            raise GraphError(
                f"{getattr(cls, '__name__', repr(cls))} is not a record: records are"
                " typing.NamedTuple classes or frozen dataclasses",
                where=where_is(cls) or caller()[0],
                hint="Write @dataclass(frozen=True)." if thawed else "",
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
        names = record_names(cls)
        _refuse_partial(cls)
        if lacking := [n for n in names if n not in hints]:
            raise GraphError(
                f"{cls.__name__}.{lacking[0]} has no annotation: annotations are the schema",
                where=where_is(cls),
                hint=f"Write class {cls.__name__}(typing.NamedTuple), with a type for each field.",
            )
        known = _HINTS[cls] = {n: hints[n] for n in names}
    return known


def _refuse_partial(cls: Any) -> None:
    """Refuse dataclasses that cannot be made again of the values of their fields."""
    if issubclass(cls, tuple):
        return
    for f in dataclasses.fields(cls):
        if not f.init:
            raise GraphError(
                f"{cls.__name__}.{f.name} is no argument of the class, so a record could not be"
                " made again",
                where=where_is(cls),
                hint="Leave out field(init=False); make it a property.",
            )


def record_maker(cls: Any) -> Callable[[Sequence[Any]], Any]:
    """Makes a record of a class of its values in order, without its `__init__`: they are those of
    one that was made by it."""
    return _maker(cls)


def values_of(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Gives the values of a record of a class, in order."""
    return _getter(cls)


@cache
def _maker(cls: Any) -> Callable[[Sequence[Any]], Any]:
    if issubclass(cls, tuple):
        return partial(tuple.__new__, cls)  # as `_make`, which is a Python function
    names, new, put = record_names(cls), cls.__new__, object.__setattr__

    def make(values: Sequence[Any]) -> Any:
        record = new(cls)
        for name, value in zip(names, values, strict=True):
            put(record, name, value)
        return record

    return make


@cache
def _getter(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    if issubclass(cls, tuple):
        return tuple
    names = record_names(cls)
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda record: (one(record),)
    return attrgetter(*names)


@cache
def defaults_of(cls: Any) -> dict[str, Any]:
    """The defaults of the fields of a record class, by name: made by calling what is there."""
    if issubclass(cls, tuple):
        return {n: partial(_same, v) for n, v in cls._field_defaults.items()}
    found: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        if f.default is not dataclasses.MISSING:
            found[f.name] = partial(_same, f.default)
        elif f.default_factory is not dataclasses.MISSING:
            found[f.name] = f.default_factory
    return found


def _same(value: Any) -> Any:
    return value


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
