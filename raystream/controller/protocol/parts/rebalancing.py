"""Rebalancing: how ranges move while all instances go on.

A move is in the journal from its request to its end. In each attempt processes are given the new
places, with the state of their ranges at the committed checkpoint. They begin as *candidates*:
these catch up while the owners go on, and no consumer waits for them. Once they have published what
the owners have, an assignment makes them owners, and the instances that gave up their ranges are
ended. While the state is fetched no further checkpoint is committed, and afterwards only
checkpoints that the candidates have stored too. So every instance that has to be replaced, of the
old ranges or of the new ones, finds the state that it needs.

When an instance or process that takes part dies, the whole attempt fails: its candidates are ended,
the owners keep their ranges, dead instances are replaced, and then another attempt begins. So there
is one rule for everything that can go wrong. What can happen to a move is in `TABLE`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from raystream.controller.protocol.history import MoveRecord
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.move_requests import (
    LEVEL_SECONDS,
    NEAR_TICKS,
    TRIES_MAX,
    Move,
    ThreadUse,
    changes,
    vertex_of,
)
from raystream.controller.protocol.parts.beginning import RECORDS_MAX, Beginning, serving_of
from raystream.controller.protocol.parts.checkpoints import OnDemandCheckpoints
from raystream.controller.protocol.parts.move_attempt import MoveAttempt, Pins
from raystream.controller.protocol.parts.placements import Placements
from raystream.controller.protocol.parts.replication import is_under_replicated
from raystream.controller.protocol.phases import Ignored, PhaseTable, Subject, rule
from raystream.controller.protocol.placement import Placement
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.plan import Vertex
from raystream.schema.types import KeyRange


class MovePhase(Enum):
    """How far a move is."""

    WANTED = "no attempt is under way"
    PLACING = "processes are given the new places and their state"
    CATCHING_UP = "candidates catch up with the owners"
    OVER = "the new instances own their ranges, or the move was given up"


class MoveEvent(Enum):
    """What can happen to a move."""

    TRY = "an attempt may begin"
    RESTORED = "all processes have their state: they begin as candidates"
    REPLACED = "the old instances of a sink have ended: the new ones begin as owners"
    LOOK = "time has passed, and the members have said how far they are"
    MEMBER_DIED = "an instance of the operator died"
    BREAK = "the attempt came to nothing"
    RANGE_LOST = "the attempt came to nothing after the old instances were ended"
    GIVE_UP = "it cannot be done"


@dataclass(eq=False, kw_only=True)
class MoveState(Subject[MovePhase]):
    """How far a move is. What has to survive the controller is in the journal: see `Move`."""

    operator: str
    """The operator that is moved."""
    placement: Placement | None = None
    """The attempt that is under way, until its candidates begin."""


Step = tuple[MovePhase, list[Command]]


class Rebalancing:
    """Carries moves out."""

    def __init__(
        self,
        job: Job,
        placements: Placements,
        beginning: Beginning,
        checkpoints: OnDemandCheckpoints,
    ) -> None:
        self.job = job
        self.checkpoints = checkpoints
        self.pins = Pins()
        self._placements = placements
        self._beginning = beginning
        self._near: Counter[str] = Counter()
        """By operator, for how many ticks in a row its candidates have been an epoch behind."""
        self._states = {
            move.operator: MoveState(
                operator=move.operator,
                phase=MovePhase.CATCHING_UP if move.new else MovePhase.WANTED,
            )
            for move in job.entry.moves
        }

    # ------------------------------------------------------------ which there are

    def vertex(self, operator: str) -> Vertex:
        """The vertex of an operator that is moved."""
        return vertex_of(self.job.plan, operator)

    def move(self, operator: str) -> Move:
        """What the journal has of the move of an operator."""
        return next(move for move in self.job.entry.moves if move.operator == operator)

    def change(self, operator: str, **changes: object) -> list[Command]:
        """Write changed fields of a move to the journal."""
        return self.job.journal.write(moves=self._changed(operator, **changes))

    def _changed(self, operator: str, **changes: object) -> tuple[Move, ...]:
        """The moves under way, with one changed."""
        move = self.move(operator)
        new = replace(move, **changes)  # type: ignore[arg-type]
        return tuple(new if m is move else m for m in self.job.entry.moves)

    def _others(self, operator: str) -> tuple[Move, ...]:
        """The moves under way without one that is over."""
        return tuple(m for m in self.job.entry.moves if m.operator != operator)

    def take_up(self, moves: Sequence[Move]) -> list[Command]:
        """Begin moves that were asked for."""
        commands = self.job.journal.write(moves=(*self.job.entry.moves, *moves))
        for move in moves:
            state = MoveState(operator=move.operator, phase=MovePhase.WANTED)
            self._states[move.operator] = state
        return commands + self.attempts()

    # ------------------------------------------------------------ what is due

    def attempts(self) -> list[Command]:
        """Begin an attempt at every move that has none under way, as soon as that can be."""
        commands: list[Command] = []
        for state in self._in(MovePhase.WANTED):
            commands += self._step(state, MoveEvent.TRY)
        return commands

    def look(self) -> list[Command]:
        """Make owners of candidates that are level; give up those that never are."""
        commands: list[Command] = []
        for state in self._in(MovePhase.CATCHING_UP):
            commands += self._step(state, MoveEvent.LOOK)
        return commands

    def deaths(self) -> list[Command]:
        """Break attempts that an instance which serves the operator has not survived."""
        commands: list[Command] = []
        for state in self._in(*MovePhase):
            serving = self.job.members_of(self.vertex(state.operator).id)
            dead = [m for m in serving if m.dead]
            if dead:
                why = f"{dead[0].name} died: {dead[0].dead}"
                commands += self._step(state, MoveEvent.MEMBER_DIED, why)
        return commands

    def _in(self, *phases: MovePhase) -> list[MoveState]:
        """The moves in some phases, in the order in which they were asked for."""
        states = [self._states[move.operator] for move in self.job.entry.moves]
        return [s for s in states if s.phase in phases]

    # ------------------------------------------------------------ what happens to them

    def give_up(self, operator: str, why: str) -> list[Command]:
        """Give a move up."""
        return self._step(self._states[operator], MoveEvent.GIVE_UP, why)

    def candidates_begin(self, p: Placement) -> list[Command]:
        """All processes of an attempt have their state."""
        return self._step(self._states[p.operator], MoveEvent.RESTORED, p)

    def owners_ended(self, p: Placement) -> list[Command]:
        """The old instances of a sink have ended."""
        return self._step(self._states[p.operator], MoveEvent.REPLACED, p)

    def attempt_broken(self, p: Placement) -> list[Command]:
        """A placement came to nothing."""
        event = MoveEvent.RANGE_LOST if p.owners_end else MoveEvent.BREAK
        return self._step(self._states[p.operator], event, p.why)

    def _step(self, state: MoveState, event: MoveEvent, *told: object) -> list[Command]:
        commands = TABLE.step(self, state, event, *told)
        if state.phase is MovePhase.OVER:
            self._states.pop(state.operator, None)
        return commands

    # ------------------------------------------------------------ the rows of the table

    def _try(self, state: MoveState) -> Step:
        """Begin an attempt, unless an instance that would take part is dead or not stored, or the
        job is being upgraded: a delta does not go from one version of the code to another."""
        job, move, vertex = self.job, self.move(state.operator), self.vertex(state.operator)
        mine, lacks = job.members_of(vertex.id), partial(is_under_replicated, job)
        if job.entry.upgrade or any(m.dead or lacks(m) or m.progress is None for m in mine):
            return MovePhase.WANTED, []
        if move.wanted.node in job.entry.drained:
            return self._finish(move, f"node {move.wanted.node} is to be left")
        ranges, leaving = changes(move.wanted, {m.name: m.record.place.keys for m in mine})
        if not ranges:
            return self._finish(
                move, "the instance to replace has died, and another one is in its place"
            )
        if job.ending:
            return self._finish(move, "the job has come to the end of its input")
        free = self.job.free_index(vertex.id)
        gone = tuple(m for m in mine if m.name in leaving)
        waiting = [
            _place(vertex, k, free + i, move.wanted.thread, gone) for i, k in enumerate(ranges)
        ]
        if move.wanted.thread == "together":
            home = job.home_of(waiting[0])
            if home is None or home.record.node in job.entry.drained:
                return self._finish(move, "the thread that it left is gone")
        commands = job.journal.write(indices={**job.entry.indices, vertex.id: free + len(ranges)})
        if move.seat:  # a controller before this one gave it the place, and nobody let it begin
            commands.append(do.Kill(move.seat, "nobody knows it", True))
        state.placement = self._placements.open(
            waiting,
            move.wanted.because,
            gone=gone,
            purpose=MoveAttempt(self, move.operator),
            node=move.wanted.node,
        )
        commands += self._placements.prepare()
        return MovePhase.PLACING, commands + self._placements.hire()

    def _finish(self, move: Move, failed: str) -> Step:
        """Nothing is left to be done for a move."""
        commands = self.job.journal.write(
            moves=self._others(move.operator), moved=self._records(move, failed)
        )
        return MovePhase.OVER, commands

    def _restored(self, state: MoveState, p: Placement) -> Step:
        """All processes have their state: they begin as candidates."""
        job, new = self.job, self._beginning.members_of(p)
        job.members += new
        base = max(p.bases.values(), default=0)
        names = tuple(m.name for m in new)
        moves = self._changed(
            state.operator, new=names, restored=job.now, base=base, nbytes=p.nbytes
        )
        firsts = [1 + p.bases.get(m.record.process, p.committed) for m in new]
        serving = [serving_of(m.record, at) for m, at in zip(new, firsts, strict=True)]
        assignment = job.entry.assignment.with_candidates(serving)
        commands = self._beginning.begin(new, assignment, moves=moves)
        if base > p.committed:
            commands += self.checkpoints.want()
        state.placement = None
        return MovePhase.CATCHING_UP, commands

    def _replaced(self, state: MoveState, p: Placement) -> Step:
        """The old instances of a sink have ended: the new ones begin in their places."""
        new, move = self._beginning.members_of(p), self.move(state.operator)
        done = replace(move, new=tuple(m.name for m in new), nbytes=p.nbytes)
        moves, moved = self._others(state.operator), self._records(done)
        return MovePhase.OVER, self._beginning.take_over(p, new, moves=moves, moved=moved)

    def _look(self, state: MoveState) -> Step:
        """Whether candidates are level, which is as far as the slowest owner: consumers need an
        epoch from all owners.

        What is known of them is a moment old, and of each of them it is another moment. So
        candidates that are an epoch behind the owners several times in a row are level too; and so
        are candidates that have ended, because their epoch is the last.
        """
        job, move = self.job, self.move(state.operator)
        mine = job.members_of(self.vertex(state.operator).id)
        if any(m.progress is None for m in mine):
            return MovePhase.CATCHING_UP, []
        new = [m.progress for m in mine if m.name in move.new and m.progress is not None]
        gone = [m for m in mine if m.name in move.gone]
        to = min(m.progress.position for m in gone if m.progress is not None)
        at = min((p.position for p in new if not p.ended), default=to)
        self._near[state.operator] = 1 + self._near[state.operator] if at >= to - 1 else 0
        level = at >= to or self._near[state.operator] >= NEAR_TICKS
        if level and job.entry.committed >= move.base:
            return MovePhase.OVER, self._hand_over(move, gone)
        if job.now - move.restored <= LEVEL_SECONDS:
            return MovePhase.CATCHING_UP, []
        why = f"not level within {LEVEL_SECONDS:g} s: at epoch {at}, the owners at {to}"
        if level:
            why = f"no checkpoint after epoch {move.base} was committed in {LEVEL_SECONDS:g} s"
        return self._given_up(state, why)

    def _hand_over(self, move: Move, gone: list[Member]) -> list[Command]:
        """The candidates own their ranges from now on. They can also send all that the owners
        before them have sent."""
        job, entry = self.job, self.job.entry
        assignment = entry.assignment.handed_over(move.new, entry.committed, job.plan.groups)
        job.members = [m for m in job.members if m not in gone]
        commands = job.assign(
            assignment,
            instances=tuple(m.record for m in job.members),
            moves=self._others(move.operator),
            moved=self._records(move),
        )
        because = "another instance has its range now"
        return commands + [do.Kill(m.record.process, because, True) for m in gone]

    def _member_died(self, state: MoveState, why: str) -> Step:
        if state.placement is not None and not state.placement.undecided:
            return state.phase, []  # the old instances of a sink are being ended
        return self._broken(state, why)

    def _broken(self, state: MoveState, why: str) -> Step:
        """End the processes of the attempt. The owners own their ranges still."""
        move = self.move(state.operator)
        if move.tries + 1 >= TRIES_MAX:
            return self._given_up(state, f"{TRIES_MAX} attempts came to nothing; the last: {why}")
        ended = Move(wanted=move.wanted, began=move.began, tries=move.tries + 1, why=why)
        moves = tuple(ended if m is move else m for m in self.job.entry.moves)
        return MovePhase.WANTED, self._dissolve(state, why, moves=moves)

    def _range_lost(self, state: MoveState, why: str) -> Step:
        """No instance serves the range any more: this is a recovery now."""
        assert state.placement is not None
        processes = self._placements.abandon(state.placement)
        state.placement = None
        tries = self.move(state.operator).tries + 1
        commands = self.change(state.operator, tries=tries, why=why, committed=-1)
        if processes:  # a controller that was overtaken must kill nothing
            commands += self.job.journal.write()
        return MovePhase.WANTED, commands + [do.Kill(process, why) for process in processes]

    def _given_up(self, state: MoveState, why: str) -> Step:
        moved = self._records(self.move(state.operator), why)
        moves = self._others(state.operator)
        return MovePhase.OVER, self._dissolve(state, why, moves=moves, moved=moved)

    def _dissolve(self, state: MoveState, why: str, **changes: object) -> list[Command]:
        """End all processes that take part in an attempt."""
        job, move = self.job, self.move(state.operator)
        processes: list[str] = []
        if state.placement is not None:
            processes = self._placements.abandon(state.placement)
            state.placement = None
        new = [m for m in job.members if m.name in move.new]
        job.members = [m for m in job.members if m not in new]
        if new:
            assignment = job.entry.assignment.without(move.new)
            instances = tuple(m.record for m in job.members)
            commands = job.assign(assignment, instances=instances, **changes)
        else:
            commands = job.journal.write(**changes)
        processes += [m.record.process for m in new if not m.dead]
        commands += [do.Kill(p, why, True) for p in processes]
        return commands + [do.Kill(m.record.process, why) for m in new if m.dead]

    def _records(self, move: Move, failed: str = "") -> tuple[MoveRecord, ...]:
        """The records of all moves that have ended, with one more."""
        entry, wanted = self.job.entry, move.wanted
        placed = max(move.placed, move.began)
        restored = max(move.restored, placed)
        record = MoveRecord(
            t=move.began - entry.started,
            operator=wanted.operator,
            gone=move.gone,
            new=move.new,
            ranges=wanted.ranges,
            committed=move.committed,
            mode=wanted.mode,
            tries=move.tries + 1,
            place=placed - move.began,
            restore=restored - placed,
            replay=self.job.now - restored,
            because=wanted.because,
            failed=failed,
            nbytes=move.nbytes,
        )
        return (*entry.moved, record)[-RECORDS_MAX:]


def _place(
    vertex: Vertex, keys: KeyRange, index: int, thread: ThreadUse, gone: Sequence[Member]
) -> Place:
    """The place of a new instance. It belongs to the bundle of the one with its range that it
    replaces, unless it is to have a process of its own."""
    place = Place(vertex=vertex.id, operator=vertex.name, keys=keys, index=index)
    before = next((m.record.place for m in gone if m.record.place.keys == keys), None)
    if thread == "own" or before is None:
        return place
    apart = thread == "apart"
    return replace(place, bundle=before.bundle, apart=apart, left=before.left + apart)


WANTED, PLACING = MovePhase.WANTED, MovePhase.PLACING
CATCHING_UP, OVER = MovePhase.CATCHING_UP, MovePhase.OVER
On = MoveEvent

TABLE: PhaseTable[MovePhase, MoveEvent] = PhaseTable(
    "move",
    {
        (WANTED, On.TRY): rule(Rebalancing._try, WANTED, PLACING, OVER),
        (WANTED, On.MEMBER_DIED): Ignored("an attempt begins once the dead are replaced"),
        (PLACING, On.RESTORED): rule(Rebalancing._restored, CATCHING_UP),
        (PLACING, On.REPLACED): rule(Rebalancing._replaced, OVER),
        (PLACING, On.MEMBER_DIED): rule(Rebalancing._member_died, PLACING, WANTED, OVER),
        (PLACING, On.BREAK): rule(Rebalancing._broken, WANTED, OVER),
        (PLACING, On.RANGE_LOST): rule(Rebalancing._range_lost, WANTED),
        (PLACING, On.GIVE_UP): rule(Rebalancing._given_up, OVER),
        (CATCHING_UP, On.LOOK): rule(Rebalancing._look, CATCHING_UP, OVER),
        (CATCHING_UP, On.MEMBER_DIED): rule(Rebalancing._member_died, WANTED, OVER),
    },
)
"""What can happen to a move, and what follows."""
