"""Saving committed checkpoints: which keeper is asked for what, one at a time, and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.resuming import RESUMES_MAX, Resumes, beginning, durably
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.saving import (
    LAST_SECONDS,
    SAVE_SECONDS,
    layout_of,
    saved_checkpoint,
)
from raystream.dataflow.plan import Durable, Plan
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.durable.manifest import SavedChain, encode, manifest_name, saved_image
from raystream.durable.saves import EncodedImage, Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, LostError, OvertakenError, StateError, Stopped
from raystream.simulation.flows import FLOWS
from raystream.simulation.references import planned
from raystream.testing import Collect
from tests.controller.protocol.driven import NODES, Driven, kinds

DURABLE = Durable("a store", 1, "run")


def driven() -> Driven:
    job = Driven(durable=DURABLE)
    job.start()
    return job


def committed(job: Driven, epoch: int) -> list[do.Command]:
    job.at(epoch)
    return job.tick()


def chain_of(job: Driven, place: do.Place, checkpoint: int) -> tuple[int, SavedChain]:
    image = saved_image(job.plan.job, 1, place.operator, place.keys, 0, checkpoint, b"image")
    return place.vertex, SavedChain(place.keys, (image,))


def put(job: Driven, command: do.PutChains) -> list[do.Command]:
    chains = tuple(chain_of(job, p, command.checkpoint) for p in command.places)
    return job.hear(on.Put(command.process, command.checkpoint, chains))


def puts(commands: list[do.Command]) -> list[do.PutChains]:
    return [c for c in commands if isinstance(c, do.PutChains)]


def save(job: Driven, commands: list[do.Command]) -> list[do.Command]:
    """All keepers put what they have, and the manifest is written."""
    said: list[do.Command] = []
    for command in puts(commands):
        said = put(job, command)
    (last,) = (c for c in said if isinstance(c, do.SaveCheckpoint))
    return job.hear(on.CheckpointSaved(last.process, last.saved.checkpoint))


def test_keepers_are_asked_for_all_places_and_one_of_them_writes_the_manifest() -> None:
    job = driven()
    said = committed(job, 25)
    asked = puts(said)
    assert {c.checkpoint for c in asked} == {20}
    held = {p: c.process for c in asked for p in c.places}
    assert held == {m.record.place: m.record.keepers[0] for m in job.machine.members}
    first, *others = asked
    for command in [*others, first]:
        assert not job.all(do.SaveCheckpoint)
        said = put(job, command)
    (manifest,) = job.all(do.SaveCheckpoint)
    assert manifest.process == first.process
    assert set(manifest.saved.chains) == {v.name for v in job.plan.vertices}
    assert (manifest.saved.checkpoint, manifest.saved.number, manifest.saved.run) == (20, 1, "run")
    assert job.machine.journal.saved == 0
    said = job.hear(on.CheckpointSaved(manifest.process, 20))
    assert kinds(said)[0] == "Write" and job.machine.journal.saved == 20


def test_keepers_drop_nothing_that_is_being_saved_and_the_newest_cut_is_next() -> None:
    job = driven()
    said = committed(job, 25)
    assert not puts(committed(job, 35))
    later = committed(job, 45)
    assert not puts(later) and job.machine.journal.committed == 40
    assert {c.committed for c in later if isinstance(c, do.Trim)} == {20}
    said = save(job, said)
    assert {c.checkpoint for c in puts(said)} == {40}
    assert {c.committed for c in said if isinstance(c, do.Trim)} == {40}


@pytest.mark.parametrize("how", ["refused", "died", "late", "manifest"])
def test_what_cannot_be_saved_is_given_up_and_the_next_cut_is_tried(how: str) -> None:
    job = driven()
    first, *others = puts(committed(job, 25))
    if how == "refused":
        job.hear(on.Put(first.process, 20, why="the disk is full"))
    elif how == "died":
        job.hear(on.Gone(first.process, "killed"))
    elif how == "late":
        job.now += SAVE_SECONDS + 1
        job.tick()
    else:
        for command in [first, *others]:
            put(job, command)
        job.hear(on.CheckpointSaved(job.all(do.SaveCheckpoint)[-1].process, 20, "the disk is full"))
    why = {"died": "died", "late": "more than"}.get(how, "the disk is full")
    assert (
        "checkpoint 20 was not saved in a store" in job.machine.unsaved
        and why in job.machine.unsaved
    )
    assert job.machine.journal.saved == 0
    put(job, first)  # too late
    said = committed(job, 35)
    assert {c.checkpoint for c in puts(said)} == {30}
    save(job, said)
    assert job.machine.journal.saved == 30 and not job.machine.unsaved


def test_a_run_that_another_has_overtaken_ends() -> None:
    job = driven()
    for command in puts(committed(job, 25)):
        put(job, command)
    error = OvertakenError("run 2 has begun")
    process = job.all(do.SaveCheckpoint)[-1].process
    said = job.hear(on.CheckpointSaved(process, 20, error.message, error))
    assert job.machine.ended and job.machine.journal.over is error
    assert said[-1] == do.End(error) and not shown(said)
    assert job.machine.journal.saved == 0


def shown(commands: list[do.Command]) -> dict[str, int]:
    """By process, up to which epoch sinks may show what they wrote."""
    return {c.process: c.published_upto for c in commands if isinstance(c, do.CommitTo)}


def test_sinks_show_what_is_saved() -> None:
    job = driven()
    members = {m.record.process for m in job.machine.members}
    said = committed(job, 25)
    assert shown(said) == dict.fromkeys(members, 0)
    assert {c.epoch for c in said if isinstance(c, do.CommitTo)} == {20}
    assert shown(save(job, said)) == dict.fromkeys(members, 20)
    again = Machine(job.plan, job.options, job.machine.journal, 2)
    assert again.commits.published_upto == 20


def ended(job: Driven, epoch: int) -> list[do.Command]:
    """All have ended after an epoch, and say what they were told of commits."""
    job.at(epoch, ended=True)
    return job.tick()


def test_the_end_of_a_job_is_saved_before_sinks_show_it_and_tried_again() -> None:
    job = driven()
    (first, *_) = puts(ended(job, 25))
    assert (first.checkpoint, job.machine.journal.committed) == (25, 25)
    job.hear(on.Put(first.process, 25, why="the disk is full"))
    for _ in range(3):
        job.now += 1
        (first, *_) = puts(said := job.tick())
        assert first.checkpoint == 25 and not shown(said)
        job.hear(on.Put(first.process, 25, why="the disk is full"))
    assert set(shown(save(job, job.tick())).values()) == {25}
    assert not puts(job.tick())


def test_the_end_of_a_job_that_cannot_be_saved_is_shown_after_a_while() -> None:
    job = driven()
    (first, *_) = puts(ended(job, 25))
    job.hear(on.Put(first.process, 25, why="the disk is full"))
    (first, *_) = puts(job.tick())
    job.now += LAST_SECONDS + 1
    assert not shown(job.tick()), "it is on its way"
    job.hear(on.Put(first.process, 25, why="the disk is full"))
    assert set(shown(job.tick()).values()) == {25}
    assert "the disk is full" in job.machine.unsaved
    assert not puts(job.tick())


def test_a_job_that_is_stopped_ends_when_a_later_cut_is_saved() -> None:
    job = driven()
    before = committed(job, 25)
    job.hear(on.Save())
    (checkpoint,) = job.machine.journal.assignment.checkpoints
    save(job, before)
    assert not job.machine.ended  # that checkpoint was taken before
    said = committed(job, checkpoint + 1)
    assert job.machine.journal.committed == max(checkpoint, (checkpoint + 1) // 10 * 10)
    assert not job.machine.ended
    said = save(job, said)
    (end,) = (c for c in said if isinstance(c, do.End))
    assert isinstance(end.error, Stopped) and "is saved in a store" in end.error.message


def test_another_controller_goes_on_with_stopping() -> None:
    job = driven()
    job.hear(on.Save())
    again = Driven(durable=DURABLE)
    again.machine = Machine(job.plan, job.options, job.machine.journal, 2)
    again.hear_of(again.machine.start(NODES, [], again.now))
    again.at(3)
    again.tick()
    assert again.machine.journal.stop_after == 0
    save(again, committed(again, 95))
    assert again.machine.ended


class Shows(rs.Sink[Any]):
    kind = "by-epoch"

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None: ...


def test_where_a_sink_shows_epochs_at_once_sources_stop_at_the_last_checkpoint() -> None:
    vertices = [replace(v, sink=Shows()) if v.kind == "sink" else v for v in driven().plan.vertices]
    job = Driven(durable=DURABLE, vertices=vertices)
    job.start()
    save(job, committed(job, 25))
    job.hear(on.Save())
    stop_at = job.machine.journal.assignment.stop_at
    assert stop_at > 25
    save(job, committed(job, 30))
    assert job.machine.journal.saved == 30
    assert not job.machine.ended  # sinks may have shown what comes after
    job.now += 11
    job.tick()  # it takes long, and a keeper may have died: another one is asked for
    later = job.machine.journal.assignment.stop_at
    assert later > stop_at
    (first, *_) = puts(committed(job, later))
    job.hear(on.Put(first.process, later, why="the disk is full"))
    assert not job.machine.ended
    save(job, job.tick())  # tried again, since no other commit comes
    assert job.machine.journal.saved == later
    job.tick()
    assert not job.machine.ended  # what a source sent that died may still come
    job.now += 3
    job.tick()
    assert job.machine.ended


def test_a_run_begins_at_a_saved_cut() -> None:
    plan = planned("words", (1, 1))[0]
    resumed = saved_checkpoint(plan, DURABLE, 40, {})
    job = Driven(durable=replace(DURABLE, number=2, resumed=resumed))
    job.start()
    assert {b.committed for b in job.all(do.Become)} == {40}
    assert {s.first for s in job.machine.journal.assignment.serving} == {41}
    assert job.machine.journal.committed == job.machine.journal.saved == 40
    assert {c.checkpoint for c in puts(committed(job, 55))} == {50}


def other_code(after: int, shapes: Mapping[str, str]) -> CodeVersion:
    return CodeVersion(
        number=3, after=after, code=b"", settled=True, name="shop:new", shapes=shapes
    )


def test_a_checkpoint_is_saved_as_one_of_the_code_that_made_it() -> None:
    """Also in a run that begins again with the code that the one before had gone over to."""
    shapes = dict.fromkeys(layout_of(driven().plan).shapes, "others")
    job = Driven(durable=replace(DURABLE, versions=(other_code(20, shapes),)))
    job.start()
    assert all(b.versions for b in job.all(do.Become))
    for epoch, found in ((20, (job.plan.code, 0)), (30, ("shop:new", 3))):
        said = committed(job, epoch + 5)
        assert {c.versions for c in puts(said)} == {((20, 3),)}
        save(job, said)
        saved = job.all(do.SaveCheckpoint)[-1].saved
        assert (saved.checkpoint, saved.code, saved.version) == (epoch, *found)
        assert (saved.layout.shapes == shapes) == (epoch > 20)


# ---------------------------------------------------------------------------- going on


def store(folder: Path) -> tuple[Plan, Saves]:
    plan = planned("words", (1, 1))[0]
    return plan, Saves(open_store(folder), plan.job)


def save_in(plan: Plan, saves: Saves, checkpoint: int) -> Plan:
    """A run that has saved one checkpoint; its images are not looked into."""
    plan = durably(plan, saves, "run", None)
    assert plan.durable is not None
    chains = {
        v.id: [
            saves.put_chain(plan.durable.number, v.name, keys, [EncodedImage(0, checkpoint, b"x")])
            for keys in plan.ranges[v.id]
        ]
        for v in plan.vertices
    }
    saves.commit(saved_checkpoint(plan, plan.durable, checkpoint, chains))
    return plan


def test_cuts_that_are_there_are_not_passed_over(tmp_path: Path) -> None:
    plan, saves = store(tmp_path)
    assert beginning(saves, None) == (None, ())
    empty = beginning(saves, True)
    assert empty.saved is None and "begins at the beginning" in empty.notes[0]
    save_in(plan, saves, 7)
    with pytest.raises(ConfigError, match="checkpoint 7 of run 1 of words") as caught:
        beginning(saves, None)
    assert "--resume" in caught.value.hint and "--fresh" in caught.value.hint
    assert beginning(saves, False) == (None, ())
    with pytest.raises(StateError, match="is whole"):  # the images are none
        beginning(saves, True)


def test_a_run_that_lost_something_begins_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, saves = store(tmp_path)
    resumes, lost = Resumes(saves), LostError("all is lost")
    with pytest.raises(LostError, match=r"all is lost; in .* no whole checkpoint is saved yet"):
        resumes.after(lost, plan)
    monkeypatch.setattr(Saves, "_check", lambda self, saved: None)
    plan = save_in(plan, saves, 7)
    for _ in range(RESUMES_MAX):
        begin = resumes.after(lost, plan)
        assert begin.saved is not None and "goes on from checkpoint 7" in begin.notes[-1]
        plan = durably(plan, saves, "again", begin.saved)
    with pytest.raises(
        LostError, match=rf"went on from checkpoint 7 .* {RESUMES_MAX} times"
    ) as caught:
        resumes.after(lost, plan)
    assert "--resume" in caught.value.hint


def test_a_run_that_lost_something_does_not_go_on_from_a_cut_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who began anew has put what was saved before aside; who was replaced gives way."""
    plan, saves = store(tmp_path)
    monkeypatch.setattr(Saves, "_check", lambda self, saved: None)
    old = save_in(plan, saves, 7)
    anew = durably(plan, saves, "anew", None)
    with pytest.raises(
        LostError, match="checkpoint 7 of run 1 of words, which is no checkpoint of this run"
    ):
        Resumes(saves).after(LostError("all is lost"), anew)
    save_in(plan, saves, 3)
    with pytest.raises(LostError, match="checkpoint 3 of run 3 of words, which is no checkpoint"):
        Resumes(saves).after(LostError("all is lost"), old)


