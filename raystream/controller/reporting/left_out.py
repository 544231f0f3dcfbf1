"""What is said at the end of a run of records and rows that were left out."""

from __future__ import annotations

from raystream.api.operators import FailedRecord
from raystream.controller.reporting.late import late_notes
from raystream.controller.reporting.report import JobReport
from raystream.dataflow.plan import Plan
from raystream.schema.blocks import NAMED


def left_out(report: JobReport, plan: Plan, *, values: bool) -> list[str]:
    """A sentence for each operator that has left out many records that were late, has cut off
    alarms at the end, or has failed at records that nothing takes; and for each source that has
    left out records with times far ahead.

    Args:
        values: whether keys may be named.
    """
    notes = late_notes(report.operators, plan)
    edges = [plan.vertices[e.producer].ports[e.port] for e in plan.edges]
    streamed = {port.node for port in edges if port.late}
    notes += [
        f"{o.cut_off:,} rows of {o.name} were cut off at the end of the input"
        f"{_keys(o.cut_off_keys if values else ())}: `timer` set their alarms again and again."
        " end_rings=... of @rs.operator says how often they ring."
        for o in report.operators
        if o.cut_off
    ]
    notes += [
        f"{o.ahead:,} of {o.records_in:,} records of {o.name} were left out: their times were"
        " further ahead of the records before them than max_ahead=... of its epochs allows."
        " ahead=True of source() makes a stream of them."
        for o in report.operators
        if o.ahead and o.name not in streamed
    ]
    return notes + _unread_failures(report, plan)


def _keys(named: tuple[str, ...]) -> str:
    return f" (keys: {', '.join(named[:NAMED])})" if named else ""


def _unread_failures(report: JobReport, plan: Plan) -> list[str]:
    """Say which operators have failed at records that no stream of the flow takes."""
    read = {(e.producer, e.port) for e in plan.edges}
    found = []
    for vertex in plan.vertices:
        counts = report.operator(vertex.name).by_port
        for at, port in enumerate(vertex.ports):
            many = counts.get(f"{port.node}.{port.schema.name}", 0)
            if port.schema.cls is FailedRecord and many and (vertex.id, at) not in read:
                found.append(
                    f"{many:,} records failed in {port.node} and were left out: nothing takes its"
                    " stream of rs.FailedRecord."
                )
    return found
