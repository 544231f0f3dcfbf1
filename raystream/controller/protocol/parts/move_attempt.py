"""An attempt at a move: how the places of a move are taken, while their owners go on.

Sinks act on the world, so two of them must not serve a range at once. The old instance is ended
once the new one has its state, and the new one begins when that is done (a hard hand-over).

A range that is part of one owner's can be filled by hand-over: the new instance has its state at
the committed checkpoint already when the owner is asked for what has changed since, up to the epoch
h that it has just ended. The candidate begins behind h, and so does its log, so the owner stays
until a checkpoint after h is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.move_requests import (
    DELIVER_SECONDS,
    PIN_AGAIN_SECONDS,
    PIN_SECONDS,
    STOP_SECONDS,
)
from raystream.controller.protocol.placement import Placement, PlacementPhase
from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange

if TYPE_CHECKING:
    from raystream.controller.protocol.parts.rebalancing import Rebalancing

Step = tuple[PlacementPhase, list[Command]]


class MoveAttempt:
    """The purpose of a placement that moves ranges of an operator."""

    def __init__(self, moves: Rebalancing, operator: str) -> None:
        self._moves = moves
        self._job = moves.job
        self.operator = operator

    @property
    def _sink(self) -> bool:
        return self._moves.vertex(self.operator).kind == "sink"

    def may_give(self, p: Placement) -> tuple[bool, list[Command]]:
        """Whether the attempt may fetch its state at the committed checkpoint now. Moves that share
        a checkpoint begin soon after each other: otherwise they could hold it back for ever. Others
        wait for the next commit."""
        if not self._job.strategy.stores_checkpoints:
            return True, []
        if self._moves.pins.allow(self._job.entry.committed, self._job.now):
            return True, []
        return False, self._moves.checkpoints.want()

    def given(self, p: Placement) -> list[Command]:
        """The attempt starts from the committed checkpoint; nothing newer is committed for now."""
        p.committed = self._job.entry.committed
        gone = tuple(m.name for m in p.gone)
        seat = next((s for s in p.processes if self._job.at_work(s) is not None), "")
        return self._moves.change(
            self.operator, committed=p.committed, gone=gone, placed=self._job.now, seat=seat
        )

    def donor(self, p: Placement, place: Place) -> Member | None:
        if self._moves.move(self.operator).wanted.mode != "handover":
            return None
        if self._sink or not self._job.strategy.stores_checkpoints:
            return None  # without checkpoints none could be committed after the owner's epoch
        return next((m for m in p.gone if place.keys.within(m.record.place.keys)), None)

    def go_on(self, p: Placement) -> Step:
        return self._end_owners(p) if self._sink else self._deliver(p)

    def _deliver(self, p: Placement) -> Step:
        """Ask the owners that deliver their changes for what has changed since the committed
        checkpoint."""
        to: dict[str, list[tuple[str, KeyRange]]] = {}
        for process, (_, place, _) in p.ready.items():
            donor = self.donor(p, place)
            if donor is not None:
                to.setdefault(donor.record.process, []).append((process, place.keys))
        if not to:
            return PlacementPhase.OVER, self._moves.candidates_begin(p)
        p.delivering = set(to)
        commands = self._moves.change(self.operator, restored=self._job.now)
        for owner, parts in to.items():
            attempt = p.attempt(owner, self._job.entry.incarnation)
            commands.append(do.Deliver(owner, p.committed, tuple(parts), attempt))
        return PlacementPhase.DELIVERING, commands

    def _end_owners(self, p: Placement) -> Step:
        """A hard hand-over can be done: end the old instances, and let the new ones begin once they
        have ended."""
        p.owners_end = True
        p.stopping = {m.record.process for m in p.gone}
        commands = self._moves.change(self.operator, restored=self._job.now)
        for m in p.gone:
            m.dead = "its place is another's"
            commands.append(do.Kill(m.record.process, m.dead, True))
        return PlacementPhase.STOPPING, commands

    def delivered(self, p: Placement, event: on.Delivered) -> list[Command]:
        return self._moves.candidates_begin(p)

    def stopped(self, p: Placement) -> list[Command]:
        return self._moves.owners_ended(p)

    def overdue(self, p: Placement) -> str:
        now = self._job.now
        if p.stopping:
            return "it did not end in time" if now - p.told > STOP_SECONDS else ""
        late = now - self._moves.move(self.operator).restored > DELIVER_SECONDS
        return f"its owner did not deliver in {DELIVER_SECONDS:g} s" if late else ""

    def broken(self, p: Placement) -> list[Command]:
        return self._moves.attempt_broken(p)


class Pins:
    """A committed checkpoint at which moves fetch state, and until when others may do so too."""

    def __init__(self) -> None:
        self._committed, self._since = -1, 0.0

    def allow(self, committed: int, now: float) -> bool:
        """Whether a move may begin to fetch state at the committed checkpoint."""
        again = now - self._since > PIN_AGAIN_SECONDS
        if committed != self._committed or again:
            self._committed, self._since = committed, now
        return now - self._since <= PIN_SECONDS
