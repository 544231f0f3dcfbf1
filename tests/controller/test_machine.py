"""The controller's machine: what it commands, step by step."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from raystream.controller import commands as do
from raystream.controller.commands import Command
from raystream.controller.journal import Entry
from raystream.controller.keeping import CUT_AHEAD
from raystream.controller.machine import Machine
from raystream.controller.members import STALL_LOOKS, STALL_SECONDS, STAND_BY_SECONDS, Options
from raystream.controller.recovery import ATTEMPTS_MAX, Place
from raystream.errors import JobError
from tests.controller.driven import NODES, Driven


def kinds(commands: list[Command]) -> list[str]:
    return [type(c).__name__ for c in commands]


def test_a_job_begins_when_all_places_are_taken() -> None:
    job = Driven()
    job.start()
    assert [p.node for p in job.machine.journal.posts] == ["a", "b"]
    assert len(job.all(do.Begin)) == len(job.plan.vertices)
    assert job.machine.journal.assignment.version == 1
    assert all(b.floor == 0 and not b.holders for b in job.all(do.Become))


def test_no_place_is_given_before_there_is_a_process_for_each() -> None:
    job = Driven()
    job.hear_of(job.machine.start(NODES, [], 0.0))
    first, *others = job.all(do.Hire)
    for hire in others:
        job.hear(do.Hired(hire.process, "a", 1))
    assert not job.all(do.Become)
    job.hear(do.Hired(first.process, "b", 1))
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


def test_a_keeper_that_is_new_does_not_take_the_journal() -> None:
    """It may not have begun, and nothing is decided while the journal is written."""
    job = Driven()
    job.start()
    first, _ = (p.process for p in job.machine.journal.posts)
    written = [c for c in job.tick(("0", *NODES)) if isinstance(c, do.Write)]
    assert job.machine.journal.posts[-1].node == "0"
    assert [(w.at, w.left) for w in written] == [((first,), ())]


def test_another_keeper_does_not_take_the_journal_without_the_others() -> None:
    """It may know nothing of a newer controller, so a controller that slept could go on with it."""
    job = Driven()
    job.start()
    first, second = (p.process for p in job.machine.journal.posts)
    job.tick(("0", *NODES))
    new = job.machine.journal.posts[-1].process
    written = [c for c in job.hear(do.Gone(first, "killed")) if isinstance(c, do.Write)]
    assert (written[0].at, written[0].left) == ((second,), (new,))
    job.at(25)
    later = [c for c in job.tick(("0", *NODES)) if isinstance(c, do.Write)]
    assert {(w.at, w.left) for w in later} == {((second,), ())}


def test_the_dead_are_replaced_from_the_floor() -> None:
    job = Driven(Options(spares=1))
    job.start()
    job.at(25)
    job.tick()
    job.now += STAND_BY_SECONDS
    (spare,) = (c for c in job.tick() if isinstance(c, do.Hire))
    job.hear(do.Hired(spare.process, "b", 9))
    said = job.hear(do.Gone(job.process("count"), "killed"))
    assert kinds(said)[:3] == ["Write", "Kill", "Become"]
    (become,) = (c for c in said if isinstance(c, do.Become))
    assert (become.process, become.floor) == (spare.process, 20)
    assert become.holders == tuple(p.process for p in job.machine.journal.posts)
    said = job.hear(do.Became(spare.process, "grpc://new"))
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
    job.hear(do.Gone(job.process("count"), "killed"))
    job.at(40)
    job.tick()
    assert job.machine.journal.committed == 20


def test_several_may_share_the_range_of_who_died() -> None:
    job = Driven(Options(spares=0, restore_into=4))
    job.start()
    job.at(25)
    job.tick()
    job.hear(do.Gone(job.process("count"), "killed"))
    begun = len(job.all(do.Become))
    for hire in job.all(do.Hire)[-4:]:
        job.hear(do.Hired(hire.process, "b", 9))
    keys = [c.place.keys for c in job.all(do.Become)[begun:]]
    assert [k.lo for k in keys[1:]] == [k.hi for k in keys[:-1]]
    assert len(keys) == 4 and (keys[0].lo, keys[-1].hi) == (0, job.plan.groups)


def test_who_dies_while_it_takes_a_place_is_replaced_by_another_and_not_for_ever() -> None:
    job = Driven()
    job.hear_of(job.machine.start(NODES, [], 0.0))
    for hire in job.all(do.Hire):
        job.hear(do.Hired(hire.process, "a", 1))
    for _ in range(ATTEMPTS_MAX - 1):
        job.hear(do.Gone(job.all(do.Become)[-1].process, "killed"))
        job.hear(do.Hired(job.all(do.Hire)[-1].process, "a", 1))
    assert not job.machine.ended
    job.hear(do.Gone(job.all(do.Become)[-1].process, "killed"))
    (end,) = job.all(do.End)
    assert isinstance(end.error, JobError) and "could not be made, 5 times" in end.error.message


def test_processes_that_never_start_end_the_job() -> None:
    job = Driven()
    job.hear_of(job.machine.start(NODES, [], 0.0))
    for _ in range(ATTEMPTS_MAX):
        job.hear(do.Gone(job.all(do.Hire)[-1].process, "no such module"))
    (end,) = job.all(do.End)
    assert "no process could be started" in str(end.error)


def test_what_nobody_has_is_lost_and_named() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.hear(do.Gone(job.process("count"), "killed"))
    new = job.all(do.Hire)[-1].process
    job.hear(do.Hired(new, "b", 9))
    job.hear(do.Missing(new, again=True))
    assert not job.machine.ended
    job.hear(do.Missing(new))
    (end,) = job.all(do.End)
    assert "the checkpoint of count" in str(end.error) and "is lost" in str(end.error)


def test_a_lost_copy_is_replaced_by_a_cut_out_of_turn() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    keeper = job.machine.members[1].seat.keepers[0]
    said = job.hear(do.Gone(keeper, "killed"))
    moved = [c for c in said if isinstance(c, do.KeptBy)]
    assert moved and all(keeper not in c.keepers and c.keepers for c in moved)
    assert job.machine.journal.assignment.cuts == (25 + CUT_AHEAD,)
    assert job.machine.bare == len(moved)
    job.at(25 + CUT_AHEAD)
    job.tick()
    assert job.machine.journal.committed == 25 + CUT_AHEAD
    assert job.machine.bare == 0


def short_of_a_copy(cut_every: int = 10) -> Driven:
    """A job that has lost a keeper, and has not cut since."""
    job = Driven(cut_every=cut_every)
    job.start()
    job.at(25)
    job.tick()
    job.hear(do.Gone(job.machine.members[1].seat.keepers[0], "killed"))
    assert job.machine.bare
    return job


def test_that_a_copy_is_missing_outlives_the_controller() -> None:
    """Else its successor cuts only in turn, and says meanwhile that nothing is missing."""
    job = short_of_a_copy()
    before = job.machine.bare
    entry = job.machine.journal
    entry = replace(entry, assignment=replace(entry.assignment, cuts=()))  # it was too late for it
    alive = [*(s.process for s in entry.seats), *(p.process for p in entry.posts)]
    job.machine = Machine(job.plan, job.options, entry, 2)
    job.hear_of(job.machine.start(NODES, alive, job.now))
    assert job.machine.bare == before
    job.at(26, stored=20)
    job.tick()
    (cut,) = job.machine.journal.assignment.cuts
    job.at(cut)
    job.tick()
    assert job.machine.journal.committed == cut and job.machine.bare == 0


def test_a_controller_that_finds_the_first_keepers_misses_no_copy() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    assert job.machine.journal.committed
    assert Machine(job.plan, job.options, job.machine.journal, 2).bare == 0


def test_that_a_copy_is_missing_outlives_the_instance() -> None:
    job = short_of_a_copy()
    before = job.machine.bare
    for process in [m.seat.process for m in job.machine.members]:
        job.hear(do.Gone(process, "killed"))
    for hire in job.all(do.Hire)[len(job.machine.members) :]:
        job.hear(do.Hired(hire.process, "a", 9))
    for become in job.all(do.Become)[len(job.machine.members) :]:
        job.hear(do.Became(become.process, "grpc://new"))
    assert not any(m.dead for m in job.machine.members)
    assert job.machine.bare == before


def test_what_was_stored_before_it_knew_its_keepers_others_may_hold() -> None:
    """A cut that passed on the way is committed, and still the new keepers do not hold it."""
    job = short_of_a_copy()
    waiting = job.machine.bare
    job.at(112, stored=110, kept=-1)
    job.tick()
    assert job.machine.journal.committed == 110 and job.machine.bare == waiting > 0
    job.at(118, stored=110, kept_at=115)
    job.at(125, stored=120, kept_at=115)
    job.tick()
    assert job.machine.journal.committed == 120 and job.machine.bare == 0


def test_a_cut_out_of_turn_is_not_committed_before_all_have_heard_of_it() -> None:
    """Who has not may have passed it as no cut, and does not say so yet."""
    job = Driven(cut_every=1000)
    job.start()
    job.at(25)
    job.tick()
    before = job.machine.journal.assignment.version
    job.hear(do.Gone(job.machine.members[1].seat.keepers[0], "killed"))
    (cut,) = job.machine.journal.assignment.cuts
    unheard = job.machine.members[-1].name
    for member in job.machine.members[:-1]:
        job.at(cut, only=member.name)
    job.at(cut, only=unheard, version=before)
    job.tick()
    assert job.machine.journal.committed == 0
    job.at(cut, only=unheard)
    job.tick()
    assert job.machine.journal.committed == cut


def test_a_cut_that_a_source_heard_of_too_late_is_asked_for_again() -> None:
    job = short_of_a_copy(cut_every=1000)
    job.at(200, stored=0, since=0)
    job.tick()
    assert job.machine.journal.assignment.cuts == (25 + CUT_AHEAD,)
    job.at(1100, stored=1000, since=1000)  # a regular cut of theirs came later
    job.tick()
    assert job.machine.journal.committed == 1000


def test_who_was_not_told_is_told_again() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    begun = len(job.said)
    job.at(26, version=0, floor=0, kept=0)
    assert {"Assign", "CommitTo", "KeptBy"} == {*kinds(job.said[begun:])}


def test_who_stays_where_it_is_counts_as_dead() -> None:
    job = Driven()
    job.start()
    job.at(9)
    (stuck,) = [m for m in job.machine.members if m.seat.place.operator == "chain"]
    for m in job.machine.members:
        if m.seat.place.operator in ("lines", "count"):
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


def test_a_controller_goes_on_from_the_journal() -> None:
    job = Driven(Options(spares=0))
    job.start()
    job.at(25)
    job.tick()
    entry = job.machine.journal
    alive = [*(s.process for s in entry.seats), *(p.process for p in entry.posts)]
    again = Machine(job.plan, job.options, entry, 2)
    said = again.start(NODES, [*alive, "1.99", "keeper-1.98"], job.now)
    assert kinds(said)[0] == "Write"
    assert [c.process for c in said if isinstance(c, do.Kill)] == ["keeper-1.98"]
    assert [c.process for c in said if isinstance(c, do.Adopt)] == ["1.99"]
    assert {c.seat.process for c in said if isinstance(c, do.Begin)} == {
        s.process for s in entry.seats
    }
    assert again.journal.order > entry.order


def test_the_journal_knows_who_has_ended() -> None:
    job = Driven()
    job.start()
    job.at(25, ended=True, closed=False)
    job.tick()
    entry = job.machine.journal
    assert entry.committed == 25
    again = Machine(job.plan, job.options, entry, 2)
    assert [p.position for p in again.progress()] == [25] * len(entry.seats)


def test_an_answer_that_was_overtaken_says_nothing_new() -> None:
    job = Driven()
    job.start()
    job.at(25, ended=True, records_in=7)
    for stale in ({"position": 24}, {"position": 25, "ended": False}):
        job.at(**stale, records_in=6)
        assert {(p.position, p.ended, p.records_in) for p in job.machine.progress()} == {
            (25, True, 7)
        }


def test_the_journal_knows_at_the_end_what_all_have_said() -> None:
    """Else whoever took a place after the last commit is not in another controller's report."""
    job = Driven()
    job.start()
    job.at(25, ended=True, closed=False)
    job.tick()
    gone = job.process("collect")
    job.hear(do.Gone(gone, "killed"))
    hire = job.all(do.Hire)[-1]
    job.hear(do.Hired(hire.process, "a", 1))
    job.hear(do.Became(job.all(do.Become)[-1].process, "grpc://new"))
    assert job.process("collect") != gone
    job.at(25, ended=True, records_in=7)
    for m in job.machine.members:
        job.hear(do.Done(m.seat.process, None))
    assert job.machine.ended
    again = Machine(job.plan, job.options, job.machine.journal, 2)
    assert again.progress() == job.machine.progress()
    assert {p.records_in for p in again.progress()} == {7}


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
    job.hear(do.Gone(source.seat.process, "killed"))
    job.hear(do.Hired(job.all(do.Hire)[-1].process, "a", 1))
    become = job.all(do.Become)[-1]
    assert (become.place.operator, become.place.keys, become.floor) == (
        "lines",
        source.seat.place.keys,
        30,
    )
    job.hear(do.Became(become.process, "grpc://new"))
    told = job.all(do.Assign)[-1].assignment
    assert {s.instance for s in told.of(0)} == {become.place.name}


