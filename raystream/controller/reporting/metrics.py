"""What a job shows to Prometheus: names, labels, and the values at one moment.

Every name is in `METRICS`; docs/reference/metrics.md describes them. A series has the labels of its
metric and no others, and none of them is the name of an instance: there are as many series for 500
instances as for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from raystream.controller.protocol.totals import Histogram
from raystream.controller.reporting.status import Pace, Status, paces, together
from raystream.schema.types import BEFORE_ALL, NEVER

JOB = ("job", "run")
OPERATOR = (*JOB, "operator")
KINDS = ("scale out", "scale in", "move")


class Metric(NamedTuple):
    """A metric of a job."""

    name: str
    """Its name; Ray puts `ray_` in front."""
    kind: Literal["gauge", "total", "histogram"]
    """A number of now; a count that never falls; durations, of which there are three names, with
    the endings `_bucket`, `_sum` and `_count`."""
    says: str
    """What it says."""
    labels: tuple[str, ...] = OPERATOR
    """The names of its labels."""

    @property
    def series(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names under which Prometheus has it, each with its labels."""
        if self.kind != "histogram":
            return ((self.name, self.labels),)
        bucket = (f"{self.name}_bucket", (*self.labels, "le"))
        return bucket, (f"{self.name}_sum", self.labels), (f"{self.name}_count", self.labels)


METRICS = (
    Metric("raystream_records_in_total", "total", "Records that it has taken"),
    Metric("raystream_records_out_total", "total", "Records that it has emitted"),
    Metric("raystream_late_records_total", "total", "Records that were late"),
    Metric("raystream_ahead_records_total", "total", "Records that a source has set aside"),
    Metric("raystream_recoveries_total", "total", "Recoveries", JOB),
    Metric("raystream_moves_total", "total", "Moves that have ended", (*JOB, "kind", "failed")),
    Metric("raystream_latency_seconds", "histogram", "From sent by the last source to written"),
    Metric("raystream_epoch_seconds", "histogram", "From an epoch of a source to its next", JOB),
    Metric("raystream_checkpoint_seconds", "histogram", "Until a checkpoint was stored", JOB),
    Metric("raystream_instances", "gauge", "Instances"),
    Metric("raystream_busy", "gauge", "Share of the time in which its busiest instance worked"),
    Metric("raystream_blocked", "gauge", "Share of the time in which an instance was held up"),
    Metric("raystream_cpu", "gauge", "Share of a core that its hardest instance used"),
    Metric("raystream_skew", "gauge", "Load of the fullest instance, by the mean of all"),
    Metric("raystream_waiting_records", "gauge", "Records at hand that are not applied"),
    Metric("raystream_state_rows", "gauge", "Rows of state"),
    Metric("raystream_state_rows_on_disk", "gauge", "How many of these are on disk alone"),
    Metric("raystream_state_bytes", "gauge", "About how many bytes they take when stored"),
    Metric("raystream_memory_bytes", "gauge", "Memory of its largest process"),
    Metric("raystream_epochs_behind", "gauge", "Epochs behind the sources"),
    Metric("raystream_seconds_behind", "gauge", "Seconds behind the pace, of a paced job"),
    Metric("raystream_watermark", "gauge", "The watermark, in the flow's unit"),
    Metric("raystream_checkpoint_bytes", "gauge", "Sizes of the newest checkpoints, added up"),
    Metric("raystream_checkpoint_epoch", "gauge", "The newest committed checkpoint", JOB),
    Metric("raystream_checkpoint_age_seconds", "gauge", "Seconds since it was committed", JOB),
    Metric("raystream_under_replicated", "gauge", "Ranges without all copies", JOB),
    Metric("raystream_short_of_zones", "gauge", "Ranges in fewer zones than possible", JOB),
    Metric("raystream_saved_epoch", "gauge", "The newest checkpoint in the durable tier", JOB),
    Metric("raystream_unsaved", "gauge", "1 while a checkpoint could not be saved or stored", JOB),
    Metric("raystream_keepers", "gauge", "Keepers", JOB),
    Metric("raystream_nodes", "gauge", "Nodes on which instances run", JOB),
)  # fmt: skip
"""All metrics."""


class Point(NamedTuple):
    """The value of a series."""

    name: str
    """The name of the series."""
    labels: Mapping[str, str]
    """Its labels."""
    value: float
    """Its value."""


