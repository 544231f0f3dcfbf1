"""The controller as a machine: events in, commands out. It has no Ray, clock, thread or chance in
it.

    commands = machine.start(nodes, now) commands = machine.handle(event, now)

The shell that runs it does the commands in their order and hands in what comes of them; a `Write`
is done when it is written. What the controller decides is in the journal before anything that
follows from it is done. So after its own death another machine goes on from the newest entry: it
knows all processes that have a place, ends whatever else runs, and asks all instances how far they
are.

The machine has parts (`raystream.controller.protocol.parts`), each with its own fields, which all
look at one `Job` and return commands. This module says which part hears of which event, and in
which order. The phases of placements and moves are tables in `parts/placements.py` and
`parts/rebalancing.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from raystream.controller.protocol.decide import Commit, Recover, Stop
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.journal import JournalEntry, first_entry
from raystream.controller.protocol.members import (
    STALL_SECONDS,
    BundleThread,
    Member,
    ProtocolOptions,
    process_of,
    stalled,
)
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.parts.beginning import Beginning
from raystream.controller.protocol.parts.checkpoints import OnDemandCheckpoints
from raystream.controller.protocol.parts.commits import Commits
from raystream.controller.protocol.parts.decisions import Decisions
from raystream.controller.protocol.parts.drill import Drill
from raystream.controller.protocol.parts.hiring import Hiring
from raystream.controller.protocol.parts.journal import Journal
from raystream.controller.protocol.parts.placements import Placements
from raystream.controller.protocol.parts.rebalancing import Rebalancing
from raystream.controller.protocol.parts.register import BoundaryRegister
from raystream.controller.protocol.parts.replication import (
    KEEPER,
    Replication,
    is_under_replicated,
)
from raystream.controller.protocol.parts.requests import RequestHandler
from raystream.controller.protocol.placement import Placement
from raystream.controller.protocol.strategies import strategy_of
from raystream.controller.protocol.upgrading.upgrades import Upgrades
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.errors import JobError, OvertakenError, RaystreamError, StateError, Stopped


class Machine:
    """Decides for one job.

    Args:
        journal: the newest entry, read after `incarnation` was claimed at all that hold one."""

    def __init__(
        self,
        plan: Plan,
        options: ProtocolOptions,
        journal: JournalEntry | None = None,
        incarnation: int = 1,
    ) -> None:
        entry = replace(journal or first_entry(plan), incarnation=incarnation, number=0)
        self.plan = plan
        self.options = options
        self._job = job = Job(
            plan=plan,
            options=options,
            strategy=strategy_of(options.recovery),
            journal=Journal(entry, options.copies),
            members=[Member(record, record.last) for record in entry.instances],
        )
        wanted = entry.stop_after
        if wanted < 0 and any(is_under_replicated(job, m) for m in job.members):
            wanted = entry.committed
        self._checkpoints = OnDemandCheckpoints(job, wanted)
        self._register = BoundaryRegister(job)
        self.replication = Replication(job, self._checkpoints, self._register)
        self.hiring = Hiring(job)
        beginning = Beginning(job)
        self.placements = Placements(job, self.hiring, beginning)
        self.moves = Rebalancing(job, self.placements, beginning, self._checkpoints)
        self._requests = RequestHandler(job, self.hiring, self.placements, self.moves)
        self.commits = Commits(job)
        self._upgrades = Upgrades(job)
        self._drill = Drill(job, self.placements)
        self._out: list[Command] = []
        self._decisions = Decisions(job, self._checkpoints)

    # ------------------------------------------------------------ what is known

    @property
    def journal(self) -> JournalEntry:
        """The newest entry of the journal."""
        return self._job.entry

    @property
    def members(self) -> list[Member]:
        """All instances that have a place: owners and candidates."""
        return self._job.members

    @property
    def owners(self) -> list[Member]:
        """The instances that own a range."""
        return self._job.owners

    @property
    def candidates(self) -> frozenset[str]:
        """The names of the instances that catch up to own a range."""
        return self._job.candidates

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self._job.ended

    @property
    def under_replicated(self) -> int:
        """How many ranges lack a copy of their checkpoint; the boundary register counts as one."""
        return self.replication.under_replicated

    @property
    def unsaved(self) -> str:
        """Why the newest checkpoint that should be saved is not; empty if it is."""
        return self.commits.saver.unsaved

    def threads(self) -> list[BundleThread]:
        """The threads that instances share."""
        return self._job.threads()

    def placement_of(self, process: str) -> Placement | None:
        """The placement that a process has a place of, until it begins."""
        return self.placements.of(process)

    def progress(self) -> list[Progress]:
        """What every instance that owns a range said last."""
        return [m.progress for m in self.owners if m.progress is not None]

    # ------------------------------------------------------------ in and out

    def start(
        self,
        nodes: Sequence[str],
        alive: Iterable[str],
        now: float,
        for_operators: frozenset[str] = frozenset(),
        zones: Mapping[str, str] | None = None,
    ) -> list[Command]:
        """Begin the job, or go on from the journal.

        Args:
            nodes: the nodes that are alive.
            alive: all processes of the job that still run.
            for_operators: the nodes that are meant for operators, if some are.
            zones: the zones of nodes, as far as they are known.
        """
        job = self._job
        job.nodes, job.for_operators, job.now = tuple(nodes), for_operators, now
        job.zones = zones or {}
        if self.journal.over is None and not self.members:
            self.placements.open(job.first_places(), "the job begins", committed=self.plan.begins)
            self._out += self.placements.hire()  # before the journal: its keepers start meanwhile
        entry = self.journal
        known = {process_of(r.process) for r in entry.instances}
        self._out += self.replication.start_keepers(nodes)
        for process in sorted({*alive} - known - {k.process for k in entry.keepers}):
            if process.startswith(KEEPER):
                self._out.append(do.Kill(process, "nobody knows it"))
            else:  # a spare one, or one that was about to take a place
                self._out += self.hiring.adopt(process)
        if entry.over is not None:
            self._end(entry.over if isinstance(entry.over, RaystreamError) else None)
        elif self.members:
            job.stand_by_from = now
            started, assignment = entry.started, entry.assignment
            self._out += [do.Begin(m.record, assignment, started) for m in self.members]
        return self._flush()

    def handle(self, event: Event, now: float) -> list[Command]:
        """What follows from an event. Once the job has ended only the journal is written on.

        Raises:
            InternalError: the event cannot occur.
        """
        self._job.now = now
        match event:
            case on.TakeCheckpoint(request):
                self._answer(request, *self._requests.checkpoint())
            case on.Rescale(request, wanted):
                self._answer(request, *self._requests.rescale(wanted))
            case on.Drain(request, node, because):
                self._answer(request, *self._requests.drain(node, because))
            case on.UpgradeTo(request, code):
                self._answer(request, *self._upgrades.take_up(code))
            case on.Tick() | on.Gone() if self.ended:
                self._out += self.replication.after_the_end(event)
            case _ if not self.ended:
                try:
                    self._handle(event)
                    self._out += self._register.update(again=isinstance(event, on.Tick))
                except (JobError, StateError) as error:
                    self._end(error)
        return self._flush()

    def _answer(self, request: int, why: str, commands: list[Command]) -> None:
        self._out += [*commands, do.Answer(request, why)]

    def _flush(self) -> list[Command]:
        out, self._out = self._out, []
        return out

    def _handle(self, event: Event) -> None:
        placements = self.placements
        match event:
            case on.Heard(process, progress):  # by far the most
                self._out += self.commits.heard(process, progress)
                self._decisions.memory.look(process)
            case on.Tick():
                self._tick(event)
            case on.Hired():
                self._out += self.hiring.hired(event)
                self._out += placements.hired(event.process)
            case on.Became():
                self._out += placements.became(event)
            case on.Delivered():
                self._out += placements.delivered(event)
            case on.Missing():
                self._out += placements.missing(event)
            case on.AlreadyPlaced():
                self._out += placements.already_placed(event)
            case on.Handed():
                self._register.handed(event)
            case on.Filled():
                self._register.filled(event)
            case on.Done(process, error):
                if self._decisions.done(process, error):
                    self._decide()
            case on.Failed(process, error):
                self._could_not(process, error)
            case on.Gone(process, why, no_memory):
                self._gone(process, why, no_memory)
            case on.KeeperSaid(process, use):
                self.replication.said(process, use)
            case on.Put():
                self._out += self.commits.saver.put(event, self._job.now)
            case on.CheckpointSaved(overtaken=OvertakenError() as error):
                self._end(error)
            case on.CheckpointSaved():
                self._out += self.commits.saved(event)
                self._end_if_wanted()
            case on.Save():
                if self.journal.stop_after < 0:
                    self._out += self._job.journal.write(stop_after=self.journal.committed)
                self._out += self._checkpoints.want_last()
            case on.Cancel():
                self._end(Stopped("the job was stopped"))
            case on.TakeCheckpoint() | on.Rescale() | on.Drain() | on.UpgradeTo():
                raise AssertionError(f"{event} is answered by `handle`")
            case _:
                assert_never(event)

    def _end(self, error: RaystreamError | None) -> None:
        job = self._job
        job.ended = True
        if job.entry.over is None:
            for m in job.members:  # for the report, which another controller may have to make
                m.record = replace(m.record, last=m.progress or m.record.last)
            instances = tuple(m.record for m in job.members)
            self._out += job.journal.write(over=error or "ended", instances=instances)
            self._out += self._decisions.memory.kills
        self._out.append(do.End(error))

    def _tick(self, event: on.Tick) -> None:
        job, zones = self._job, event.zones
        job.nodes, job.for_operators, job.zones = event.nodes, event.for_operators, zones
        self.hiring.tick()
        self._out += self.replication.start_keepers(event.nodes)
        self._out += self.replication.choose()
        self._out += self.placements.hire()
        if not self._job.placements:
            self._out += self.hiring.hire_spare()
        self._out += self._checkpoints.tick()
        self._out += self.commits.tick()
        for m in stalled(job.members, job.plan, job.now):
            job.lost(m, f"it stayed where it was for {STALL_SECONDS:g} s")
        self._decide()
        self._out += self._drill.tick()
        if not job.ended:
            self._move()
            self._end_if_wanted()

    def _move(self) -> None:
        """Do what is due of moves and upgrades."""
        self._out += self.moves.look() + self._upgrades.look()
        self._out += self.placements.tick()
        if self.journal.drained:
            self._out += self._requests.leave("its node is to be left")
            self._out += self.replication.vacate()
        self._out += self.moves.attempts() + self.placements.prepare()

    # ------------------------------------------------------------ what instances say

    def _could_not(self, process: str, error: RaystreamError) -> None:
        """A process could not take its place, and no other could. Only a move can do without."""
        affected = self.placements.affected(process)
        if any(not p.undecided for p in affected):
            self._end(error)
        for p in affected:
            if p.undecided:
                self._out += self.moves.give_up(p.operator, str(error))
        self._gone(process, error.message)

    def _gone(self, process: str, why: str, no_memory: bool = False) -> None:
        if process in self.hiring.asked:
            self._out += self.placements.not_hired(process, why)
        self._out += self.placements.stopped(process)
        self.hiring.spares.pop(process, None)
        member, placement = self._job.member(process), self.placements.of(process)
        self._out += self.commits.saver.gone(process, self._job.now)
        if any(p.process == process for p in self.journal.keepers):
            self._out += self.replication.keeper_gone(process, why)
        elif member is not None and not member.dead:
            self._job.lost(member, why)
            self._decisions.memory.died(member, no_memory)
            self._decide()
        elif placement is not None:
            self._out += self.placements.died(placement, process, why)
        self._out += self.placements.hire()

    # ------------------------------------------------------------ deciding

    def _decide(self) -> None:
        self._out += self.moves.deaths() + self.placements.homeless()
        for decision in self._decisions.due():
            match decision:
                case Commit(epoch):
                    self.placements.deaths.moved()
                    self._out += self.commits.commit(epoch)
                    self._end_if_wanted()
                case Recover():
                    self._out += self.placements.recover(decision)
                case Stop(failed):
                    self._end(self._decisions.failure if failed else None)
                case _:
                    assert_never(decision)

    def _end_if_wanted(self) -> None:
        if self._checkpoints.stands_still() and (stopped := self.commits.stopped) is not None:
            self._end(stopped)
