"""`rs.controlled`: an operator with a control stream."""

from __future__ import annotations

from typing import Any, TypeVar

from raystream.api.flow import Stream
from raystream.api.protocols import ControlledBy, KeyedControlledBy, Mapped
from raystream.api.world.steering import ControlledOperator
from raystream.errors import GraphError, placed
from raystream.schema.fields import AnyRecord
from raystream.schema.records import caller
from raystream.schema.state import State

T = TypeVar("T", bound=AnyRecord)
C = TypeVar("C", bound=AnyRecord)
U = TypeVar("U", bound=AnyRecord)
S = TypeVar("S", bound=State)
R = TypeVar("R", bound=State)


@placed
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
    where = caller()[0]
    if not isinstance(by, Stream):
        raise GraphError(f"controlled(by={by!r:.80}): it is no stream", where=where)
    found: Any = ControlledOperator(op, by, where)
    return found
