"""What is said at the end of a run of records that were late and left out."""

from __future__ import annotations

from collections.abc import Iterable

from raystream.controller.reporting.report import OperatorReport
from raystream.dataflow.plan import Plan

LATE_SHARE = 0.01
"""A larger part of an operator's records that is late and left out is said at the end."""


def late_notes(operators: Iterable[OperatorReport], plan: Plan) -> list[str]:
    """A sentence for each operator that left out records that were late.

    Of records that come from a source a few are usual, and are not said. Of records that another
    operator emits each is said, with the name of that operator: it may emit earlier times than it
    takes, which only its author knows.
    """
    ports = [plan.vertices[e.producer].ports[e.port] for e in plan.edges]
    streamed = {port.node for port in ports if port.late}
    waiting = {v.name for v in plan.vertices if v.spec is not None and v.spec.waits}
    notes = []
    for o in operators:
        if not o.late or o.name in streamed:
            continue
        emitted_by = _emitted_by(o.name, plan)
        if not emitted_by and o.late <= LATE_SHARE * o.records_in:
            continue
        why = "their windows had closed"
        if o.name in waiting:
            why = "the watermark had passed them"
        told = (
            f"{o.late:,} of {o.records_in:,} records were late for {o.name} and left out: {why}."
            " If the input is not in order of time, say by how much: disorder=... of rs.by_time or"
            " rs.by_arrival; late=True of through makes a stream of them."
        )
        if emitted_by:
            told += (
                f" They were emitted by {' and '.join(emitted_by)}: if that emits earlier times"
                ' than it takes, say by how much: stream.timed("time", behind=...).'
            )
        notes.append(told)
    return notes


def _emitted_by(name: str, plan: Plan) -> list[str]:
    """The operators that emit what an operator takes, sources left aside."""
    sources = {v.name for v in plan.vertices if v.kind == "source"}
    nodes = [
        plan.vertices[e.producer].ports[e.port].node
        for e in plan.edges
        if plan.vertices[e.consumer].name == name
    ]
    return sorted({*nodes} - sources)
