"""What a job tells of itself."""

from __future__ import annotations

from raystream.controller.report import Moved
from raystream.controller.story import story
from raystream.schema.types import KeyRange


def test_a_move_of_one_of_two_instances_is_told() -> None:
    """Its ranges are all that the operator has since, also those that stayed."""
    ranges = (KeyRange(0, 128), KeyRange(128, 256))
    phases = (0.1, 0.2, 0.3)
    moved = Moved(
        5.0, "count", ("count/0",), ("count/2",), ranges, 40, "replay", 1, *phases, "asked for"
    )
    (told,) = story((), (moved,), ())
    assert told.what == "count/0 became count/2 of [0, 128) [128, 256), from epoch 40 (replay)"