def test_a_job_goes_on_by_itself_only_with_code_that_its_submitter_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, saves = store(tmp_path)
    monkeypatch.setattr(Saves, "_check", lambda self, saved: None)
    plan = save_in(plan, saves, 7)
    (found,) = saves.kept()
    saves.commit(replace(found, checkpoint=9, code="shop:flow", version=3))
    with pytest.raises(LostError, match="other code than the job began with") as told:
        Resumes(saves).after(LostError("all is lost"), plan)
    assert "raystream run shop:flow --resume" in told.value.hint
    assert plan.durable is not None
    shapes = layout_of(plan).shapes
    plan.durable = replace(plan.durable, versions=(other_code(8, shapes),))
    begin = Resumes(saves).after(LostError("all is lost"), plan)
    again = durably(plan, saves, "again", begin.saved)
    assert again.durable is not None and again.durable.versions == plan.durable.versions
    assert saves.kept()[0].version == 3


def test_who_resumes_is_told_that_the_job_had_gone_over_to_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, saves = store(tmp_path)
    monkeypatch.setattr(Saves, "_check", lambda self, saved: None)  # its images are none
    monkeypatch.setattr(Saves, "ends", lambda self, saved, source: [])
    save_in(plan, saves, 7)
    (found,) = saves.kept()
    saves.commit(replace(found, checkpoint=9, code="shop:flow", version=3))
    begin = beginning(saves, True)
    assert "checkpoint 9 of run 1 of words was made by code to which" in begin.notes[-1]
    resumed = durably(plan, saves, "again", begin.saved)
    assert resumed.resumed is not None and resumed.resumed.version == 0  # a new run begins with it
    assert len(beginning(saves, True).notes) == 1


