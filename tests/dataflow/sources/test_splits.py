"""Splits: their key groups, their names, and positions at which they are read on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import split_group
from raystream.dataflow.sources.epochs import my_splits
from raystream.dataflow.sources.recorded import Recorded
from raystream.errors import InputError
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges
from raystream.testing import Collect, run_local
from tests.dataflow.sources.ticks import Tick, echo, numbered, plan_of


def test_splits_are_spread_over_the_key_groups() -> None:
    assert [split_group(i, 3, 8) for i in range(3)] == [0, 2, 5]
    assert [split_group(i, 20, 4) for i in range(20)] == sorted([0, 1, 2, 3] * 5)
    plan = plan_of(numbered([[1]] * 5), rs.by_time(seconds=1))
    vertex = plan.vertex("ticks")
    found = [s for k in even_ranges(8, 3) for s in my_splits(plan, vertex, k)]
    assert found == my_splits(plan, vertex, KeyRange(0, 8))
    assert [name for _, name in found] == [f"split-{i}" for i in range(5)]


@pytest.mark.parametrize("seed", range(5))
def test_sources_whose_splits_have_the_same_names_are_cut_each_by_itself(seed: int) -> None:
    """By arrival each ends where it ends, whatever another with such a split does."""
    sink, flow = Collect(), rs.Flow("alike", key_groups=8)
    few, many = ([Tick(i, who) for i in range(n)] for who, n in ((0, 3), (1, 12)))
    first, second = (
        flow.source(rs.io.iterable(rows, Tick), epochs=rs.by_arrival(), name=name)
        for rows, name in ((few, "few"), (many, "many"))
    )
    (first | second).through(echo).to(sink)
    names = [make_plan(flow).splits[v] for v in (0, 1)]
    assert names[0] == names[1]
    run_local(flow, seed=seed)
    assert sorted(sink.records()) == sorted(few + many)


@pytest.mark.parametrize(("left", "fails"), [(12, False), (20, False), (7, True), (0, True)])
def test_a_split_that_was_cut_short_is_noticed(left: int, fails: bool) -> None:
    """Also inside the batch that was being taken; what comes behind is no harm."""
    rows = tuple(Tick(i, i) for i in range(20))
    epochs = rs.by_time(seconds=1)

    def recorded(n: int, taken: int = 0, positions: Any = None) -> Recorded:
        plan = plan_of((rows[:n],), epochs, batch=12)
        return Recorded(plan, plan.vertices[0], KeyRange(0, 8), taken=taken, positions=positions)

    before = recorded(12)
    for epoch in range(1, 5):
        before.take(epoch)
    after = recorded(left, 4, before.positions())
    if fails:
        with pytest.raises(InputError, match="is not what it was: it was read up to position 12"):
            after.take(5)
    else:
        assert len(after.take(5).rows) == len(before.take(5).rows) == 1


@dataclass(frozen=True)
class Backwards:
    """A source whose positions are its own, and go down."""

    record: type = Tick

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Tick]]]:
        for left in range(position or 9, 1, -1):
            yield left - 1, rs.Batch(Tick, {"time": [9 - left], "id": [left]})


def test_positions_are_the_source_s_own() -> None:
    flow = rs.Flow("backwards", key_groups=8)
    flow.source(Backwards(), epochs=rs.by_time(seconds=1)).to(Collect())
    plan = make_plan(flow)

    def recorded(**since: Any) -> Recorded:
        return Recorded(plan, plan.vertices[0], KeyRange(0, 8), **since)

    whole = recorded()
    taken = [[r.id for r in whole.take(epoch).rows.records()] for epoch in range(1, 10)]
    assert [i for ids in taken for i in ids] == [*range(9, 1, -1)]
    before = recorded()
    for epoch in range(1, 5):
        before.take(epoch)
    after = recorded(taken=4, positions=before.positions())
    assert [[r.id for r in after.take(e).rows.records()] for e in range(5, 10)] == taken[4:]
