"""Moves, step by step: new instances take over ranges once they are level with the owners."""

from __future__ import annotations

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.schema.types import KeyRange
from tests.controller.protocol.moves.moved import ALL, HALVES, Moved, finish, grow, on_its_way


def test_candidates_take_over_once_they_are_level() -> None:
    job = Moved()
    assert job.ask("count", *HALVES) == ""
    assert len(job.all(do.Hire)) == 2 and job.machine.journal.moves[0].committed == -1
    job.hire()
    assert [(b.place.name, b.place.keys, b.committed) for b in job.given] == [
        ("count/1", HALVES[0], 20),
        ("count/2", HALVES[1], 20),
    ]
    assert job.machine.journal.moves[0].committed == 20
    job.restore()
    assignment = job.machine.journal.assignment
    assert {s.instance for s in assignment.serving if s.candidate} == {"count/1", "count/2"}
    assert {b.record.name for b in job.all(do.Begin)} == {"count/1", "count/2"}
    assert [p.name for p in job.machine.progress() if p.vertex == "count"] == ["count/0"]
    for position in (24, 25):
        assert list(job.owners("count")) == ["count/0"]
        for name in ("count/1", "count/2"):
            job.at(position, only=name)
        job.tick()
    assert job.owners("count") == {"count/1": HALVES[0], "count/2": HALVES[1]}
    (kill,) = job.all(do.Kill)
    assert kill.gently and job.record() == ("count", ("count/1", "count/2"), 1, "")
    assert not job.machine.journal.moves and not job.machine.candidates
    job.at(30)
    job.tick()
    assert job.machine.journal.committed == 30


def test_the_floor_stays_while_state_is_fetched_and_waits_for_candidates() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.at(30)
    job.tick()
    assert job.machine.journal.committed == 30  # nobody has begun to fetch anything
    job.hire()
    job.at(40)
    job.tick()
    assert job.machine.journal.committed == 30
    job.restore()
    job.at(30, only="count/1")
    job.at(39, only="count/2")
    job.tick()
    assert job.machine.journal.committed == 30
    job.at(40, only="count/1")
    job.at(40, only="count/2")
    job.tick()
    assert job.machine.journal.committed == 40


def test_ranges_that_stay_are_left_alone() -> None:
    job = Moved()
    grow(job, *HALVES)
    assert job.ask("count", HALVES[0], KeyRange(8, 10), KeyRange(10, 16)) == ""
    job.hire()
    assert [b.place.name for b in job.given] == ["count/3", "count/4"]
    finish(job)
    assert list(job.owners("count")) == ["count/1", "count/3", "count/4"]
    grow(job, ALL)
    assert job.owners("count") == {"count/5": ALL}


def test_nobody_moves_whose_checkpoint_is_not_stored() -> None:
    job = Moved()
    holder = job.members("count")["count/0"].record.keepers[0]
    job.hear(on.Gone(holder, "killed"))
    assert job.ask("count", *HALVES) == ""
    job.tick()
    assert not job.all(do.Hire)
    job.at(30, kept=99)
    job.tick()
    job.tick()
    assert len(job.all(do.Hire)) == 2


@pytest.mark.parametrize("step", ["asked", "given", "candidates"])
def test_another_controller_goes_on_with_it(step: str) -> None:
    job = on_its_way(step)
    job.restart()
    assert bool(job.machine.candidates) == (step == "candidates")
    job.at(25)
    job.tick()
    if step != "candidates":
        for hire in job.all(do.Hire)[-2:]:
            job.hear(on.Hired(hire.process, "a", 1))
        for become in job.all(do.Become)[-2:]:
            job.hear(job.became(become.process, "grpc://new"))
        job.at(25)
        job.tick()
    names = ("count/1", "count/2") if step != "given" else ("count/3", "count/4")
    if step == "asked":
        names = ("count/3", "count/4")  # names that were drawn are not drawn again
    assert job.record()[1] == names


def test_an_instance_goes_to_the_node_that_was_named() -> None:
    job = Moved(Options(spares=2))
    job.tick()
    job.hire("a")
    assert job.ask("count", ALL, leave=("count/0",), node="b") == ""
    job.hire("a")
    assert job.given[0].process == next(h.process for h in job.all(do.Hire) if h.node == "b")
    finish(job)
    assert job.members("count")["count/1"].record.node == "b"


@pytest.mark.parametrize("ranges", [(ALL,), (KeyRange(0, 4), KeyRange(4, 8), HALVES[1])])
def test_a_source_is_scaled_of_which_a_part_ended_and_died(ranges: tuple[KeyRange, ...]) -> None:
    job = Moved()
    job.ask("lines", *HALVES)
    job.hire()
    finish(job)
    first = next(name for name, keys in job.owners("lines").items() if keys == HALVES[0])
    for m in job.machine.members:
        ended = m.name == first
        job.at(27 if ended else 40, only=m.name, ended=ended)
    job.tick()
    assert job.machine.journal.committed == 40
    job.die(first)
    job.hire()
    job.restore()
    assert job.ask("lines", *ranges) == ""
    job.at(45)
    job.tick()
    job.hire()
    job.restore()
    job.at(46)
    job.tick()
    assert set(job.owners("lines").values()) == {*ranges} and not job.machine.journal.moves
