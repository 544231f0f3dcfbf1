"""Reads what a marked function or class declares: its annotations are the schema."""

from __future__ import annotations

import dis
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from raystream.api.batch import Batch, Rows
from raystream.api.operator_checks import check_spec
from raystream.api.operators import Form, Mark, OperatorSpec
from raystream.api.world.controls import control_of
from raystream.api.world.options import Asking, asking_of
from raystream.api.world.signature import emitted, taken
from raystream.errors import GraphError
from raystream.schema.fields import Field, annotation, is_record, unwrap
from raystream.schema.records import (
    RecordSchema,
    record_schema,
    resolve_hints,
    where_is,
)
from raystream.schema.state import State, StateSchema, state_schema


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
    asking = asking_of(process, mark.asking, recorded=mark.recorded)
    reader = _Reader(name, mark, asking)
    reader.refuse_async([getattr(op, m, None) for m in _OTHERS])
    control = control_of(op, process, mark.scope, reader.fail, reader.records)
    signature = reader.signature(process, controlled=control is not None)
    methods: dict[str, Any] = {} if function else {m: getattr(op, m, None) for m in _OTHERS}
    outputs = list(signature.outputs)
    told: dict[str, tuple[str, ...]] = {}
    for m in ("close", "timer"):
        method = methods.get(m)
        if method is not None:
            told[m] = reader.closing(method, signature)
            outputs += [o for o in reader.outputs(method) if o not in outputs]
    spec = OperatorSpec(
        name=name,
        where=mark.where,
        target=op,
        form=signature.form,
        inputs=signature.inputs,
        outputs=tuple(outputs),
        state=signature.state,
        key=mark.key,
        order_by=mark.order_by,
        window=mark.window,
        time=mark.time,
        compiled=mark.compiled,
        end_rings=mark.end_rings,
        process=process,
        on_error="end",
        told=told.get("close", told.get("timer", ())),
        asking=asking,
        control=control,
        **methods,
    )
    check_spec(spec)
    return spec


_OTHERS = ("close", "timer", "merge", "load")
"""The methods that an operator may have beside `process`."""


@dataclass(frozen=True, slots=True)
class _Signature:
    form: Form
    inputs: tuple[RecordSchema, ...]
    state: StateSchema | None
    outputs: tuple[RecordSchema, ...]


