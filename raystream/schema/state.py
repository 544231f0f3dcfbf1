"""State rows: `class Tally(rs.State): n: int = 0`.

A row is what an operator keeps for one key. Every field has a default, the value for a key that is
seen for the first time. Rows whose fields are all fixed numbers or arrays of numbers can live in
structured NumPy storage; others are Python objects that are stored as msgpack.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self, dataclass_transform, get_origin

import numpy as np

from raystream.errors import GraphError, StateError
from raystream.schema.fields import Field, annotation, field_of
from raystream.schema.records import caller, located_at, look_inside, resolve_hints, where_is
from raystream.schema.types import NEVER, Factory, field
from raystream.schema.value_kind import Misfit
from raystream.schema.values import check_of, exact_text, settled

_MUTABLE = (list, dict, set, bytearray)
_INSTEAD: dict[type, str] = {
    set: "A set has no stable order: declare dict[K, None], and rs.field(factory=dict).",
    bytearray: "Declare bytes, which are not changed but replaced.",
}
"""What to write where no factory of the same would do: it has no stored form."""
_TEXTS = {"text": "str", "bytes": "bytes"}
"""The types of fields that hold text or bytes."""
FORGOTTEN = -1


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StateMeta(type):
    """Makes slots of annotations and keeps their defaults apart."""

    def __new__(mcs, name: str, bases: tuple[type, ...], ns: dict[str, Any]) -> StateMeta:
        if not bases:
            return super().__new__(mcs, name, bases, {**ns, "__slots__": ("_mark",)})
        if not ns.keys() - {"__module__"}:
            # No class statement: cloudpickle, which brings classes of `__main__` elsewhere, makes
            # an empty one and then sets all that it had. Its rows have a dict instead of slots.
            return super().__new__(mcs, name, bases, ns)
        names = tuple(_annotations(ns))
        _refuse_bare(name, ns)
        defaults: dict[str, Any] = {}
        for n in names:
            if n not in ns:
                raise GraphError(
                    f"{name}.{n} needs a default: it is the value of a key seen for the first time",
                    where=caller(2)[0],
                )
            value = ns.pop(n)
            if type(value) in _MUTABLE:
                raise GraphError(
                    f"{name}.{n}: a mutable default would be shared by all rows",
                    where=caller(2)[0],
                    hint=_INSTEAD.get(
                        type(value), f"Write rs.field(factory={type(value).__name__})."
                    ),
                )
            defaults[n] = value
        for base in bases:
            if getattr(base, "_names", ()):
                raise GraphError(
                    f"{name}: state rows do not inherit from other state rows", where=caller(2)[0]
                )
        return super().__new__(
            mcs, name, bases, {**ns, "__slots__": names, "_names": names, "_defaults": defaults}
        )


def _refuse_bare(name: str, ns: dict[str, Any]) -> None:
    """Refuse a field without an annotation: it would be the same for all rows, and never stored.
    Constants are written in capitals, or as class variables."""
    for n, value in ns.items():
        plain = value is None or isinstance(value, int | float | str | bytes | list | dict)
        if plain and n not in _annotated(ns) and not n.startswith("_") and not n.isupper():
            raise GraphError(
                f"{name}.{n} has no annotation, so it is no field",
                where=caller(3)[0],
                hint=f"Write {n}: {type(value).__name__} = ...; a constant is {n.upper()}, or"
                f" {n}: ClassVar[...].",
            )


def _annotations(ns: dict[str, Any]) -> dict[str, Any]:
    """What is annotated in the body of a class, but for class variables."""
    return {
        n: a
        for n, a in _annotated(ns).items()
        if ClassVar not in (a, get_origin(a))
        and not (isinstance(a, str) and a.startswith(("ClassVar", "typing.ClassVar")))
    }


def _annotated(ns: dict[str, Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):  # the body of a class has a function that makes them
        import annotationlib

        make = annotationlib.get_annotate_from_class_namespace(ns)
        if make is not None:
            return annotationlib.call_annotate_function(make, annotationlib.Format.STRING)
    found: dict[str, Any] = ns.get("__annotations__", {})
    return found


class State(metaclass=StateMeta):
    """Base of state rows. Fields are keyword arguments; misspelt ones are refused.

    Example:
        >>> class Tally(State):
        ...     n: int = 0
        >>> Tally(n=3)
        Tally(n=3)
    """

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **fields: Any) -> None:
        for n in self._names:
            default = self._defaults[n]
            value = (
                fields.pop(n)
                if n in fields
                else (default.make() if isinstance(default, Factory) else default)
            )
            setattr(self, n, value)
        self._mark: int = 0
        if fields:
            raise TypeError(f"{type(self).__name__} has no field {sorted(fields)[0]!r}")

    @classmethod
    def upgrade(cls, old: Mapping[str, Any], /) -> Self:
        """A row made of one that an older version of this class left in a checkpoint.

        Declare it in a class that has changed, to go on from checkpoints of what it was:

            @classmethod
            def upgrade(cls, old: Mapping[str, Any]) -> Self:
                return cls(cents=100 * old["euros"])

        old: the stored fields; tuples come as lists, and an IntEnum as its number. It is called for
        every row of such a checkpoint, in no particular order, and must depend on nothing else.
        """
        raise NotImplementedError(f"{cls.__name__} declares no upgrade")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, n) == getattr(other, n) for n in self._names
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)!r}" for n in self._names)
        return f"{type(self).__name__}({shown})"


def forget(state: State, /) -> None:
    """Remove this key's row when the call ends: a later record starts from the defaults."""
    if not isinstance(state, State):
        raise StateError(
            f"forget({state!r:.80}): it is no row of state",
            where=caller()[0],
            hint="Give the row that `process`, `close` or `timer` was given.",
        )
    state._mark = FORGOTTEN


