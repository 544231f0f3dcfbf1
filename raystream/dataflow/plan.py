"""The plan of a job: vertices (sources, keyed operators, sinks) joined by edges.

A stateless operator is fused into the vertex that feeds it; where several vertices feed it, each
gets a copy. An edge carries the records of one type from one output of a vertex into one input of
another. Edges between the same two vertices are *ranked*: their records are merged in the order of
emission (see `dataflow.order`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from raystream.api.epochs import Epochs
from raystream.api.flow import Flow
from raystream.api.nodes import Branch, FlowNode, OperatorNode, SinkNode, SourceNode
from raystream.api.operators import WAIT_SUFFIX, OperatorSpec
from raystream.dataflow.sources.watermark_rules import PLAIN, WatermarkRule, rules_of
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.durable.manifest import Saved
from raystream.errors import ConfigError, GraphError, Where
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges

VertexKind = Literal["source", "operator", "sink"]

ROWS_MOST = 2**31 - 1
"""The most rows that a table has: slots are numbered with 32 bits."""


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a vertex: what one node emits of one type."""

    node: str
    """The name of the node: the vertex's own, or one that is fused into it."""
    schema: RecordSchema
    """The type of the records."""
    late: bool = False
    """Whether these are the late input records of a window; of a source: the records that it has
    set aside, because their times are far ahead."""
    rules: tuple[WatermarkRule, ...] = PLAIN
    """Its watermark is the least of what these give."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A stateless operator inside a vertex."""

    name: str
    spec: OperatorSpec
    inputs: tuple[tuple[int, ...], ...]
    """For each input type of the operator the ports that feed it."""
    outputs: tuple[int, ...]
    """The ports of the vertex that the operator fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One stream into one input of one consumer."""

    id: int
    """Its place among the edges of the plan."""
    producer: int
    """The vertex that it comes from."""
    port: int
    """The output of the producer."""
    consumer: int
    """The vertex that it leads to."""
    type: int
    """Which of the consumer's input types its records have."""
    schema: RecordSchema
    """The type of its records."""
    key: tuple[str, ...] | None
    """The consumer's key fields; None where the producer's key groups are inherited: sinks that
    declare no key."""
    ranked: bool
    """Whether others connect the same two vertices: records are merged in order of emission."""
    rules: tuple[WatermarkRule, ...] = PLAIN
    """The watermark of the edge is the least of what these give."""
    to_all: bool = False
    """Whether it is a control stream: every range of the consumer is given all of it."""
    greatest: bool = False
    """Whether the consumer takes the greatest of the watermarks of the producer's ranges, not the
    least: they follow times that the producer emits, which is no source."""


@dataclass(eq=False)
class Vertex:
    """A source, keyed operator or sink, with the stateless operators fused into it."""

    id: int
    """Its place among the vertices of the plan."""
    name: str
    """The name that users see."""
    kind: VertexKind
    where: Where | None = None
    """The line of the user's code that added it, for errors."""
    _: KW_ONLY
    source: Any = None
    """Of a source: the user's source."""
    epochs: Epochs | None = None
    """Of a source: how it is cut into epochs."""
    spec: OperatorSpec | None = None
    """Of a keyed operator: the user's operator."""
    sink: Any = None
    """Of a sink: the user's sink."""
    schemas: tuple[RecordSchema, ...] = ()
    """The record types that come in (operators and sinks), in the order of the annotation."""
    ports: list[Port] = field(default_factory=list)
    """Its outputs."""
    fused: list[Fused] = field(default_factory=list)
    """The stateless operators inside it, each after those that feed it."""
    inputs: list[Edge] = field(default_factory=list)
    """The edges that lead to it."""
    outputs: list[Edge] = field(default_factory=list)
    """The edges that come from it."""

    @property
    def sets_aside(self) -> bool:
        """Whether it is a source with a stream of records whose times are far ahead: its second
        port."""
        return self.epochs is not None and self.epochs.ahead == "stream"


@dataclass(frozen=True, slots=True)
class Clock:
    """How event time becomes epochs: constants of the job.

    A source turns them into ticks of its own time column; the epoch of a time t is then
    (t - origin) // length + 1 (see `dataflow.sources.recorded`).
    """

    origin: float
    """The event time, in the flow's unit, at which epoch 1 begins."""
    seconds: float
    """The length of an epoch."""
    speed: float | None
    """Event seconds per real second; None to go as fast as possible."""


