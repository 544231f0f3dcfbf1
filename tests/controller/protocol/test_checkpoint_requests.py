"""Checkpoints that somebody asks for: taken as soon as they can be, and the job goes on."""

from __future__ import annotations

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from tests.controller.protocol.driven import Driven


def answer(job: Driven, request: int) -> str:
    commands = job.hear(on.TakeCheckpoint(request))
    (found,) = (c for c in commands if isinstance(c, do.Answer))
    assert found.request == request
    return found.refusal


def begun(**options: object) -> Driven:
    job = Driven(Options(spares=0, **options), checkpoint_every=100)  # type: ignore[arg-type]
    job.start()
    return job


def test_a_checkpoint_that_is_asked_for_is_committed_and_the_job_goes_on() -> None:
    job = begun()
    job.at(5)
    assert answer(job, 7) == ""
    (checkpoint,) = job.machine.journal.assignment.checkpoints
    assert 5 < checkpoint < 100
    assert answer(job, 8) == ""  # that one is on its way
    assert job.machine.journal.assignment.checkpoints == (checkpoint,)
    job.at(checkpoint)
    job.tick()
    assert job.machine.journal.committed == checkpoint
    assert not job.machine.ended and job.machine.journal.stop_after < 0
    assert answer(job, 9) == ""
    assert job.machine.journal.assignment.checkpoints[-1] > checkpoint


def test_a_job_that_is_being_stopped_takes_its_last_one() -> None:
    job = begun()
    job.at(5)
    job.hear(on.Save())
    named = job.machine.journal.assignment.checkpoints
    assert answer(job, 1) == ""
    assert job.machine.journal.assignment.checkpoints == named


def test_why_there_can_be_none() -> None:
    assert answer(Driven(), 1) == "the job has not begun"
    assert answer(begun(recovery="source"), 2) == "the job stores no checkpoints"
    job = begun()
    job.at(5, ended=True)
    assert "end of its input" in answer(job, 3)
    job.hear(on.Cancel())
    assert answer(job, 4) == "the job has ended"