class StateSchema:
    """The fields of a state class and how a row is stored."""

    def __init__(self, cls: type[State], fields: tuple[Field, ...]) -> None:
        self.cls = cls
        self.fields = fields
        timers = [f.name for f in fields if f.timer]
        if len(timers) > 1:
            raise GraphError(
                f"{cls.__name__} has {len(timers)} rs.Timer fields; a row has one alarm",
                where=where_is(cls),
            )
        self.timer: str | None = timers[0] if timers else None
        self.upgrade = _upgrade_of(cls)

    @property
    def name(self) -> str:
        return self.cls.__name__

    def field(self, name: str) -> Field:
        """The field of this name, which is one of its own."""
        return next(f for f in self.fields if f.name == name)

    @property
    def structured(self) -> bool:
        """Whether rows fit structured NumPy storage."""
        return all(f.number or f.kind == "array" for f in self.fields)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The structured dtype of a row's fields (aligned), if `structured`."""
        return np.dtype(
            [
                (f.name, f.dtype, (f.size,)) if f.kind == "array" else (f.name, f.dtype)
                for f in self.fields
            ],
            align=True,
        )

    @cached_property
    def defaults(self) -> np.void:
        """A structured row of the defaults, if `structured`."""
        row = np.zeros((), self.dtype)
        fresh = self.cls()
        for f in self.fields:
            row[f.name] = getattr(fresh, f.name)
        found: Any = row[()]
        assert isinstance(found, np.void)
        return found

    @cached_property
    def fresh(self) -> Callable[[], State]:
        """Makes a row of defaults; generated, because `State.__init__` is slow for many keys."""
        env: dict[str, Any] = {"new": self.cls.__new__, "cls": self.cls, "__name__": __name__}
        lines = ["def fresh():", "    row = new(cls)", "    row._mark = 0"]
        for i, f in enumerate(self.fields):
            default = _as_declared(f, self.cls._defaults[f.name])
            env[f"d{i}"] = default.make if isinstance(default, Factory) else default
            lines.append(f"    row.{f.name} = d{i}{'()' if isinstance(default, Factory) else ''}")
        exec("\n".join([*lines, "    return row"]), env)
        made: Callable[[], State] = env["fresh"]
        return made

    @cached_property
    def settle(self) -> Callable[[State], None] | None:
        """Gives the fields of a row, after a call, the values that they have after a restore; None
        where all have them. An int in the place of a float would be printed and divided otherwise,
        and not be rounded; a bool in the place of an int, or a member of an enumeration in that of
        text, is printed otherwise; NumPy's numbers divide by zero. Lists and dicts are looked at
        once an epoch (`tidy`).

        It raises StateError: a time, a decimal or another value of a kind has no stored form.
        """
        lines = ["def settle(row):"]
        env: dict[str, Any] = {"number": _number, "text": exact_text, "array": _numbers}
        for i, f in enumerate(self.fields):
            one = f"row.{f.name}"
            if f.value is not None:
                env |= {f"kind{i}": f.value.python, f"exact{i}": f.value.exact}
                env[f"settle{i}"], settled = _settler(self.name, f), f"settle{i}({one})"
                given = f"not exact{i}({one})"
                if f.value.by_class:
                    given = f"type({one}) is not kind{i}"
            elif f.kind in _TEXTS:
                given, settled = f"type({one}) is not {_TEXTS[f.kind]}", f"text({one})"
            elif f.kind in ("fixed", "array"):
                kind = _NUMBERS[np.dtype(f.dtype).kind]
                given, settled = f"type({one}) is not {kind}", f"number({kind}, {one})"
                if f.kind == "array":
                    given = f"type({one}) is not list or not {kind}s.issuperset(map(type, {one}))"
                    settled = f"array({kind}, {one})"
            else:
                continue
            given += f" and {one} is not None" * f.optional
            lines += [f"    if {given}:", f"        {one} = {settled}"]
        if len(lines) == 1:
            return None
        env |= {f"{k.__name__}s": frozenset({k}) for k in (int, float, bool)}
        env["__name__"] = __name__
        exec("\n".join(lines), env)
        made: Callable[[State], None] = env["settle"]
        return made

    @cached_property
    def tidy(self) -> Callable[[State], None] | None:
        """Gives what the lists and dicts of a row hold the values that it has after a restore; None
        without such a field. Called for each row of an epoch, not for each record, because it looks
        at all that the row holds. Anything else of another type is left for the checkpoint to
        refuse: a tuple that became a list, or a Counter a dict, would be news to the operator."""
        fields = [(f.name, f.hint, check_of(f.hint)) for f in self.fields if f.kind == "object"]

        def tidy(row: State) -> None:
            for name, hint, exact in fields:
                value = getattr(row, name)
                if not exact((value,)):
                    setattr(row, name, settled(value, hint))

        return tidy if fields else None

    @cached_property
    def fingerprint(self) -> str:
        return f"{self.name}({', '.join(map(str, self.fields))})"

    def __repr__(self) -> str:
        return self.fingerprint

    def __reduce__(self) -> tuple[object, ...]:
        return (state_schema, (self.cls,))


