"""What a sink is told before its first write, and what a plan has to know of its sinks."""

from __future__ import annotations

from raystream.api.connectors import as_given
from raystream.dataflow.asking.claiming import claiming
from raystream.dataflow.plan import Plan, Vertex
from raystream.schema.types import KeyRange, SinkContext


def shows_at_once(plan: Plan) -> bool:
    """Whether a sink shows epochs at once. Then a stop with a saved checkpoint lets nothing come
    after it: a run with another program goes on only if nothing is shown after the checkpoint."""
    sinks = (as_given(v.sink) for v in plan.vertices if v.kind == "sink")
    return any(getattr(sink, "kind", "") == "by-epoch" for sink in sinks)


def sink_context(
    plan: Plan,
    vertex: Vertex,
    keys: KeyRange,
    *,
    run: str,
    paced_from: float | None,
    committed: int = 0,
    generation: int = 0,
) -> SinkContext:
    """What a sink instance is told before its first write.

    Args:
        keys: its range.
        run: the name of the run.
        paced_from: the Unix time at which a paced run released its first row.
        committed: the epoch from which it goes on.
        generation: the version of the assignment with which it begins.
    """
    clock, resumed = plan.clock, plan.resumed
    added = resumed is not None and not resumed.stored_as(vertex.name)
    paced = clock is not None and clock.speed is not None and paced_from is not None
    return SinkContext(
        run=run,
        operator=vertex.name,
        keys=keys,
        started=paced_from if paced else None,
        origin=clock.origin if clock is not None else 0.0,
        speed=clock.speed if clock is not None and paced else None,
        committed=committed,
        resumed="" if resumed is None else resumed.run,
        lasting=plan.durable is not None,
        generation=generation,
        number=0 if plan.durable is None else plan.durable.number,
        job=plan.job,
        program=plan.program,
        repeatable=not claiming(plan),
        begun=plan.begins if added else 0,
        mark=vertex.name if resumed is None else resumed.marks.get(vertex.name, vertex.name),
    )
