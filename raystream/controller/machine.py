"""The controller as a machine: events in, commands out. No Ray, clock, thread or chance in it.

    commands = machine.start(nodes, now)
    commands = machine.handle(event, now)

Whoever runs it does the commands in their order and hands in what comes of them; a `Write` is done
when it is written. What the controller decides is in the journal before anything that follows from
it is done, so after its own death another machine goes on from the newest entry: it knows all who
have a place, ends whatever else runs, and asks everybody how far they are.

Places are taken by *engagements*: processes that are made ready beside all others, and then begin
together, in one new assignment. The start of a job is an engagement that replaces nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from raystream.controller import commands as do
from raystream.controller.commands import Command, Event
from raystream.controller.decide import Commit, Recover, Release, View, behind, decide
from raystream.controller.journal import Entry, Seat
from raystream.controller.keeping import KEEPER, Keeping
from raystream.controller.members import (
    STALL_SECONDS,
    Engagement,
    Hand,
    Member,
    Options,
    positions,
    stalled,
)
from raystream.controller.recovery import (
    ATTEMPTS_MAX,
    Deaths,
    Place,
    checkpoint_lost,
    passed_on,
    successors,
    widened,
)
from raystream.controller.registering import answered, filled
from raystream.controller.report import Progress, Recovery
from raystream.controller.saving import Saver
from raystream.dataflow.plan import Plan
from raystream.errors import JobError, RaystreamError, Stopped
from raystream.state.assignment import Serving

START_DELAY = 0.2
"""Seconds between the last instance's readiness and the first row of a paced run."""
RECOVERIES_MAX = 1000
"""So many recoveries are kept of a job, the newest."""
SETTLE_SECONDS = 2.0
"""Spare processes are started so long after places were taken: their start would take the processor
from those that catch up."""


