"""Requests of users: to serve operators by instances of other ranges, or to leave a node with all
its instances, spare processes and keepers."""

from __future__ import annotations

from collections.abc import Sequence

from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.move_requests import (
    LEAVE_AGAIN_SECONDS,
    Move,
    RescaleRequest,
    check,
    vertex_of,
)
from raystream.controller.protocol.parts.hiring import Hiring
from raystream.controller.protocol.parts.placements import Placements
from raystream.controller.protocol.parts.rebalancing import Rebalancing
from raystream.errors import ConfigError

EASE_SECONDS = 5.0
"""How often the controller checks how busy shared threads are."""
BUSY_SHARE = 0.5
"""A thread that is busy for more than this part of the time is shared by too many."""


def share_of(before: tuple[float, float] | None, now: tuple[float, float] | None) -> float:
    """The part of the time between two checks, 0 to 1, for which an instance was busy; 0 if this is
    the first check.

    Args:
        before, now: at each check, the seconds since the instance began, and how many of these it
            was busy.
    """
    if before is None or now is None or now[0] <= before[0]:
        return 0.0
    return (now[1] - before[1]) / (now[0] - before[0])


class RequestHandler:
    """Takes requests up, or refuses them."""

    def __init__(
        self, job: Job, hiring: Hiring, placements: Placements, moves: Rebalancing
    ) -> None:
        self._job = job
        self._hiring = hiring
        self._placements = placements
        self._moves = moves
        self._spent: dict[str, tuple[float, float]] = {}
        """By instance, what `share_of` compares with the next check."""
        self._looked = 0.0

    def rescale(self, wanted: Sequence[RescaleRequest]) -> tuple[str, list[Command]]:
        """Take up all of several requests, or none. Returns why they were refused, empty if they
        were taken up; and the commands that follow."""
        try:
            if len({each.operator for each in wanted}) < len(wanted):
                raise ConfigError("an operator is named twice")
            for each in wanted:
                self._check(each)
        except ConfigError as error:
            return str(error), []
        moves = tuple(Move(wanted=each, began=self._job.now) for each in wanted)
        return "", self._moves.take_up(moves)

    def _check(self, wanted: RescaleRequest) -> None:
        """Check that a move can begin.

        Raises:
            ConfigError: it cannot, and why.
        """
        job = self._job
        if not job.members or job.ended:
            raise ConfigError("the job has not begun" if not job.members else "the job has ended")
        if job.strategy.refuses_moves:
            raise ConfigError(job.strategy.refuses_moves)
        vertex = vertex_of(job.plan, wanted.operator)
        if any(move.operator == wanted.operator for move in job.entry.moves):
            raise ConfigError(
                f"{wanted.operator} is being moved already",
                hint="One move of an operator at a time: wait until that one has ended.",
            )
        owners = [m for m in job.owners if m.record.place.vertex == vertex.id]
        if job.ending:
            raise ConfigError("the job has come to the end of its input")
        nodes = [n for n in job.nodes if n not in job.entry.drained]
        check(job.plan, wanted, {m.name: m.record.place.keys for m in owners}, nodes)

    def drain(self, node: str, because: str) -> tuple[str, list[Command]]:
        """Leave a node. Returns why that was refused, empty if it was taken up; and the commands
        that follow."""
        job = self._job
        drained = job.entry.drained & {*job.nodes} | {node}  # a node that ended never comes again
        if not job.members or job.ended:
            return "the job has not begun" if not job.members else "the job has ended", []
        if node not in job.nodes:
            return f"there is no node {node}", []
        if not set(job.nodes) - drained:
            return f"node {node} cannot be left: there is no other one", []
        commands = job.journal.write(drained=drained)
        for move in [m for m in job.entry.moves if m.wanted.node == node and not m.new]:
            if any(p.waiting for p in job.placements if p.operator == move.operator):
                commands += self._moves.give_up(move.operator, f"node {node} is to be left")
        commands += self._hiring.leave(node)
        commands += self.leave(because)
        return "", commands + self._placements.hire()

    def leave(self, because: str) -> list[Command]:
        """Move instances off nodes that are being left, unless their operator is being moved. If
        such a move was given up, another one begins after a while."""
        job = self._job
        busy = {move.operator for move in job.entry.moves} | self._given_up_lately()
        commands: list[Command] = []
        for vertex in job.plan.vertices:
            mine = [m for m in job.owners if m.record.place.vertex == vertex.id]
            leave = tuple(m.name for m in mine if m.record.node in job.entry.drained)
            if leave and vertex.name not in busy and not any(m.dead for m in mine):
                ranges = tuple(m.record.place.keys for m in mine)
                request = RescaleRequest(vertex.name, ranges, because, leave, mode="handover")
                commands += self.rescale([request])[1]
        return commands

    def ease(self) -> list[Command]:
        """Where the thread that instances share is busy for more than half of the time, give the
        busiest of them a process of its own."""
        job = self._job
        if not job.options.together or job.now < self._looked + EASE_SECONDS:
            return []
        self._looked = job.now
        before, kinds = self._spent, {v.id: v.kind for v in job.plan.vertices}
        spent = {m.name: (m.progress.seconds, m.progress.busy) for m in job.owners if m.progress}
        self._spent = spent
        commands: list[Command] = []
        for members in job.sharing_now():
            shares = {m: share_of(before.get(m.name), spent.get(m.name)) for m in members}
            movable = [m for m in members if kinds[m.record.place.vertex] != "source"]
            if sum(shares.values()) <= BUSY_SHARE or len(members) < 2 or not movable:
                continue
            if job.entry.moves or any(m.dead for m in members):
                continue
            # A sink is ended before another one begins in its place; an operator moves at work.
            operators = [m for m in movable if kinds[m.record.place.vertex] == "operator"]
            busiest = max(operators or movable, key=lambda m: shares[m])
            commands += self._apart(busiest, sum(shares.values()))
        return commands

    def _apart(self, member: Member, share: float) -> list[Command]:
        name = member.record.place.operator
        if name in self._given_up_lately():
            return []
        mine = [m for m in self._job.owners if m.record.place.operator == name]
        ranges = tuple(m.record.place.keys for m in mine)
        because = f"the thread that it shares is busy for {share:.0%} of the time"
        request = RescaleRequest(name, ranges, because, (member.name,), mode="handover")
        return self.rescale([request])[1]

    def _given_up_lately(self) -> set[str]:
        """The operators whose last move was given up within `LEAVE_AGAIN_SECONDS`."""
        entry = self._job.entry
        last = {r.operator: r for r in entry.moved}
        lately = self._job.now - entry.started - LEAVE_AGAIN_SECONDS
        return {name for name, r in last.items() if r.failed and r.ended > lately}