@dataclass(frozen=True, slots=True)
class Durable:
    """Where a run saves its committed checkpoints, and which saved checkpoint it resumes."""

    url: str
    """The address of the store."""
    number: int
    """The number of this run in the store."""
    run: str
    """The name of this run."""
    resumed: Saved | None = None
    """The checkpoint of an earlier run with which this run begins; None: it begins the input."""
    keep: int = 2
    """How many whole checkpoints stay in the store."""
    versions: tuple[CodeVersion, ...] = ()
    """The versions of the code that an earlier run of this submitter had gone over to."""


@dataclass(eq=False, kw_only=True)
class Plan:
    """Everything that an instance needs to know of its job."""

    job: str
    """The name of the job."""
    run: str = ""
    """The name of this run, which no other one has; "" where processes share nothing by it."""
    groups: int
    """The number of key groups."""
    ticks: int
    """The flow's time units per second."""
    vertices: list[Vertex]
    edges: list[Edge]
    ranges: dict[int, list[KeyRange]]
    """By vertex the ranges of the instances with which the job starts."""
    splits: dict[int, list[str]]
    """By source the names of its splits, in order."""
    starts: dict[int, dict[str, int]] = field(default_factory=dict)
    """By source the positions at which its splits begin, where they are not 0."""
    clock: Clock | None = None
    """How event time becomes epochs; None where epochs are cut by arrival."""
    checkpoint_every: int = 100
    """There is a checkpoint at the end of every n-th epoch."""
    check: bool = False
    """Checking mode: copies of pieces are compared (see `dataflow.checking`)."""
    durable: Durable | None = None
    """The durable tier of the run, if it has one."""
    program: str = ""
    """A fingerprint of the flow and of the user's code."""
    files: dict[str, str] = field(default_factory=dict)
    """By split that is a file of this machine, how long it is and when it was changed last."""
    code: str = ""
    """Where a command has found the flow, `module:name`; empty if none did."""
    rows: dict[int, int] = field(default_factory=dict)
    """By vertex how many rows of state the user expects it to keep, where the user said so."""
    state_memory: int | None = None
    """How many bytes of memory the rows of an instance may take, before some go to disk; None for
    any number."""
    state_folder: str | None = None
    """The folder on each node for rows on disk; None for that for temporary files."""

    @property
    def resumed(self) -> Saved | None:
        """The saved checkpoint with which the run begins."""
        return None if self.durable is None else self.durable.resumed

    @property
    def begins(self) -> int:
        """The checkpoint with which the run begins; 0 for the beginning of the input."""
        return 0 if self.resumed is None else self.resumed.checkpoint

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
            " epochs belong to the job, so all are cut alike: by_arrival unless epochs= says"
        )
    return builder.vertices, builder.finish()


def _schemas(vertex: Vertex, *, to_all: bool) -> tuple[RecordSchema, ...]:
    """The types of the records that come in, or of those of its control stream."""
    if not to_all or vertex.spec is None or vertex.spec.control is None:
        return vertex.schemas
    return vertex.spec.control.inputs


