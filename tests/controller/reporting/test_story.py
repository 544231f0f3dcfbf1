"""What a job tells of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raystream.controller.protocol.history import MoveRecord, UpgradeRecord
from raystream.controller.reporting.story import AGAIN_SECONDS, NOTES_MAX, Notes, moved_line, story
from raystream.schema.types import KeyRange
from tests.controller.protocol.moves.moved import ALL, HALVES
from tests.controller.protocol.moves.moved import Moved as Job


def test_a_move_of_one_of_two_instances_is_told() -> None:
    """Its ranges are all that the operator has since, also those that stayed."""
    ranges = (KeyRange(0, 128), KeyRange(128, 256))
    moved = MoveRecord(
        t=5.0,
        operator="count",
        gone=("count/0",),
        new=("count/2",),
        ranges=ranges,
        committed=40,
        mode="replay",
        tries=1,
        place=0.1,
        restore=0.2,
        replay=0.3,
        because="asked for",
    )
    (told,) = story((), (moved,), ())
    assert told.what == "count/0 became count/2, from epoch 40 (replay)"
    line = "count/2 began at checkpoint 40 and took over from count/0 after 0.6 s"
    assert line in moved_line(moved)


@pytest.mark.parametrize("ranges", [HALVES, HALVES[::-1]], ids=["in order", "backwards"])
def test_who_took_which_range_is_told_whoever_was_ready_first(ranges: tuple[KeyRange, ...]) -> None:
    job = Job()
    assert job.ask("count", *ranges) == ""
    job.hire()
    for become in reversed(job.given):
        job.hear(job.became(become.process, f"grpc://{become.process}"))
    job.at(25)
    job.tick()
    assert job.owners("count") == dict(zip(("count/1", "count/2"), HALVES, strict=True))
    (told,) = story(moved=job.machine.journal.moved)
    assert told.what.startswith("count/0 became count/1 [0, 8), count/2 [8, 16), from epoch 20")


def test_a_move_of_who_died_before_it_began_is_told_as_one_that_was_not_made() -> None:
    """Nobody of its new place knows of the node that it was to be put on."""
    job = Job()
    assert job.ask("count", ALL, leave=("count/0",), node="a") == ""
    job.die("count/0")
    for _ in range(2):
        job.hire("b")
        job.restore()
        job.at(26)
        job.tick()
    assert list(job.owners("count")) == ["count/0.1"] and not job.machine.journal.moves
    (record,) = job.machine.journal.moved
    (told,) = story(moved=(record,))
    why = "the instance to replace has died, and another one is in its place"
    assert told.failed and told.what == f"count stays as it is: {why}"
    assert moved_line(record).endswith(f"count (tested): not moved, {why}")


def test_what_is_said_again_and_again_is_told_once_and_once_more_after_a_while() -> None:
    notes = Notes()
    for t in range(1000):
        notes.say("no room", float(t))
        notes.say("no node", float(t))
    notes.say("no room", 1000 + AGAIN_SECONDS)
    assert notes.said == ((0.0, "no room"), (0.0, "no node"), (1000 + AGAIN_SECONDS, "no room"))


def test_notes_are_bounded() -> None:
    notes = Notes()
    for t in range(3 * NOTES_MAX):
        notes.say(f"note {t}", float(t))
    assert [text for _, text in notes.said] == [
        f"note {t}" for t in range(2 * NOTES_MAX, 3 * NOTES_MAX)
    ]
    assert len(notes._last) == NOTES_MAX


def test_an_upgrade_is_told_with_its_epoch_or_why_it_was_given_up() -> None:
    done = UpgradeRecord(t=3.0, name="shop:flow", number=1, after=1041, tries=1, seconds=1.7)
    told, failed = story(
        upgraded=(done, replace(done, t=9.0, number=0, after=0, failed="count: no module x"))
    )
    assert (told.kind, told.what) == ("upgrade", "shop:flow: other code from epoch 1,042 on")
    assert told.phases == (("settle", 1.7),) and not told.failed
    assert failed.failed and failed.what == "shop:flow: the job keeps its code: count: no module x"
