"""The plan of a job: vertices (sources, keyed operators, sinks) joined by edges.

A stateless operator is fused into the vertex that feeds it; where several vertices feed it, each
gets a copy. An edge carries the records of one type from one output of a vertex into one input of
another. Edges between the same two vertices are *ranked*: their records are merged in the order of
emission (see `dataflow.order`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from raystream.api.flow import Branch, Epochs, Flow, Node, OperatorNode, SinkNode, SourceNode
from raystream.api.operators import OperatorSpec
from raystream.errors import ConfigError, GraphError, Where
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges
from raystream.state.saved import Saved

Kind = Literal["source", "operator", "sink"]

ROWS_MOST = 2**31 - 1
"""Of a table: slots are numbered with 32 bits."""


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a vertex: what `node` (the vertex's own or a fused one) emits of one type."""

    node: str
    schema: RecordSchema
    late: bool = False


@dataclass(frozen=True, slots=True)
class Fused:
    """A stateless operator inside a vertex.

    inputs: per input type of the operator the ports that feed it; outputs: its own ports.
    """

    name: str
    spec: OperatorSpec
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One stream into one input of one consumer.

    key: the consumer's key fields, or None where the producer's key groups are inherited (sinks).
    """

    id: int
    producer: int
    port: int
    consumer: int
    type: int
    schema: RecordSchema
    key: tuple[str, ...] | None
    ranked: bool


@dataclass(eq=False)
class Vertex:
    """A source, keyed operator or sink, with the stateless operators fused into it.

    schemas: the record types that come in (operators and sinks), in the order of the annotation.
    """

    id: int
    name: str
    kind: Kind
    where: Where | None = None
    source: Any = None
    epochs: Epochs | None = None
    spec: OperatorSpec | None = None
    sink: Any = None
    schemas: tuple[RecordSchema, ...] = ()
    ports: list[Port] = field(default_factory=list)
    fused: list[Fused] = field(default_factory=list)
    inputs: list[Edge] = field(default_factory=list)
    outputs: list[Edge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Clock:
    """How event time becomes epochs: constants of the job.

    origin and length are in the flow's time unit times `scale`; the epoch of a value t in a
    source's ticks is (t - origin) // length + 1. `speed` is event seconds per real second.
    """

    origin: float
    seconds: float
    speed: float | None


@dataclass(frozen=True, slots=True)
class Durable:
    """Where a run saves its committed cuts, and from which it goes on.

    url: of the store. number, run: of this run there; resumed: the cut that it begins with, of an
    earlier run; None at the beginning of the input.
    """

    url: str
    number: int
    run: str
    resumed: Saved | None = None


@dataclass(eq=False)
class Plan:
    """Everything that an instance needs to know of its job.

    check: checking mode, in which copies of pieces are compared (see `dataflow.checking`).
    durable: of a run that has a durable tier. rows: per vertex how many it is expected to keep,
    where that was said.
    """

    job: str
    groups: int
    ticks: int
    vertices: list[Vertex]
    edges: list[Edge]
    ranges: dict[int, list[KeyRange]]
    splits: dict[int, list[str]]
    clock: Clock | None = None
    cut_every: int = 100
    check: bool = False
    durable: Durable | None = None
    rows: dict[int, int] = field(default_factory=dict)

    @property
    def resumed(self) -> Saved | None:
        """The saved cut with which the run begins."""
        return None if self.durable is None else self.durable.resumed

    @property
    def begins(self) -> int:
        """The cut with which the run begins, 0 for the beginning of the input."""
        return 0 if self.resumed is None else self.resumed.cut

    def vertex(self, name: str) -> Vertex:
        return next(v for v in self.vertices if v.name == name)

    def instances(self) -> list[tuple[Vertex, KeyRange]]:
        """Every instance: its vertex and range."""
        return [(v, keys) for v in self.vertices for keys in self.ranges[v.id]]


def vertices_of(flow: Flow) -> tuple[list[Vertex], list[Edge]]:
    """The vertices and edges of a flow.

    Raises:
        GraphError: the flow has no source or no sink, or mixes kinds of epochs.
    """
    builder = _Builder()
    for node in flow.nodes:
        if isinstance(node, SourceNode):
            builder.add_source(node)
        elif isinstance(node, OperatorNode):
            builder.add_operator(node)
        elif isinstance(node, SinkNode):
            builder.add_sink(node)
    kinds = {v.kind for v in builder.vertices}
    for kind in ("source", "sink"):
        if kind not in kinds:
            raise GraphError(
                f"flow {flow.name!r} has no {kind}",
                hint="flow.source(...)" if kind == "source" else "stream.to(...)",
            )
    timed = {v.epochs.column is not None for v in builder.vertices if v.epochs is not None}
    if len(timed) > 1:
        raise GraphError(
            f"flow {flow.name!r} mixes sources cut by time and by arrival:"
            " epochs belong to the job, so all sources are cut alike"
        )
    return builder.vertices, builder.finish()


class _Builder:
    def __init__(self) -> None:
        self.vertices: list[Vertex] = []
        self.loose: list[tuple[int, int, Vertex, int]] = []
        self.places: dict[Branch, list[tuple[Vertex, int]]] = {}

    def _vertex(self, node: Node, kind: Kind, **fields: Any) -> Vertex:
        vertex = Vertex(len(self.vertices), node.name, kind, node.where, **fields)
        self.vertices.append(vertex)
        return vertex

    def _port(self, vertex: Vertex, branch: Branch) -> int:
        vertex.ports.append(Port(branch.node.name, branch.schema, branch.late))
        at = len(vertex.ports) - 1
        self.places.setdefault(branch, []).append((vertex, at))
        return at

    def add_source(self, node: SourceNode) -> None:
        vertex = self._vertex(node, "source", source=node.source, epochs=node.epochs)
        self._port(vertex, Branch(node, node.schema))

    def add_operator(self, node: OperatorNode) -> None:
        if not node.spec.keyed:
            self._fuse(node)
            return
        vertex = self._vertex(node, "operator", spec=node.spec, schemas=node.spec.inputs)
        for schema in node.spec.outputs:
            self._port(vertex, Branch(node, schema))
        if node.spec.window is not None:
            for schema in node.spec.inputs:
                self._port(vertex, Branch(node, schema, late=True))
        self._feed(vertex, node.inputs)

    def add_sink(self, node: SinkNode) -> None:
        schemas = tuple(dict.fromkeys(b.schema for b in node.inputs))
        vertex = self._vertex(node, "sink", sink=node.sink, schemas=schemas)
        self._feed(vertex, node.inputs)

    def _feed(self, vertex: Vertex, inputs: tuple[Branch, ...]) -> None:
        for branch in inputs:
            for producer, port in self.places[branch]:
                self.loose.append((producer.id, port, vertex, vertex.schemas.index(branch.schema)))

    def _fuse(self, node: OperatorNode) -> None:
        feeders = list(dict.fromkeys(v.id for b in node.inputs for v, _ in self.places[b]))
        taken = [(b, list(self.places[b])) for b in node.inputs]
        for vertex in (self.vertices[i] for i in feeders):
            inputs = tuple(
                tuple(
                    port
                    for b, places in taken
                    for v, port in places
                    if v is vertex and b.schema is schema
                )
                for schema in node.spec.inputs
            )
            outputs = tuple(self._port(vertex, Branch(node, s)) for s in node.spec.outputs)
            vertex.fused.append(Fused(node.name, node.spec, inputs, outputs))

    def finish(self) -> list[Edge]:
        pairs = [(p, c.id) for p, _, c, _ in self.loose]
        edges: list[Edge] = []
        for producer, port, consumer, kind in self.loose:
            key = consumer.spec.key if consumer.spec is not None else None
            edge = Edge(
                len(edges),
                producer,
                port,
                consumer.id,
                kind,
                consumer.schemas[kind],
                key,
                pairs.count((producer, consumer.id)) > 1,
            )
            edges.append(edge)
            self.vertices[producer].outputs.append(edge)
            consumer.inputs.append(edge)
        return edges


def plan_of(
    flow: Flow,
    splits: Mapping[str, list[str]],
    *,
    instances: Mapping[str, int] | None = None,
    clock: Clock | None = None,
    cut_every: int = 100,
    check: bool = False,
    rows: Mapping[str, int] | None = None,
) -> Plan:
    """The plan of a flow whose sources have these splits.

    Args:
        splits: per source the names of its splits, in order: they belong to the plan.
        instances: per vertex the number of instances; 1 unless given.
        check: checking mode.
        rows: per vertex how many rows of structured state it is expected to keep.

    Raises:
        GraphError: the flow is wrong. ConfigError: `instances` or `rows` do not fit it.
    """
    vertices, edges = vertices_of(flow)
    ranges = _ranges(flow, vertices, dict(instances or {}))
    return Plan(
        flow.name,
        flow.key_groups,
        flow.ticks,
        vertices,
        edges,
        ranges,
        {v.id: list(splits[v.name]) for v in vertices if v.kind == "source"},
        clock,
        cut_every,
        check,
        rows=_expected(vertices, rows or {}),
    )


def _expected(vertices: list[Vertex], rows: Mapping[str, int]) -> dict[int, int]:
    """What was said by name, by vertex."""
    keeping = {v.name: v for v in vertices if v.spec is not None and v.spec.in_structured_rows}
    for name, many in rows.items():
        if name not in keeping:
            raise ConfigError(
                f"rows: {name!r} is no compiled or batch operator with state",
                hint=f"Such are {', '.join(sorted(keeping))}." if keeping else "There are none.",
            )
        if not 0 <= many <= ROWS_MOST:
            raise ConfigError(f"rows: {name}={many}; an operator keeps up to {ROWS_MOST:,} rows")
    return {keeping[name].id: many for name, many in rows.items()}


def _ranges(
    flow: Flow, vertices: list[Vertex], instances: dict[str, int]
) -> dict[int, list[KeyRange]]:
    names = {v.name for v in vertices}
    fused = {f.name: v.name for v in vertices for f in v.fused}
    for name, count in instances.items():
        if name in fused:
            raise ConfigError(
                f"instances: {name!r} keeps no state, so it runs inside {fused[name]!r}",
                hint=f"Set instances of {fused[name]!r}.",
            )
        if name not in names:
            raise ConfigError(
                f"instances: there is no operator {name!r}",
                hint=f"There are {', '.join(sorted(names))}.",
            )
        if not 1 <= count <= flow.key_groups:
            raise ConfigError(
                f"instances: {name}={count}; an operator has from 1 to {flow.key_groups},"
                " the number of key groups"
            )
    return {v.id: even_ranges(flow.key_groups, instances.get(v.name, 1)) for v in vertices}


def split_group(index: int, splits: int, groups: int) -> int:
    """The key group of a source's split: splits are spread evenly, in the order of the plan."""
    return index * groups // splits
