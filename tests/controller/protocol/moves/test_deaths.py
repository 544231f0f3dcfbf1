"""Moves in which a process dies, fails or falls behind: tried again, or given up."""

from __future__ import annotations

import pytest

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import LEVEL_SECONDS, TRIES_MAX
from raystream.errors import JobError
from tests.controller.protocol.moves.moved import HALVES, Moved, on_its_way


@pytest.mark.parametrize("step", ["given", "ready", "candidates"])
def test_when_a_candidate_dies_all_begin_anew(step: str) -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    first, second = (b.process for b in job.given)
    if step != "given":
        job.hear(job.became(first, "grpc://1"))
    if step == "candidates":
        job.hear(job.became(second, "grpc://2"))
    job.hear(on.Gone(second, "killed"))
    assert not job.machine.candidates and list(job.owners("count")) == ["count/0"]
    assert {k.process for k in job.all(do.Kill)} >= {first}
    assert job.machine.journal.moves[0].tries == 1
    assert not [s for s in job.machine.journal.assignment.serving if s.candidate]
    job.tick()
    job.hire()
    assert {b.place.name for b in job.given} >= {"count/3", "count/4"}
    for process in job.all(do.Become)[-2:]:
        job.hear(job.became(process.process, "grpc://again"))
    job.at(25)
    job.tick()
    assert job.record() == ("count", ("count/3", "count/4"), 2, "")


@pytest.mark.parametrize("step", ["asked", "given", "candidates"])
def test_when_an_owner_dies_it_is_replaced_first(step: str) -> None:
    job = on_its_way(step)
    job.die("count/0")
    assert not job.machine.candidates
    job.hire()
    recovered = [b for b in job.all(do.Become) if b.place.name == "count/0.1"]
    assert recovered and recovered[0].committed == 20
    job.hear(job.became(recovered[0].process, "grpc://again"))
    assert list(job.owners("count")) == ["count/0.1"]
    job.at(25)
    job.tick()
    job.hire()
    for become in job.all(do.Become)[-2:]:
        job.hear(job.became(become.process, "grpc://new"))
    job.at(25)
    job.tick()
    assert list(job.owners("count").values()) == list(HALVES)


def test_after_so_many_deaths_a_move_is_given_up() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    for _ in range(TRIES_MAX):
        job.tick()
        job.hire()
        job.hear(on.Gone(job.all(do.Become)[-1].process, "killed"))
    operator, new, tries, failed = job.record()
    assert (operator, new, tries) == ("count", (), TRIES_MAX)
    assert failed.startswith(f"{TRIES_MAX} attempts came to nothing; the last: count/")
    assert list(job.owners("count")) == ["count/0"] and not job.machine.ended
    assert job.ask("count", *HALVES) == ""


def test_who_is_never_level_is_given_up() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    job.restore()
    for name in ("count/1", "count/2"):
        job.at(21, only=name)
    job.now += LEVEL_SECONDS + 1
    job.tick()
    assert "not level within" in job.record()[3] and not job.machine.candidates


def test_what_no_process_can_take_up_is_given_up_and_the_job_goes_on() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    job.hear(on.Failed(job.given[0].process, JobError("the reference is not there")))
    assert "the reference is not there" in job.record()[3] and not job.machine.ended
    job.ask("chain", *HALVES)
    for _ in range(20):
        job.hear(on.Gone(job.all(do.Hire)[-1].process, "no memory"))
        job.tick()
    assert "no process could be started" in job.record()[3] and not job.machine.ended
