"""Finds windows and timers that would wait as long as a job runs: no watermark reaches them."""

from __future__ import annotations

import warnings

from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import by_count
from raystream.dataflow.plan import Plan, Vertex


class NoWatermarkWarning(UserWarning):
    """Windows never close or timers never ring, as a source that goes on has no event time."""


def warn_of_no_watermark(plan: Plan) -> None:
    """Warn, at the line of each operator that waits for event time, of a source that goes on until
    it is stopped and has none. Of one that ends windows close then, which may be what is meant."""
    for vertex in plan.vertices:
        if vertex.spec is None or not _waits_for_time(vertex.spec):
            continue
        source, where = _without_watermark(plan, vertex), vertex.spec.where
        if source is None or source.epochs is None or where is None:
            continue
        held = "its windows never close" if vertex.spec.window else "its timers never ring"
        record = source.ports[0].schema.name
        warnings.warn_explicit(
            f"{vertex.name}: {held} while the job runs. {source.name} has no watermark:"
            f" {record} has no integer {source.epochs.time!r}. Name the field of event time:"
            ' stream.timed("time", disorder=...), or rs.by_arrival("time").',
            NoWatermarkWarning,
            where.file,
            where.line,
        )


def _waits_for_time(spec: OperatorSpec) -> bool:
    if spec.window is not None:
        return not by_count(spec.window)
    return spec.timer is not None or spec.waits


def _without_watermark(plan: Plan, vertex: Vertex) -> Vertex | None:
    """A source without a watermark that holds back that of a vertex."""
    for edge in vertex.inputs:
        producer = plan.vertices[edge.producer]
        if all(rule.port is not None for rule in edge.rules):
            continue  # a field of the stream is its event time
        if producer.kind != "source":
            if (found := _without_watermark(plan, producer)) is not None:
                return found
        elif _goes_on_without_time(producer):
            return producer
    return None


def _goes_on_without_time(vertex: Vertex) -> bool:
    source, epochs = vertex.source, vertex.epochs
    if epochs is None or epochs.column is not None or not (source.waits or source.recorded):
        return False
    return not vertex.ports[0].schema.has_time(epochs.time)
