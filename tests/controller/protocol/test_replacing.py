"""Processes that die or stand still are replaced, from the committed checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.members import STALL_LOOKS, STALL_SECONDS, STAND_BY_SECONDS
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.recovery import ATTEMPTS_MAX
from raystream.errors import JobError
from tests.controller.protocol.driven import NODES, Driven, kinds


def test_the_dead_are_replaced_from_the_floor() -> None:
    job = Driven(Options(spares=1))
    job.start()
    job.at(25)
    job.tick()
    job.now += STAND_BY_SECONDS
    (spare,) = (c for c in job.tick() if isinstance(c, do.Hire))
    job.hear(on.Hired(spare.process, "b", 9))
    said = job.hear(on.Gone(job.process("count"), "killed"))
    assert kinds(said)[:3] == ["Write", "Kill", "Become"]
    (become,) = (c for c in said if isinstance(c, do.Become))
    assert (become.process, become.committed) == (spare.process, 20)
    assert become.holders == tuple(p.process for p in job.machine.journal.keepers)
    said = job.hear(job.became(spare.process, "grpc://new"))
    assert kinds(said)[0] == "Write"
    (begin,) = (c for c in said if isinstance(c, do.Begin))
    (serving,) = (s for s in begin.assignment.serving if s.instance == "count/0.1")
    assert serving.first == 21
    assert job.machine.journal.recoveries[-1].gone == ("count/0",)


def test_spare_processes_stand_by_when_a_job_has_run_for_a_while_and_committed() -> None:
    job = Driven(Options(spares=1))
    job.start()
    job.now += STAND_BY_SECONDS
    assert not any(isinstance(c, do.Hire) for c in job.tick())
    job = Driven(Options(spares=1))
    job.start()
    job.at(25)
    job.tick()
    assert job.machine.journal.committed == 20
    job.now += STAND_BY_SECONDS - 0.1
    assert not any(isinstance(c, do.Hire) for c in job.tick())
    job.now += 0.1
    assert [c.spare for c in job.tick() if isinstance(c, do.Hire)] == [True]


def test_nothing_is_committed_while_somebody_is_dead() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.hear(on.Gone(job.process("count"), "killed"))
    job.at(40)
    job.tick()
    assert job.machine.journal.committed == 20


def test_what_the_dead_had_stored_is_committed_and_their_successors_begin_there() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.at(35, only="count/0")
    died = job.process("count")
    assert job.hear(on.Gone(died, "killed"))
    job.at(35)  # the others come there only now
    said = job.tick()
    assert job.machine.journal.committed == 30
    assert died not in [c.process for c in said if isinstance(c, do.CommitTo)]
    said = job.hear(on.Hired(job.all(do.Hire)[-1].process, "b", 9))
    (become,) = (c for c in said if isinstance(c, do.Become))
    assert become.committed == 30
    job.at(45)
    job.tick()
    assert job.machine.journal.committed == 30  # its state is fetched at 30
    job.hear(job.became(become.process, "grpc://new"))
    (serving,) = (s for s in job.all(do.Begin)[-1].assignment.serving if s.instance == "count/0.1")
    assert serving.first == 31
    assert job.machine.journal.recoveries[-1].committed == 30


def test_who_died_as_it_was_given_its_place_leaves_it_to_one_that_begins_later() -> None:
    """Nobody has state at the old checkpoint any more, so it is not held back for others."""
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.at(35, only="count/0")
    job.hear(on.Gone(job.process("count"), "killed"))
    job.hear(on.Hired(job.all(do.Hire)[-1].process, "b", 9))
    given = job.all(do.Become)[-1]
    assert given.committed == 20
    job.at(35)
    job.tick()
    assert job.machine.journal.committed == 20
    job.hear(on.Gone(given.process, "killed"))
    job.tick()
    assert job.machine.journal.committed == 30
    job.hear(on.Hired(job.all(do.Hire)[-1].process, "b", 10))
    assert job.all(do.Become)[-1].committed == 30


def test_what_the_dead_had_stored_does_not_count_without_their_keepers() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.at(35, only="count/0")
    (count,) = [m for m in job.machine.members if m.name == "count/0"]
    job.hear(on.Gone(count.record.process, "killed"))
    job.hear(on.Gone(count.record.keepers[0], "killed"))
    job.at(35)
    job.tick()
    assert job.machine.journal.committed == 20


def test_several_may_share_the_range_of_who_died() -> None:
    job = Driven(Options(spares=0, restore_into=4))
    job.start()
    job.at(25)
    job.tick()
    job.hear(on.Gone(job.process("count"), "killed"))
    begun = len(job.all(do.Become))
    for hire in job.all(do.Hire)[-4:]:
        job.hear(on.Hired(hire.process, "b", 9))
    keys = [c.place.keys for c in job.all(do.Become)[begun:]]
    assert [k.lo for k in keys[1:]] == [k.hi for k in keys[:-1]]
    assert len(keys) == 4 and (keys[0].lo, keys[-1].hi) == (0, job.plan.groups)


def test_who_dies_while_it_takes_a_place_is_replaced_by_another_and_not_for_ever() -> None:
    job = Driven()
    job.hear_of(job.machine.start(NODES, [], 0.0))
    for hire in job.all(do.Hire):
        job.hear(on.Hired(hire.process, "a", 1))
    for _ in range(ATTEMPTS_MAX - 1):
        job.hear(on.Gone(job.all(do.Become)[-1].process, "killed"))
        job.hear(on.Hired(job.all(do.Hire)[-1].process, "a", 1))
    assert not job.machine.ended
    job.hear(on.Gone(job.all(do.Become)[-1].process, "killed"))
    (end,) = job.all(do.End)
    assert isinstance(end.error, JobError) and "could not be made, 5 times" in end.error.message


def test_what_nobody_has_is_lost_and_named() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.hear(on.Gone(job.process("count"), "killed"))
    new = job.all(do.Hire)[-1].process
    job.hear(on.Hired(new, "b", 9))
    job.hear(job.missing(new, again=True))
    assert not job.machine.ended
    job.hear(job.missing(new))
    (end,) = job.all(do.End)
    assert "the checkpoint of count" in str(end.error) and "is lost" in str(end.error)


def test_who_stays_where_it_is_counts_as_dead() -> None:
    job = Driven()
    job.start()
    job.at(9)
    (stuck,) = [m for m in job.machine.members if m.record.place.operator == "chain"]
    for m in job.machine.members:
        if m.record.place.operator in ("lines", "count"):
            assert m.progress is not None
            m.progress = replace(m.progress, position=12)
    job.now += STALL_SECONDS + 1  # for so long there was nothing to do
    job.tick()
    assert not stuck.dead
    job.now += STALL_SECONDS + 1  # or the clock was set
    job.tick()
    assert not stuck.dead
    for _ in range(STALL_LOOKS):
        job.tick()
    assert "it stayed where it was" in stuck.dead
    assert sum(m.dead != "" for m in job.machine.members) == 1


def test_a_source_that_ended_and_died_is_replaced_while_others_go_on() -> None:
    """It may be moved, and its end is in each cut that is saved."""
    job = Driven()
    job.start()
    source = next(m for m in job.machine.members if m.name == "lines/0")
    for m in job.machine.members:
        at = {"position": 17, "ended": True} if m is source else {"position": 30}
        job.at(**at, only=m.name)
    job.tick()
    assert job.machine.journal.committed == 30
    job.hear(on.Gone(source.record.process, "killed"))
    job.hear(on.Hired(job.all(do.Hire)[-1].process, "a", 1))
    become = job.all(do.Become)[-1]
    assert (become.place.operator, become.place.keys, become.committed) == (
        "lines",
        source.record.place.keys,
        30,
    )
    job.hear(job.became(become.process, "grpc://new"))
    told = job.all(do.Assign)[-1].assignment
    assert {s.instance for s in told.of(0)} == {become.place.name}


@pytest.mark.parametrize("mode", ["upstream", "source"])
def test_without_checkpoints_nothing_is_committed_before_the_end(mode: str) -> None:
    job = Driven(Options(spares=0, recovery=mode))  # type: ignore[arg-type]
    job.start()
    job.at(25)
    job.tick()
    assert job.machine.journal.committed == 0
    job.hear(on.Gone(job.process("chain"), "killed"))
    died = {c.process for c in job.all(do.Kill)}
    again = {"chain"} | ({"count"} if mode == "source" else set())
    assert died == {s.process for s in job.machine.journal.instances if s.place.operator in again}
    assert job.machine.ended is False


def test_in_checking_mode_somebody_is_replaced_after_each_commit() -> None:
    job = Driven(Options(spares=0), check=True)
    job.start()
    job.at(25)
    job.tick()
    job.tick()
    (kill,) = job.all(do.Kill)
    assert "to be checked" in kill.because
    assert kill.process != job.process("collect")


def test_who_takes_its_place_too_late_is_ended() -> None:
    """It may live, and hold all the state that it was given."""
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.hear(on.Gone(job.process("count"), "killed"))
    job.hear(on.Hired(job.all(do.Hire)[-1].process, "a", 99))
    late = job.all(do.Become)[-1].process
    said = job.hear(on.Gone(late, "it did not take its place in time"))
    assert late in [c.process for c in said if isinstance(c, do.Kill)]
    assert job.process("count") != late