def points(job: str, now: Status, before: Status | None) -> Iterator[Point]:
    """All series of a job at one moment.

    Args:
        job: its name. before: an earlier moment: shares of time are of what is between the two.
    """
    of_job = {"job": job, "run": now.run}
    yield from _of_job(of_job, now)
    each = paces(now, before)
    for name in now.operators:
        labels = {**of_job, "operator": name}
        yield from _totals(labels, now, name)
        yield Point("raystream_instances", labels, len(now.of(name)))
        pace = together(each[w.name] for w in now.of(name))
        if pace is not None:
            yield from _of_pace(labels, pace)
            yield from _of_progress(labels, now, name)


def _of_job(labels: Mapping[str, str], now: Status) -> Iterator[Point]:
    yield from _histogram("raystream_epoch_seconds", labels, now.totals.epochs)
    yield from _histogram("raystream_checkpoint_seconds", labels, now.totals.checkpoints)
    kinds = [(t.kind, t.failed) for t in now.story]
    yield Point("raystream_recoveries_total", labels, kinds.count(("recovery", False)))
    for kind in KINDS:
        for failed in (False, True):
            at = {**labels, "kind": kind, "failed": "yes" if failed else "no"}
            yield Point("raystream_moves_total", at, kinds.count((kind, failed)))
    yield Point("raystream_keepers", labels, len(now.keepers))
    yield Point("raystream_nodes", labels, len({w.node for w in now.workers}))
    if (committed := now.committed) is not None:
        yield Point("raystream_checkpoint_epoch", labels, committed.epoch)
        yield Point("raystream_checkpoint_age_seconds", labels, committed.age)
        yield Point("raystream_under_replicated", labels, committed.under_replicated)
        yield Point("raystream_short_of_zones", labels, committed.short_of_zones)
        wrong = bool(committed.unsaved or committed.unstored)
        yield Point("raystream_unsaved", labels, int(wrong))
        if committed.saved is not None:
            yield Point("raystream_saved_epoch", labels, committed.saved)


def _totals(labels: Mapping[str, str], now: Status, name: str) -> Iterator[Point]:
    done = now.totals.operators.get(name)
    if done is not None:
        yield Point("raystream_records_in_total", labels, done.records_in)
        yield Point("raystream_records_out_total", labels, done.records_out)
        yield Point("raystream_late_records_total", labels, done.late)
        yield Point("raystream_ahead_records_total", labels, done.ahead)
    if (latency := now.totals.latency.get(name)) is not None:
        yield from _histogram("raystream_latency_seconds", labels, latency)


def _of_pace(labels: Mapping[str, str], pace: Pace) -> Iterator[Point]:
    yield Point("raystream_busy", labels, pace.busy)
    yield Point("raystream_blocked", labels, pace.blocked)
    yield Point("raystream_cpu", labels, pace.cpu)
    yield Point("raystream_waiting_records", labels, pace.waiting)
    yield Point("raystream_state_rows", labels, pace.state_rows)
    yield Point("raystream_state_rows_on_disk", labels, pace.rows_on_disk)
    yield Point("raystream_state_bytes", labels, pace.state_bytes)
    yield Point("raystream_epochs_behind", labels, pace.behind)
    if pace.seconds_behind is not None:
        yield Point("raystream_seconds_behind", labels, pace.seconds_behind)


def _of_progress(labels: Mapping[str, str], now: Status, name: str) -> Iterator[Point]:
    said = [w.progress for w in now.of(name) if w.progress is not None]
    taken = [p.records_in for p in said]
    if sum(taken):
        yield Point("raystream_skew", labels, max(taken) * len(taken) / sum(taken))
    yield Point("raystream_memory_bytes", labels, max(p.memory.own for p in said))
    yield Point("raystream_checkpoint_bytes", labels, sum(p.image_bytes for p in said))
    watermark = min(p.watermark for p in said)
    if BEFORE_ALL < watermark < NEVER:
        yield Point("raystream_watermark", labels, watermark)


def _histogram(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[Point]:
    for bound, count in histogram.upto():
        yield Point(f"{name}_bucket", {**labels, "le": bound}, count)
    yield Point(f"{name}_sum", labels, histogram.seconds)
    yield Point(f"{name}_count", labels, histogram.count)
