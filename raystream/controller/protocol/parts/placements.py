"""Placements: processes are given places, and begin together in one new assignment.

The start of a job is a placement that replaces no instance. A recovery is one that replaces dead
instances, and a move one that replaces owners while they go on. What can happen to a placement is
in `TABLE`.
"""

from __future__ import annotations

from collections import Counter

from raystream.controller.protocol.decide import Recover
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member, process_of
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Attempt, Command
from raystream.controller.protocol.parts.beginning import Beginning
from raystream.controller.protocol.parts.hiring import Hiring
from raystream.controller.protocol.parts.placement_steps import TABLE, PlacementSteps
from raystream.controller.protocol.placement import (
    Placement,
    PlacementEvent,
    PlacementPhase,
    Purpose,
)
from raystream.controller.protocol.recovery import (
    ATTEMPTS_MAX,
    Deaths,
    Place,
)
from raystream.errors import JobError

Step = tuple[PlacementPhase, list[Command]]


class Replacement:
    """The purpose of a placement that begins the job, or replaces instances that died."""

    operator = ""

    def __init__(self, beginning: Beginning) -> None:
        self._beginning = beginning

    def may_give(self, p: Placement) -> tuple[bool, list[Command]]:
        return True, []

    def given(self, p: Placement) -> list[Command]:
        return []

    def donor(self, p: Placement, place: Place) -> Member | None:
        return None

    def go_on(self, p: Placement) -> Step:
        return PlacementPhase.OVER, self._beginning.replace(p)

    def delivered(self, p: Placement, event: on.Delivered) -> list[Command]:
        raise AssertionError("no owner delivers to instances that replace the dead")

    def stopped(self, p: Placement) -> list[Command]:
        raise AssertionError("no owner is ended for instances that replace the dead")

    def overdue(self, p: Placement) -> str:
        return ""

    def broken(self, p: Placement) -> list[Command]:
        raise AssertionError("a recovery goes on, or the job ends")