def _as_declared(f: Field, default: Any) -> Any:
    """A default in its declared type: `total: float = 0` would be another after a restore."""
    if isinstance(default, Factory):
        if f.kind == "array":
            kind = _KINDS[np.dtype(f.dtype).kind]
            return Factory(lambda: [_number(kind, v) for v in default.make()])
        return default
    if default is None:
        return None
    if f.value is not None:
        return f.value.settle(default) if f.value.fits(default) else default
    if f.kind in _TEXTS:
        return exact_text(default)
    if f.kind == "fixed":
        return _number(_KINDS[np.dtype(f.dtype).kind], default)
    return default


_KINDS = {"f": float, "i": int, "b": bool}
_NUMBERS = {code: kind.__name__ for code, kind in _KINDS.items()}


def _number(kind: type, value: Any) -> Any:
    """An int, a bool, a member of an enumeration or a number of NumPy's as a number of this kind;
    anything else, as a float in the place of an int, as it is."""
    if isinstance(value, np.generic):
        value = value.item()
    if kind is bool:
        return value
    return kind(value) if isinstance(value, int) else value


def _numbers(kind: type, values: Any) -> list[Any]:
    """The numbers of an array field, as a list: the same one where it is one."""
    settled = [_number(kind, v) for v in values]
    if type(values) is not list:
        return settled
    values[:] = settled
    return values


