"""What a controller reports of its job: samples, its status, and a report at its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable

from raystream.actors.control.processes import ActorPool
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.strategies import strategy_of
from raystream.controller.reporting.report import (
    Committed,
    JobReport,
    OperatorReport,
    Sample,
    Samples,
    totals,
)
from raystream.controller.reporting.status import Status, status_of
from raystream.dataflow.plan import Plan


class Reporter:
    """Reports one job. Any thread may ask; the thread that runs the machine takes the samples."""

    def __init__(self, plan: Plan, machine: Machine, processes: ActorPool) -> None:
        self._plan = plan
        self._machine = machine
        self._actors = processes
        self._samples = Samples()
        self.written = machine.journal
        """The newest entry of the journal that keepers have: what is shown for good is of it."""
        self._lock = threading.Lock()
        self._known: dict[str, OperatorReport] = {}

    @property
    def started(self) -> float:
        """The Unix time at which the job has begun; 0 before."""
        return self._machine.journal.started

    def samples_after(self, since: float) -> list[Sample]:
        """The samples later than `since` seconds after the start."""
        with self._lock:
            return self._samples.after(since)

    def sample(self) -> None:
        """Take a sample, if one is due and every operator was heard of."""
        t = time.time() - self.started
        operators = self._totals()
        if self.started and self._samples.due(t) and len(operators) == len(self._plan.vertices):
            with self._lock:
                self._samples.add(self._sample(t, operators))

    def status(self, run: str, notes: Iterable[tuple[float, str]]) -> Status:
        """The state of the job now.

        Args:
            run: its name. notes: seconds since the start, and what was said then.
        """
        machine = self._machine
        members = list(machine.members)
        committed = self.committed()
        now, totals = time.time(), self.written.totals
        entry = machine.journal
        links = dict(self._actors.restores.links.pairs)
        return status_of(self._plan, run, entry, members, committed, now, notes, totals, links)

    def committed(self) -> Committed | None:
        """The committed checkpoint; None in a job without checkpoints, and before it begins."""
        machine = self._machine
        stores = strategy_of(machine.options.recovery).stores_checkpoints
        if not stores or not machine.journal.started:
            return None
        age = time.time() - max(machine.commits.committed_at, machine.journal.started)
        entry = machine.journal
        return Committed(
            epoch=entry.committed,
            age=age,
            under_replicated=machine.under_replicated,
            saved=None if self._plan.durable is None else entry.saved,
            unsaved=machine.unsaved,
            unstored=machine.replication.unstored,
            stopping=entry.stop_after >= 0,
            in_memory=machine.replication.kept.memory,
            in_files=machine.replication.kept.disk,
            short_of_zones=machine.replication.short_of_zones,
        )

    def report(self) -> JobReport:
        """What the job has done, at its end."""
        machine, operators = self._machine, self._totals()
        ended = [p.ended_at for p in machine.progress() if p.ended_at]
        elapsed = max(ended, default=time.time()) - self.started
        last = self._sample(elapsed, operators)
        return JobReport(
            job=self._plan.job,
            cluster="ray",
            started=self.started,
            elapsed=elapsed,
            operators=tuple(operators.values()),
            samples=self._samples.ended(last),
            recoveries=machine.journal.recoveries,
            moved=machine.journal.moved,
            saved=machine.journal.saved,
            unsaved=machine.unsaved,
        )

    def _sample(self, t: float, operators: dict[str, OperatorReport]) -> Sample:
        return Sample(
            t=t, operators=operators, processes=self._processes(), committed=self.committed()
        )

    def _totals(self) -> dict[str, OperatorReport]:
        """The totals by operator, without operators of which nothing was heard yet.

        A new instance that has said nothing yet does not take away what was known before.
        """
        self._known |= {o.name: o for o in totals(self._machine.progress())}
        return {v.name: self._known[v.name] for v in self._plan.vertices if v.name in self._known}

    def _processes(self) -> dict[str, int]:
        """Process ids by name."""
        pids = {m.name: m.record.pid for m in self._machine.members}
        for i, pid in enumerate(self._actors.pids().values()):
            pids[f"keeper/{i}"] = pid
        return {**pids, "controller": os.getpid()}
