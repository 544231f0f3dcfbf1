"""One run over rows that are pushed: until whoever feeds it ends its input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lrb.query.fed import Due, Feed, build
from lrb.query.flow import SINK, SOURCE
from lrb.query.folder import new_parts, remove_parts
from lrb.query.records import Balance
from lrb.query.run import OnProgress, record_of, write
from lrb.query.sink import AnswerParts, by_clock, collect, handed_over, marks
from raystream.errors import JobError


def run_fed(
    feed: Feed,
    out: Path,
    *,
    cluster: str | None = None,
    instances: Mapping[str, int] | None = None,
    copies: int = 1,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Answer rows as they are pushed, and write the answers when the input has ended.

    Args:
        out: an absolute path; with several nodes, a folder that all of them share.
        cluster, instances, copies: as of `lrb.query.run.run`.

    Returns:
        what the run was, as in run.json.

    Raises:
        ConfigError, InputError: what was asked or given cannot be. JobError: the job failed, or a
            row came after the mark that it belongs before.
    """
    parts = new_parts(out)
    flow = build(feed, AnswerParts(parts, fed=True))

    def tell(sample: Any) -> None:
        if on_progress is not None:
            on_progress(sample, None)

    try:
        report = flow.run(
            cluster=cluster, instances=instances, copies=copies, policy="auto", on_progress=tell
        )
        _refuse_late(report)
        asked = handed_over(report.operator(SINK).by_port)
        clock = marks(parts, groups=flow.key_groups)
        answers = by_clock(collect(parts, groups=flow.key_groups, expected=asked), clock)
        speed = None if clock is None else clock.speed
        record = record_of("push", rows_in(report), report, answers, speed)
        record["policy"] = None
        write(out, answers, record)
    finally:
        remove_parts(parts)
    return record


def _refuse_late(report: Any) -> None:
    late = sum(operator.late for operator in report.operators)
    if late:
        raise JobError(
            f"{late:,} rows came after rows of later seconds, and are in no answer",
            hint="Each lane is to be pushed in order of time; `python -m spark_ingest feed` does.",
        )


def rows_in(report: Any) -> dict[str, int]:
    """How many rows of each type have come: reports go to vehicles, each request for a balance has
    an answer, and marks go to the sink."""
    answered = report.operator(SINK).by_port
    every = report.operator(SOURCE).records_in - _of(answered, Due)
    told = {
        "0": report.operator("vehicles").records_in,
        "2": _of(answered, Balance),
        "3": report.operator("expenditure").records_in,
    }
    return {**told, "4": every - sum(told.values())}


def _of(by_port: Mapping[str, int], record: type[Any]) -> int:
    return sum(n for port, n in by_port.items() if port.endswith(f".{record.__name__}"))