def _settler(owner: str, f: Field) -> Callable[[Any], Any]:
    assert f.value is not None
    settle = f.value.settle

    def settled(value: Any) -> Any:
        try:
            return settle(value)
        except Misfit as error:
            raise StateError(f"{owner}.{f.name}: {error}", hint=error.hint) from None

    return settled


def _upgrade_of(cls: type[State]) -> Callable[[Mapping[str, Any]], State] | None:
    """What makes a row of an older one, if the class declares it."""
    declared = inspect.getattr_static(cls, "upgrade")
    if declared is inspect.getattr_static(State, "upgrade") or "upgrade" in cls._names:
        return None
    if not isinstance(declared, classmethod):
        raise GraphError(
            f"{cls.__name__}.upgrade is called before there is a row",
            where=where_is(cls),
            hint="Make it a class method: @classmethod def upgrade(cls, old) -> Self.",
        )
    return cls.upgrade


_SCHEMAS: dict[type, StateSchema] = {}


def state_schema(cls: type[State], scope: Mapping[str, Any] | None = None) -> StateSchema:
    """The schema of a state class.

    Raises:
        GraphError: a field has no stored form, or its default does not fit it.
    """
    known = _SCHEMAS.get(cls)
    if known is None:
        hints = resolve_hints(cls, scope)
        with located_at(cls):
            fields = tuple(field_of(cls.__name__, n, hints[n], state=True) for n in cls._names)
            for n in cls._names:
                look_inside(hints[n], scope, state=True)
            known = StateSchema(cls, fields)
            _check_defaults(known, hints)
        _SCHEMAS[cls] = known
    return known


def _instead_of(f: Field, value: Any) -> str:
    """What to write in place of a default that does not fit."""
    for plain in (dict, list):
        if isinstance(value, plain) and type(value) is not plain:
            return (
                f"It would come back as a {plain.__name__}: write factory={plain.__name__}, and"
                f" {'d.get(key, 0) or d.setdefault' if plain is dict else 'a plain list'} where it"
                " is used."
            )
    if f.kind in ("object", "array"):
        return "What each row is to have for itself is made by rs.field(factory=list)."
    return ""


def _check_defaults(schema: StateSchema, hints: Mapping[str, Any]) -> None:
    """Refuse defaults that no row could be stored with."""
    refused = f"{schema.name}: a default does not fit its field: "
    try:
        fresh = schema.cls()
    except Exception as error:
        raise GraphError(
            f"{refused}a factory raised {type(error).__name__}: {error}",
            hint="It is called without arguments, for each row: rs.field(factory=list).",
        ) from error
    for f in schema.fields:
        value = _as_declared(f, getattr(fresh, f.name))
        if not check_of(hints[f.name])([value]):
            declared = annotation(hints[f.name])
            raise GraphError(
                f"{refused}{f.name} is {value!r:.80}, not {declared}",
                hint=_instead_of(f, value),
            )
    if schema.structured:
        try:
            schema.defaults  # noqa: B018 - evaluated to check that the defaults fit
        except (OverflowError, ValueError, TypeError) as error:
            raise GraphError(f"{refused}{error}") from None


__all__ = ["FORGOTTEN", "NEVER", "State", "StateMeta", "StateSchema", "forget", "state_schema"]