class _Reader:
    """Reads annotations of one operator, with the names of the place where it was marked."""

    def __init__(self, name: str, mark: Mark, asking: Asking | None = None) -> None:
        self.name = name
        self.mark = mark
        self.asking = asking
        if mark.asking and asking is None:
            raise self.fail(
                f"{', '.join(f'{option}=' for option in mark.asking)} is of operators that ask the"
                " world",
                hint="Write @rs.operator(recorded=True, ...), or an `async def`.",
            )

    def fail(self, message: str, hint: str = "") -> GraphError:
        return GraphError(f"{self.name}: {message}", where=self.mark.where, hint=hint)

    def refuse_async(self, methods: Iterable[Callable[..., Any] | None]) -> None:
        """Refuse methods that nobody awaits."""
        for method in methods:
            if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
                raise self.fail(
                    f"`{method.__name__}` is async, and nobody awaits it",
                    hint="`process` alone may be: its answers are recorded.",
                )

    def signature(self, process: Callable[..., Any], *, controlled: bool = False) -> _Signature:
        """What `process` takes and emits. controlled: its last argument is not looked at."""
        hints = resolve_hints(process, self.mark.scope)
        params = _parameters(process)
        params = params[:-1] if controlled else params
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
        if self.asking is not None:
            return self._asks(process, first, len(params))
        form: Form = "batch" if typing.get_origin(first) is Batch else "record"
        inputs = self.records(typing.get_args(first)[0] if form == "batch" else first, "takes")
        state = self._state(hints[params[1].name], form) if len(params) == 2 else None
        return _Signature(form, inputs, state, self.outputs(process))

    def _asks(self, process: Callable[..., Any], hint: Any, params: int) -> _Signature:
        """The signature of an operator that asks the world."""
        assert self.asking is not None
        batch = self.asking.batch
        if params > 1 or typing.get_origin(hint) is Batch:
            given = "a list of records" if batch else "a record"
            raise self.fail(
                f"an operator that asks the world takes {given} and keeps no state",
                hint="State belongs into an operator before or after it.",
            )
        records = taken(hint, batch)
        if records is None:
            raise self.fail("with batch= it takes a list of records: `records: list[...]`")
        outputs = emitted(self._returned(process))
        if outputs is None:
            raise self.fail(
                "its return annotation names no records",
                hint="-> Answer, -> Answer | None, or a list or iterator of them; with batch= a"
                " list with an answer for each record.",
            )
        none = outputs is type(None)
        emits = () if none else self.records(outputs, "answers")
        return _Signature("record", self.records(records, "takes"), None, emits)

    def _state(self, hint: Any, form: Form) -> StateSchema | None:
        if typing.get_origin(hint) is Rows:
            hint = typing.get_args(hint)[0]
            if form != "batch":
                raise self.fail("rs.Rows goes with rs.Batch; a record goes with the row itself")
        elif form == "batch":
            return None  # the reference data of `load`
        if not (isinstance(hint, type) and issubclass(hint, State)):
            raise self.fail(
                f"the second argument is a state row, and {annotation(hint)} is no rs.State",
                hint="Declare it: class Tally(rs.State): n: int = 0",
            )
        return state_schema(hint, self.mark.scope)

    def closing(self, method: Callable[..., Any], of: _Signature) -> tuple[str, ...]:
        """Check what `close(key, window, state)` or `timer(key, time, state)` says it takes; what
        else it is told."""
        name = method.__name__
        hints = resolve_hints(method, self.mark.scope)
        params = list(inspect.signature(method).parameters)
        if len(params) < 3 or not set(params[3:]) <= set(TOLD[name]):
            told = f", and may take {' and '.join(TOLD[name])}" if TOLD[name] else ""
            raise self.fail(f"`{name}` takes a key, a {_SECOND[name]} and a row{told}")
        if missing := [p for p in params if p not in hints]:
            raise self.fail(f"the argument {missing[0]!r} of `{name}` has no annotation")
        for flag in params[3:]:
            if hints[flag] is not bool:
                raise self.fail(f"the argument {flag!r} of `{name}` is a bool")
        state = hints[params[2]]
        if of.state is not None and state is not of.state.cls:
            shown = getattr(state, "__name__", state)
            raise self.fail(f"`{name}` takes a {shown}, but `process` keeps a {of.state.name}")
        keys = [of.inputs[0].field(k) for k in self.mark.key]
        expected = [_python_type(f) for f in keys if f is not None]
        given, _, optional = unwrap(hints[params[0]])
        wanted = expected[0] if len(expected) == 1 else tuple
        if typing.get_origin(given) is Literal:
            given = type(typing.get_args(given)[0])
        if expected and (typing.get_origin(given) or given) is not wanted:
            shown = getattr(given, "__name__", given)
            raise self.fail(f"`{name}` takes the key as {shown}, but it is a {wanted.__name__}")
        if len(keys) == 1 and keys[0] is not None and keys[0].optional and not optional:
            raise self.fail(
                f"`{name}` takes the key as {wanted.__name__}, but it may be None",
                hint=f"Declare it: key: {wanted.__name__} | None.",
            )
        return tuple(params[3:])

    def _returned(self, method: Callable[..., Any]) -> Any:
        hint = resolve_hints(method, self.mark.scope).get("return", inspect.Parameter.empty)
        if hint is inspect.Parameter.empty:
            raise self.fail(
                f"{method.__name__} has no return annotation",
                hint="Iterator[...] of the records that it yields, or None.",
            )
        return hint

    def outputs(self, method: Callable[..., Any]) -> tuple[RecordSchema, ...]:
        hint = self._returned(method)
        if yields_and_returns(method):
            raise self.fail(
                f"`{method.__name__}` has a `yield` and returns a value, which would be lost: a"
                " function with a `yield` emits what it yields",
                hint="Write `yield from [...]` and a bare `return`; or return a list everywhere.",
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
        found = self.records(args[0], "yields")
        if typing.get_origin(hint) is not Batch and never_returns_any(method):
            raise self.fail(
                f"{method.__name__} is to emit {' | '.join(r.name for r in found)}, and has no"
                " `yield`: nothing would ever come of it",
                hint="Yield records; or say that it emits none: -> None.",
            )
        return found

    def records(self, hint: Any, verb: str) -> tuple[RecordSchema, ...]:
        """The types of records that an annotation names."""
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        classes = typing.get_args(hint) if union else (hint,)
        for cls in classes:
            if not is_record(cls):
                raise self.fail(
                    f"it {verb} {getattr(cls, '__name__', cls)!r}, which is not a record",
                    hint="Records are typing.NamedTuple classes, or frozen dataclasses.",
                )
        return tuple(record_schema(c, self.mark.scope) for c in classes)


def _parameters(process: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(process).parameters.values())
    except ValueError:  # a method without `self`
        return []


TOLD: dict[str, tuple[str, ...]] = {
    "close": ("early", "correction", "last"),
    "timer": ("last",),
}
"""What a method may be told beside a key, a window or time, and a row: a bool each, by name."""
_SECOND = {"close": "window", "timer": "time"}


def _python_type(f: Field) -> type:
    """The type of a key field's values."""
    if f.value is not None:
        kinds: dict[str, type] = {"bool": bool, "int64": int, "str": str, "bytes": bytes}
        return f.value.python if isinstance(f.value.python, type) else kinds[f.value.name]
    plain = {"text": str, "bytes": bytes}.get(f.kind, int)
    return bool if f.dtype == "?" else plain


# ---------------------------------------------------------------- what a function returns


def never_returns_any(function: Callable[..., Any]) -> bool:
    """Whether a Python function is no generator and returns nothing but None, wherever it
    returns. False where that cannot be seen."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    ends = _returns(code)
    return bool(ends) and all(_of_none(before, step) for before, step in ends)


def yields_and_returns(function: Callable[..., Any]) -> bool:
    """Whether a Python function is a generator that somewhere returns a value, which nobody would
    see. False where that cannot be seen."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_GENERATOR:
        return False
    return not all(_of_none(before, step) for before, step in _returns(code))


def _returns(code: types.CodeType) -> list[tuple[dis.Instruction | None, dis.Instruction]]:
    """The steps of a function that return something, each with the one before it."""
    steps = list(dis.get_instructions(code))
    return [
        (before, step)
        for before, step in zip([None, *steps], steps, strict=False)
        if step.opname.startswith("RETURN_") and step.opname != "RETURN_GENERATOR"
    ]


def _of_none(before: dis.Instruction | None, step: dis.Instruction) -> bool:
    """Whether a step returns None, that the step before it has loaded."""
    if step.opname == "RETURN_CONST":  # in some versions of Python
        return step.argval is None
    if before is None or step.is_jump_target:
        return False
    return before.opname == "LOAD_CONST" and before.argval is None
