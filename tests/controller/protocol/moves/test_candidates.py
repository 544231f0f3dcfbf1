"""Moves: who is compared with whom until new instances are level, and what is told of it."""

from __future__ import annotations

from raystream.controller.protocol.members import whose_turn
from raystream.state.keys import even_ranges
from tests.controller.protocol.moves.moved import GROUPS, HALVES, STATE_BYTES, Moved


def test_a_move_is_told_with_the_ranges_of_those_who_took_them() -> None:
    """In whatever order they were ready."""
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    for become in reversed(job.given):
        job.hear(job.became(become.process, "grpc://", STATE_BYTES))
    job.at(25)
    job.tick()
    last = job.machine.journal.moved[-1]
    assert dict(zip(last.new, last.ranges, strict=True)) == job.owners("count")


def test_those_who_are_compared_are_asked_at_once() -> None:
    """What was said in another turn may be of several epochs before."""
    job = Moved()
    job.ask("count", *even_ranges(GROUPS, 3))
    job.hire()
    job.restore()
    machine, count = job.machine, job.members("count")
    members, moving = machine.members, {move.operator for move in machine.journal.moves}
    turns = [whose_turn(members, moving, nth, 3) for nth in range(3)]
    assert sorted(p for ps in turns for p in ps) == sorted(m.record.process for m in members)
    assert {m.record.process for m in count.values()} <= {*turns[0]} and len(count) == 4


def test_a_candidate_that_has_ended_is_level() -> None:
    """As of a source with a short split, or with none: it stays at its last epoch for ever."""
    job = Moved()
    job.ask("lines", *HALVES)
    job.hire()
    job.restore()
    job.at(21, only="lines/1", ended=True)
    job.at(24, only="lines/2")
    job.at(30, only="lines/0")
    job.tick()
    assert list(job.owners("lines")) == ["lines/0"]
    job.at(30, only="lines/2")
    job.tick()
    assert list(job.owners("lines")) == ["lines/1", "lines/2"]
