"""Gives the metrics of a job to Ray, which serves them to Prometheus at each node, and what it has
decided to a collector of traces."""

from __future__ import annotations

import time
from collections.abc import Callable

from ray.util.metrics import Gauge

from raystream.actors.cluster.ray_internals import metric_seconds
from raystream.actors.cluster.tracing import TraceSender
from raystream.controller.protocol.machine import Machine
from raystream.controller.reporting.metrics import METRICS, points
from raystream.controller.reporting.status import Status
from raystream.controller.reporting.traces import Decision, checkpoint, decisions, encoded

EVERY_SECONDS = 5.0
"""How often values are given to Ray, at most."""
AGAIN_SECONDS = 60.0
"""A controller that is restarted sends what was decided in this time before it: another one may not
have come to that. A trace that is sent twice has the same ids."""


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


class Tracer:
    """Has the decisions of a job sent to a collector, each once it is over.

    Args:
        url: the address of the collector. note: is told when it does not take them.
    """

    def __init__(self, job: str, run: str, url: str, note: Callable[[str], None]) -> None:
        self._job, self._run = job, run
        self._sender = TraceSender(url, note)
        self._seen: tuple[object, ...] = ()
        self._sent: set[tuple[str, float, float]] | None = None
        self._committed: int | None = None

    def look(self, machine: Machine) -> None:
        """Send what is new."""
        started = machine.journal.started
        if not started:
            return
        found = [*self._decided(machine, time.time() - started), *self._checkpoint(machine)]
        if found:
            self._sender.send(encoded(self._job, self._run, started, found))

    def close(self, machine: Machine) -> None:
        """Send the last."""
        self.look(machine)
        self._sender.close()

    def _decided(self, machine: Machine, now: float) -> list[Decision]:
        entry = machine.journal
        seen = (entry.recoveries, entry.moved, entry.upgraded)
        if len(self._seen) == len(seen) and all(
            a is b for a, b in zip(seen, self._seen, strict=True)
        ):
            return []
        self._seen, found = seen, {(d.kind, d.t, d.ended): d for d in decisions(entry)}
        if self._sent is None:
            self._sent = {at for at, d in found.items() if d.ended < now - AGAIN_SECONDS}
        new = [d for at, d in found.items() if at not in self._sent]
        self._sent = set(found)
        return new

    def _checkpoint(self, machine: Machine) -> list[Decision]:
        before, self._committed = self._committed, machine.journal.committed
        if before is None or self._committed <= before:
            return []
        said = [p for p in machine.progress() if p.image_bytes]
        took = max((p.image_seconds for p in said), default=0.0)
        at = machine.commits.committed_at - machine.journal.started
        return [checkpoint(self._committed, at, took, sum(p.image_bytes for p in said))]
