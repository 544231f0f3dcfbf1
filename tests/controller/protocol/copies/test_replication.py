"""Nodes where no keeper can begin."""

from __future__ import annotations

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.parts.replication import LASTING_SECONDS, REST_MAX_SECONDS
from tests.controller.protocol.driven import NODES, Driven

TICK = 0.25


def keeps_on(job: Driven, node: str) -> list[do.Keep]:
    return [k for k in job.all(do.Keep) if k.node == node]


def fail(job: Driven, seconds: float, tick: float = TICK) -> None:
    """Have every keeper of one node die as soon as it is asked for."""
    for _ in range(int(seconds / tick)):
        job.tick()
        if any(p.node == "b" for p in job.machine.journal.keepers):
            job.hear(on.Gone(keeps_on(job, "b")[-1].process, "its process died: no such module"))
        job.now += tick


def test_where_no_keeper_can_begin_it_is_tried_ever_less_often() -> None:
    job = Driven()
    job.start()
    fail(job, 30.0)
    early = len(keeps_on(job, "b"))
    fail(job, 300.0)
    later = len(keeps_on(job, "b")) - early
    assert 4 <= early <= 10 and 300 / REST_MAX_SECONDS - 2 <= later <= 300 / REST_MAX_SECONDS + 2
    assert len(keeps_on(job, "a")) == 1
    assert "node b has no keeper" in job.machine.replication.unstored
    assert "no such module" in job.machine.replication.unstored
    fail(job, 60_000.0, REST_MAX_SECONDS)  # most of a day
    assert len(keeps_on(job, "b")) - early > 1000
    job.tick(("a",))
    assert not job.machine.replication.unstored


def test_once_one_has_begun_all_is_forgotten() -> None:
    job = Driven()
    job.start()
    fail(job, 5.0)
    job.now += REST_MAX_SECONDS
    job.tick()
    begun = keeps_on(job, "b")[-1]
    assert not job.machine.replication.unstored
    job.now += LASTING_SECONDS
    job.tick()
    assert job.machine.journal.keepers[-1].process == begun.process
    for _ in range(3):  # each had lasted
        said = job.hear(on.Gone(keeps_on(job, "b")[-1].process, "killed"))
        assert [c.node for c in said if isinstance(c, do.Keep)] == ["b"]
        assert "has no keeper" not in job.machine.replication.unstored
        job.now += LASTING_SECONDS


def test_one_that_fails_once_is_replaced_at_once() -> None:
    job = Driven()
    job.start()
    job.now += LASTING_SECONDS
    for node in NODES:
        said = job.hear(on.Gone(keeps_on(job, node)[-1].process, "killed"))
        assert [c.node for c in said if isinstance(c, do.Keep)] == [node]
        said = job.hear(on.Gone(keeps_on(job, node)[-1].process, "killed"))
        assert [c.node for c in said if isinstance(c, do.Keep)] == [node]
        said = job.hear(on.Gone(keeps_on(job, node)[-1].process, "killed"))
        assert not [c for c in said if isinstance(c, do.Keep)]


def committed(copies: int) -> Driven:
    """A job that has committed a cut, on two nodes."""
    job = Driven(Options(spares=0, copies=copies))
    job.start()
    job.at(25)
    job.tick()
    assert job.machine.journal.committed and not job.machine.under_replicated
    return job


def test_two_nodes_hold_two_copies() -> None:
    """Its own node holds the second: else a copy is missing for good, and keepers chosen anew at
    every look."""
    job = committed(2)
    for m in job.machine.members:
        assert len(m.record.keepers) == 2
    assert job.machine.journal.kept == 1


def test_who_held_what_a_range_began_with_counts_until_the_next_commit() -> None:
    job = committed(1)
    process = job.process("count")
    (record,) = [s for s in job.machine.journal.instances if s.process == process]
    held, (beside,) = record.keepers, [n for n in NODES if n != record.node]
    job.hear(on.Gone(process, "killed"))
    job.hear(on.Hired(job.all(do.Hire)[-1].process, beside, 9))
    job.hear(job.became(job.all(do.Become)[-1].process, "grpc://new"))
    (record,) = [m.record for m in job.machine.members if m.record.place.operator == "count"]
    assert record.keepers != held and not job.machine.under_replicated
    others = [m for m in job.machine.members if m.record.keepers == held]
    job.hear(on.Gone(held[0], "killed"))
    assert job.machine.under_replicated == len(others) + 1
    (checkpoint,) = job.machine.journal.assignment.checkpoints
    job.at(checkpoint)
    job.tick()
    assert job.machine.journal.committed == checkpoint and not job.machine.under_replicated


def test_who_has_ended_is_stored_once_its_end_is_with_the_others() -> None:
    job = committed(1)
    (count,) = [m for m in job.machine.members if m.record.place.operator == "count"]
    for m in job.machine.members:
        job.at(27 if m is count else 30, only=m.name, ended=m is count)
    job.tick()
    assert job.machine.journal.committed == 30
    job.hear(on.Gone(count.record.keepers[0], "killed"))
    lacking = job.machine.under_replicated
    job.at(27, only=count.name, ended=True, kept_at=27)  # it has heard of the others
    assert job.machine.under_replicated == lacking
    job.at(27, only=count.name, ended=True, kept_at=26)  # and they have its end
    assert job.machine.under_replicated == lacking - 1
