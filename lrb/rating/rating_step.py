"""One step of the search: a number of expressways at their own pace, and every answer judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lrb.oracle.answers import TOLL
from lrb.oracle.expected import Expected
from lrb.oracle.validate import compare
from lrb.query.flow import SINK, SOURCE, build, epoch_seconds
from lrb.query.folder import new_parts, remove_parts
from lrb.query.replicas import replicas
from lrb.query.sink import AnswerParts, handed_over
from lrb.query.source import Prepared
from lrb.rating.replica_check import weigh
from lrb.rating.usage import Usage
from raystream.errors import JobError, Stopped
from spark_ingest.traffic.calibration import REPORT_SECONDS

BEHIND_SECONDS = TOLL.deadline_s + 2.5
"""A step is given up when its sink is so far behind: the deadline, and what a sample may lag."""


class Behind(JobError):
    """The job does not keep up."""


@dataclass(frozen=True)
class Step:
    """What a step has shown. why: why it did not pass, empty if it did.

    rows_per_second: due on average over the slice, and in its last second. seconds: real ones, up
    to the last answer or until the step was given up. answers, latency, late, differing: None
    where that was not reached. latency: seconds by percentile. cores, memory: by operator and
    other processes. state_rows, state_bytes: by operator, the rows it had at the end, and the
    memory that its rows have taken at most.
    """

    xways: int
    rows: int
    rows_per_second: float
    rows_per_second_at_end: int
    why: str
    seconds: float | None = None
    right: bool | None = None
    answers: int | None = None
    positive_tolls: int | None = None
    latency: Mapping[str, float] | None = None
    late: int | None = None
    replicas_differing: int | None = None
    checksum: str | None = None
    cores: Mapping[str, float] | None = None
    memory: Mapping[str, int] | None = None
    state_rows: Mapping[str, int] | None = None
    state_bytes: Mapping[str, int] | None = None

    @property
    def passed(self) -> bool:
        """Whether every answer was right and came in time."""
        return not self.why

    def record(self) -> dict[str, Any]:
        """As in rate.json."""
        return {**asdict(self), "passed": self.passed}


def step(
    data: Prepared,
    right: Expected,
    out: Path,
    *,
    xways: int,
    speed: float,
    p99: float,
    cluster: str | None,
    instances: Mapping[str, int],
) -> Step:
    """Replay prepared data as `xways` expressways, of which they have a divisor, and judge it.

    Args:
        right: the answers to the prepared data.
        out: an absolute path; with several nodes, a folder that all of them share.
        p99: seconds in which 99 of 100 answers have to come.
    """
    copies = replicas(data, xways // data.meta.xways)
    parts = new_parts(out)
    sink = AnswerParts(parts, vehicles=copies.vehicles)
    flow = build(data, sink, speed=speed, replicas=copies)
    usage = Usage()
    watch = Watch(data, speed, copies.count)

    def follow(sample: Any) -> None:
        usage.add(sample)
        watch.check(sample)

    due = _due(data, xways, speed)
    try:
        rows = expected_rows(data, xways)
        report = flow.run(cluster=cluster, instances=instances, rows=rows, on_progress=follow)
        if report.operator(SOURCE).records_in != due["rows"]:
            raise JobError(f"the job has read {report.operator(SOURCE).records_in:,} rows")
        asked = handed_over(report.operator(SINK).by_port)
        weighed = weigh(parts, copies, groups=flow.key_groups, expected=asked)
    except Stopped:
        raise  # somebody does not want it
    except JobError as failed:  # it does not keep up, or there is no memory left
        return Step(**due, why=str(failed), cores=usage.cores(), memory=usage.memory())
    finally:
        remove_parts(parts)
    verdict = compare(right, weighed.original, None)
    latency = weighed.latencies.summary()
    found = Step(
        **due,
        why="",
        seconds=report.elapsed,
        right=verdict.right and not weighed.differing,
        answers=int(weighed.numbers.sum()),
        positive_tolls=verdict.positive_tolls * copies.count,
        latency=latency,
        late=weighed.latencies.late,
        replicas_differing=len(weighed.differing),
        checksum=verdict.checksum,
        cores=usage.cores(),
        memory=usage.memory(),
        state_rows={o.name: o.state_rows for o in report.operators if o.table_bytes},
        state_bytes={o.name: o.table_bytes for o in report.operators if o.table_bytes},
    )
    return replace(found, why=why_not(found, p99=p99))


def expected_rows(data: Prepared, xways: int) -> dict[str, int]:
    """How many rows operators are to keep: each car reports once in this many seconds."""
    seconds = np.convolve(data.meta.per_second, np.ones(REPORT_SECONDS, np.int64))
    cars = int(seconds.max()) * (xways // data.meta.xways)
    return {"vehicles": cars, "accounts": cars}


def why_not(found: Step, *, p99: float) -> str:
    """What is wrong with a step that ran to its end; empty if nothing is."""
    if found.replicas_differing:
        return f"{found.replicas_differing} replicas are answered otherwise than the original"
    if not found.right:
        return "the oracle finds wrong answers"
    if found.late:
        return f"{found.late:,} answers after their deadline"
    if found.latency is not None and found.latency["p99"] > p99:
        return f"p99 is {found.latency['p99']:.3f} s"
    return ""


def _due(data: Prepared, xways: int, speed: float) -> dict[str, Any]:
    """The rows of a step and how fast they come."""
    copies = xways // data.meta.xways
    per_second = data.meta.per_second
    return {
        "xways": xways,
        "rows": data.meta.rows_total * copies,
        "rows_per_second": data.meta.rows_total * copies / len(per_second) * speed,
        "rows_per_second_at_end": round(per_second[-1] * copies * speed),
    }


class Watch:
    """Gives a job up that is too far behind."""

    def __init__(self, data: Prepared, speed: float, copies: int) -> None:
        self._epoch = epoch_seconds(data, speed, copies) / speed
        self._epochs = int(len(data.meta.per_second) / speed / self._epoch)

    def check(self, sample: Any) -> None:
        """Raises Behind for a sample of a job that does not keep up."""
        position = min(sample.operators[SINK].position, self._epochs)
        behind = sample.t - position * self._epoch
        if position < self._epochs and behind > BEHIND_SECONDS:
            raise Behind(f"{behind:.1f} s behind after {sample.t:.0f} s")
