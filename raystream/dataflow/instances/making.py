"""Makes the instance of a vertex of any kind."""

from __future__ import annotations

from typing import Any

from raystream.dataflow.instances.asking import AskingInstance
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.controlled import ControlledInstance
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.instances.sink import SinkInstance
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.schema.types import KeyRange


def make_instance(plan: Plan, vertex: Vertex, keys: KeyRange, sink: Any = None) -> Instance:
    """A new instance of a vertex. sink: see `SinkInstance`."""
    if vertex.kind == "source":
        return SourceInstance(plan, vertex, keys)
    return make_receiving(plan, vertex, keys, sink)


def made_instance(
    plan: Plan, vertex: Vertex, keys: KeyRange, version: CodeVersion | None, sink: Any = None
) -> Instance:
    """A new instance of a vertex that goes on with what a version of the code has made.

    Args:
        version: None for the code that the job began with. sink: see `SinkInstance`.
    """
    machine = make_instance(plan, vertex if version is None else version.of(vertex), keys, sink)
    machine.runs(version)
    return machine


def make_receiving(
    plan: Plan, vertex: Vertex, keys: KeyRange, sink: Any = None
) -> ReceivingInstance:
    """A new instance of a vertex that has inputs: an operator or a sink."""
    if vertex.kind == "sink":
        return SinkInstance(plan, vertex, keys, sink)
    if vertex.spec is not None and vertex.spec.asking is not None:
        return AskingInstance(plan, vertex, keys)
    if vertex.spec is not None and vertex.spec.control is not None:
        return ControlledInstance(plan, vertex, keys)
    return KeyedInstance(plan, vertex, keys)
