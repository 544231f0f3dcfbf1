"""How ranges move while everybody goes on: the part of the machine that carries moves out.

A move is in the journal from when it was asked for until it has ended. In each attempt processes
are given the new places, with the state of their ranges at the floor; they begin as *candidates*,
which catch up beside the owners and for whom nobody waits; once they have published what the owners
have, an assignment makes them owners, and who gave up its range is ended. From when the state is
fetched the floor stays, and then it moves only as far as the candidates have come: so whoever has
to be made again finds what it needs, be it of the old ranges or of the new ones.

When anybody who takes part dies, the attempt comes to nothing as a whole: its candidates are ended,
who owned the ranges goes on owning them, the dead are replaced, and then another attempt begins
with what there is. So there is one rule for all that can go wrong.

Sinks act on the world, so that two of them may not serve a range at once: the old instance is ended
once the new one has its state, and this begins when that is over (a hard hand-over).

A range that is part of one owner's can be filled by hand-over: whoever takes it has its state at
the floor already when its owner is asked for what has changed since, up to the epoch h that it has
just ended. The candidate begins behind h, and so does its log: the owner stays until the floor has
passed h, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from raystream.controller import commands as do
from raystream.controller.journal import Entry
from raystream.controller.members import Engagement, Member, Options
from raystream.controller.moves import (
    DELIVER_SECONDS,
    LEAVE_AGAIN_SECONDS,
    LEVEL_SECONDS,
    NEAR_TICKS,
    PIN_AGAIN_SECONDS,
    PIN_SECONDS,
    STOP_SECONDS,
    TRIES_MAX,
    Move,
    Wanted,
    changes,
    check,
    vertex_of,
)
from raystream.controller.recovery import Place
from raystream.controller.report import Moved
from raystream.controller.taking import RECORDS_MAX, Taking, serving_of
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange


class Moving(Taking):
    """Carries moves out."""

    def __init__(self, plan: Plan, options: Options, journal: Entry) -> None:
        super().__init__(plan, options, journal)
        self._near: Counter[str] = Counter()  # by operator for how many ticks candidates were near
        self._pins = (-1, 0.0)  # a floor for which moves fetch state, and since when

    @property
    def candidates(self) -> frozenset[str]:
        """The instances that catch up, by name."""
        return frozenset(n for move in self.journal.moves for n in move.new)

    @property
    def owners(self) -> list[Member]:
        """Who owns a range."""
        candidates = self.candidates
        return [m for m in self.members if m.name not in candidates]

    @property
    def _ending(self) -> bool:
        """Whether everybody has come to the end of the input. Of an operator that has before all
        others the node may have to be left."""
        return all(m.progress is not None and m.progress.ended for m in self.members)

    @property
    def _pinned(self) -> bool:
        """Whether state at the floor is fetched for a move: then it has to stay."""
        return any(e.operator and (e.preparing or e.ready) for e in self._engagements)

    # ------------------------------------------------------------ requests

    def rescale(self, wanted: Sequence[Wanted]) -> str:
        """Take up what is wanted, all of it; or why that cannot be."""
        try:
            if len({each.operator for each in wanted}) < len(wanted):
                raise ConfigError("an operator is named twice")
            for each in wanted:
                self._check(each)
        except ConfigError as error:
            return str(error)
        moves = tuple(Move(each, self.now) for each in wanted)
        self._write(moves=(*self.journal.moves, *moves))
        self._attempts()
        return ""

    def drain(self, node: str, because: str) -> str:
        """Have a node left by all instances, and not used again; or why that cannot be."""
        left = self.journal.drained & {*self._nodes} | {node}  # one that ended comes never again
        if not self.members or self.ended:
            return "the job has not begun" if not self.members else "the job has ended"
        if node not in self._nodes:
            return f"there is no node {node}"
        if not set(self._nodes) - left:
            return f"node {node} cannot be left: there is no other one"
        self._write(drained=left)
        for move in [m for m in self.journal.moves if m.wanted.node == node and not m.new]:
            if any(e.waiting for e in self._engagements if e.operator == move.operator):
                self._give_up(move, f"node {node} is to be left")
        idle = [h.process for h in self._hands.values() if h.node == node]
        self._hands = {p: h for p, h in self._hands.items() if p not in idle}
        self._dismiss(idle, "its node is to be left")
        self._leave(because)
        self._hire()
        return ""

    def _leave(self, because: str) -> None:
        """Move whoever is on a node that is to be left, and is not being moved; when that was given
        up, again after a while."""
        busy = {move.operator for move in self.journal.moves} | self._given_up_lately()
        for vertex in self.plan.vertices:
            mine = [m for m in self.owners if m.seat.place.vertex == vertex.id]
            leave = tuple(m.name for m in mine if m.seat.node in self.journal.drained)
            if leave and vertex.name not in busy and not any(m.dead for m in mine):
                ranges = tuple(m.seat.place.keys for m in mine)
                self.rescale([Wanted(vertex.name, ranges, because, leave, mode="handover")])

    def _given_up_lately(self) -> set[str]:
        """Operators whose last move was given up a moment ago."""
        last = {r.operator: r for r in self.journal.moved}
        lately = self.now - self.journal.started - LEAVE_AGAIN_SECONDS
        return {name for name, r in last.items() if r.failed and r.ended > lately}

    def _check(self, wanted: Wanted) -> None:
        """Check that a move can begin.

        Raises:
            ConfigError: it cannot.
        """
        if not self.members or self.ended:
            raise ConfigError("the job has not begun" if not self.members else "the job has ended")
        if self.options.recovery == "source":
            raise ConfigError(
                "where only sources keep what they sent (recovery='source'), ranges cannot move"
            )
        vertex = vertex_of(self.plan, wanted.operator)
        if any(move.operator == wanted.operator for move in self.journal.moves):
            raise ConfigError(
                f"{wanted.operator} is being moved already",
                hint="One move of an operator at a time: wait until that one has ended.",
            )
        owners = [m for m in self.owners if m.seat.place.vertex == vertex.id]
        if self._ending:
            raise ConfigError("the job has come to the end of its input")
        nodes = [n for n in self._nodes if n not in self.journal.drained]
        check(self.plan, wanted, {m.name: m.seat.place.keys for m in owners}, nodes)

    # ------------------------------------------------------------ attempts

    def _attempts(self) -> None:
        """Begin with every move that has no attempt under way, as soon as that can be."""
        engaged = {e.operator for e in self._engagements}
        for move in self.journal.moves:
            if move.operator not in engaged and not move.new:
                self._attempt(move)

    def _attempt(self, move: Move) -> None:
        """Begin an attempt, unless somebody is dead or not stored who would take part."""
        vertex = vertex_of(self.plan, move.operator)
        mine = [m for m in self.members if m.seat.place.vertex == vertex.id]
        if any(m.dead or self._is_bare(m) or m.progress is None for m in mine):
            return
        if move.wanted.node in self.journal.drained:
            self._finish(move, f"node {move.wanted.node} is to be left")
            return
        ranges, leaving = changes(move.wanted, {m.name: m.seat.place.keys for m in mine})
        if not ranges:
            self._finish(move, "who was to be replaced has died, and others are in its place")
            return
        if self._ending:
            self._finish(move, "the job has come to the end of its input")
            return
        free = self._free(vertex.id)
        waiting = [Place(vertex.id, vertex.name, k, free + i) for i, k in enumerate(ranges)]
        self._write(indices={**self.journal.indices, vertex.id: free + len(ranges)})
        gone = tuple(m for m in mine if m.name in leaving)
        because, node = move.wanted.because, move.wanted.node
        self._engagements.append(
            Engagement(-1, gone, self.now, because, waiting, operator=move.operator, node=node)
        )
        self._prepare()
        self._hire()

    def _move(self, operator: str) -> Move:
        return next(move for move in self.journal.moves if move.operator == operator)

    def _change(self, move: Move, **changes: object) -> tuple[Move, ...]:
        """The moves under way with one changed."""
        new = replace(move, **changes)  # type: ignore[arg-type]
        return tuple(new if m is move else m for m in self.journal.moves)

    def _may_give(self, e: Engagement) -> bool:
        """Moves that fetch their state at one floor do so soon after each other, so that together
        they do not hold it for ever: others wait until it has moved."""
        if not e.operator or self.options.recovery != "state":
            return True
        floor, since = self._pins
        if floor == self.journal.committed and self.now - since > PIN_AGAIN_SECONDS:
            floor = -1
        if floor != self.journal.committed:
            self._pins = (self.journal.committed, self.now)
        allowed = self.now - self._pins[1] <= PIN_SECONDS
        if not allowed:
            self._want_cut()
        return allowed

    def _giving(self, e: Engagement) -> None:
        """A move starts from the floor of now; from here on that has to stay."""
        if e.operator:
            e.floor = self.journal.committed
            gone = tuple(m.name for m in e.gone)
            move = self._move(e.operator)
            self._write(moves=self._change(move, floor=e.floor, gone=gone, placed=self.now))

    def _all_ready(self, e: Engagement) -> None:
        if not e.operator:
            super()._all_ready(e)
        elif self.plan.vertices[vertex_of(self.plan, e.operator).id].kind == "sink":
            self._stop(e)
        elif e.delivering is None:
            self._deliver(e)
        elif not e.delivering:
            self._catch_up(e)

    def _catch_up(self, e: Engagement) -> None:
        """All have their state: they begin as candidates."""
        self._engagements.remove(e)
        new = self._seated(e)
        self.members += new
        base = max(e.bases.values(), default=0)
        names = tuple(m.name for m in new)
        moves = self._change(
            self._move(e.operator), new=names, restored=self.now, base=base, nbytes=e.nbytes
        )
        firsts = [1 + e.bases.get(m.seat.process, e.floor) for m in new]
        serving = [serving_of(m.seat, at) for m, at in zip(new, firsts, strict=True)]
        self._begin(new, self.journal.assignment.with_candidates(serving), moves=moves)
        if base > e.floor:
            self._want_cut()

    # ------------------------------------------------------------ hand-over

    def _donor(self, e: Engagement, place: Place) -> Member | None:
        if not e.operator or self._move(e.operator).wanted.mode != "handover":
            return None
        if self.plan.vertices[place.vertex].kind == "sink" or self.options.recovery != "state":
            return None  # without checkpoints there is no floor that could pass the owner
        return next((m for m in e.gone if _within(place.keys, m.seat.place.keys)), None)

    def _deliver(self, e: Engagement) -> None:
        """Ask owners for what has changed since the floor, where they are to deliver it."""
        to: dict[str, list[tuple[str, KeyRange]]] = {}
        for process, (_, place, _) in e.ready.items():
            donor = self._donor(e, place)
            if donor is not None:
                to.setdefault(donor.seat.process, []).append((process, place.keys))
        e.delivering = set(to)
        if to:
            self._write(moves=self._change(self._move(e.operator), restored=self.now))
        self._out += [do.Deliver(p, e.floor, tuple(parts)) for p, parts in to.items()]
        self._go_on(e)

    def _delivered(self, told: do.Delivered) -> None:
        """An owner has delivered, or could not."""
        process = told.process
        for e in [e for e in self._engagements if e.delivering and process in e.delivering]:
            assert e.delivering is not None
            if not e.ready.keys() >= {*told.takers}:
                continue
            if told.why:
                self._fall_through(e, f"its owner did not deliver: {told.why}")
                return
            e.delivering.discard(process)
            e.nbytes += told.nbytes
            for taker, (_, place, _) in e.ready.items():
                donor = self._donor(e, place)
                if donor is not None and donor.seat.process == process:
                    e.bases[taker] = told.epoch
            self._go_on(e)

    def _overdue(self) -> None:
        """Owners that do not deliver in time are not waited for."""
        for e in [e for e in self._engagements if e.delivering]:
            if self.now - self._move(e.operator).restored > DELIVER_SECONDS:
                self._fall_through(e, f"its owner did not deliver in {DELIVER_SECONDS:g} s")

    def _levels(self) -> None:
        """Make owners of candidates that are level; give up those that never are.

        What is known of them is a moment old, of each another one. So an epoch behind the owners,
        several times in a row, is level too; and so is who has ended, whose epoch is the last.
        """
        for move in [m for m in self.journal.moves if m.new]:
            vertex = vertex_of(self.plan, move.operator).id
            mine = [m for m in self.members if m.seat.place.vertex == vertex]
            new = [m for m in mine if m.name in move.new]
            gone = [m for m in mine if m.name in move.gone]
            if any(m.progress is None for m in mine):
                continue
            to = max(m.progress.position for m in gone if m.progress is not None)
            at = min((p.position for m in new if (p := m.progress) and not p.ended), default=to)
            self._near[move.operator] = 1 + self._near[move.operator] if at >= to - 1 else 0
            level = at >= to or self._near[move.operator] >= NEAR_TICKS
            if level and self.journal.committed >= move.base:
                self._hand_over(move, gone)
            elif self.now - move.restored > LEVEL_SECONDS:
                why = f"not level within {LEVEL_SECONDS:g} s: at epoch {at}, the owners at {to}"
                if level:
                    why = f"no cut after epoch {move.base} was committed in {LEVEL_SECONDS:g} s"
                self._give_up(move, why)

    def _hand_over(self, move: Move, gone: list[Member]) -> None:
        """The candidates own their ranges from now on. What those who had them before have sent,
        all can have from the candidates, too."""
        entry = self.journal
        assignment = entry.assignment.handed_over(move.new, entry.committed, self.plan.groups)
        self.members = [m for m in self.members if m not in gone]
        self._assign(
            assignment,
            seats=tuple(m.seat for m in self.members),
            moves=tuple(m for m in entry.moves if m is not move),
            moved=self._records(move),
        )
        self._out += [do.Kill(m.seat.process, "its range is another's now", True) for m in gone]

    # ------------------------------------------------------------ sinks

    def _stop(self, e: Engagement) -> None:
        """Everything is there for a hard hand-over: end the old ones, then let the new begin."""
        move = self._move(e.operator)
        if e.stopping is None:
            e.stopping = {m.seat.process for m in e.gone}
            self._write(moves=self._change(move, restored=self.now))
            for m in e.gone:
                m.dead = "its place is another's"
                self._out.append(do.Kill(m.seat.process, m.dead, True))
        elif not e.stopping:
            self._engagements.remove(e)
            new = self._seated(e)
            done = replace(move, new=tuple(m.name for m in new), nbytes=e.nbytes)
            moves = tuple(m for m in self.journal.moves if m is not move)
            self._take_over(e, new, moves=moves, moved=self._records(done))

    def _stopped(self, process: str) -> None:
        """A process has ended."""
        for e in [e for e in self._engagements if e.stopping and process in e.stopping]:
            assert e.stopping is not None
            e.stopping.discard(process)
            self._go_on(e)

    def _go_on(self, e: Engagement) -> None:
        if not e.stopping and not e.preparing and not e.waiting:
            self._all_ready(e)

    def _stop_again(self) -> None:
        """Who does not end in time is left behind, as the dead are that cannot be reached."""
        for e in [e for e in self._engagements if e.stopping]:
            assert e.stopping is not None
            e.told = e.told or self.now  # the journal may have taken long to be written before
            if self.now - e.told > STOP_SECONDS:
                e.stopping.clear()
                self._go_on(e)
            else:
                self._write()  # a controller whose time is over is to kill nobody
                because = "its place is another's"
                self._out += [do.Kill(p, because, True) for p in sorted(e.stopping)]

    # ------------------------------------------------------------ what goes wrong

    def _broken(self) -> None:
        """An attempt comes to nothing when somebody has died that serves the operator."""
        for move in self.journal.moves:
            vertex = vertex_of(self.plan, move.operator).id
            dead = [m for m in self.members if m.seat.place.vertex == vertex and m.dead]
            e = next((e for e in self._engagements if e.operator == move.operator), None)
            if dead and (move.new or (e is not None and e.undecided)):
                self._end_attempt(move, f"{dead[0].name} died: {dead[0].dead}")

    def _fall_through(self, e: Engagement, why: str) -> None:
        if e.stopping is None:
            self._end_attempt(self._move(e.operator), why)
        else:  # the range is nobody's: this is a recovery now
            move = self._move(e.operator)
            self._engagements.remove(e)
            self._write(moves=self._change(move, tries=move.tries + 1, why=why, floor=-1))
            self._dismiss(sorted(e.processes), why)

    def _end_attempt(self, move: Move, why: str) -> None:
        """Whoever was to take part is ended; who owned the ranges owns them still."""
        if move.tries + 1 >= TRIES_MAX:
            self._give_up(move, f"{TRIES_MAX} attempts came to nothing; the last: {why}")
        else:
            ended = Move(move.wanted, move.began, move.tries + 1, why)
            moves = tuple(ended if m is move else m for m in self.journal.moves)
            self._dissolve(move, why, moves=moves)

    def _give_up(self, move: Move, why: str) -> None:
        moves = tuple(m for m in self.journal.moves if m is not move)
        self._dissolve(move, why, moves=moves, moved=self._records(move, why))

    def _finish(self, move: Move, failed: str) -> None:
        """There is nothing to be done for a move (any more)."""
        moves = tuple(m for m in self.journal.moves if m is not move)
        self._write(moves=moves, moved=self._records(move, failed))

    def _dissolve(self, move: Move, why: str, **changes: object) -> None:
        """End whoever was to take part in an attempt."""
        e = next((e for e in self._engagements if e.operator == move.operator), None)
        processes = sorted(e.processes) if e is not None else []
        if e is not None:
            self._engagements.remove(e)
        new = [m for m in self.members if m.name in move.new]
        self.members = [m for m in self.members if m not in new]
        if new:
            assignment = self.journal.assignment.without(move.new)
            self._assign(assignment, seats=tuple(m.seat for m in self.members), **changes)
        else:
            self._write(**changes)
        processes += [m.seat.process for m in new if not m.dead]
        self._out += [do.Kill(p, why, True) for p in processes]
        self._out += [do.Kill(m.seat.process, why) for m in new if m.dead]

    def _records(self, move: Move, failed: str = "") -> tuple[Moved, ...]:
        """The records of all moves, with one more."""
        wanted = move.wanted
        placed = max(move.placed, move.began)
        restored = max(move.restored, placed)
        record = Moved(
            move.began - self.journal.started,
            wanted.operator,
            move.gone,
            move.new,
            wanted.ranges,
            move.floor,
            wanted.mode,
            move.tries + 1,
            placed - move.began,
            restored - placed,
            self.now - restored,
            wanted.because,
            failed,
            move.nbytes,
        )
        return (*self.journal.moved, record)[-RECORDS_MAX:]


def _within(keys: KeyRange, other: KeyRange) -> bool:
    return other.lo <= keys.lo and keys.hi <= other.hi
