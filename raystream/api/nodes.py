"""The nodes of a flow, and what goes from one to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from raystream.api.connectors import Sink, Source
from raystream.api.epochs import Epochs, EventTime
from raystream.api.operators import OperatorSpec
from raystream.errors import Where
from raystream.schema.records import RecordSchema


class Branch(NamedTuple):
    """The records of one type that one node emits, or those that came too late to it."""

    node: FlowNode
    schema: RecordSchema
    late: bool = False
    timed: EventTime | None = None
    """What its watermark follows, if the user said so."""

    @property
    def untimed(self) -> Branch:
        """The branch as the node emits it."""
        return self if self.timed is None else self._replace(timed=None)


@dataclass(eq=False)
class FlowNode:
    """A source, operator or sink of a flow."""

    name: str
    where: Where
    inputs: tuple[Branch, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


@dataclass(eq=False, repr=False, kw_only=True)
class SourceNode(FlowNode):
    source: Source[Any]
    epochs: Epochs
    schema: RecordSchema


@dataclass(eq=False, repr=False, kw_only=True)
class OperatorNode(FlowNode):
    spec: OperatorSpec
    control: tuple[Branch, ...] = ()
    """Its control stream."""


@dataclass(eq=False, repr=False, kw_only=True)
class SinkNode(FlowNode):
    sink: Sink[Any]