def test_what_an_old_run_was_about_to_save_does_not_come_first(tmp_path: Path) -> None:
    """It looked for later runs before there was one, and its put came through when there was: the
    sinks have gone on from the checkpoint before, and the run that did that may die without a
    save."""
    plan, saves = store(tmp_path)
    save_in(plan, saves, 7)
    found = saves.newest(checksums=False).saved
    assert found is not None
    plan = durably(plan, saves, "two", found, saves.manifests())
    late = replace(found, checkpoint=9)
    saves.store.put(manifest_name(late.job, late.number, late.checkpoint), encode(late))
    for number in (2, 3):
        again = saves.newest(checksums=False).saved
        assert again is not None and (again.number, again.checkpoint, again.run) == (
            number,
            7,
            "run",
        )
        assert again.chains == found.chains
        durably(plan, saves, "three", again, saves.manifests())


def test_another_flow_cannot_go_on(tmp_path: Path) -> None:
    plan = planned("words", (1, 1))[0]
    saved = saved_checkpoint(plan, DURABLE, 40, {})
    flow = FLOWS["words"](Collect())
    again = make_plan(flow, instances={plan.vertices[1].name: 3}, saved=saved)
    assert again.clock == plan.clock and layout_of(again) == saved.layout
    many = tuple(f"gone-{i}" for i in range(9))
    why = r"gone-0, .*gone-4 and 4 more\n  now: (.|\n)*begin again from the start: --fresh"
    with pytest.raises(StateError, match=rf"other splits of(.|\n)*{why}"):
        make_plan(flow, saved=replace(saved, splits=dict.fromkeys(saved.splits, many)))
    assert saved.clock is not None
    for clock, shown in ((None, r"by_arrival\(\)"), ((0, 7.5, None), r"by_time\(seconds=7.5\)")):
        words = rf"other epochs(.|\n)*saved: {shown}\n  now:   by_time\(seconds=\d+\)\n.*--fresh"
        with pytest.raises(StateError, match=words):
            make_plan(flow, saved=replace(saved, clock=clock))
    layout = saved.layout
    states = {v.name: v.spec.state for v in plan.vertices if v.spec is not None}
    key = next(name for name, state in states.items() if state and state.upgrade is None)
    for shape, hint in (
        ("Old(n: int64) by " + layout.shapes[key].partition(" by ")[2], "def upgrade"),
        ("Old(n: int64) by another", "begin anew: --fresh"),
    ):
        other = replace(layout, shapes={**layout.shapes, key: shape})
        with pytest.raises(StateError, match=rf"another state of {key}(.|\n)*{hint}"):
            make_plan(flow, saved=replace(saved, layout=other))
    with pytest.raises(StateError, match=r"which the flow does not have now(.|\n)*--drop"):
        make_plan(FLOWS["join"](Collect()), saved=saved)
