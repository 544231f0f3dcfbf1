"""The controller actor: what Ray calls, and how a controller begins and ends.

A detached actor that Ray restarts. It then goes on from its journal, while data flows. What it does
in between is in `job_loop.py`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray

from raystream.actors.cluster.head import UNREACHABLE
from raystream.actors.control.actor_names import actor, kill, processes_of, restarts
from raystream.actors.control.answers import Charter, JobOutcome, Moves, RunningCode
from raystream.actors.control.job_loop import JobLoop
from raystream.actors.control.journal_writer import Fenced
from raystream.actors.control.node_pool import release
from raystream.actors.control.processes import ActorPool
from raystream.actors.control.requests import Requests
from raystream.actors.control.state_routes import StateRoutes, state_routes
from raystream.actors.control.succession import claim, has_begun, kept_plan
from raystream.controller.planning.upgrading import outline_of
from raystream.controller.protocol.journal import JournalEntry, newest
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import (
    MoveMode,
    RescaleRequest,
    elsewhere,
    evenly,
)
from raystream.controller.protocol.parts.replication import KEEPER
from raystream.controller.protocol.upgrading.requests import UpgradeRequest
from raystream.controller.reporting.report import JobReport, Sample
from raystream.controller.reporting.status import Status
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.errors import ConfigError, InternalError, RaystreamError, Stopped, lost
from raystream.io.push.entrance import Entrance, entrances
from raystream.security.contexts import Certificates

ORPHAN_SECONDS = 60.0
"""How long a job that has ended, or has not begun, waits for somebody who wants it."""
HEAR_SECONDS = 1.0
"""How long a client that has stopped a job may take to hear of its end. Then the job's submitter
hears of it, and ends this process."""
NOT_BEGUN = "the job has not begun yet"


class Controller:
    """Runs one job; `run` returns when the job has ended."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._loop: JobLoop | None = None
        self._requests = Requests()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._result: JobReport | RaystreamError
        self._incarnation = 1
        self._restarts = restarts()
        context: Any = ray.get_runtime_context()
        self._again: bool = context.was_current_actor_reconstructed
        try:
            if self._again:
                self._go_on()
        except Exception as error:  # an actor that raises here is not begun again, and tells nobody
            self._lost(str(error))
        # Only now: to find the journal takes as long when a keeper is late.
        self._leave_after(ORPHAN_SECONDS, unless=lambda: self._thread is not None)

    # ------------------------------------------------------------ calls

    def run(self, plan: Plan) -> JobReport | RaystreamError:
        """Run a job to its end. Errors are returned, not raised: Ray would wrap them.

        Ray calls this again after a restart. It then waits for the job that goes on.
        """
        with self._lock:
            if self._thread is None and self._again and plan.durable is not None:
                self._lost("the controller died with all keepers")
            elif self._thread is None:
                self._begin(plan, None)
        self._over.wait()
        if isinstance(self._result, Stopped):
            time.sleep(HEAR_SECONDS)
        return self._result

    @ray.method(concurrency_group="control")
    def samples(self, since: float) -> list[Sample]:
        """The samples later than `since` seconds after the start."""
        job = self._job()
        return [] if job is None else job.reporter.samples_after(since)

    @ray.method(concurrency_group="control")
    def progress(self) -> list[Progress]:
        """The last progress of every instance."""
        job = self._job()
        return [] if job is None else job.machine.progress()

    @ray.method(concurrency_group="control")
    def status(self) -> Status | None:
        """The state of the job; None if it has not begun yet, or has ended (see `outcome`)."""
        job = self._job()
        if job is None or self._over.is_set():
            return None
        return job.reporter.status(self._charter.run, job.notes.said)

    @ray.method(concurrency_group="control")
    def cancel(self) -> None:
        """End the job as soon as possible."""
        self._requests.put(on.Cancel())

    @ray.method(concurrency_group="control")
    def stop_saved(self) -> str:
        """Take a checkpoint, and end the job once it is saved.

        Returns why that cannot be; empty if it can.
        """
        job = self._job()
        if job is None:
            return NOT_BEGUN
        if job.plan.durable is None:
            return "the job has no durable tier: it was started without --durable"
        self._requests.put(on.Save())
        return ""

    @ray.method(concurrency_group="control")
    def checkpoint(self) -> str:
        """Take a checkpoint as soon as there can be one.

        Returns why that cannot be; empty if the controller has taken it up.
        """
        return NOT_BEGUN if self._job() is None else self._requests.ask(on.TakeCheckpoint)

    @ray.method(concurrency_group="control")
    def scale(self, instances: dict[str, int], because: str, mode: MoveMode = "replay") -> str:
        """Have operators served by numbers of instances that share the key groups evenly.

        Returns why that cannot be; empty if the controller has taken it up.
        """
        job = self._job()
        if job is None:
            return NOT_BEGUN
        try:
            ranges = {o: evenly(job.plan, o, n) for o, n in instances.items()}
        except ConfigError as error:
            return str(error)
        wanted = tuple(RescaleRequest(o, r, because, mode=mode) for o, r in ranges.items())
        return self._requests.ask(lambda number: on.Rescale(number, wanted))

    @ray.method(concurrency_group="control")
    def move(self, instance: str, node: str, because: str, mode: MoveMode = "replay") -> str:
        """Replace an instance by one on another node ("" for any).

        Returns why that cannot be; empty if the controller has taken it up.
        """
        job = self._job()
        if job is None:
            return NOT_BEGUN
        instances = {m.name: m.record.place for m in job.machine.owners}
        owned = {name: (place.operator, place.keys) for name, place in instances.items()}
        try:
            wanted = elsewhere(instance, node, owned, because, mode)
        except ConfigError as error:
            return str(error)
        return self._requests.ask(lambda number: on.Rescale(number, (wanted,)))

    @ray.method(concurrency_group="control")
    def drain(self, node: str, because: str) -> str:
        """Have all instances leave a node, and do not use it again.

        Returns why that cannot be; empty if the controller has taken it up.
        """
        if self._job() is None:
            return NOT_BEGUN
        return self._requests.ask(lambda number: on.Drain(number, node, because))

    @ray.method(concurrency_group="control")
    def code(self) -> RunningCode | None:
        """The code that the job runs, in words, and the upgrades so far; None if the job has not
        begun yet."""
        job = self._job()
        if job is None:
            return None
        entry = job.machine.journal
        settled = entry.assignment.settled
        outline = outline_of(job.plan, settled[-1].shapes if settled else None)
        number = settled[-1].number if settled else 0
        name = settled[-1].name if settled else job.plan.code
        clock, every = job.plan.clock, job.plan.checkpoint_every
        ended = job.machine.ended
        return RunningCode(outline, number, entry.upgraded, ended, name, clock, every)

    @ray.method(concurrency_group="control")
    def upgrade(self, wanted: UpgradeRequest) -> str:
        """Go over to other code.

        Returns why that cannot be; empty if the controller has taken it up.
        """
        if self._job() is None:
            return NOT_BEGUN
        return self._requests.ask(lambda number: on.UpgradeTo(number, wanted))

    @ray.method(concurrency_group="control")
    def newer_code(self, known: int) -> tuple[CodeVersion, ...]:
        """The versions of the code from which instances may begin, if there are newer ones than
        this number; otherwise none."""
        job = self._job()
        settled = () if job is None else job.machine.journal.assignment.settled
        return settled if settled and settled[-1].number > known else ()

    @ray.method(concurrency_group="control")
    def moves(self) -> Moves | None:
        """All moves; None if the job has not begun yet, or its controller has not."""
        job = self._job()
        if job is None:
            return Moves((), (), True) if self._over.is_set() else None
        entry = job.machine.journal
        return Moves(entry.moves, entry.moved, job.machine.ended)

    @ray.method(concurrency_group="control")
    def outcome(self) -> JobOutcome:
        """How the job has ended, if it has, and how far its checkpoints are."""
        job, ended = self._job(), ""
        if self._over.is_set():
            error = self._result if isinstance(self._result, RaystreamError) else None
            ended = "all its input was processed" if error is None else str(error)
        if job is None:
            return JobOutcome(ended, "")
        entry = job.machine.journal
        saved = None if job.plan.durable is None else entry.saved
        return JobOutcome(ended, job.machine.unsaved, entry.committed, saved)

    @ray.method(concurrency_group="control")
    def entrances(self) -> dict[str, Entrance] | None:
        """Where clients push, by source; None if the job has not begun yet."""
        job = self._job()
        if job is None:
            return None
        return entrances({v.name: v.source for v in job.plan.vertices if v.kind == "source"})

    @ray.method(concurrency_group="control")
    def certificates(self) -> Certificates | None:
        """The certificates that clients of the job show; None if the job runs without TLS."""
        return self._charter.credentials.certificates

    @ray.method(concurrency_group="control")
    def state_routes(self) -> StateRoutes | None:
        """Where clients read rows of state; None if the job has not begun yet, or has ended."""
        job = self._job()
        if job is None or self._over.is_set():
            return None
        return state_routes(job.plan, job.machine.journal, self._charter.credentials)

    def _job(self) -> JobLoop | None:
        """The job, once it may be asked; None before."""
        job = self._loop
        return job if job is not None and job.ready else None

    # ------------------------------------------------------------ life

    def _go_on(self) -> None:
        """After a restart: go on from the journal. If the job had not begun, `run` begins it."""
        run = self._charter.run
        processes = [(p, a) for p in processes_of(run) if (a := actor(run, p)) is not None]
        keepers = [a for p, a in processes if p.startswith(KEEPER)]
        self._incarnation, found = claim(keepers, int(time.time()))
        entry = newest(found)
        if entry is not None:
            self._begin(kept_plan(keepers), entry)
        elif any(has_begun(a) for p, a in processes if not p.startswith(KEEPER)):
            self._lost("the controller died with all keepers that held it")
        else:
            for process, _ in processes:
                kill(run, process)

    def _lost(self, why: str) -> None:
        self._result = lost(f"the job is lost, it cannot go on from its journal: {why}")
        for process in processes_of(self._charter.run):
            kill(self._charter.run, process)
        self._leave_pool()
        self._thread = threading.current_thread()
        self._over.set()
        self._leave_after(ORPHAN_SECONDS)

    def _begin(self, plan: Plan, entry: JournalEntry | None) -> None:
        self._thread = threading.Thread(target=self._live, args=(plan, entry), daemon=True)
        self._thread.start()

    def _live(self, plan: Plan, entry: JournalEntry | None) -> None:
        """Run the job to its end, tidy up, and give the result to those who wait for it."""
        processes: ActorPool | None = None
        try:
            processes = self._processes(plan)
            self._loop = JobLoop(
                self._charter, plan, entry, self._incarnation, processes, self._requests
            )
            self._result = self._loop.run()
        except RaystreamError as error:
            self._result = error
        except Fenced:
            os._exit(1)  # another controller has what this process holds
        except BaseException as error:
            self._result = InternalError(f"the controller: {type(error).__name__}: {error}")
        try:
            self._leave_pool()
            self._requests.close()
            if processes is not None:
                members = self._loop.machine.members if self._loop is not None else []
                with suppress(*UNREACHABLE):
                    processes.dismiss([m.record.process for m in members])
        finally:  # somebody waits for the result
            self._over.set()
            self._leave_after(ORPHAN_SECONDS)  # the submitter ends this process before that

    def _processes(self, plan: Plan) -> ActorPool:
        charter = self._charter
        return ActorPool(
            plan, charter.run, charter.credentials, charter.env, charter.options, self._restarts
        )

    def _leave_pool(self) -> None:
        """Ask for no nodes any more, also for those that an earlier process of this actor did."""
        if self._charter.options.pool is not None:
            with suppress(Exception):  # Ray itself may be going down
                release(self._charter.run)

    def _leave_after(self, seconds: float, unless: Callable[[], bool] = lambda: False) -> None:
        """End this process some time later, if nobody else has and it has nothing to do."""
        me: Any = ray.get_runtime_context()
        myself = me.current_actor

        def leave() -> None:
            time.sleep(seconds)
            if not unless():
                ray.kill(myself)

        threading.Thread(target=leave, daemon=True).start()
