"""A copy of a checkpoint that is lost is replaced by a checkpoint out of turn."""

from __future__ import annotations

from dataclasses import replace

from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.parts.checkpoints import CHECKPOINT_AHEAD
from tests.controller.protocol.driven import NODES, Driven


def test_a_lost_copy_is_replaced_by_a_cut_out_of_turn() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    keeper = job.machine.members[1].record.keepers[0]
    said = job.hear(on.Gone(keeper, "killed"))
    moved = [c for c in said if isinstance(c, do.KeptBy)]
    assert moved and all(keeper not in c.keepers and c.keepers for c in moved)
    assert job.machine.journal.assignment.checkpoints == (25 + CHECKPOINT_AHEAD,)
    assert job.machine.under_replicated == len(moved)
    job.at(25 + CHECKPOINT_AHEAD)
    job.tick()
    assert job.machine.journal.committed == 25 + CHECKPOINT_AHEAD
    assert job.machine.under_replicated == 0


def test_copies_move_to_another_zone_once_there_is_one() -> None:
    job = Driven(Options(spares=0, copies=2))
    nodes = (*NODES, "c")
    job.start()
    job.hear(on.Tick(nodes))
    zones = {"a": "east", "b": "east", "c": "west"}
    assert job.machine.replication.short_of_zones == 0
    said = job.hear(on.Tick(nodes, zones=zones))
    assert [c for c in said if isinstance(c, do.KeptBy)]
    west = {k.process for k in job.machine.journal.keepers if k.node == "c"}
    assert all(west & {*m.record.keepers} for m in job.machine.members)
    assert job.machine.replication.short_of_zones == 0
    assert not [c for c in job.hear(on.Tick(nodes, zones=zones)) if isinstance(c, do.KeptBy)]


def test_what_is_short_of_zones_is_counted() -> None:
    job = Driven(Options(spares=0, copies=2))
    job.start()
    job.hear(on.Tick((*NODES, "c")))
    job.machine._job.zones = {"c": "west"}  # as labels come, before anything is chosen
    assert job.machine.replication.short_of_zones > 0


def short_of_a_copy(checkpoint_every: int = 10) -> Driven:
    """A job that has lost a keeper, and has not cut since."""
    job = Driven(checkpoint_every=checkpoint_every)
    job.start()
    job.at(25)
    job.tick()
    job.hear(on.Gone(job.machine.members[1].record.keepers[0], "killed"))
    assert job.machine.under_replicated
    return job


def test_that_a_copy_is_missing_outlives_the_controller() -> None:
    """Else its successor cuts only in turn, and says meanwhile that nothing is missing."""
    job = short_of_a_copy()
    before = job.machine.under_replicated
    entry = job.machine.journal
    entry = replace(
        entry, assignment=replace(entry.assignment, checkpoints=())
    )  # it was too late for it
    alive = [*(s.process for s in entry.instances), *(p.process for p in entry.keepers)]
    job.machine = Machine(job.plan, job.options, entry, 2)
    job.hear_of(job.machine.start(NODES, alive, job.now))
    assert job.machine.under_replicated == before
    job.at(26, stored=20)
    job.tick()
    (checkpoint,) = job.machine.journal.assignment.checkpoints
    job.at(checkpoint)
    job.tick()
    assert job.machine.journal.committed == checkpoint and job.machine.under_replicated == 0


def test_a_controller_that_finds_the_first_keepers_misses_no_copy() -> None:
    job = Driven()
    job.start()
    job.at(25)
    job.tick()
    assert job.machine.journal.committed
    assert Machine(job.plan, job.options, job.machine.journal, 2).under_replicated == 0


def test_that_a_copy_is_missing_outlives_the_instance() -> None:
    job = short_of_a_copy()
    before = job.machine.under_replicated
    for process in [m.record.process for m in job.machine.members]:
        job.hear(on.Gone(process, "killed"))
    for hire in job.all(do.Hire)[len(job.machine.members) :]:
        job.hear(on.Hired(hire.process, "a", 9))
    for become in job.all(do.Become)[len(job.machine.members) :]:
        job.hear(job.became(become.process, "grpc://new"))
    assert not any(m.dead for m in job.machine.members)
    assert job.machine.under_replicated == before


def test_what_was_stored_before_it_knew_its_keepers_others_may_hold() -> None:
    """A cut that passed on the way is committed, and still the new keepers do not hold it."""
    job = short_of_a_copy()
    waiting = job.machine.under_replicated
    job.at(112, stored=110, kept=-1)
    job.tick()
    assert job.machine.journal.committed == 110 and job.machine.under_replicated == waiting > 0
    job.at(118, stored=110, kept_at=115)
    job.at(125, stored=120, kept_at=115)
    job.tick()
    assert job.machine.journal.committed == 120 and job.machine.under_replicated == 0


def test_a_cut_out_of_turn_is_not_committed_before_all_have_heard_of_it() -> None:
    """Who has not may have passed it as no cut, and does not say so yet."""
    job = Driven(checkpoint_every=1000)
    job.start()
    job.at(25)
    job.tick()
    before = job.machine.journal.assignment.version
    job.hear(on.Gone(job.machine.members[1].record.keepers[0], "killed"))
    (checkpoint,) = job.machine.journal.assignment.checkpoints
    unheard = job.machine.members[-1].name
    for member in job.machine.members[:-1]:
        job.at(checkpoint, only=member.name)
    job.at(checkpoint, only=unheard, version=before)
    job.tick()
    assert job.machine.journal.committed == 0
    job.at(checkpoint, only=unheard)
    job.tick()
    assert job.machine.journal.committed == checkpoint


def test_a_cut_that_a_source_heard_of_too_late_is_asked_for_again() -> None:
    job = short_of_a_copy(checkpoint_every=1000)
    job.at(200, stored=0, since=0)
    job.tick()
    assert job.machine.journal.assignment.checkpoints == (25 + CHECKPOINT_AHEAD,)
    job.at(1100, stored=1000, since=1000)  # a regular cut of theirs came later
    job.tick()
    assert job.machine.journal.committed == 1000
