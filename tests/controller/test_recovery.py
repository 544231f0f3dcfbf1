"""Who takes a place, who keeps its checkpoints, and when it is enough."""

from __future__ import annotations

import pytest

from raystream.controller.placing import keepers_of
from raystream.controller.recovery import DEATHS_MAX, Deaths, Place, checkpoint_lost
from raystream.errors import JobError
from raystream.schema.types import KeyRange

PLACE = Place(2, "count", KeyRange(0, 8), 1)


def test_every_instance_of_a_place_has_a_name_of_its_own() -> None:
    names = [PLACE.name, PLACE.next().name, PLACE.next().next().name]
    assert names == ["count/1", "count/1.1", "count/1.2"]


def test_a_range_that_dies_again_and_again_ends_the_job() -> None:
    deaths = Deaths()
    for _ in range(DEATHS_MAX):
        deaths.died([PLACE], 20, "killed")
    with pytest.raises(JobError, match=r"count \[0, 8\) died 11 times .* epoch 20: killed"):
        deaths.died([PLACE.next()], 20, "killed")
    deaths.moved()
    deaths.died([PLACE], 30, "killed")


def test_what_is_lost_is_named() -> None:
    assert "count [0, 8) at epoch 20 is lost" in checkpoint_lost(PLACE, 20).message


def test_the_keepers_of_a_place_do_not_depend_on_who_has_it() -> None:
    nodes = ("a", "b", "c")
    held = [keepers_of(p, "a", ["b"], nodes, 2, source=False) for p in (PLACE, PLACE.next())]
    assert held == [("b", "c")] * 2
    assert keepers_of(PLACE, "a", [], nodes, 2, source=True) == ("a", "b")