class Placements:
    """Gives processes the places of placements."""

    def __init__(self, job: Job, hiring: Hiring, beginning: Beginning) -> None:
        self._job = job
        self._hiring = hiring
        self._steps = PlacementSteps(job, hiring)
        self._replacement = Replacement(beginning)
        self._drawn = 0
        self.deaths = Deaths()
        """How often ranges have died since the last commit."""
        self.dropped: Counter[str] = Counter()
        """How many events were dropped because they belonged to no living attempt, by kind."""

    # ------------------------------------------------------------ which there are

    def of(self, process: str) -> Placement | None:
        """The placement in which a process has a place; None if it has none."""
        return next((p for p in self._job.placements if process in p.processes), None)

    def affected(self, process: str) -> list[Placement]:
        """The placements that cannot go on without a process: that in which it has a place, or all
        that wait for one."""
        mine = self.of(process)
        return [mine] if mine else [p for p in self._job.placements if p.waiting]

    def addressed(self, attempt: Attempt, process: str, kind: str) -> Placement | None:
        """The placement whose request is answered. An answer that is not awaited any more
        is dropped and counted.

        Args:
            kind: the kind of the answer.
        """
        if attempt.incarnation == self._job.entry.incarnation:
            for p in self._job.placements:
                if p.number == attempt.placement and p.attempts.get(process) == attempt.number:
                    del p.attempts[process]
                    return p
        self.dropped[kind] += 1
        return None

    # ------------------------------------------------------------ beginning one

    def open(
        self,
        waiting: list[Place],
        because: str,
        *,
        committed: int = -1,
        gone: tuple[Member, ...] = (),
        purpose: Purpose | None = None,
        node: str = "",
    ) -> Placement:
        """Begin a placement: processes are to be found for places that wait for one.

        Args:
            purpose: what it is for; without one it begins the job, or replaces the dead.
        """
        self._drawn += 1
        p = Placement(
            number=self._drawn,
            purpose=purpose or self._replacement,
            committed=committed,
            gone=gone,
            began=self._job.now,
            because=because,
            waiting=waiting,
            node=node,
        )
        self._job.placements.append(p)
        return p

    def recover(self, command: Recover) -> list[Command]:
        """Replace dead instances by new ones.

        Raises:
            JobError: a range has died over and over.
        """
        job = self._job
        busy = {m.name for p in self._job.placements for m in p.gone if not p.undecided}
        dead = [m for m in job.members if m.name in command.instances and m.name not in busy]
        if not dead:
            return []
        reasons = "; ".join(sorted({m.dead for m in dead}))
        self.deaths.died([m.record.place for m in dead], command.committed, reasons)
        places = [m.record.place for m in job.members]
        again = job.strategy.widened([m.record.place for m in dead], places, job.plan)
        gone = tuple(m for m in job.members if m.name in again and m.name not in busy)
        # A controller that was overtaken must kill nothing, so the journal is written first.
        commands = job.journal.write()
        for m in gone:  # an instance that cannot be reached may still run, and write
            m.dead = m.dead or "what it sent is needed again"
        for m in gone:
            goes_on = job.at_work(m.record.process) is not None
            commands.append(do.Kill(m.record.process, m.dead, goes_on))
        because = ", ".join(m.name for m in dead) + " died"
        if job.strategy.replaces_together and self._job.placements:
            p = self._job.placements[0]
            p.because += f", {because}"
        else:
            p = self.open([], because, committed=command.committed)
            p.newest = command.committed == job.entry.committed
        commands += self._step(p, PlacementEvent.WIDENED, gone, dead)
        return commands + self.prepare() + self.hire()

    def hired(self, process: str) -> list[Command]:
        """Use a process that has started."""
        return self.prepare() if process in self._hiring.spares else self.hire()

    def hire(self) -> list[Command]:
        """Have a process for every place that waits for one."""
        return self._hiring.hire()

    def prepare(self) -> list[Command]:
        """Give places to processes that have none, where there are enough for all waiting places of
        a placement. The dead are replaced before any range moves."""
        commands: list[Command] = []
        for p in sorted(self._job.placements, key=lambda p: bool(p.operator)):
            matched = self._hiring.match(p)
            if matched:
                allowed, first = p.purpose.may_give(p)
                commands += first
                if allowed:
                    commands += self._step(p, PlacementEvent.GIVE, matched)
        return commands

    # ------------------------------------------------------------ what happens to them

    def became(self, event: on.Became) -> list[Command]:
        """A process has its place and its state."""
        p = self.addressed(event.attempt, event.process, "Became")
        return self._step(p, PlacementEvent.RESTORED, event) if p else []

    def missing(self, event: on.Missing) -> list[Command]:
        """A process could not be given its state.

        Raises:
            LostError: no keeper has the state of a range that died.
        """
        p = self.addressed(event.attempt, event.process, "Missing")
        kind = PlacementEvent.KEEPER_DIED if event.again else PlacementEvent.STATE_LOST
        return self._step(p, kind, event.process) if p else []

    def already_placed(self, event: on.AlreadyPlaced) -> list[Command]:
        """Another controller has given the process a place."""
        p = self.addressed(event.attempt, event.process, "AlreadyPlaced")
        if p is None:
            return []
        commands = self._step(p, PlacementEvent.TAKEN, event.process)
        return (
            commands if p.phase is PlacementPhase.OVER else commands + self.prepare() + self.hire()
        )

    def delivered(self, event: on.Delivered) -> list[Command]:
        """An owner has delivered, or could not."""
        p = self.addressed(event.attempt, event.process, "Delivered")
        if p is None:
            return []
        if event.why:
            why = f"its owner did not deliver: {event.why}"
            return self._step(p, PlacementEvent.UNDELIVERED, why)
        return self._step(p, PlacementEvent.DELIVERED, event)

    def died(self, p: Placement, process: str, why: str) -> list[Command]:
        """A process died that has a place of a placement.

        Raises:
            JobError: too many have died in this place.
        """
        commands = self._step(p, PlacementEvent.DIED, process, why)
        return commands if p.phase is PlacementPhase.OVER else commands + self.prepare()

    def homeless(self) -> list[Command]:
        """Take places again that were given to processes whose instances have died since."""
        commands: list[Command] = []
        dead = {process_of(m.record.process) for m in self._job.members if m.dead}
        for p in [*self._job.placements]:
            for process in sorted(p.processes):
                if process_of(process) in dead and self._job.at_work(process) is None:
                    commands += self._step(p, PlacementEvent.DIED, process, "it shared a process")
                    break
        return commands

    def stopped(self, process: str) -> list[Command]:
        """A process has ended: an instance of a sink may have waited for that."""
        commands: list[Command] = []
        for p in [p for p in self._job.placements if process in p.stopping]:
            commands += self._step(p, PlacementEvent.STOPPED, process)
        return commands

    def tick(self) -> list[Command]:
        """Time has passed. Placements that end owners come first: no instance serves their
        ranges."""
        commands: list[Command] = []
        for p in sorted(self._job.placements, key=lambda p: p.phase is not PlacementPhase.STOPPING):
            commands += self._step(p, PlacementEvent.TICK)
        return commands

    def not_hired(self, process: str, why: str) -> list[Command]:
        """A process could not be started.

        Raises:
            JobError: none could be over and over, and the job cannot do without.
        """
        at, times = self._hiring.not_hired(process)
        commands = self._hiring.dismiss([process], why)  # it may still be on its way
        if times < ATTEMPTS_MAX:
            return commands
        why = f"no process could be started, {times} times: {why}"
        waiting = [p for p in self._job.placements if p.waiting]
        if at:
            self._hiring.forgive(at)
            waiting = [p for p in waiting if p.node == at]
        elif any(not p.operator for p in waiting):
            raise JobError(why)
        for p in waiting:
            commands += self._step(p, PlacementEvent.UNHIRED, why)
        return commands

    def abandon(self, p: Placement) -> list[str]:
        """End a placement whose move ends this attempt. Returns the processes that had its places,
        which are to be ended."""
        self._step(p, PlacementEvent.ABANDON)
        return sorted(p.processes)

    def _step(self, p: Placement, event: PlacementEvent, *told: object) -> list[Command]:
        commands = TABLE.step(self._steps, p, event, *told)
        if p.phase is PlacementPhase.READY:
            commands += self._step(p, PlacementEvent.GO_ON)
        elif p.phase is PlacementPhase.BROKEN:
            commands += p.purpose.broken(p)
        elif p.phase is PlacementPhase.OVER and p in self._job.placements:
            self._job.placements.remove(p)
        return commands
