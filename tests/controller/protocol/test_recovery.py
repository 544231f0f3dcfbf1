"""Who takes a place, who keeps its checkpoints, and when it is enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raystream.controller.protocol.parts.keeper_choice import keepers_of
from raystream.controller.protocol.recovery import (
    DEATHS_MAX,
    Deaths,
    Place,
    checkpoint_lost,
    passed_on,
    successors,
)
from raystream.controller.protocol.strategies import KeepsLogs, SourcesOnly
from raystream.errors import JobError
from raystream.schema.types import KeyRange
from raystream.simulation.references import planned

PLACE = Place(2, "count", KeyRange(0, 8), 1)


def test_every_instance_of_a_place_has_a_name_of_its_own() -> None:
    (second,) = successors(PLACE, 1, 2)
    (third,) = successors(second, 1, 2)
    assert [PLACE.name, second.name, third.name] == ["count/1", "count/1.1", "count/1.2"]


def test_successors_share_a_range_under_names_that_nobody_has() -> None:
    parts = successors(PLACE, 3, 5)
    assert [p.name for p in parts] == ["count/1.1", "count/5", "count/6"]
    assert [p.keys for p in parts] == [KeyRange(0, 2), KeyRange(2, 5), KeyRange(5, 8)]
    narrow = replace(PLACE, keys=KeyRange(3, 4))
    assert [p.keys for p in successors(narrow, 3, 2)] == [KeyRange(3, 4)]


def test_where_only_sources_keep_what_they_sent_all_in_between_is_made_again() -> None:
    plan = planned("words", (1, 2))[0]
    places = [
        Place(v.id, v.name, keys, i)
        for v in plan.vertices
        for i, keys in enumerate(plan.ranges[v.id])
    ]
    (sink,) = [p for p in places if p.operator == "collect" and p.index == 0]
    assert KeepsLogs().widened([sink], places, plan) == {sink.name}
    again = SourcesOnly().widened([sink], places, plan)
    assert again == {p.name for p in places if p.operator in ("count", "chain")} | {sink.name}


def test_what_all_consumers_have_may_be_forgotten() -> None:
    plan = planned("words", (1, 2))[0]
    ids = {v.name: v.id for v in plan.vertices}
    positions = {ids["lines"]: 9, ids["count"]: 7, ids["chain"]: 4, ids["collect"]: 3}
    assert passed_on(plan, positions) == {ids["count"]: 4, ids["chain"]: 3}


def test_a_range_that_dies_again_and_again_ends_the_job() -> None:
    deaths = Deaths()
    for _ in range(DEATHS_MAX):
        deaths.died([PLACE], 20, "killed")
    with pytest.raises(JobError, match=r"count \[0, 8\) died 11 times .* epoch 20: killed"):
        deaths.died([replace(PLACE, number=1)], 20, "killed")
    deaths.moved()
    deaths.died([PLACE], 30, "killed")


def test_what_is_lost_is_named() -> None:
    assert "count [0, 8) at epoch 20 is lost" in checkpoint_lost(PLACE, 20).message


def test_the_keepers_of_a_place_do_not_depend_on_who_has_it() -> None:
    nodes = dict.fromkeys("abc", "")
    held = [
        keepers_of(p, "a", ["b"], nodes, 2, source=False) for p in (PLACE, replace(PLACE, number=1))
    ]
    assert held == [("b", "c")] * 2
    assert keepers_of(PLACE, "a", ["b"], nodes, 3, source=False) == ("b", "c", "a")
    assert keepers_of(PLACE, "a", [], nodes, 2, source=True) == ("a", "b")
