"""What a process loads ahead that may take any place: the first epoch would else wait for it.

Modules, jitted functions and what PyArrow imports, by using them once on machines that are thrown
away. No code of the user is called.
"""

from __future__ import annotations

from collections.abc import Iterator

from raystream.dataflow.batches import RowsLogic
from raystream.dataflow.emission import warm as warm_edge
from raystream.dataflow.instance import Instance, Outlets
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.snapshot import capture, install
from raystream.schema.types import KeyRange
from raystream.state.image import decode


def warm(plan: Plan) -> Iterator[None]:
    """Load what an instance of any vertex of a plan needs to be restored and to work, in steps."""
    for vertex in plan.vertices:
        Outlets(plan, vertex, KeyRange(0, plan.groups))  # builds compiled operators inside it
        yield
        for edge in vertex.outputs:
            warm_edge(edge)
            yield
        if vertex.spec is not None:
            _restore(plan, vertex)
            yield


def _restore(plan: Plan, vertex: Vertex) -> None:
    """Take a checkpoint of an operator without records, and restore another from it."""
    first, second = (Instance(plan, vertex, KeyRange(0, plan.groups)) for _ in range(2))
    if isinstance(first.logic, RowsLogic):
        first.logic.keyed.warm()
    install(second, [[decode(capture(first).image().encode())]])
