"""Requests of users: to take a checkpoint, to serve operators by instances of other ranges, or to
leave a node with all its instances, spare processes and keepers."""

from __future__ import annotations

from collections.abc import Sequence

from raystream.controller.protocol.job import Job
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
from raystream.controller.protocol.recovery import ALONE
from raystream.errors import ConfigError


class RequestHandler:
    """Takes requests up, or refuses them."""

    def __init__(
        self, job: Job, hiring: Hiring, placements: Placements, moves: Rebalancing
    ) -> None:
        self._job = job
        self._hiring = hiring
        self._placements = placements
        self._moves = moves

    def checkpoint(self) -> tuple[str, list[Command]]:
        """Take a checkpoint as soon as there can be one. Returns as `rescale`."""
        job = self._job
        if not job.members or job.ended:
            return self._not_running(), []
        if not job.strategy.stores_checkpoints:
            return "the job stores no checkpoints", []
        if job.ending:
            return "the job has come to the end of its input, which is a checkpoint", []
        if job.entry.stop_after >= 0:
            return "", []  # its last one is on its way
        return "", self._moves.checkpoints.want()

    def _not_running(self) -> str:
        return "the job has ended" if self._job.members else "the job has not begun"

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
            raise ConfigError(self._not_running())
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
        for place in [m.record.place for m in owners if m.name in wanted.leave]:
            there = "apart" if place.apart else "together"
            if wanted.thread != "own" and (place.bundle == ALONE or there == wanted.thread):
                raise ConfigError(f"{place.name} shares no thread, or is where it should be")

    def drain(self, node: str, because: str) -> tuple[str, list[Command]]:
        """Leave a node. Returns why that was refused, empty if it was taken up; and the commands
        that follow."""
        job = self._job
        drained = job.entry.drained & {*job.nodes} | {node}  # a node that ended never comes again
        if not job.members or job.ended:
            return self._not_running(), []
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
        lately = job.entry.given_up_since(job.now - LEAVE_AGAIN_SECONDS)
        busy = {move.operator for move in job.entry.moves} | lately
        commands: list[Command] = []
        for vertex in job.plan.vertices:
            mine = [m for m in job.owners if m.record.place.vertex == vertex.id]
            leave = tuple(m.name for m in mine if m.record.node in job.entry.drained)
            if leave and vertex.name not in busy and not any(m.dead for m in mine):
                ranges = tuple(m.record.place.keys for m in mine)
                request = RescaleRequest(vertex.name, ranges, because, leave, mode="handover")
                commands += self.rescale([request])[1]
        return commands
