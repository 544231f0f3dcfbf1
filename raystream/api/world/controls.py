"""What the class of an operator declares of its control stream.

A control stream carries what changes how an operator works, as rules do. Every instance is given
all of it, and keeps what it makes of it in one row of state, which is the same in all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raystream.errors import GraphError
from raystream.schema.records import RecordSchema, resolve_hints
from raystream.schema.state import State, StateSchema, state_schema


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
