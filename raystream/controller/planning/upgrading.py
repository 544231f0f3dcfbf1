"""Which flows a running job may go over to: those with the same streams, whose operators can take
the rows.

Both flows are compared in words, because the process that has the new one may not be able to load
the old one: their modules have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raystream.api.flow import Flow
from raystream.api.row_shapes import shape_of
from raystream.controller.protocol.saving import shapes_of
from raystream.dataflow.plan import Edge, Plan, Vertex, vertices_of
from raystream.errors import StateError

SHOWN = 5
"""How many differences a message shows."""


@dataclass(frozen=True, kw_only=True)
class FlowOutline:
    """What of a flow has to stay while a job runs, in words."""

    job: str
    """The name of the flow."""
    groups: int
    """The number of key groups."""
    ticks: int
    """Time units per second."""
    vertices: Mapping[str, tuple[str, ...]]
    """By vertex its kind and streams."""
    edges: tuple[str, ...]
    """The streams between vertices, in order."""
    shapes: Mapping[str, str]
    """By vertex the fingerprint of its rows; empty for one without rows."""


def outline_of(plan: Plan, shapes: Mapping[str, str] | None = None) -> FlowOutline:
    """What of a plan has to stay. shapes: those of the version that runs; None for the first."""
    return _outline(plan.job, plan.groups, plan.ticks, plan.vertices, plan.edges, shapes)


def outline_of_flow(flow: Flow) -> tuple[FlowOutline, list[Vertex]]:
    """The same of a flow, and its vertices. Its sources are not asked for anything.

    Raises:
        GraphError: the flow is wrong.
    """
    vertices, edges = vertices_of(flow)
    return _outline(flow.name, flow.key_groups, flow.ticks, vertices, edges, None), vertices


def refuse_upgrade(running: FlowOutline, new: FlowOutline, vertices: Sequence[Vertex]) -> None:
    """Check that a running job may go over to a flow.

    Args:
        vertices: those of the new flow.

    Raises:
        StateError: its streams are others, or an operator cannot take the rows; it names them.
    """
    found = [
        f"{what}: {then} while the job runs, {now} in the new flow"
        for what, then, now in (
            ("the name of the flow", running.job, new.job),
            ("key groups", running.groups, new.groups),
            ("time units per second", running.ticks, new.ticks),
        )
        if then != now
    ]
    found += _other_vertices(running, new)
    if not found and running.edges != new.edges:
        gone = [e for e in running.edges if e not in new.edges]
        come = [e for e in new.edges if e not in running.edges]
        found += [f"a stream is gone: {e}" for e in gone] + [f"a stream is new: {e}" for e in come]
        found = found or ["the streams come in another order"]
    if found:
        raise StateError(
            "a running job goes over to other code of its operators; its streams stay as they are",
            hint="\n  ".join(found[:SHOWN])
            + "\n  Only a job with --durable can take it: `stop --save`, then `run --resume`.",
        )
    for vertex in vertices:
        _refuse_rows(vertex, running.shapes[vertex.name])


def _other_vertices(running: FlowOutline, new: FlowOutline) -> list[str]:
    gone = [f"{name} is gone" for name in running.vertices if name not in new.vertices]
    come = [f"{name} is new" for name in new.vertices if name not in running.vertices]
    other = [
        f"{name}: {'; '.join(w for w in words if w not in new.vertices[name]) or 'more streams'}"
        " is not so in the new flow"
        for name, words in running.vertices.items()
        if name in new.vertices and words != new.vertices[name]
    ]
    return gone + come + other


def _refuse_rows(vertex: Vertex, stored: str) -> None:
    shape = None if vertex.spec is None else shape_of(vertex.spec)
    now = "" if shape is None else shape.fingerprint
    if stored == now:
        return
    hint = f"the job has: {stored or 'none'}\n  the new flow: {now or 'none'}"
    if shape is not None and shape.may_take(stored):
        if shape.state.upgrade is not None:
            return
        hint += f"\n  {shape.upgrade_words}"
    raise StateError(
        f"{vertex.name} keeps other rows in the new flow",
        where=None if vertex.spec is None else vertex.spec.where,
        hint=hint,
    )


def _outline(
    job: str,
    groups: int,
    ticks: int,
    vertices: Sequence[Vertex],
    edges: Sequence[Edge],
    shapes: Mapping[str, str] | None,
) -> FlowOutline:
    return FlowOutline(
        job=job,
        groups=groups,
        ticks=ticks,
        vertices={v.name: _in_words(v) for v in vertices},
        edges=tuple(_edge(vertices, e) for e in edges),
        shapes=shapes_of(vertices) if shapes is None else shapes,
    )


def _in_words(vertex: Vertex) -> tuple[str, ...]:
    ports = [
        f"{p.node} sends {p.schema.fingerprint}{' late' if p.late else ''} {p.rules}"
        for p in vertex.ports
    ]
    fused = [f"{f.name} takes {f.inputs} and fills {f.outputs}" for f in vertex.fused]
    spec = vertex.spec
    kind = f"that it is {'an' if vertex.kind == 'operator' else 'a'} {vertex.kind}"
    asks = [] if spec is None else [f"that it asks {'the world' if spec.asking else 'nothing'}"]
    control = [] if spec is None or spec.control is None else [spec.control.state.fingerprint]
    rows = [f"{row} is the row of its control stream" for row in control]
    return (kind, *asks, *rows, *ports, *fused)


def _edge(vertices: Sequence[Vertex], e: Edge) -> str:
    key = "its key groups" if e.key is None else ", ".join(e.key)
    return (
        f"{e.schema.fingerprint} from {vertices[e.producer].name} (output {e.port}) to"
        f" {vertices[e.consumer].name} (input {e.type}) by {key}"
        f"{' to all' if e.to_all else ''}"
    )
