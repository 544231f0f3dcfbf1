"""The controller's machine, step by step: how a job begins, commits and ends."""

from __future__ import annotations

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.recovery import ATTEMPTS_MAX, Place
from raystream.errors import JobError
from tests.controller.protocol.driven import NODES, Driven, kinds


def test_a_job_begins_when_all_places_are_taken() -> None:
    job = Driven()
    job.start()
    assert [p.node for p in job.machine.journal.keepers] == ["a", "b"]
    assert len(job.all(do.Begin)) == len(job.plan.vertices)
    assert job.machine.journal.assignment.version == 1
    assert all(b.committed == 0 and not b.holders for b in job.all(do.Become))


def test_no_place_is_given_before_there_is_a_process_for_each() -> None:
    job = Driven()
    job.hear_of(job.machine.start(NODES, [], 0.0))
    first, *others = job.all(do.Hire)
    for hire in others:
        job.hear(on.Hired(hire.process, "a", 1))
    assert not job.all(do.Become)
    job.hear(on.Hired(first.process, "b", 1))
    assert len(job.all(do.Become)) == len(job.plan.vertices)


def test_a_cut_that_all_have_stored_is_committed_and_keepers_are_told() -> None:
    job = Driven()
    job.start()
    job.at(25)
    said = job.tick()
    assert kinds(said)[0] == "Write" and job.machine.journal.committed == 20
    assert {c.epoch for c in said if isinstance(c, do.CommitTo)} == {20}
    trim = next(c for c in said if isinstance(c, do.Trim))
    assert {p.operator for p in trim.places} == {v.name for v in job.plan.vertices}


def test_processes_that_never_start_end_the_job() -> None:
    job = Driven()
    job.hear_of(job.machine.start(NODES, [], 0.0))
    for _ in range(ATTEMPTS_MAX):
        job.hear(on.Gone(job.all(do.Hire)[-1].process, "no such module"))
    (end,) = job.all(do.End)
    assert "no process could be started" in str(end.error)


def test_who_was_not_told_is_told_again() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    begun = len(job.said)
    job.at(26, version=0, committed=0, kept=0)
    assert {"Assign", "CommitTo", "KeptBy"} == {*kinds(job.said[begun:])}


def test_an_answer_that_was_overtaken_says_nothing_new() -> None:
    job = Driven()
    job.start()
    job.at(25, ended=True, records_in=7)
    for stale in ({"position": 24}, {"position": 25, "ended": False}):
        job.at(**stale, records_in=6)
        assert {(p.position, p.ended, p.records_in) for p in job.machine.progress()} == {
            (25, True, 7)
        }


def test_a_user_s_error_ends_the_job() -> None:
    job = Driven()
    job.start()
    job.at(5)
    error = JobError("your function raised")
    job.hear(on.Done(job.process("count"), error))
    (end,) = job.all(do.End)
    assert end.error is error
    assert job.hear(on.Tick(NODES)) == []


def test_places_know_their_vertex() -> None:
    job = Driven()
    job.start()
    assert {m.record.place for m in job.machine.members} == {
        Place(v.id, v.name, job.plan.ranges[v.id][0], 0) for v in job.plan.vertices
    }