class Machine(Keeping):
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
        self._hands: dict[str, Hand] = {}
        self._hiring: set[str] = set()
        self._adopting: set[str] = set()
        self._engagements: list[Engagement] = []
        self._deaths = Deaths()
        self._finished: set[str] = set()
        self._failed: list[tuple[str, RaystreamError]] = []
        self._stand_by = False
        self._settled = 0.0  # when places were taken last
        self._unhired = 0  # processes that died before they were there, one after the other
        self._saver = Saver(plan)
        self._drills, self._drilled = 0, plan.begins

    # ------------------------------------------------------------ in and out

    def start(self, nodes: Sequence[str], alive: Iterable[str], now: float) -> list[Command]:
        """Begin the job, or go on from the journal.

        Args:
            nodes: all that are alive. alive: all processes of the job that still run.
        """
        self._nodes = tuple(nodes)
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
                self._hiring.add(process)
                self._adopting.add(process)
                self._out.append(do.Adopt(process))
        if self.journal.over is not None:
            error = self.journal.over
            self._end(error if isinstance(error, RaystreamError) else None)
        elif self.members:
            self._stand_by = True
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
            case do.Tick(nodes):
                self._nodes = nodes
                self._reposted.clear()
                self._post(nodes)
                self._keep()
                self._hire()
                self._hire_spare(now)
                self._cut_if_wanted()
                self._out += self._saver.tick(now)
                for m in stalled(self.members, self.plan, now):
                    m.dead = f"it stayed where it was for {STALL_SECONDS:g} s"
                self._decide(now)
                self._drill(now)
            case do.Hired(process, node, pid):
                self._hiring.discard(process)
                self._unhired = 0
                self._hands[process] = Hand(process, node, pid)
                self._prepare()
            case do.Became(process, address):
                self._became(process, address, now)
            case do.Missing(process, again):
                self._missing(process, again=again)
            case do.Taken(process):
                self._taken(process)
            case do.Heard(process, progress):
                self._heard(process, progress, now)
            case do.Handed(view, process, content):
                if self._register is not None:
                    self._register = answered(self._register, view, process, content)
            case do.Filled(view, process):
                if self._register is not None:
                    self._register = filled(self._register, view, process)
            case do.Done(process, error):
                self._done(process, error, now)
            case do.Failed(process, error):
                if self._engaged(process) is not None or any(e.waiting for e in self._engagements):
                    self._end(error)
                self._gone(process, error.message, now)
            case do.Gone(process, why):
                self._gone(process, why, now)
            case do.Put():
                self._out += self._saver.put(event, now)
            case do.CutSaved():
                cut, commands = self._saver.saved(event, now)
                if cut:  # a controller whose time is over is to drop nothing
                    self._write(saved=cut)
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
            self._write(over=error or "ended")
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
            frozenset(s.instance for s in self.journal.assignment.serving),
            self.journal.assignment.cuts,
            self.options.recovery != "state",
        )

    def progress(self) -> list[Progress]:
        """What every instance said last."""
        return [m.progress for m in self.members if m.progress is not None]

    def _member(self, process: str) -> Member | None:
        return next((m for m in self.members if m.seat.process == process), None)

    def _engaged(self, process: str) -> Engagement | None:
        return next((e for e in self._engagements if process in e.processes), None)

    # ------------------------------------------------------------ deciding

    def _decide(self, now: float) -> None:
        if not self.members or not all(m.progress or m.dead for m in self.members):
            return
        for command in decide(self.view()):
            if isinstance(command, Commit):
                self._commit(command.epoch, now)
            elif isinstance(command, Recover):
                self._recover(command, now)
            elif isinstance(command, Release):
                self._assign(self.journal.assignment.without(command.instances))
            elif command.failed:
                self._end(self._failed[0][1])
            else:
                self._end(None)

    def _commit(self, epoch: int, now: float) -> None:
        self.committed_at = now
        self._deaths.moved()
        self._stand_by = True  # not before: loading spare processes slows the start of the job
        for m in self.members:
            if m.progress is not None and m.progress.ended:
                m.seat = replace(m.seat, last=m.progress)
            if m.bare < epoch:
                m.bare = -1
        self._write(committed=epoch, seats=tuple(m.seat for m in self.members))
        self._out += [do.CommitTo(m.seat.process, epoch) for m in self.members if not m.dead]
        self._out += self._saver.committed(epoch, self.journal.seats, now)
        self._out += self._saver.trims(self.journal.posts)
        self._end_if_wanted()

    def _end_if_wanted(self) -> None:
        if (stopped := self._saver.stopped(self.journal)) is not None:
            self._end(stopped)

    @property
    def unsaved(self) -> str:
        """Why the newest cut that was to be saved was not; empty if it was."""
        return self._saver.unsaved

    def _drill(self, now: float) -> None:
        """In checking mode an instance is replaced after each commit, as if it had died: what its
        successor sends is compared with what it had sent."""
        if not self.plan.check or self._drilled == self.journal.committed or self._engagements:
            return
        self._drilled = self.journal.committed
        kinds = self.plan.vertices
        fit = [m for m in self.members if kinds[m.seat.place.vertex].outputs and m.progress]
        fit = [m for m in fit if m.progress and not m.progress.ended and not m.dead]
        if fit:
            self._drills += 1
            member = fit[self._drills % len(fit)]
            member.dead = "it is replaced on purpose, to be checked"
            self._recover(Recover((member.name,), self.journal.committed, "checking"), now)

    def _heard(self, process: str, progress: Progress, now: float) -> None:
        """A call may be lost with its connection: who was not told what is newest is told again."""
        member = self._member(process)
        if member is None or member.dead:
            return
        if member.progress is None or progress.position > member.progress.position:
            member.moved = now
        member.progress = progress
        entry = self.journal
        untold = behind(progress, entry.assignment.version, entry.committed, member.seat.kept)
        if untold.assignment:
            self._out.append(do.Assign(process, entry.assignment))
        if untold.floor:
            self._out.append(do.CommitTo(process, entry.committed))
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

    # ------------------------------------------------------------ processes

    def _hire(self) -> None:
        """Have a process for every place that waits for one."""
        wanted = sum(len(e.waiting) for e in self._engagements)
        for _ in range(wanted - len(self._hands) - len(self._hiring)):
            self._hire_one(spare=False)

    def _hire_spare(self, now: float) -> None:
        """Have another spare process, one after the other, while nobody takes a place."""
        calm = not self._engagements and not self._hiring and now >= self._settled + SETTLE_SECONDS
        short = len(self._hands) < self.options.spares and self._unhired < ATTEMPTS_MAX
        if self._stand_by and calm and short:
            self._hire_one(spare=True)

    def _hire_one(self, *, spare: bool) -> None:
        process = self._name()
        self._hiring.add(process)
        self._out.append(do.Hire(process, spare))

    def _gone(self, process: str, why: str, now: float) -> None:
        if process in self._hiring:
            self._not_hired(process, why)
        self._hands.pop(process, None)
        member, engagement = self._member(process), self._engaged(process)
        self._out += self._saver.gone(process, now)
        if any(p.process == process for p in self.journal.posts):
            self._keeper_gone(process)
        elif member is not None and not member.dead:
            member.dead = why
            self._decide(now)
        elif engagement is not None:
            self._again(engagement, process, why)
        self._hire()

    def _not_hired(self, process: str, why: str) -> None:
        self._hiring.discard(process)
        self._write()  # a controller whose time is over is to kill nobody
        self._out.append(do.Kill(process, why))  # it may be on its way
        if process not in self._adopting:
            self._unhired += 1
        if self._unhired >= ATTEMPTS_MAX and any(e.waiting for e in self._engagements):
            raise JobError(f"no process could be started, {self._unhired} times: {why}")

    # ------------------------------------------------------------ taking places

    def _recover(self, command: Recover, now: float) -> None:
        """Put others into the place of the dead."""
        busy = {m.name for e in self._engagements for m in e.gone}
        dead = [m for m in self.members if m.name in command.instances and m.name not in busy]
        if not dead:
            return
        reasons = "; ".join(sorted({m.dead for m in dead}))
        self._deaths.died([m.seat.place for m in dead], command.floor, reasons)
        places = [m.seat.place for m in self.members]
        again = widened([m.seat.place for m in dead], places, self.plan, self.options.recovery)
        gone = tuple(m for m in self.members if m.name in again and m.name not in busy)
        self._write()  # a controller whose time is over is to kill nobody
        for m in gone:  # who cannot be reached may still run, and write
            m.dead = m.dead or "what it sent is needed again"
            self._out.append(do.Kill(m.seat.process, m.dead))
        waiting: list[Place] = []
        for m in gone:
            waiting += self._successors(m, waiting, split=m in dead)
        because = ", ".join(m.name for m in dead) + " died"
        if self.options.recovery == "source" and self._engagements:
            self._engagements[0].join(gone, waiting, because)  # all begin anew together, or none
        else:
            self._engagements.append(Engagement(command.floor, gone, now, because, waiting))
        self._prepare()
        self._hire()

    def _successors(self, member: Member, others: list[Place], *, split: bool) -> tuple[Place, ...]:
        place = member.seat.place
        operator = self.plan.vertices[place.vertex].kind == "operator"
        into = self.options.restore_into if operator and split else 1
        taken = [*others, *(m.seat.place for m in self.members)]
        for e in self._engagements:
            taken += [*e.waiting, *(p for _, p in e.preparing.values())]
            taken += [p for _, p, _ in e.ready.values()]
        return successors(place, into, taken)

    def _prepare(self) -> None:
        """Give places to processes that have none, when there are enough for all of them."""
        for e in self._engagements:
            if e.waiting and len(e.waiting) <= len(self._hands):
                given = {p: (self._hands.pop(p), e.waiting[i]) for i, p in
                         enumerate(sorted(self._hands, key=_by_age)[: len(e.waiting)])}  # fmt: skip
                e.waiting.clear()
                e.preparing.update(given)
                for hand, place in given.values():
                    self._become(e, hand, place)

    def _become(self, e: Engagement, hand: Hand, place: Place) -> None:
        holders = tuple(p.process for p in self.journal.posts) if e.floor else ()
        self._out.append(do.Become(hand.process, place, e.floor, holders))

    def _became(self, process: str, address: str, now: float) -> None:
        e = self._engaged(process)
        if e is None or process not in e.preparing:
            return
        e.ready[process] = (*e.preparing.pop(process), address)
        if not e.preparing and not e.waiting:
            self._engagements.remove(e)
            self._take_over(e, now)

    def _take_over(self, e: Engagement, now: float) -> None:
        """All places of an engagement have their process: they begin, in a new assignment."""
        self._settled = now
        entry = self.journal
        new = [
            Member(Seat(place, hand.process, hand.node, hand.pid, address), moved=now)
            for hand, place, address in e.ready.values()
        ]
        names = [m.name for m in e.gone]
        self.members = [m for m in self.members if m not in e.gone] + new
        for m in new:
            m.seat = replace(m.seat, keepers=self._keepers_of(m.seat), kept=entry.kept)
        serving = [_serving(m.seat, e.floor + 1) for m in new]
        started = entry.started or now + self._delay()
        recoveries = entry.recoveries
        if e.gone:
            into = tuple(m.name for m in new)
            took = Recovery(
                e.began - started, tuple(names), into, e.floor, now - e.began, e.because
            )
            recoveries = (*recoveries, took)[-RECOVERIES_MAX:]
        self._assign(
            entry.assignment.replaced(names, serving),
            seats=tuple(m.seat for m in self.members),
            started=started,
            recoveries=recoveries,
        )
        self._out += [do.Begin(m.seat, self.journal.assignment, started) for m in new]

    def _delay(self) -> float:
        """Seconds until the first row of a paced run is released, whatever epoch it begins with."""
        clock = self.plan.clock
        if clock is None or clock.speed is None:
            return 0.0
        return START_DELAY - self.plan.begins * clock.seconds / clock.speed

    def _missing(self, process: str, *, again: bool) -> None:
        e = self._engaged(process)
        if e is None or process not in e.preparing:
            return
        hand, place = e.preparing[process]
        if not again:
            raise checkpoint_lost(place, e.floor)
        self._count(e, place, "the keeper of its checkpoint died")
        self._become(e, hand, place)

    def _taken(self, process: str) -> None:
        e = self._engaged(process)
        if e is not None and process in e.preparing:
            e.waiting.append(e.preparing.pop(process)[1])
            self._write()  # a controller whose time is over is to kill nobody
            self._out.append(do.Kill(process, "another controller gave it a place"))
            self._prepare()
            self._hire()

    def _again(self, e: Engagement, process: str, why: str) -> None:
        """Another process for a place whose own died before it began."""
        place = e.preparing[process][1] if process in e.preparing else e.ready[process][1]
        self._count(e, place, why)
        e.preparing.pop(process, None)
        e.ready.pop(process, None)
        e.waiting.append(place)
        self._prepare()

    def _count(self, e: Engagement, place: Place, why: str) -> None:
        e.failures[place] += 1
        if e.failures[place] >= ATTEMPTS_MAX:
            raise JobError(f"{place.name} could not be made, {ATTEMPTS_MAX} times: {why}")


def _by_age(process: str) -> tuple[int, ...]:
    return tuple(map(int, process.split(".")))


def _serving(seat: Seat, first: int) -> Serving:
    place = seat.place
    return Serving(place.vertex, place.keys, place.name, seat.address, first)
