"""An operator with its control stream, as `through` is given it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from raystream.api.nodes import Branch
from raystream.api.operators import OperatorSpec
from raystream.errors import GraphError, Where
from raystream.schema.records import RecordSchema


class ControlledOperator(NamedTuple):
    """An operator with its control stream, as `through` is given it."""

    op: Any
    by: Any
    where: Where


def apart(op: Any) -> tuple[Any, Any]:
    """What `through` was given, as an operator and its control stream; None without one."""
    return (op.op, op) if isinstance(op, ControlledOperator) else (op, None)


def branches_of(given: Any, spec: OperatorSpec, flow: object, where: Where) -> tuple[Branch, ...]:
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


def _either(schemas: Iterable[RecordSchema]) -> str:
    return " | ".join(dict.fromkeys(s.name for s in schemas))
