"""Moves by hand-over: the owner of a range brings the candidates up to its own epoch."""

from __future__ import annotations

import pytest

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import DELIVER_SECONDS
from raystream.schema.types import KeyRange
from tests.controller.protocol.moves.moved import HALVES, STATE_BYTES, Moved, delivered, grow


def handing_over() -> tuple[Moved, do.Deliver]:
    """A job in which the owner of a range is asked for what has changed; and what it is asked."""
    job = Moved()
    assert job.ask("count", *HALVES, mode="handover") == ""
    job.hire()
    assert all(b.held for b in job.given)
    job.restore()
    assert not job.machine.candidates
    (deliver,) = job.all(do.Deliver)
    assert [keys for _, keys in deliver.to] == [*HALVES] and deliver.committed == 20
    return job, deliver


def test_an_owner_brings_candidates_on_and_stays_until_the_floor_has_passed() -> None:
    job, deliver = handing_over()
    job.hear(delivered(deliver, 26, nbytes=70))
    serving = job.machine.journal.assignment
    assert [s.first for s in serving.serving if s.candidate] == [27, 27]
    assert serving.checkpoints  # soon there is a floor behind them
    job.at(29, stored=20)
    job.tick()
    assert list(job.owners("count")) == ["count/0"]
    job.at(31, stored=30)
    job.tick()
    assert job.machine.journal.committed == 30
    assert list(job.owners("count")) == ["count/1", "count/2"]
    assert job.record()[2:] == (1, "")
    assert job.machine.journal.moved[-1].nbytes == 2 * STATE_BYTES + 70


def test_a_range_of_several_owners_is_replayed() -> None:
    job = Moved()
    grow(job, *HALVES)
    ranges = (KeyRange(0, 4), KeyRange(4, 10), KeyRange(10, 16))
    assert job.ask("count", *ranges, mode="handover") == ""
    job.hire()
    assert [b.held for b in job.given] == [True, False, True]
    job.restore()
    assert [len(d.to) for d in job.all(do.Deliver)] == [1, 1]
    for deliver in job.all(do.Deliver):
        job.hear(delivered(deliver, 25))
    serving = job.machine.journal.assignment.serving
    assert [s.first for s in serving if s.candidate] == [26, 21, 26]


@pytest.mark.parametrize("why", ["refused", "late", "dead"])
def test_an_owner_that_does_not_deliver_ends_the_attempt(why: str) -> None:
    job, deliver = handing_over()
    if why == "refused":
        job.hear(delivered(deliver, 0, "no room"))
    elif why == "late":
        job.now += DELIVER_SECONDS + 1
        job.tick()
    else:
        job.die("count/0")
    (move,) = job.machine.journal.moves
    assert move.tries == 1 and not job.machine.candidates
    assert len(job.all(do.Kill)) >= 2 and not job.machine.ended


@pytest.mark.parametrize("why", ["", "no room"])
def test_what_an_owner_answers_late_is_not_said_of_those_who_came_later(why: str) -> None:
    job, early = handing_over()
    job.hear(on.Gone(early.to[0][0], "it was killed"))
    job.tick()
    job.hire()
    job.restore()
    late = job.all(do.Deliver)[-1]
    assert {p for p, _ in late.to}.isdisjoint(p for p, _ in early.to)
    job.hear(delivered(early, 22, why))
    (move,) = job.machine.journal.moves
    assert move.tries == 1 and not job.machine.candidates
    job.hear(delivered(late, 26))
    serving = job.machine.journal.assignment.serving
    assert [s.first for s in serving if s.candidate] == [27, 27]
