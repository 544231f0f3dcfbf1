"""Gives the metrics of a job to Ray, which serves them to Prometheus at each node."""

from __future__ import annotations

import time

from ray.util.metrics import Gauge

from raystream.actors.cluster.ray_internals import metric_seconds
from raystream.controller.reporting.metrics import METRICS, points
from raystream.controller.reporting.status import Status

EVERY_SECONDS = 5.0
"""How often values are given to Ray, at most."""


class Exporter:
    """Gives the metrics of one job to Ray.

    All of them are gauges to Ray, totals too: Ray's counters begin at 0 in every process, and these
    go on. Ray keeps the last values of a process that has died for a while, beside those of the
    process that replaces it. A controller that was restarted waits until they are gone, so that
    their sum does not count a job twice, and then falls.

    Args:
        job: the name of the job. again: whether another controller gave values before.
    """

    def __init__(self, job: str, *, again: bool) -> None:
        self._job = job
        self._gauges = {
            name: Gauge(name, metric.says, labels)
            for metric in METRICS
            for name, labels in metric.series
        }
        every = metric_seconds()
        self._every = min(EVERY_SECONDS, every)
        self._due = time.monotonic() + (3 * every if again else 0.0)
        self._before: Status | None = None

    def due(self) -> bool:
        """Whether values are to be given now."""
        return time.monotonic() >= self._due

    def give(self, now: Status) -> None:
        """Give the values of a moment."""
        self._due = time.monotonic() + self._every
        for point in points(self._job, now, self._before):
            self._gauges[point.name].set(point.value, dict(point.labels))
        self._before = now