class _Builder:
    def __init__(self) -> None:
        self.vertices: list[Vertex] = []
        self.loose: list[tuple[int, int, Vertex, int, tuple[WatermarkRule, ...], bool]] = []
        self.places: dict[Branch, list[tuple[Vertex, int]]] = {}

    def _vertex(self, node: FlowNode, kind: VertexKind, **fields: Any) -> Vertex:
        vertex = Vertex(len(self.vertices), node.name, kind, node.where, **fields)
        self.vertices.append(vertex)
        return vertex

    def _port(
        self, vertex: Vertex, branch: Branch, rules: tuple[WatermarkRule, ...] = PLAIN
    ) -> int:
        vertex.ports.append(Port(branch.node.name, branch.schema, branch.late, rules))
        at = len(vertex.ports) - 1
        self.places.setdefault(branch, []).append((vertex, at))
        return at

    def add_source(self, node: SourceNode) -> None:
        vertex = self._vertex(node, "source", source=node.source, epochs=node.epochs)
        self._port(vertex, Branch(node, node.schema))
        if vertex.sets_aside:
            self._port(vertex, Branch(node, node.schema, late=True))

    def add_operator(self, node: OperatorNode) -> None:
        if not node.spec.alone:
            self._fuse(node)
            return
        vertex = self._vertex(node, "operator", spec=node.spec, schemas=node.spec.inputs)
        for schema in node.spec.outputs:
            self._port(vertex, Branch(node, schema))
        if node.spec.counts_late:
            for schema in node.spec.inputs:
                self._port(vertex, Branch(node, schema, late=True))
        self._feed(vertex, node.inputs)
        self._feed(vertex, node.control, to_all=True)

    def add_sink(self, node: SinkNode) -> None:
        schemas = tuple(dict.fromkeys(b.schema for b in node.inputs))
        vertex = self._vertex(node, "sink", sink=node.sink, schemas=schemas)
        self._feed(vertex, node.inputs)

    def _feed(self, vertex: Vertex, inputs: tuple[Branch, ...], *, to_all: bool = False) -> None:
        for branch in inputs:
            kind = _schemas(vertex, to_all=to_all).index(branch.schema)
            for producer, port in self.places[branch.untimed]:
                rules = rules_of([(branch, producer.ports[port].rules, port)])
                self.loose.append((producer.id, port, vertex, kind, rules, to_all))

    def _fuse(self, node: OperatorNode) -> None:
        feeders = list(dict.fromkeys(v.id for b in node.inputs for v, _ in self.places[b.untimed]))
        taken = [(b, list(self.places[b.untimed])) for b in node.inputs]
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
            rules = rules_of(
                [
                    (b, v.ports[port].rules, port)
                    for b, places in taken
                    for v, port in places
                    if v is vertex
                ]
            )
            if vertex.kind != "source" and len(rules) > 1:
                raise GraphError(
                    f"{node.name} takes streams of {vertex.name} that differ in their event time",
                    where=node.where,
                    hint=f"Say timed(...) of what comes out of {node.name}.",
                )
            outputs = tuple(self._port(vertex, Branch(node, s), rules) for s in node.spec.outputs)
            vertex.fused.append(Fused(node.name, node.spec, inputs, outputs))

    def finish(self) -> list[Edge]:
        pairs = [(p, c.id, to_all) for p, _, c, *_, to_all in self.loose]
        edges: list[Edge] = []
        for producer, port, consumer, kind, rules, to_all in self.loose:
            follows = any(rule.port is not None for rule in rules)
            spec, sink = consumer.spec, consumer.sink
            key = (spec.key or None) if spec is not None else sink and sink.keyed_by
            if to_all:
                key = None
            edge = Edge(
                id=len(edges),
                producer=producer,
                port=port,
                consumer=consumer.id,
                type=kind,
                schema=_schemas(consumer, to_all=to_all)[kind],
                key=key,
                ranked=pairs.count((producer, consumer.id, to_all)) > 1,
                rules=rules,
                to_all=to_all,
                greatest=follows and self.vertices[producer].kind != "source",
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
    checkpoint_every: int = 100,
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
        job=flow.name,
        groups=flow.key_groups,
        ticks=flow.ticks,
        vertices=vertices,
        edges=edges,
        ranges=ranges,
        splits={v.id: list(splits[v.name]) for v in vertices if v.kind == "source"},
        clock=clock,
        checkpoint_every=checkpoint_every,
        check=check,
        rows=_expected(vertices, rows or {}),
    )


def _expected(vertices: list[Vertex], rows: Mapping[str, int]) -> dict[int, int]:
    """The expected rows by vertex, from those by name."""
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
    fused = {f.name: v.name for v in vertices for f in v.fused}
    for name, count in instances.items():
        if name in fused:
            raise ConfigError(
                f"instances: {name!r} keeps no state, so it runs inside {fused[name]!r}",
                hint=f"Set instances of {fused[name]!r}.",
            )
        if all(name != v.name for v in vertices):
            raise ConfigError(
                f"instances: there is no operator {name!r}",
                hint=f"There are {', '.join(sorted(v.name for v in vertices))}.",
            )
        if not 1 <= count <= flow.key_groups:
            most = f"{flow.key_groups}, the number of key groups"
            raise ConfigError(f"instances: {name}={count}; an operator has from 1 to {most}")
    return {v.id: even_ranges(flow.key_groups, _instances(v, instances)) for v in vertices}


def _instances(vertex: Vertex, instances: dict[str, int]) -> int:
    """How many instances a vertex starts with. What keeps records for an operator has as many as
    that operator has, unless its own name is there."""
    waits = vertex.spec is not None and vertex.spec.waits
    default = instances.get(vertex.name.removesuffix(WAIT_SUFFIX), 1) if waits else 1
    return instances.get(vertex.name, default)


def split_group(index: int, splits: int, groups: int) -> int:
    """The key group of a source's split: splits are spread evenly, in the order of the plan."""
    return index * groups // splits
