"""One operator between feeds and a reader, on the machines that run it in a job.

A bench is a tiny job: a source instance per input type and range, the operator's instances, and a
reader that puts what they emit into canonical order. It can move at any epoch: every instance is
checkpointed, and instances of other ranges are made from the images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from raystream.api.batch import Batch
from raystream.api.connectors import Sink, Source
from raystream.api.declarations import spec_of
from raystream.api.epochs import by_arrival
from raystream.api.flow import Flow
from raystream.api.nodes import OperatorNode
from raystream.api.operator_checks import check_spec
from raystream.api.operators import OperatorSpec
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.logic.interpreted import in_order
from raystream.dataflow.order import assemble, feeds_of
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Plan, plan_of
from raystream.dataflow.snapshot import capture, install
from raystream.dataflow.sources.epochs import EpochRows
from raystream.errors import GraphError
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange, Split
from raystream.state.images.image import Image, decode
from raystream.state.images.partition import merge, recut

_READERS = ("its sink", "its late records")
"""What is read: names that no operator has."""


class EpochOutput(NamedTuple):
    """What an epoch brought, in canonical order."""

    records: list[Any]
    late: list[Any]


@dataclass(frozen=True)
class BenchFeed(Source[Any]):
    """Stands where a source would: a bench hands records to the instance itself."""

    record: type

    def splits(self) -> Sequence[Split]:
        return [Split("fed")]

    def read(self, split: Split, position: int) -> Iterator[tuple[int, Batch[Any]]]:
        return iter(())


class BenchSink(Sink[Any]):
    """Stands where a sink would: a bench reads what would be written."""

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any]) -> None: ...


class Bench:
    """An operator under test.

    Args:
        op: as it would be given to `through`.
        sources: ranges of the instances that feed it (and run it, if it keeps no state).
        ranges: ranges of its own instances.
        compiled: whether to compile it; as it is declared unless given.
    """

    def __init__(
        self,
        op: Any,
        *,
        key_groups: int,
        time_unit: Any = "s",
        sources: Sequence[KeyRange] | None = None,
        ranges: Sequence[KeyRange] | None = None,
        compiled: bool | None = None,
    ) -> None:
        whole = [KeyRange(0, key_groups)]
        self.op = op
        self.time_unit = time_unit
        self.key_groups = key_groups
        self.epochs = 0
        self.plan = _plan(op, key_groups, time_unit, compiled)
        self.feeds: dict[type, list[SourceInstance]] = {}
        self.producers: dict[int, list[Any]] = {}
        for vertex in self.plan.vertices:
            if vertex.kind == "source":
                fed = [SourceInstance(self.plan, vertex, k) for k in sources or whole]
                for instance in fed:
                    instance.open()
                self.feeds[vertex.ports[0].schema.cls] = fed
                self.producers[vertex.id] = list(fed)
        self.operator = next((v for v in self.plan.vertices if v.kind == "operator"), None)
        self._start(ranges or whole, None)

    def _start(self, ranges: Sequence[KeyRange], image: Image | None) -> None:
        self.instances = []
        if self.operator is None:
            return
        for keys in ranges:
            instance = KeyedInstance(self.plan, self.operator, keys)
            if image is not None:
                install(instance, recut([[image]], keys))
            instance.open()
            self.instances.append(instance)
        self.producers[self.operator.id] = list(self.instances)

    @property
    def spec(self) -> OperatorSpec:
        """The operator's declaration."""
        return _spec(self.plan)

    def move(self, ranges: Sequence[KeyRange], *, compiled: bool | None = None) -> None:
        """Checkpoint all instances and go on with new ones: of other ranges, compiled or not."""
        if self.operator is None:
            return
        image = self.image()
        if compiled is not None and compiled != self.spec.compiled:
            self.plan = _plan(self.op, self.key_groups, self.time_unit, compiled)
            self.operator = self.plan.vertices[self.operator.id]
        self._start(ranges, image)

    def image(self) -> Image:
        """What all instances know, through the stored form."""
        return merge([decode(capture(i).image().encode()) for i in self.instances])

    def epoch(
        self, records: Sequence[Any], groups: Sequence[int], watermark: int, *, ended: bool = False
    ) -> EpochOutput:
        """Apply an epoch. groups: the source's key group of each record, ascending."""
        known = set(self.feeds)
        for record in records:
            if type(record) not in known:
                raise GraphError(
                    f"{self.spec.name} takes {' | '.join(sorted(c.__name__ for c in known))},"
                    f" not {type(record).__name__}"
                )
        self.epochs += 1
        for cls, sources in self.feeds.items():
            mine = [(g, r) for g, r in zip(groups, records, strict=True) if type(r) is cls]
            for source in sources:
                _publish(source, [m for m in mine if m[0] in range(*source.keys)], watermark, ended)
        for instance in self.instances:
            for edge in instance.vertex.inputs:
                for source in self.producers[edge.producer]:
                    instance.receive(
                        edge.id, source.outlets.piece(edge.id, self.epochs, instance.keys)
                    )
            assert instance.ready()
            instance.step()
        out = EpochOutput(*(self._read(name) for name in _READERS))
        for machines in self.producers.values():
            for machine in machines:
                machine.outlets.trim(self.epochs)
        return out

    def _read(self, name: str) -> list[Any]:
        vertex = next((v for v in self.plan.vertices if v.name == name), None)
        if vertex is None:
            return []
        whole = KeyRange(0, self.key_groups)
        pieces: dict[int, list[Piece]] = {
            e.id: [p.outlets.piece(e.id, self.epochs, whole) for p in self.producers[e.producer]]
            for e in vertex.inputs
        }
        return in_order(assemble(feeds_of(vertex), pieces, vertex.schemas, whole, None))


def _publish(
    source: SourceInstance, records: list[tuple[int, Any]], watermark: int, ended: bool
) -> None:
    schema = source.vertex.ports[0].schema
    rows = from_records(schema, [r for _, r in records])
    offsets = np.searchsorted(
        [g for g, _ in records], np.arange(source.keys.lo, source.keys.hi + 1)
    )
    source.step(EpochRows(rows, offsets.astype(np.int64), watermark, ended))


def _plan(op: Any, key_groups: int, time_unit: Any, compiled: bool | None) -> Plan:
    spec = spec_of(op)
    flow = Flow("bench", key_groups=key_groups, time_unit=time_unit)
    streams: Any = None
    for schema in spec.inputs:
        fed = flow.source(BenchFeed(schema.cls), epochs=by_arrival(), name=f"feed-{schema.name}")
        streams = fed if streams is None else streams | fed
    windowed = spec.window is not None
    out = streams.through(op, name=spec.name, late=windowed)
    for stream, name in zip(out if windowed else [out], _READERS, strict=False):
        if stream._branches:
            stream.to(BenchSink(), name=name)
    for node in flow.nodes:
        if isinstance(node, OperatorNode) and compiled is not None:
            node.spec = replace(node.spec, compiled=compiled)
            check_spec(node.spec)
    splits = {f"feed-{schema.name}": ["fed"] for schema in spec.inputs}
    return plan_of(flow, splits)


def _spec(plan: Plan) -> OperatorSpec:
    for vertex in plan.vertices:
        if vertex.spec is not None:
            return vertex.spec
        if vertex.fused:
            return vertex.fused[0].spec
    raise AssertionError("a bench has one operator")