def test_a_user_s_error_ends_the_job() -> None:
    job = Driven()
    job.start()
    job.at(5)
    error = JobError("your function raised")
    job.hear(do.Done(job.process("count"), error))
    (end,) = job.all(do.End)
    assert end.error is error
    assert job.hear(do.Tick(NODES)) == []


def test_a_job_that_was_over_is_not_begun_again() -> None:
    job = Driven()
    job.start()
    job.hear(do.Cancel())
    again = Machine(job.plan, job.options, job.machine.journal, 2)
    assert kinds(again.start(NODES, [], 0.0))[-1] == "End"


@pytest.mark.parametrize("mode", ["upstream", "source"])
def test_without_checkpoints_nothing_is_committed_before_the_end(mode: str) -> None:
    job = Driven(Options(spares=0, recovery=mode))  # type: ignore[arg-type]
    job.start()
    job.at(25)
    job.tick()
    assert job.machine.journal.committed == 0
    job.hear(do.Gone(job.process("chain"), "killed"))
    died = {c.process for c in job.all(do.Kill)}
    again = {"chain"} | ({"count"} if mode == "source" else set())
    assert died == {s.process for s in job.machine.journal.seats if s.place.operator in again}
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


def test_a_write_that_nobody_has_taken_gives_way_to_the_newest() -> None:
    first, second = (do.Write(Entry(number=n), ()) for n in (1, 2))
    keep, tell = do.Keep("keeper-1.1", "a"), do.CommitTo("1.2", 10, 10)
    todo: deque[Command] = deque([first, tell, keep, second])
    do.catch_up(todo)
    assert [*todo] == [keep, second, tell]
    alone: deque[Command] = deque([first, tell])
    do.catch_up(alone)
    assert [*alone] == [first, tell]


def test_places_know_their_vertex() -> None:
    job = Driven()
    job.start()
    assert {m.seat.place for m in job.machine.members} == {
        Place(v.id, v.name, job.plan.ranges[v.id][0], 0) for v in job.plan.vertices
    }


def test_who_takes_its_place_too_late_is_ended() -> None:
    """It may live, and hold all the state that it was given."""
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    job.hear(do.Gone(job.process("count"), "killed"))
    job.hear(do.Hired(job.all(do.Hire)[-1].process, "a", 99))
    late = job.all(do.Become)[-1].process
    said = job.hear(do.Gone(late, "it did not take its place in time"))
    assert late in [c.process for c in said if isinstance(c, do.Kill)]
    assert job.process("count") != late
