"""The controller as a machine: events in, commands out. No Ray, clock, thread or chance in it.

    commands = machine.start(nodes, now)
    commands = machine.handle(event, now)

Whoever runs it does the commands in their order and hands in what comes of them; a `Write` is done
when it is written. What the controller decides is in the journal before anything that follows from
it is done, so after its own death another machine goes on from the newest entry: it knows all who
have a place, ends whatever else runs, and asks everybody how far they are.

What it keeps in several places is in `keeping`, how places are taken in `taking`, how ranges move
in `moving`; here is what follows from which event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from raystream.controller import commands as do
from raystream.controller.commands import Command, Event
from raystream.controller.decide import Commit, Recover, View, behind, decide
from raystream.controller.journal import Entry
from raystream.controller.keeping import KEEPER
from raystream.controller.members import (
    STALL_SECONDS,
    Engagement,
    Member,
    Options,
    positions,
    stalled,
)
from raystream.controller.moving import Moving
from raystream.controller.recovery import Place, passed_on
from raystream.controller.registering import answered, filled
from raystream.controller.report import Progress, older
from raystream.controller.saving import LAST_SECONDS, Saver
from raystream.dataflow.plan import Plan
from raystream.errors import JobError, OvertakenError, RaystreamError, Stopped


class Machine(Moving):
    """Decides for one job.

    committed_at: when the floor moved last, as far as this machine knows.

    Args:
        journal: the newest entry, read after `incarnation` was claimed at all that hold one.
    """

    def __init__(
        self, plan: Plan, options: Options, journal: Entry | None = None, incarnation: int = 1
    ) -> None:
        begun = Entry(committed=plan.begins, saved=plan.begins)
        super().__init__(
            plan, options, replace(journal or begun, incarnation=incarnation, number=0)
        )
        self.committed_at = 0.0
        self._finished: set[str] = set()
        self._failed: list[tuple[str, RaystreamError]] = []
        self._saver = Saver(plan)
        self._last_since: float | None = None  # since when the end of the job is not saved
        self._waived = False  # sinks do not wait for that any more
        self._drills, self._drilled = 0, plan.begins

    # ------------------------------------------------------------ in and out

    def start(
        self,
        nodes: Sequence[str],
        alive: Iterable[str],
        now: float,
        for_operators: frozenset[str] = frozenset(),
    ) -> list[Command]:
        """Begin the job, or go on from the journal.

        Args:
            nodes, for_operators: see `Tick`. alive: all processes of the job that still run.
        """
        self._nodes, self._for_operators, self.now = tuple(nodes), for_operators, now
        if self.journal.over is None and not self.members:
            begin = Engagement(self.plan.begins, (), now, "the job begins", self._places())
            self._engagements.append(begin)
            self._hire()  # before the journal: its keepers start beside them
        known = {s.process for s in self.journal.seats} | {p.process for p in self.journal.posts}
        self._post(nodes)
        for process in sorted({*alive} - known):
            if process.startswith(KEEPER):
                self._out.append(do.Kill(process, "nobody knows it"))
            else:  # a spare one, or one that was about to take a place
                self._hiring[process] = ""
                self._adopting.add(process)
                self._out.append(do.Adopt(process))
        if self.journal.over is not None:
            error = self.journal.over
            self._end(error if isinstance(error, RaystreamError) else None)
        elif self.members:
            self._stand_by = now
            started, assignment = self.journal.started, self.journal.assignment
            self._out += [do.Begin(m.seat, assignment, started) for m in self.members]
        return self._flush()

    def _places(self) -> list[Place]:
        return [
            Place(v.id, v.name, keys, index)
            for v in self.plan.vertices
            for index, keys in enumerate(self.plan.ranges[v.id])
        ]

    def handle(self, event: Event, now: float) -> list[Command]:
        """What follows from an event. Once the job has ended, that the journal can be written."""
        self.now = now
        if isinstance(event, do.Rescale | do.Drain):
            self._out.append(do.Answer(event.request, self._asked_for(event)))
            return self._flush()
        if self.ended:
            self._keep_journal(event)
            return self._flush()
        try:
            self._handle(event, now)
            self._register_boundaries(again=isinstance(event, do.Tick))
        except JobError as error:
            self._end(error)
        return self._flush()

    def _flush(self) -> list[Command]:
        out, self._out = self._out, []
        return out

    def _handle(self, event: Event, now: float) -> None:
        match event:
            case do.Heard(process, progress):  # by far the most
                self._heard(process, progress, now)
            case do.Tick(nodes, for_operators):
                self._nodes, self._for_operators = nodes, for_operators
                self._failing.clear()
                self._post(nodes)
                self._keep()
                self._hire()
                self._hire_spare()
                self._cut_if_wanted()
                self._out += self._saver.tick(now)
                self._save_last(now)
                for m in stalled(self.members, self.plan, now):
                    m.dead = f"it stayed where it was for {STALL_SECONDS:g} s"
                self._decide(now)
                self._drill()
                self._keep_moving()
            case do.Hired(process, node, pid):
                self._hired(process, node, pid)
            case do.Became(process, address, nbytes):
                self._became(process, address, nbytes)
            case do.Delivered():
                self._delivered(event)
            case do.Missing(process, again):
                self._missing(process, again=again)
            case do.Taken(process):
                self._taken(process)
            case do.Handed(view, process, content):
                if self._register is not None:
                    self._register = answered(self._register, view, process, content)
            case do.Filled(view, process):
                if self._register is not None:
                    self._register = filled(self._register, view, process)
            case do.Done(process, error):
                self._done(process, error, now)
            case do.Failed(process, error):
                self._could_not(process, error)
                self._gone(process, error.message, now)
            case do.Gone(process, why):
                self._gone(process, why, now)
            case do.Put():
                self._out += self._saver.put(event, now)
            case do.CutSaved(overtaken=OvertakenError() as error):
                self._end(error)
            case do.CutSaved():
                cut, commands = self._saver.saved(event, now)
                if cut:  # a controller whose time is over is to drop nothing
                    self._write(saved=cut)
                    self._tell_commits()
                    self._out += self._saver.trims(self.journal.posts)
                self._out += commands
                self._end_if_wanted()
            case do.Save():
                if self.journal.stop_after < 0:
                    self._write(stop_after=self.journal.committed)
                self._want_cut()
            case do.Cancel():
                self._end(Stopped("the job was stopped"))

    def _end(self, error: RaystreamError | None) -> None:
        self.ended = True
        if self.journal.over is None:
            for m in self.members:  # for the report, which another controller may have to make
                m.seat = replace(m.seat, last=m.progress or m.seat.last)
            self._write(over=error or "ended", seats=tuple(m.seat for m in self.members))
        self._out.append(do.End(error))

    # ------------------------------------------------------------ what is known

    def view(self) -> View:
        """What is known of the job."""
        return View(
            tuple(m.progress for m in self.members if m.progress is not None),
            frozenset(m.name for m in self.members if m.dead),
            frozenset(self._finished),
            tuple((name, str(error)) for name, error in self._failed),
            self.journal.committed,
            self.plan.cut_every,
            frozenset(m.name for m in self._sources()),
            self._cuts(),
            self.options.recovery != "state",
            self._pinned,
        )

    def _cuts(self) -> tuple[int, ...]:
        """The cuts beside every n-th of which all have been told: who was not does not say yet that
        it passed one as none."""
        told = min((m.progress.version for m in self.members if m.progress), default=0)
        return tuple(e for e in self.journal.assignment.cuts if told >= self._named[e])

    def progress(self) -> list[Progress]:
        """What every instance said last that owns a range."""
        return [m.progress for m in self.owners if m.progress is not None]

    # ------------------------------------------------------------ moves

    def _asked_for(self, event: do.Rescale | do.Drain) -> str:
        if isinstance(event, do.Drain):
            return self.drain(event.node, event.because)
        return self.rescale(event.wanted)

    def _keep_moving(self) -> None:
        """What is due of moves."""
        if not self.ended:
            self._levels()
            self._stop_again()
            self._overdue()
            if self.journal.drained:
                self._leave("its node is to be left")
                self._vacate()
            self._attempts()
            self._prepare()

    def _could_not(self, process: str, error: RaystreamError) -> None:
        """A process could not take its place, and no other could. Only a move can do without."""
        e = self.engaged(process)
        engagements = [e] if e is not None else [e for e in self._engagements if e.waiting]
        if any(not e.undecided for e in engagements):
            self._end(error)
        for e in engagements:
            if e.undecided:
                self._give_up(self._move(e.operator), str(error))

    # ------------------------------------------------------------ deciding

    def _decide(self, now: float) -> None:
        self._broken()
        if not self.members or not all(m.progress or m.dead for m in self.members):
            return
        for command in decide(self.view()):
            if isinstance(command, Commit):
                self._commit(command.epoch, now)
            elif isinstance(command, Recover):
                self._recover(command)
            elif command.failed:
                self._end(self._failed[0][1])
            else:
                self._end(None)

    def _commit(self, epoch: int, now: float) -> None:
        self.committed_at = now
        self._deaths.moved()
        self._stand_by = min(self._stand_by, self._settled + self.options.stand_by)
        for m in self.members:
            if m.progress is not None and m.progress.ended:
                m.seat = replace(m.seat, last=m.progress)
            m.note_held(epoch)
        self._write(committed=epoch, seats=tuple(m.seat for m in self.members))
        self._tell_commits()
        owners = [m.seat for m in self.owners]
        self._out += self._saver.committed(epoch, owners, self.journal.seats, now)
        self._out += self._saver.trims(self.journal.posts)
        self._end_if_wanted()

    def _end_if_wanted(self) -> None:
        if (stopped := self._saver.stopped(self.journal)) is not None:
            self._end(stopped)

    def _tell_commits(self) -> None:
        epoch, shown = self.journal.committed, self.shown
        self._out += [do.CommitTo(m.seat.process, epoch, shown) for m in self.members if not m.dead]

    @property
    def shown(self) -> int:
        """Up to which epoch sinks may show what they wrote: as far as it is committed; with a
        durable tier, as far as it is saved, because the cluster may be lost with all the rest."""
        waits = self.plan.durable is not None and not self._waived
        return self.journal.saved if waits else self.journal.committed

    def _save_last(self, now: float) -> None:
        """Save the end of the job, if that failed: no other commit comes. After a while sinks show
        what they have all the same."""
        entry = self.journal
        if self.shown >= entry.committed or self._saver.busy:
            return
        last = [m.progress for m in self.members if m.progress is not None and m.progress.ended]
        if len(last) < len(self.members) or any(p.position > entry.committed for p in last):
            return
        if self._last_since is None:
            self._last_since = now
        if now - self._last_since > LAST_SECONDS:
            self._waived = True
            self._tell_commits()
        else:
            owners = [m.seat for m in self.owners]
            self._out += self._saver.committed(entry.committed, owners, entry.seats, now)

    @property
    def unsaved(self) -> str:
        """Why the newest cut that was to be saved was not; empty if it was."""
        return self._saver.unsaved

    def _drill(self) -> None:
        """In checking mode an instance is replaced after each commit, as if it had died: what its
        successor sends is compared with what it had sent."""
        if not self.plan.check or self._drilled == self.journal.committed or self._engagements:
            return
        if self.journal.moves:
            return
        self._drilled = self.journal.committed
        kinds = self.plan.vertices
        fit = [m for m in self.members if kinds[m.seat.place.vertex].outputs and m.progress]
        fit = [m for m in fit if m.progress and not m.progress.ended and not m.dead]
        if fit:
            self._drills += 1
            member = fit[self._drills % len(fit)]
            member.dead = "it is replaced on purpose, to be checked"
            self._recover(Recover((member.name,), self.journal.committed, "checking"))

    def _heard(self, process: str, progress: Progress, now: float) -> None:
        """A call may be lost with its connection: who was not told what is newest is told again."""
        member = self._member(process)
        if member is None or member.dead or older(progress, member.progress):
            return
        if member.progress is None or progress.position > member.progress.position:
            member.stays = None
        member.progress = progress
        entry = self.journal
        member.note_held(entry.committed)
        version, kept = entry.assignment.version, member.seat.kept
        untold = behind(progress, version, entry.committed, self.shown, kept)
        if untold.assignment:
            self._out.append(do.Assign(process, entry.assignment))
        if untold.floor:
            self._out.append(do.CommitTo(process, entry.committed, self.shown))
        if untold.keepers:
            self._out.append(do.KeptBy(process, member.seat.keepers, member.seat.kept))
        if self.options.recovery == "source":
            self._forget(member)

    def _forget(self, member: Member) -> None:
        """Only sources keep what they sent. Who takes a place begins anew, and needs all of it."""
        if any(m.dead for m in self.members):
            return
        epoch = passed_on(self.plan, positions(self.members)).get(member.seat.place.vertex, 0)
        if epoch:
            self._out.append(do.Forget(member.seat.process, epoch))

    def _done(self, process: str, error: RaystreamError | None, now: float) -> None:
        member = self._member(process)
        if member is None or member.dead:
            return
        if error is None:
            self._finished.add(member.name)
        else:
            self._failed.append((member.name, error))
        self._decide(now)

    def _gone(self, process: str, why: str, now: float) -> None:
        if process in self._hiring:
            self._not_hired(process, why)
        self._stopped(process)
        self._hands.pop(process, None)
        member, engagement = self._member(process), self.engaged(process)
        self._out += self._saver.gone(process, now)
        if any(p.process == process for p in self.journal.posts):
            self._keeper_gone(process, why)
        elif member is not None and not member.dead:
            member.dead = why
            self._decide(now)
        elif engagement is not None:
            self._again(engagement, process, why)
        self._hire()
