"""What sinks would be given: they are replaced by one that only hears, and may write elsewhere."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.dataflow.instances.sink import SinkInstance
from raystream.dataflow.plan import Plan
from raystream.io.file_functions import parquet
from raystream.schema.types import KeyRange, SinkContext


class SinkOutput(NamedTuple):
    """The records that a sink would have been given in one epoch."""

    sink: str
    """The name of the sink."""
    epoch: int
    """The epoch."""
    records: tuple[Any, ...]
    """Its records, in order of the names of their types, then in canonical order."""


class _Heard(Sink[Any]):
    """Takes the place of a sink, and hands on each batch that the sink would write.

    Args:
        keyed_by: that of the sink.
        take: called with the epoch, the key groups and the batch.
        kept: another sink, which writes the batches; None to write nothing.
    """

    def __init__(
        self,
        keyed_by: Any,
        take: Callable[[int, KeyRange, Batch[Any]], None],
        kept: Sink[Any] | None,
    ) -> None:
        self.keyed_by = keyed_by
        self._take = take
        self._kept = kept

    def __copy__(self) -> _Heard:
        return _Heard(self.keyed_by, self._take, copy.copy(self._kept))

    def open(self, context: SinkContext) -> None:
        if self._kept is not None:
            begun = context.committed  # as for a sink that was added to the job
            self._kept.open(context._replace(resumed="", begun=begun))

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any]) -> None:
        self._take(epoch, keys, batch)
        if self._kept is not None:
            self._kept.write(epoch, keys, batch)

    def prepare(self, epoch: int) -> None:
        if self._kept is not None:
            self._kept.prepare(epoch)

    def commit(self, epoch: int) -> None:
        if self._kept is not None:
            self._kept.commit(epoch)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


class Hearing:
    """Takes the place of all sinks of a plan.

    Args:
        write_to: a folder; the output is written as Parquet files into its folders JOB/SINK. None
            to write nothing.
    """

    def __init__(self, plan: Plan, write_to: str | None) -> None:
        self._parts: dict[tuple[int, str, str, int], Batch[Any]] = {}
        for vertex in plan.vertices:
            if vertex.kind == "sink":
                kept = None
                if write_to is not None:
                    kept = parquet(os.path.join(write_to, plan.job, vertex.name))
                    for schema in vertex.schemas:
                        kept.accept(schema.cls)
                vertex.sink = _Heard(vertex.sink.keyed_by, self._hears(vertex.name), kept)

    def _hears(self, sink: str) -> Callable[[int, KeyRange, Batch[Any]], None]:
        def take(epoch: int, keys: KeyRange, batch: Batch[Any]) -> None:
            self._parts[epoch, sink, batch.record.__name__, keys.lo] = batch

        return take

    def taken(self) -> Iterator[SinkOutput]:
        """The output since the last call, in order of epochs, then of sinks."""
        parts, self._parts = self._parts, {}
        outputs: dict[tuple[int, str], list[Any]] = {}
        for epoch, sink, record, lo in sorted(parts):
            records = parts[epoch, sink, record, lo].records()
            outputs.setdefault((epoch, sink), []).extend(records)
        for (epoch, sink), found in outputs.items():
            yield SinkOutput(sink, epoch, tuple(found))


def show(instances: list[Any]) -> None:
    """Publish what was written so far, even if the input goes on."""
    for sink in (m for m in instances if isinstance(m, SinkInstance) and not m.ended):
        sink.sink.prepare(sink.position)
        sink.publish(sink.position)
