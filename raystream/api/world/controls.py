"""Operators with a control stream: `rs.controlled(Alert(), by=rules)`.

A control stream carries what changes how an operator works, as rules do. Every instance is given
all of it, and keeps what it makes of it in one row of state, which is the same in all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from raystream.api.protocols import ControlledBy, KeyedControlledBy, Mapped
from raystream.errors import GraphError, Where
from raystream.schema.fields import AnyRecord
from raystream.schema.records import RecordSchema, caller, resolve_hints
from raystream.schema.state import State, StateSchema, state_schema

if TYPE_CHECKING:
    from raystream.api.flow import Flow, Stream
    from raystream.api.nodes import Branch
    from raystream.api.operators import OperatorSpec

T = TypeVar("T", bound=AnyRecord)
C = TypeVar("C", bound=AnyRecord)
U = TypeVar("U", bound=AnyRecord)
S = TypeVar("S", bound=State)
R = TypeVar("R", bound=State)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What an operator does with its control stream."""

    method: Callable[..., Any]
    """Takes a record of it and the row."""
    inputs: tuple[RecordSchema, ...]
    """The types of its records."""
    state: StateSchema
    """The class of the row."""
    argument: str
    """The name of the argument by which `process` is given the row."""


class _Controlled(NamedTuple):
    """An operator with its control stream, as `through` is given it."""

    op: Any
    by: Any
    where: Where


def controlled(
    op: ControlledBy[T, C, R, U] | KeyedControlledBy[T, S, C, R, U], /, *, by: Stream[C]
) -> Mapped[T, U]:
    """An operator with a control stream, to be given to `through`.

        class Limits(rs.State):
            of: dict[str, int] = rs.field(factory=dict)

        @rs.operator(key="user")
        class Alert:
            def control(self, rule: Rule, limits: Limits) -> None:
                limits.of[rule.user] = rule.limit

            def process(self, order: Order, state: Spent, limits: Limits) -> Iterator[Alarm]:
                ...

        orders.through(rs.controlled(Alert(), by=rules)).to(...)

    `control` is called for each record of the control stream in every instance, in the same order,
    before the records of the same epoch are processed. What it keeps is one row, the same in all
    instances; `process` reads it and does not change it. It is part of every checkpoint.

    The control stream holds back no watermark. The operator ends when both inputs have ended.

    Args:
        op: an instance of an operator class with a method `control`.
        by: the control stream.

    Raises:
        GraphError: `by` is no stream.
    """
    from raystream.api.flow import Stream

    where = caller()[0]
    if not isinstance(by, Stream):
        raise GraphError(f"controlled(by={by!r:.80}): it is no stream", where=where)
    found: Any = _Controlled(op, by, where)
    return found


def apart(op: Any) -> tuple[Any, Any]:
    """What `through` was given, as an operator and its control stream; None without one."""
    return (op.op, op) if isinstance(op, _Controlled) else (op, None)


def branches_of(given: Any, spec: OperatorSpec, flow: Flow, where: Where) -> tuple[Branch, ...]:
    """The branches of an operator's control stream, in the order of its annotation.

    Args:
        given: see `apart`.

    Raises:
        GraphError: there is none and the operator needs one, or the other way round; or it carries
            other records, or belongs to another flow.
    """
    if spec.control is None:
        if given is not None:
            raise spec.fail(
                "it has no method `control`, so a control stream is nothing to it",
                hint="def control(self, rule: Rule, rules: Rules) -> None: ...",
            )
        return ()
    if given is None:
        raise GraphError(
            f"{spec.name} takes a control stream",
            where=where,
            hint=f"through(rs.controlled({spec.name}(...), by=...))",
        )
    found: tuple[Branch, ...] = given.by._branches
    if given.by._flow is not flow:
        raise GraphError("the control stream belongs to another flow", where=given.where)
    carried, wanted = {b.schema for b in found}, spec.control.inputs
    if carried != set(wanted):
        raise GraphError(
            f"{spec.name}.control takes {_either(wanted)}, but its control stream carries"
            f" {_either(b.schema for b in found) or 'nothing'}",
            where=given.where,
            hint="Pick a type: stream[Type]; unite streams with |.",
        )
    return tuple(sorted(found, key=lambda b: wanted.index(b.schema)))


def _either(schemas: Any) -> str:
    return " | ".join(dict.fromkeys(s.name for s in schemas))


# ---------------------------------------------------------------- declarations


def control_of(
    op: Any,
    process: Callable[..., Any],
    scope: Mapping[str, Any],
    fail: Callable[..., GraphError],
    records: Callable[[Any, str], tuple[RecordSchema, ...]],
) -> Control | None:
    """What the class of an operator declares of its control stream; None if it has none.

    Args:
        scope: the names that annotations may need. fail: makes an error. records: the types of an
            annotation.

    Raises:
        GraphError: the methods do not say what they take, or not the same.
    """
    method = None if inspect.isfunction(op) else getattr(op, "control", None)
    if not inspect.ismethod(method):
        return None
    hints, taken = resolve_hints(method, scope), list(inspect.signature(method).parameters)
    if len(taken) != 2 or not set(taken) <= set(hints):
        raise fail("`control` takes a record of the control stream and the row, both annotated")
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
        raise fail("`control` changes its row and returns nothing: it is no generator, nor async")
    row: Any = hints[taken[1]]
    if not (isinstance(row, type) and issubclass(row, State)):
        raise fail(
            f"the second argument of `control` is a row, not {row!r}",
            hint="Declare it: class Rules(rs.State): ...",
        )
    of_process = list(inspect.signature(process).parameters.values())
    last = of_process[-1] if of_process else None
    given = resolve_hints(process, scope).get(last.name) if last is not None else None
    if last is None or given != row or last.kind is not last.POSITIONAL_OR_KEYWORD:
        raise fail(
            f"the last argument of `process` is the row that `control` makes: a {row.__name__}"
        )
    cls: type[State] = row
    schema = state_schema(cls, scope)
    if schema.timer is not None:
        raise fail(f"{schema.name}.{schema.timer}: the row of a control stream has no timer")
    inputs = records(hints[taken[0]], "takes")
    return Control(method=method, inputs=inputs, state=schema, argument=last.name)


def check_control(spec: OperatorSpec) -> None:
    """Refuse forms of operators that have no control stream.

    Raises:
        GraphError: it is one.
    """
    for what, there in (
        ("asks the world", spec.asking),
        ("takes batches", spec.form == "batch"),
        ("is compiled", spec.compiled),
        ("has windows", spec.window or spec.close),
        ("has timers", spec.timer),
    ):
        if there:
            raise spec.fail(
                f"an operator that {what} takes no control stream",
                hint="Let an operator before it take the control stream, and put what follows from"
                " the rules into its records.",
            )
