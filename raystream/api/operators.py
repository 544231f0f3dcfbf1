"""The `@rs.operator` mark, and what a marked function or class declares.

The decorator returns the object unchanged; its annotations are the schema. `spec_of` reads them
once, when the operator is put into a flow, and refuses what could not run.
"""

from __future__ import annotations

import dis
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from raystream.api.batch import Batch, Rows
from raystream.api.windows import Session, WindowKind
from raystream.errors import GraphError, OperatorError, Where
from raystream.schema.fields import Field
from raystream.schema.records import (
    RecordSchema,
    caller,
    is_record,
    record_schema,
    resolve_hints,
    where_is,
)
from raystream.schema.state import State, StateSchema, state_schema
from raystream.schema.types import FAR

F = TypeVar("F", bound=Callable[..., Any])
Form = Literal["record", "batch"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What the decorator was told."""

    key: tuple[str, ...]
    order_by: str | None
    window: WindowKind | None
    time: str
    compiled: bool
    where: Where
    scope: Mapping[str, Any]


@overload
def operator(target: F, /) -> F: ...
@overload
def operator(
    *,
    key: str | tuple[str, ...] | None = None,
    order_by: str | None = None,
    window: WindowKind | None = None,
    time: str = "time",
    compiled: bool = False,
) -> Callable[[F], F]: ...
def operator(
    target: Any = None,
    /,
    *,
    key: str | tuple[str, ...] | None = None,
    order_by: str | None = None,
    window: WindowKind | None = None,
    time: str = "time",
    compiled: bool = False,
) -> Any:
    """Mark a function or class as an operator; it is returned unchanged.

    Args:
        target: what `@rs.operator` without parentheses stands above: as with `()`.
        key: the field or fields by which records and state are partitioned.
        order_by: an integer field by which the records of a key are ordered inside an epoch.
        window: `rs.tumbling`, `rs.sliding` or `rs.session`: state is kept per key and window.
        time: the field that holds event time, for windows.
        compiled: compile with Numba; fields and state must be numbers.
    """
    where, scope = caller(2)
    names = _names(key, where)
    if not isinstance(window, WindowKind | None):
        raise GraphError(
            f"window={window!r} is no window",
            where=where,
            hint="Windows are rs.tumbling(seconds=...), rs.sliding(...) and rs.session(gap=...).",
        )

    def mark(target: F) -> F:
        marked: Any = target
        marked.__raystream__ = Mark(
            names,
            order_by,
            window,
            time,
            compiled,
            where,
            scope,
        )
        return target

    return mark if target is None else mark(target)


def _names(key: Any, where: Where) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else () if key is None else key
    if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
        raise GraphError(
            f"key={key!r}: a key is the name of a field, or a tuple of names",
            where=where,
            hint="What is no field yet is made one by an operator before this one.",
        )
    return tuple(names)


@dataclass(frozen=True, eq=False)
class OperatorSpec:
    """An operator as declared: checked and resolved."""

    name: str
    where: Where | None
    target: Any
    form: Form
    inputs: tuple[RecordSchema, ...]
    outputs: tuple[RecordSchema, ...]
    state: StateSchema | None
    key: tuple[str, ...]
    order_by: str | None
    window: WindowKind | None
    time: str
    compiled: bool
    process: Callable[..., Any]
    close: Callable[..., Any] | None = None
    timer: Callable[..., Any] | None = None
    merge: Callable[..., Any] | None = None
    load: Callable[..., Any] | None = None

    @property
    def keyed(self) -> bool:
        return bool(self.key)

    @property
    def in_structured_rows(self) -> bool:
        """Whether its state is in structured rows, which are no Python objects."""
        return self.state is not None and (self.compiled or self.form == "batch")

    @property
    def is_class(self) -> bool:
        return not inspect.isfunction(self.target)

    def fail(self, message: str, hint: str = "") -> GraphError:
        return GraphError(f"{self.name}: {message}", where=self.where, hint=hint)

    def no_later(self, epoch: int) -> OperatorError:
        """What is raised when a timer is set, as it rings, to no later time: it would ring on and
        on, and the epoch never end."""
        assert self.state is not None
        return OperatorError(
            f"{self.name}.timer set {self.state.name}.{self.state.timer} to the time for which it"
            f" had just rung or an earlier one, at epoch {epoch}: it would never stop ringing",
            where=self.where,
            hint="Set it to more than `time`; rs.NEVER unsets it.",
        )

    def units(self, seconds: float, ticks: int) -> int:
        """The length of a window in time units of the flow, of which a second has `ticks`.

        Raises:
            GraphError: it is not a whole number of them, or so long that ends have no number.
        """
        exact = seconds * ticks
        whole = round(exact)
        if whole < 1 or not math.isclose(exact, whole, rel_tol=1e-12):  # 1.001 * 1000 is below 1001
            raise self.fail(
                f"a window of {seconds:g} s is not a whole number of the flow's time units",
                hint='Choose a finer one: rs.Flow(..., time_unit="ms").',
            )
        if whole >= FAR:
            raise self.fail(
                f"a window of {seconds:g} s has more time units of the flow than 2**62",
                hint='Choose a coarser one: rs.Flow(..., time_unit="s").',
            )
        return whole


def spec_of(op: Any) -> OperatorSpec:
    """Read the declaration of an operator.

    Raises:
        GraphError: the declaration is incomplete or contradicts itself; it names the place.
    """
    mark = getattr(op, "__raystream__", None)
    if isinstance(op, type):
        raise GraphError(
            f"{op.__name__} is a class: pass an instance of it",
            where=where_is(op),
            hint=f"through({op.__name__}())",
        )
    name = getattr(op, "__name__", type(op).__name__)
    if not isinstance(mark, Mark):
        raise GraphError(
            f"{name} is not an operator",
            where=where_is(op),
            hint="Decorate it with @rs.operator(...).",
        )
    function = inspect.isfunction(op)
    process = op if function else getattr(op, "process", None)
    if process is None:
        raise GraphError(
            f"{name} has no method `process`",
            where=mark.where,
            hint="An operator is a function, or an instance of a class with `process`; methods and"
            " functools.partial are none. Parameters are fields of a frozen dataclass.",
        )
    reader = _Reader(name, mark)
    for method in (process, *(getattr(op, m, None) for m in ("close", "timer", "merge", "load"))):
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise reader.fail(
                f"`{method.__name__}` is async: operators are called record by record, in order",
                hint="Write def. What is to be awaited belongs into a source or a sink.",
            )
    signature = reader.signature(process)
    methods = (
        {m: getattr(op, m, None) for m in ("close", "timer", "merge", "load")}
        if not function
        else {}
    )
    outputs = list(signature.outputs)
    for m in ("close", "timer"):
        method = methods.get(m)
        if method is not None:
            reader.closing(method, signature)
            outputs += [o for o in reader.outputs(method) if o not in outputs]
    spec = OperatorSpec(
        name,
        mark.where,
        op,
        signature.form,
        signature.inputs,
        tuple(outputs),
        signature.state,
        mark.key,
        mark.order_by,
        mark.window,
        mark.time,
        mark.compiled,
        process,
        **methods,
    )
    check_spec(spec)
    return spec


@dataclass(frozen=True, slots=True)
class _Signature:
    form: Form
    inputs: tuple[RecordSchema, ...]
    state: StateSchema | None
    outputs: tuple[RecordSchema, ...]


class _Reader:
    """Reads annotations of one operator, with the names of the place where it was marked."""

    def __init__(self, name: str, mark: Mark) -> None:
        self.name = name
        self.mark = mark

    def fail(self, message: str, hint: str = "") -> GraphError:
        return GraphError(f"{self.name}: {message}", where=self.mark.where, hint=hint)

    def signature(self, process: Callable[..., Any]) -> _Signature:
        hints = resolve_hints(process, self.mark.scope)
        params = _parameters(process)
        if not 1 <= len(params) <= 2:
            raise self.fail(
                f"`process` takes a record and, with state, a row: not {len(params)} arguments",
                hint="" if inspect.isfunction(process) or params else "Before them comes `self`.",
            )
        for p in params:
            if p.kind is p.KEYWORD_ONLY:
                raise self.fail(f"the argument {p.name!r} comes after `*`, but is given by place")
            if p.name not in hints:
                raise self.fail(
                    f"the argument {p.name!r} has no annotation: annotations are the schema"
                )
        first = hints[params[0].name]
        form: Form = "batch" if typing.get_origin(first) is Batch else "record"
        inputs = self._records(typing.get_args(first)[0] if form == "batch" else first, "takes")
        state = self._state(hints[params[1].name], form) if len(params) == 2 else None
        return _Signature(form, inputs, state, self.outputs(process))

    def _state(self, hint: Any, form: Form) -> StateSchema | None:
        if typing.get_origin(hint) is Rows:
            hint = typing.get_args(hint)[0]
            if form != "batch":
                raise self.fail("rs.Rows goes with rs.Batch; a record goes with the row itself")
        elif form == "batch":
            return None  # the reference data of `load`
        if not (isinstance(hint, type) and issubclass(hint, State)):
            raise self.fail(
                f"the second argument is a state row, not {hint!r}",
                hint="Declare it: class Tally(rs.State): n: int = 0",
            )
        return state_schema(hint, self.mark.scope)

    def closing(self, method: Callable[..., Any], of: _Signature) -> None:
        """Check what `close(key, window, state)` or `timer(key, time, state)` says it takes."""
        name = method.__name__
        hints = resolve_hints(method, self.mark.scope)
        params = list(inspect.signature(method).parameters)
        if len(params) != 3:
            raise self.fail(f"`{name}` takes a key, a {_SECOND[name]} and a row")
        if missing := [p for p in params if p not in hints]:
            raise self.fail(f"the argument {missing[0]!r} of `{name}` has no annotation")
        state = hints[params[2]]
        if of.state is not None and state is not of.state.cls:
            shown = getattr(state, "__name__", state)
            raise self.fail(f"`{name}` takes a {shown}, but `process` keeps a {of.state.name}")
        keys = [of.inputs[0].field(k) for k in self.mark.key]
        expected = [_python_type(f) for f in keys if f is not None]
        given = _plain(hints[params[0]])
        wanted = expected[0] if len(expected) == 1 else tuple
        if expected and (typing.get_origin(given) or given) is not wanted:
            shown = getattr(given, "__name__", given)
            raise self.fail(f"`{name}` takes the key as {shown}, but it is a {wanted.__name__}")

    def outputs(self, method: Callable[..., Any]) -> tuple[RecordSchema, ...]:
        hint = resolve_hints(method, self.mark.scope).get("return", inspect.Parameter.empty)
        if hint is inspect.Parameter.empty:
            raise self.fail(
                f"{method.__name__} has no return annotation",
                hint="Iterator[...] of the records that it yields, or None.",
            )
        if hint is type(None):
            return ()
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            rest = [a for a in typing.get_args(hint) if a is not type(None)]
            hint = rest[0] if len(rest) == 1 else hint
        args = typing.get_args(hint)
        if is_record(hint):
            raise self.fail(
                f"{method.__name__} returns a {hint.__name__}; operators yield",
                hint=f"-> Iterator[{hint.__name__}], and `yield` it.",
            )
        if not args:
            raise self.fail(f"{method.__name__} returns {hint!r}, not Iterator[...]")
        found = self._records(args[0], "yields")
        if typing.get_origin(hint) is not Batch and never_returns_any(method):
            raise self.fail(
                f"{method.__name__} is to emit {' | '.join(r.name for r in found)}, and has no"
                " `yield`: nothing would ever come of it",
                hint="Yield records; or say that it emits none: -> None.",
            )
        return found

    def _records(self, hint: Any, verb: str) -> tuple[RecordSchema, ...]:
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        classes = typing.get_args(hint) if union else (hint,)
        for cls in classes:
            if not is_record(cls):
                raise self.fail(
                    f"it {verb} {getattr(cls, '__name__', cls)!r}, which is not a record",
                    hint="Records are typing.NamedTuple classes.",
                )
        return tuple(record_schema(c, self.mark.scope) for c in classes)


def _parameters(process: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(process).parameters.values())
    except ValueError:  # a method without `self`
        return []


def never_returns_any(function: Callable[..., Any]) -> bool:
    """Whether a Python function is no generator and returns nothing but None, wherever it
    returns. False where that cannot be seen."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    steps = list(dis.get_instructions(code))
    ends = [
        (before, step)
        for before, step in zip([None, *steps], steps, strict=False)
        if step.opname.startswith("RETURN_") and step.opname != "RETURN_GENERATOR"
    ]
    return bool(ends) and all(_of_none(before, step) for before, step in ends)


def _of_none(before: dis.Instruction | None, step: dis.Instruction) -> bool:
    """Whether a step returns None, that the step before it has loaded."""
    if step.opname == "RETURN_CONST":  # in some versions of Python
        return step.argval is None
    if before is None or step.is_jump_target:
        return False
    return before.opname == "LOAD_CONST" and before.argval is None


_SECOND = {"close": "window", "timer": "time"}


def _plain(hint: Any) -> Any:
    """An annotation without what `Annotated` adds."""
    return hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint


def _python_type(f: Field) -> type:
    """The type of a key field's values."""
    if f.convert is not None:
        return f.convert
    plain = {"text": str, "bytes": bytes}.get(f.kind, int)
    return bool if f.dtype == "?" else plain


def check_spec(spec: OperatorSpec) -> None:
    """Refuse what could not run.

    Raises:
        GraphError: the declaration contradicts itself.
    """
    if spec.state is not None and not spec.key:
        raise spec.fail(
            "it keeps state, but has no key",
            hint='State belongs to a key: @rs.operator(key="...").',
        )
    if spec.load and (spec.form != "batch" or not spec.key):
        raise spec.fail("an operator with `load` is keyed and takes rs.Batch")
    if spec.form == "batch":
        _check_batch(spec)
    _check_key(spec)
    if spec.order_by is not None:
        if not spec.key:
            raise spec.fail("order_by orders the records of a key, but there is no key")
        _each(spec, spec.order_by, "order_by", integers=True)
    if spec.window is not None:
        if spec.close is None or spec.state is None:
            raise spec.fail(
                "a windowed operator has `process(record, state)` and `close(key, window, state)`"
            )
        if spec.timer is not None:
            raise spec.fail("a windowed operator has no timers: a window closes by itself")
        if isinstance(spec.window, Session) and spec.merge is None:
            raise spec.fail("a record may join two sessions: add merge(self, into, other)")
        _each(spec, spec.time, "time", integers=True)
    elif spec.close is not None:
        raise spec.fail("it has `close`, but no window=")
    if (spec.timer is not None) != (spec.state is not None and spec.state.timer is not None):
        raise spec.fail(
            "timers need both a method `timer(key, time, state)` and one rs.Timer field"
            " in the state"
        )
    _check_storage(spec)
    told = getattr(spec.target, "__dataclass_params__", None)
    if spec.is_class and not (told.frozen if told else not getattr(spec.target, "__dict__", ())):
        raise spec.fail(
            "its parameters must be fields of a frozen dataclass",
            hint="@dataclass(frozen=True), below @rs.operator.",
        )


def _check_batch(spec: OperatorSpec) -> None:
    """Its function is called with batches, and nothing else calls it."""
    if spec.compiled:
        raise spec.fail("a batch function is not compiled: leave compiled=True away")
    if len(spec.inputs) != 1:
        raise spec.fail("a batch operator takes records of one type")
    if len(spec.outputs) != 1:
        raise spec.fail(
            "a batch operator returns records of one type",
            hint="-> rs.Batch[...] of one record class.",
        )
    for what, there in (
        ("windows", spec.window or spec.close),
        ("timers", spec.timer or (spec.state is not None and spec.state.timer)),
    ):
        if there:
            raise spec.fail(
                f"a batch operator has no {what}",
                hint="Use the per-record form, compiled where speed matters.",
            )


def _check_storage(spec: OperatorSpec) -> None:
    if spec.compiled:
        for schema in (*spec.inputs, *spec.outputs):
            for f in schema.fields:
                if f.kind != "fixed" or f.convert is not None:
                    raise spec.fail(
                        f"compiled operators hold numbers, but {schema.name}.{f}",
                        hint="Use the batch form, or leave compiled=True away.",
                    )
    if spec.state is not None and spec.in_structured_rows and not spec.state.structured:
        bad = next(f for f in spec.state.fields if not (f.number or f.kind == "array"))
        raise spec.fail(f"its state must hold numbers, but {spec.state.name}.{bad}")


def _check_key(spec: OperatorSpec) -> None:
    for name in spec.key:
        kinds = _each(spec, name, "key", integers=False)
        if len(kinds) > 1:  # rows come back from a checkpoint by the type of one of them
            raise spec.fail(
                f"the key {name!r} is of different types in its inputs: {', '.join(sorted(kinds))}",
                hint="Declare it alike in all of them.",
            )


def _each(spec: OperatorSpec, name: str, role: str, *, integers: bool) -> set[str]:
    """Check that every input has the field; the kinds found (`int`, `bool`, an enumeration,
    `text`, `bytes`)."""
    kinds: set[str] = set()
    for schema in spec.inputs:
        f = schema.field(name)
        if f is None:
            other = ' Say which of them: @rs.operator(..., time="...").' if role == "time" else ""
            raise spec.fail(
                f"{role} {name!r} is not a field of {schema.name}",
                hint=f"{schema.name} has {', '.join(schema.names)}.{other}",
            )
        whole = f.number and f.dtype not in ("f4", "f8")
        if f.optional or not (whole or (not integers and f.kind in ("text", "bytes"))):
            raise spec.fail(
                f"{role} {name!r}: {schema.name}.{f} cannot serve",
                hint="An integer field." if integers else "An int, bool, str or bytes field.",
            )
        kind = "bool" if f.dtype == "?" else "int" if whole else f.kind
        kinds.add(kind if f.convert is None else f"{f.convert.__module__}.{f.convert.__qualname__}")
    return kinds
