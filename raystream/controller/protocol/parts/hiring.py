"""Hiring: processes that have no place yet, and where they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import SpareProcess, in_seat, process_of
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.placement import Placement
from raystream.controller.protocol.recovery import ALONE, ATTEMPTS_MAX, Place

SETTLE_SECONDS = 2.0
"""How long after places were taken the next spare process is started. Its start would take the
processor from the instances that catch up."""


class Hiring:
    """Starts processes, and has some stand by without a place."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.spares: dict[str, SpareProcess] = {}
        """Processes that are there and have no place, by name."""
        self.asked: dict[str, str] = {}
        """Processes that are being started: by name the node where they have to be, "" for
        anywhere."""
        self._adopted: set[str] = set()  # of these, those that another controller started
        self._failures: Counter[str] = Counter()
        """How many times in a row no process could be started: on a node where a move is to have
        its processes, or ("") anywhere."""
        self._failing: set[str] = set()  # nodes where none could be started since the last tick

    # ------------------------------------------------------------ starting

    def tick(self) -> None:
        """Time has passed: nodes where no process could be started may be tried again."""
        self._failing.clear()

    def hire(self) -> list[Command]:
        """Have a process for every place that waits for one."""
        commands: list[Command] = []
        free = [*(s.node for s in self.spares.values()), *self.asked.values()]
        for p in sorted(self._job.placements, key=lambda p: not p.node):
            for places in self._job.sharing(p.waiting):
                if self._has_home(p, places):
                    continue
                at = next((n for n in free if self._fits(p, n, places)), None)
                if at is not None:
                    free.remove(at)
                elif p.node not in self._failing:
                    operator = any(map(self._job.is_operator, places))
                    commands.append(self._hire(p.node or self._anywhere(operator=operator)))
        return commands

    def hire_spare(self) -> list[Command]:
        """Have another spare process, one after the other. Called while no place is being taken."""
        job = self._job
        settled = job.now >= max(job.stand_by_from, job.settled + SETTLE_SECONDS)
        spares = [s for s in self.spares.values() if self._suits(s.node, operator=True)]
        lacking = len(spares) < job.options.spares and self._failures[""] < ATTEMPTS_MAX
        if not self.asked and settled and lacking:
            return [self._hire(self._anywhere(operator=True), spare=True)]
        return []

    def adopt(self, process: str) -> list[Command]:
        """Take over a process that another controller started."""
        self.asked[process] = ""
        self._adopted.add(process)
        return [do.Adopt(process)]

    def _hire(self, node: str, *, spare: bool = False) -> Command:
        process = self._job.journal.new_name()
        self.asked[process] = node
        return do.Hire(process, spare, node)

    # ------------------------------------------------------------ where

    def _anywhere(self, *, operator: bool) -> str:
        """The node where a process is to be; "" for any, unless some nodes are meant for operators,
        or are to be left."""
        special = self._job.entry.drained or self._job.for_operators
        return self._least_used(operator=operator) if special else ""

    def _least_used(self, *, operator: bool) -> str:
        """A node with few processes that is not to be left; one that is meant for such a process,
        if there is one."""
        job = self._job
        nodes = [n for n in job.nodes if n not in job.entry.drained]
        meant = [n for n in nodes if (n in job.for_operators) == operator] or nodes
        alive = [n for n in meant if n not in self._failing] or meant
        used = job.used()
        used.update(s.node for s in self.spares.values())
        used.update(self.asked.values())
        return min(alive, key=lambda n: (used[n], n), default="")

    def _suits(self, node: str, *, operator: bool) -> bool:
        """Whether a process on a node, "" for one that is not known yet, is where it should be. A
        source finds its files on certain nodes, and users look there for those of a sink."""
        job = self._job
        if not (node and job.for_operators) or (node in job.for_operators) == operator:
            return True
        meant = job.for_operators if operator else {*job.nodes} - job.for_operators
        return not meant - job.entry.drained

    def _fits(self, p: Placement, node: str, places: list[Place]) -> bool:
        """Whether a process on a node may be given places."""
        if p.node:
            return node == p.node
        return all(self._suits(node, operator=self._job.is_operator(place)) for place in places)

    def match(self, p: Placement) -> list[tuple[SpareProcess, Place]]:
        """A process for each waiting place of a placement, where it should be and on a node that
        has few instances; none at all while one of the places has none. Where places share a
        process, each has a name of it. Where others of their bundle are at work, it is theirs."""
        groups = self._job.sharing(p.waiting)
        used, left, matched = self._job.used(), sorted(self.spares, key=_by_age), []
        for places in groups:
            if self._has_home(p, places):
                seats = self._seats_at_home(places)
                if not seats:
                    return []
                matched += seats
                continue
            fit = [s for s in left if self._fits(p, self.spares[s].node, places)]
            if not fit:
                return []
            best = fit[0]
            if self._job.for_operators:
                best = min(fit, key=lambda s: used[self.spares[s].node])
            left.remove(best)
            spare = self.spares[best]
            used[spare.node] += len(places)
            for seat, place in enumerate(places):
                matched.append((spare._replace(process=in_seat(best, seat)), place))
        return matched

    def _has_home(self, p: Placement, places: list[Place]) -> bool:
        """Whether the bundle of places is at work, or is about to be: its dead are being replaced.
        A move waits for any of these, a recovery for those that began before."""
        job = self._job
        if places[0].bundle == ALONE or places[0].apart:
            return False
        if job.home_of(places[0]) is not None:
            return True
        recoveries = [o for o in job.placements if not o.operator]
        before = [o for o in recoveries if p.operator or o.number < p.number]
        shared = [job.sharing([places[0], place]) for o in before for place in o.places]
        return any(len(groups) == 1 for groups in shared)

    def _seats_at_home(self, places: list[Place]) -> list[tuple[SpareProcess, Place]]:
        """For each place a new seat in the process where its bundle is at work."""
        home = self._job.home_of(places[0])
        if home is None:
            return []
        process, record = process_of(home.record.process), home.record
        seats = [in_seat(process, self._job.journal.new_seat()) for _ in places]
        return [
            (SpareProcess(seat, record.node, record.pid), place)
            for seat, place in zip(seats, places, strict=True)
        ]

    # ------------------------------------------------------------ for the pool of nodes

    @property
    def used(self) -> frozenset[str]:
        """The nodes where an instance runs, or is about to."""
        taken = [s for p in self._job.placements for s, _ in p.preparing.values()]
        taken += [s for p in self._job.placements for s, _, _ in p.ready.values()]
        return frozenset(self._job.used()) | {s.node for s in taken}

    @property
    def wanted(self) -> int:
        """How many nodes operators need beyond those in use, while they wait for processes. A move
        needs one for each place, unless its node is in use; other placements begin where they can,
        so they need only what is there."""
        job, used = self._job, self.used
        waiting = {
            p.number: sum(any(map(job.is_operator, places)) for places in job.sharing(p.waiting))
            for p in self._job.placements
        }
        moves = [p for p in self._job.placements if p.operator and p.node not in used]
        others = sum(waiting[p.number] for p in self._job.placements if not p.operator)
        free = len(job.for_operators - job.entry.drained - used)
        return sum(waiting[p.number] for p in moves) + min(others, free)

    # ------------------------------------------------------------ what becomes of them

    def hired(self, event: on.Hired) -> list[Command]:
        """A process is there. It is ended if its node is to be left."""
        self.asked.pop(event.process, None)
        self._failures.clear()
        if event.node in self._job.entry.drained:
            return self.dismiss([event.process], "its node is to be left")
        self.spares[event.process] = SpareProcess(event.process, event.node, event.pid)
        return []

    def not_hired(self, process: str) -> tuple[str, int]:
        """A process could not be started. Returns the node where it was to be, if some placement
        waits for that one, otherwise ""; and how many times in a row that was so."""
        node = self.asked.pop(process)
        at = node if any(p.waiting and p.node == node for p in self._job.placements) else ""
        if process not in self._adopted and node not in self._failing:
            # Of several that were to begin together on a node that is gone only one is counted.
            self._failures[at] += 1
        self._failing |= {node} - {""}
        return at, self._failures[at]

    def forgive(self, node: str) -> None:
        """Count the failures on a node from 0 again."""
        self._failures[node] = 0

    def leave(self, node: str) -> list[Command]:
        """End the spare processes on a node that is to be left."""
        idle = [s.process for s in self.spares.values() if s.node == node]
        self.spares = {p: s for p, s in self.spares.items() if p not in idle}
        return self.dismiss(idle, "its node is to be left")

    def dismiss(self, processes: Iterable[str], why: str) -> list[Command]:
        """End processes that have no place."""
        kills = [do.Kill(p, why, self._job.at_work(p) is not None) for p in processes]
        # A controller that was overtaken must kill nothing, so the journal is written first.
        return [*self._job.journal.write(), *kills] if kills else []


def _by_age(process: str) -> tuple[int, ...]:
    return tuple(map(int, process.split(".")))
