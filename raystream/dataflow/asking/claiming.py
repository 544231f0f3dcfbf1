"""Which vertices of a plan need the boundary register."""

from __future__ import annotations

from raystream.dataflow.plan import Plan, Vertex


def asks(vertex: Vertex) -> bool:
    """Whether a vertex is an operator that asks the world."""
    return vertex.spec is not None and vertex.spec.asking is not None


def claiming(plan: Plan) -> frozenset[int]:
    """The vertices whose instances need the boundary register: sources that are cut by arrival,
    and operators that ask the world. Where there are none, what comes out follows from the input
    alone."""
    arrives = plan.clock is None
    return frozenset(v.id for v in plan.vertices if asks(v) or (arrives and v.kind == "source"))
