"""How places are taken: processes are started, given places, and let begin together.

The middle of the machine. Places are taken by *engagements*: processes that are made ready beside
all others, and then begin together, in one new assignment. The start of a job is one that replaces
nobody; a recovery replaces the dead; what a move is is said in `moving`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import inf

from raystream.controller import commands as do
from raystream.controller.decide import Recover
from raystream.controller.journal import Entry, Seat
from raystream.controller.keeping import Keeping
from raystream.controller.members import Engagement, Hand, Member, Options
from raystream.controller.recovery import (
    ATTEMPTS_MAX,
    Deaths,
    Place,
    checkpoint_lost,
    successors,
    widened,
)
from raystream.controller.report import Recovery
from raystream.dataflow.plan import Plan
from raystream.errors import JobError
from raystream.state.assignment import Assignment, Serving
from raystream.state.keys import common

START_DELAY = 0.2
"""Seconds between the last instance's readiness and the first row of a paced run."""
SETTLE_SECONDS = 2.0
"""Spare processes are started so long after places were taken: their start would take the processor
from those that catch up."""
RECORDS_MAX = 1000
"""So many recoveries, and moves, are kept of a job, the newest."""


class Taking(Keeping):
    """Has places taken. now: the time of the event at hand."""

    def __init__(self, plan: Plan, options: Options, journal: Entry) -> None:
        super().__init__(plan, options, journal)
        self.now = 0.0
        self._hands: dict[str, Hand] = {}
        self._hiring: dict[str, str] = {}  # by process the node where it has to be, "" for anywhere
        self._adopting: set[str] = set()
        self._for_operators: frozenset[str] = frozenset()
        self._engagements: list[Engagement] = []
        self._deaths = Deaths()
        self._stand_by = inf  # from then on there are spare processes
        self._settled = 0.0  # when places were taken last
        self._unhired: Counter[str] = Counter()
        """How often, one after the other, no process could be started: on a node where a move is to
        have its processes, or ("") anywhere."""
        self._failing: set[str] = set()  # nodes where none could be since the last tick

    def _member(self, process: str) -> Member | None:
        for m in self.members:  # a loop: it is asked for with all that is heard
            if m.seat.process == process:
                return m
        return None

    def engaged(self, process: str) -> Engagement | None:
        """For what a process that has no place yet is made ready."""
        return next((e for e in self._engagements if process in e.processes), None)

    # ------------------------------------------------------------ processes

    def _hire(self) -> None:
        """Have a process for every place that waits for one."""
        free = [*(h.node for h in self._hands.values()), *self._hiring.values()]
        for e in sorted(self._engagements, key=lambda e: not e.node):
            for place in e.waiting:
                at = next((n for n in free if self._fits(e, n, place)), None)
                if at is not None:
                    free.remove(at)
                elif e.node not in self._failing:
                    self._hire_one(e.node or self._anywhere(operator=self._is_operator(place)))

    def _hire_spare(self) -> None:
        """Have another spare process, one after the other, while nobody takes a place."""
        settled = self.now >= max(self._stand_by, self._settled + SETTLE_SECONDS)
        calm = not self._engagements and not self._hiring and settled
        spares = [h for h in self._hands.values() if self._suits(h.node, operator=True)]
        short = len(spares) < self.options.spares and self._unhired[""] < ATTEMPTS_MAX
        if calm and short:
            self._hire_one(self._anywhere(operator=True), spare=True)

    def _hire_one(self, node: str, *, spare: bool = False) -> None:
        process = self._name()
        self._hiring[process] = node
        self._out.append(do.Hire(process, spare, node))

    def _anywhere(self, *, operator: bool) -> str:
        """Where a process may be: "" for anywhere, unless some nodes are meant for operators, or to
        be left."""
        special = self.journal.drained or self._for_operators
        return self._least_used(operator=operator) if special else ""

    def _least_used(self, *, operator: bool) -> str:
        """Of the nodes that are not to be left, one with few processes; of those that are meant for
        it, if there are some."""
        nodes = [n for n in self._nodes if n not in self.journal.drained]
        meant = [n for n in nodes if (n in self._for_operators) == operator] or nodes
        alive = [n for n in meant if n not in self._failing] or meant
        used = self._used()
        used.update(h.node for h in self._hands.values())
        used.update(self._hiring.values())
        return min(alive, key=lambda n: (used[n], n), default="")

    def _suits(self, node: str, *, operator: bool) -> bool:
        """Whether whoever is on a node, "" for one that is not known yet, is where it should be. A
        source finds its files there, and somebody looks there for those of a sink."""
        if not (node and self._for_operators) or (node in self._for_operators) == operator:
            return True
        meant = self._for_operators if operator else {*self._nodes} - self._for_operators
        return not meant - self.journal.drained

    def _fits(self, e: Engagement, node: str, place: Place) -> bool:
        """Whether a process on a node may be given a place of an engagement."""
        return node == e.node if e.node else self._suits(node, operator=self._is_operator(place))

    def _used(self) -> Counter[str]:
        """How many instances there are on each node."""
        return Counter([m.seat.node for m in self.members if not m.dead])

    def _is_operator(self, place: Place) -> bool:
        return self.plan.vertices[place.vertex].kind == "operator"

    @property
    def used(self) -> frozenset[str]:
        """The nodes where somebody has a place, or is about to have one."""
        engaged = [h for e in self._engagements for h, _ in e.preparing.values()]
        engaged += [h for e in self._engagements for h, _, _ in e.ready.values()]
        return frozenset(self._used()) | {h.node for h in engaged}

    @property
    def waiting(self) -> int:
        """How many nodes operators want beyond those in use, while they wait for a process: of a
        move one for each, unless it is to one of these; of others, who begin where they can, only
        what is there."""
        used = self.used
        moves = [e for e in self._engagements if e.operator and e.node not in used]
        moving = sum(self._operators_of(e) for e in moves)
        others = sum(self._operators_of(e) for e in self._engagements if not e.operator)
        free = self._for_operators - self.journal.drained - used
        return moving + min(others, len(free))

    def _operators_of(self, e: Engagement) -> int:
        """How many places of operators an engagement waits with."""
        return sum(self._is_operator(place) for place in e.waiting)

    def _hired(self, process: str, node: str, pid: int) -> None:
        self._hiring.pop(process, None)
        self._unhired.clear()
        if node in self.journal.drained:
            self._dismiss([process], "its node is to be left")
            self._hire()
        else:
            self._hands[process] = Hand(process, node, pid)
            self._prepare()

    def _dismiss(self, processes: Iterable[str], why: str) -> None:
        """End processes that have no place."""
        processes = list(processes)
        if processes:
            self._write()  # a controller whose time is over is to kill nobody
            self._out += [do.Kill(p, why) for p in processes]

    def _not_hired(self, process: str, why: str) -> None:
        node = self._hiring.pop(process)
        self._dismiss([process], why)  # it may be on its way
        bound = [e for e in self._engagements if e.waiting and node and e.node == node]
        at = node if bound else ""
        if process not in self._adopting and node not in self._failing:
            self._unhired[at] += 1  # once of all that were to begin together on a node that is gone
        self._failing |= {node} - {""}
        if self._unhired[at] < ATTEMPTS_MAX:
            return
        why = f"no process could be started, {self._unhired[at]} times: {why}"
        if bound:
            self._unhired[at] = 0
            for e in bound:
                self._fall_through(e, why)
            return
        if any(e.waiting for e in self._engagements if not e.operator):
            raise JobError(why)
        for e in [e for e in self._engagements if e.waiting]:
            self._fall_through(e, why)

    # ------------------------------------------------------------ engagements

    def _free(self, vertex: int) -> int:
        """The least index that no instance of a vertex ever had."""
        taken = [m.seat.place for m in self.members]
        for e in self._engagements:
            taken += [*e.waiting, *(p for _, p in e.preparing.values())]
            taken += [p for _, p, _ in e.ready.values()]
        known = [p.index for p in taken if p.vertex == vertex]
        return max(self.journal.indices.get(vertex, 0), 1 + max(known, default=-1))

    def _recover(self, command: Recover) -> None:
        """Put others into the place of the dead."""
        busy = {m.name for e in self._engagements for m in e.gone if not e.undecided}
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
        because = ", ".join(m.name for m in dead) + " died"
        e = Engagement(command.floor, (), self.now, because, [])
        if self.options.recovery == "source" and self._engagements:
            e = self._engagements[0]  # all begin anew together, or none
            e.because += f", {because}"
        else:
            self._engagements.append(e)
        e.gone += gone
        for m in gone:
            e.waiting += self._successors(m, split=m in dead)
        self._prepare()
        self._hire()

    def _successors(self, member: Member, *, split: bool) -> tuple[Place, ...]:
        place = member.seat.place
        operator = self.plan.vertices[place.vertex].kind == "operator"
        into = self.options.restore_into if operator and split else 1
        return successors(place, into, self._free(place.vertex))

    def _prepare(self) -> None:
        """Give places to processes that have none, when there are enough for all of them. Who died
        is replaced before anybody moves."""
        for e in sorted(self._engagements, key=lambda e: bool(e.operator)):
            matched = self._matched(e)
            if matched and self._may_give(e):
                given = {p: (self._hands.pop(p), at) for p, at in matched}
                e.waiting.clear()
                e.preparing.update(given)
                self._giving(e)
                for hand, place in given.values():
                    self._become(e, hand, place)

    def _matched(self, e: Engagement) -> list[tuple[str, Place]]:
        """A process for each place of an engagement, where it should be and on a node that has few
        instances; none at all while one of them lacks."""
        if len(self._hands) < len(e.waiting):
            return []
        used, left, matched = self._used(), sorted(self._hands, key=_by_age), []
        for place in e.waiting:
            fit = [p for p in left if self._fits(e, self._hands[p].node, place)]
            if not fit:
                return []
            best = fit[0]
            if self._for_operators:
                best = min(fit, key=lambda p: used[self._hands[p].node])
            left.remove(best)
            used[self._hands[best].node] += 1
            matched.append((best, place))
        return matched

    def _may_give(self, e: Engagement) -> bool:
        """Whether processes may be given the places of an engagement now."""
        return True

    def _giving(self, e: Engagement) -> None:
        """There are processes for all places of an engagement, which are given to them now."""

    def _become(self, e: Engagement, hand: Hand, place: Place) -> None:
        holders = tuple(p.process for p in self.journal.posts) if e.floor else ()
        held = self._donor(e, place) is not None
        self._out.append(do.Become(hand.process, place, e.floor, holders, held))

    def _donor(self, e: Engagement, place: Place) -> Member | None:
        """Who is to bring whoever takes a place to where it is itself, before that begins."""
        return None

    def _became(self, process: str, address: str, nbytes: int) -> None:
        e = self.engaged(process)
        if e is None or process not in e.preparing:
            return
        e.ready[process] = (*e.preparing.pop(process), address)
        e.nbytes += nbytes
        if not e.preparing and not e.waiting:
            self._all_ready(e)

    def _all_ready(self, e: Engagement) -> None:
        """All places of an engagement have their process: they begin."""
        self._engagements.remove(e)
        recoveries = self.journal.recoveries
        new = self._seated(e)
        if e.gone:
            gone, into = tuple(m.name for m in e.gone), tuple(m.name for m in new)
            t, took = e.began - self._started(), self.now - e.began
            found = Recovery(t, gone, into, e.floor, took, e.because)
            recoveries = (*recoveries, found)[-RECORDS_MAX:]
        self._take_over(e, new, recoveries=recoveries)

    def _seated(self, e: Engagement) -> list[Member]:
        """The members that the processes of an engagement become, in the order of their ranges,
        whoever was ready first."""
        ready = sorted(e.ready.values(), key=lambda r: (r[1].vertex, r[1].keys))
        new = [Member(Seat(p, h.process, h.node, h.pid, a)) for h, p, a in ready]
        for m in new:
            keepers, held = self._keepers_of(m.seat), self._held(m.seat.place)
            m.seat = replace(m.seat, keepers=keepers, kept=self.journal.kept, held=held)
        return new

    def _held(self, place: Place) -> frozenset[str]:
        """Who holds what whoever takes this place begins with, and cuts that follow on that."""
        seats = [m.seat for m in self.members if m.seat.place.vertex == place.vertex]
        before = [s for s in seats if common(s.place.keys, place.keys)]
        return frozenset(k for s in before for k in (*s.keepers, *s.held))

    def _take_over(self, e: Engagement, new: list[Member], **changes: object) -> None:
        """These begin in the place of those who are gone, in a new assignment."""
        names = [m.name for m in e.gone]
        self.members = [m for m in self.members if m not in e.gone] + new
        serving = [serving_of(m.seat, e.floor + 1) for m in new]
        self._begin(new, self.journal.assignment.replaced(names, serving), **changes)

    def _begin(self, new: list[Member], assignment: Assignment, **changes: object) -> None:
        self._settled = self.now
        seats, started = tuple(m.seat for m in self.members), self._started()
        self._assign(assignment, seats=seats, started=started, **changes)
        self._out += [do.Begin(m.seat, self.journal.assignment, started) for m in new]

    def _started(self) -> float:
        """When the first row of a paced run is released, whatever epoch it begins with; of others,
        when the job began, which may be now."""
        clock = self.plan.clock
        if self.journal.started or clock is None or clock.speed is None:
            return self.journal.started or self.now
        return self.now + START_DELAY - self.plan.begins * clock.seconds / clock.speed

    # ------------------------------------------------------------ what goes wrong

    def _missing(self, process: str, *, again: bool) -> None:
        e = self.engaged(process)
        if e is None or process not in e.preparing:
            return
        hand, place = e.preparing[process]
        why = "the keeper of its checkpoint died"
        if e.operator:
            self._fall_through(e, f"{place.name} could not be made: {why}")
            return
        if not again:
            raise checkpoint_lost(place, e.floor)
        self._count(e, place, why)
        self._become(e, hand, place)

    def _taken(self, process: str) -> None:
        e = self.engaged(process)
        if e is not None and process in e.preparing:
            place = e.preparing.pop(process)[1]
            why = "another controller gave it a place"
            self._dismiss([process], why)
            if e.operator:
                self._fall_through(e, f"{place.name} could not be made: {why}")
                return
            e.waiting.append(place)
            self._prepare()
            self._hire()

    def _again(self, e: Engagement, process: str, why: str) -> None:
        """Another process for a place whose own died before it began."""
        place = e.preparing[process][1] if process in e.preparing else e.ready[process][1]
        e.preparing.pop(process, None)
        e.ready.pop(process, None)
        self._dismiss([process], why)  # it may only be late, and hold all that it was given
        if e.operator:
            self._fall_through(e, f"{place.name} died before it began: {why}")
            return
        self._count(e, place, why)
        e.waiting.append(place)
        self._prepare()

    def _count(self, e: Engagement, place: Place, why: str) -> None:
        e.failures[place] += 1
        if e.failures[place] >= ATTEMPTS_MAX:
            raise JobError(f"{place.name} could not be made, {ATTEMPTS_MAX} times: {why}")

    def _fall_through(self, e: Engagement, why: str) -> None:
        """The engagement of a move comes to nothing."""
        raise NotImplementedError


def _by_age(process: str) -> tuple[int, ...]:
    return tuple(map(int, process.split(".")))


def serving_of(seat: Seat, first: int) -> Serving:
    """What an instance serves as an owner from an epoch on."""
    place = seat.place
    return Serving(place.vertex, place.keys, place.name, seat.address, first)
