"""The code that a process loads ahead, so that neither the first epoch nor the first checkpoint has
to wait for it: modules, jitted functions, and what PyArrow imports.

It is loaded by using it once, on instances that are thrown away. No code of the user is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from raystream.dataflow.emission import warm as warm_edge
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.instances.outlets import Outlets
from raystream.dataflow.order import warm as warm_order
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.snapshot import capture, install
from raystream.dataflow.sources.recorded import warm as warm_source
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image, decode


def warm(plan: Plan) -> Iterator[None]:
    """Load, in steps, what an instance of any vertex of a plan needs to be restored and to work."""
    for vertex in plan.vertices:
        yield from warm_vertex(plan, vertex)
        if vertex.spec is not None:
            _restore(_instance(plan, vertex), decode(_checkpoint(_instance(plan, vertex))))
            yield


def warm_vertex(plan: Plan, vertex: Vertex) -> Iterator[None]:
    """Load, in steps, what an instance of one vertex needs to work and to be checkpointed."""
    pa.array([0])  # for its first array PyArrow imports pandas, which takes up to a second
    Outlets(plan, vertex, KeyRange(0, plan.groups))  # builds compiled operators inside it
    yield
    for edge in vertex.outputs:
        warm_edge(edge)
        yield
    if vertex.kind == "source":
        warm_source(plan, vertex)
    elif vertex.spec is not None or len(vertex.inputs) > 1:  # a sink may do without Numba
        warm_order()
    yield
    if vertex.spec is not None:
        _checkpoint(_instance(plan, vertex))
        yield


def _instance(plan: Plan, vertex: Vertex) -> KeyedInstance:
    return KeyedInstance(plan, vertex, KeyRange(0, plan.groups))


def _checkpoint(instance: KeyedInstance) -> memoryview:
    """The encoded image of an operator; it has one row where rows are structured."""
    instance.logic.warm()
    return capture(instance, table="warm").image().encode()


def _restore(instance: KeyedInstance, image: Image) -> None:
    """Restore an operator from an image as if that were two, and then apply it as a delta in which
    each row is also removed."""
    first, then = (
        replace(image.header, base=checkpoint - 1, checkpoint=checkpoint) for checkpoint in (1, 2)
    )
    install(instance, [[replace(image, header=first), replace(image, header=then)]])
    if instance.table is not None:
        gone = image.rows.select(image.gone.schema.names)
        instance.table.apply(replace(image, gone=gone))
