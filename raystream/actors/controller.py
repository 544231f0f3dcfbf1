"""The controller actor: deploys a plan, watches it, commits, recovers, reports.

What is to be done is decided by `controller.decide`; this is what does it.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import ray

from raystream.actors.crew import Crew
from raystream.controller.decide import Commit, Recover, Release, View, decide, recoveries
from raystream.controller.recovery import Deaths
from raystream.controller.report import JobReport, Progress, Recovery, Sample, Samples, totals
from raystream.dataflow.plan import Plan
from raystream.errors import JobError, RaystreamError

POLL_SECONDS = 0.25
"""How often instances are asked for their progress."""
START_DELAY = 0.2
"""Seconds between the last instance's readiness and the first row of a paced run."""


class Controller:
    """Runs one job; `run` returns when the job has ended."""

    def __init__(self, env: dict[str, str], copies: int, spares: int) -> None:
        self._options = (env, copies, spares)
        self._plan: Plan
        self._crew: Crew
        self._started = 0.0
        self._samples = Samples()
        self._recoveries: list[Recovery] = []
        self._committed = 0
        self._deaths = Deaths()
        self._finished: set[str] = set()
        self._failed: list[tuple[str, str]] = []
        self._error: RaystreamError | None = None
        self._lock = threading.Lock()
        self._cancelled = False

    @ray.method(concurrency_group="control")
    def samples(self, since: float) -> list[Sample]:
        """The samples later than `since` seconds after the start."""
        with self._lock:
            return self._samples.after(since)

    @ray.method(concurrency_group="control")
    def progress(self) -> list[Progress]:
        """What every instance said last."""
        return self._progress()

    @ray.method(concurrency_group="control")
    def cancel(self) -> None:
        """End the job as soon as possible."""
        self._cancelled = True

    def run(self, plan: Plan) -> JobReport | RaystreamError:
        """Deploy, watch, stop. Errors are returned, not raised: Ray would wrap them."""
        self._plan = plan
        self._crew = Crew(plan, *self._options)
        try:
            self._deploy()
            return self._watch()
        except RaystreamError as error:
            return error
        finally:
            self._crew.dismiss()

    def _deploy(self) -> None:
        self._crew.gather()
        self._crew.take_roles()
        clock = self._plan.clock
        paced = clock is not None and clock.speed is not None
        self._started = time.time() + (START_DELAY if paced else 0.0)
        self._crew.start(self._started if paced else None)

    # ------------------------------------------------------------ watch

    def _watch(self) -> JobReport:
        while not self._cancelled:
            self._reflect()
            for command in decide(self._view()):
                if isinstance(command, Commit):
                    self._committed = command.epoch
                    self._deaths.moved()
                    self._crew.commit(command.epoch)
                    self._crew.stand_by()  # not before: loading them slows the start of the job
                elif isinstance(command, Recover):
                    self._recover(command)
                elif isinstance(command, Release):
                    self._crew.release(command.instances)
                elif command.failed:
                    raise self._error or JobError(command.because)
                else:
                    return self._report()
        raise JobError("the job was cancelled")

    def _view(self) -> View:
        members = self._crew.members
        return View(
            tuple(m.progress for m in members if m.progress is not None),
            frozenset(m.name for m in members if m.dead),
            frozenset(self._finished),
            tuple(self._failed),
            self._committed,
            self._plan.cut_every,
            frozenset(s.instance for s in self._crew.assignment.serving),
        )

    def _reflect(self) -> None:
        """Wait a little, then take in who ended, who died and how far everybody is."""
        for member, error in self._crew.wait(POLL_SECONDS):
            if error is None:
                self._finished.add(member.name)
            elif not member.dead:
                self._error = self._error or error
                self._failed.append((member.name, str(error)))
        if not recoveries(self._view()):
            self._crew.ask(self._committed)
            self._sample()

    def _recover(self, command: Recover) -> None:
        began = time.time()
        gone = [m for m in self._crew.members if m.name in command.instances]
        because = "; ".join(m.dead for m in gone)
        self._deaths.died([m.place for m in gone], command.floor, because)
        new = self._crew.replace(gone, command.floor)
        self._recoveries.append(
            Recovery(
                began - self._started,
                tuple(m.name for m in gone),
                tuple(m.name for m in new),
                command.floor,
                time.time() - began,
                command.because,
            )
        )

    # ------------------------------------------------------------ report

    def _sample(self) -> None:
        t = time.time() - self._started
        if not self._samples.due(t):
            return
        with self._lock:
            self._samples.add(Sample(t, self._totals(), self._crew.processes()))

    def _progress(self) -> list[Progress]:
        return [m.progress for m in self._crew.members if m.progress is not None]

    def _totals(self) -> dict[str, Any]:
        return {o.name: o for o in totals(self._progress())}

    def _report(self) -> JobReport:
        operators = self._totals()
        ended = [p.ended_at for p in self._progress() if p.ended_at]
        elapsed = max(ended, default=time.time()) - self._started
        last = Sample(elapsed, operators, self._crew.processes())
        return JobReport(
            self._plan.job,
            "ray",
            self._started,
            elapsed,
            tuple(operators.values()),
            self._samples.ended(last),
            tuple(self._recoveries),
        )
