"""What a process loads ahead: the first epoch, or the first checkpoint, would else wait for it.

Modules, jitted functions and what PyArrow imports, by using them once on machines that are thrown
away. No code of the user is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from raystream.dataflow.batches import RowsLogic
from raystream.dataflow.emission import warm as warm_edge
from raystream.dataflow.instance import Instance, Outlets
from raystream.dataflow.order import warm as warm_order
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.snapshot import capture, install, shape_of, texts_of
from raystream.dataflow.source import warm as warm_source
from raystream.schema.types import KeyRange
from raystream.state.checkpoint import Shape
from raystream.state.image import Image, decode
from raystream.state.partition import key_order
from raystream.state.rows import StructuredTable
from raystream.state.structured import put_rows


def warm(plan: Plan) -> Iterator[None]:
    """Load what an instance of any vertex of a plan needs to be restored and to work, in steps."""
    for vertex in plan.vertices:
        yield from warm_vertex(plan, vertex)
        if vertex.spec is not None:
            _restore(_instance(plan, vertex), decode(_checkpoint(_instance(plan, vertex))))
            yield


def warm_vertex(plan: Plan, vertex: Vertex) -> Iterator[None]:
    """Load what an instance of one vertex needs to work and to be checkpointed, in steps."""
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


def _instance(plan: Plan, vertex: Vertex) -> Instance:
    return Instance(plan, vertex, KeyRange(0, plan.groups))


def _checkpoint(instance: Instance) -> memoryview:
    """The encoded image of an operator, of one row where rows are structured."""
    shape, table = _kept(instance)
    if isinstance(instance.logic, RowsLogic):
        instance.logic.keyed.warm()
    elif isinstance(table, StructuredTable):
        table.warm()
    elif shape is not None:
        key_order(shape.nothing_gone, instance.plan.groups)
    return capture(instance, table="warm").image().encode()


def _restore(instance: Instance, image: Image) -> None:
    """Put an image into an operator as if it were two, and where rows are structured once more as a
    delta, which also says of each row that it is gone."""
    first, then = (replace(image.header, base=cut - 1, cut=cut) for cut in (1, 2))
    install(instance, [[replace(image, header=first), replace(image, header=then)]])
    shape, table = _kept(instance)
    if shape is not None and isinstance(table, StructuredTable):
        delta = replace(image, gone=image.rows.select(image.gone.schema.names))
        put_rows(table, shape, delta, texts_of(instance.logic))


def _kept(instance: Instance) -> tuple[Shape | None, Any]:
    """What an operator keeps, and in which table."""
    spec = instance.vertex.spec
    return None if spec is None else shape_of(spec), getattr(instance.logic, "table", None)
