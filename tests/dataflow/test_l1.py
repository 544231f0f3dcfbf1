"""Law L1, both halves: what comes out depends on the input and the epoch boundaries alone, bit for
bit; and with other boundaries it is the same multiset where that is promised."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.controller.reporting.report import OperatorReport
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError
from raystream.local.job import LocalJob, totals
from raystream.testing import Collect
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.shapes import SHAPES, Shape
from tests.examples import examples


def written(sink: Collect) -> dict[tuple[int, str], list[str]]:
    """What a sink got, by epoch and type, in order of range. `repr` tells all bits apart."""
    out: dict[tuple[int, str], list[str]] = {}
    for (epoch, _, name), batch in sorted(sink.parts.items(), key=lambda part: part[0]):
        out.setdefault((epoch, name), []).extend(map(repr, batch.records()))
    return out


def run(plan: Plan, rng: random.Random | None = None) -> list[OperatorReport]:
    job = LocalJob(plan, rng=rng)
    job.run()
    return list(totals(job.progress()))


def counted(report: OperatorReport) -> tuple[Any, ...]:
    return (report.name, report.records_in, report.records_out, report.late, report.state_rows,
            report.by_port)  # fmt: skip


def sequential(shape: Shape, seconds: float, seed: int) -> tuple[Any, list[Any]]:
    sink = Collect()
    reports = run(make_plan(shape.build(sink, seconds, seed)))
    assert sink.records(), "a flow that emits nothing tests nothing"
    return written(sink), [counted(r) for r in reports]


@pytest.mark.parametrize("name", SHAPES)
@examples(6)
@given(seed=st.integers(0, 2**16), data=st.integers(0, 3), seconds=st.sampled_from([5, 8, 20, 200]))
def test_the_same_bits_however_it_is_cut_and_stepped(
    name: str, seed: int, data: int, seconds: float
) -> None:
    shape, rng = SHAPES[name], random.Random(seed)
    expected, reports = sequential(shape, seconds, data)
    sink = Collect()
    plan = make_plan(shape.build(sink, seconds, data), checkpoint_every=rng.choice([1, 3, 50]))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    found = run(plan, rng)
    assert written(sink) == expected
    assert [counted(r) for r in found] == reports


@pytest.mark.parametrize("name", [n for n, s in SHAPES.items() if s.free])
@examples(4)
@given(seed=st.integers(0, 2**16), data=st.integers(0, 3), seconds=st.sampled_from([2, 7, 31, 500]))
def test_the_same_records_with_other_epochs(
    name: str, seed: int, data: int, seconds: float
) -> None:
    shape, rng = SHAPES[name], random.Random(seed)
    expected, _ = sequential(shape, 4, data)
    sink = Collect()
    plan = make_plan(shape.build(sink, seconds, data))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    run(plan, rng)
    assert multiset(written(sink)) == multiset(expected)


def multiset(output: dict[tuple[int, str], list[str]]) -> Counter[tuple[str, str]]:
    return Counter((name, row) for (_, name), rows in output.items() for row in rows)


@pytest.mark.parametrize("groups", [1, 3, 256, 1 << 15])
def test_any_number_of_key_groups(groups: int) -> None:
    """The multiset does not depend on it, and with one key group all works still."""
    found = []
    for g in (groups, 256):
        sink = Collect()
        flow = SHAPES["tumbling"].build(sink, 5, 0)
        flow.key_groups = g
        run(make_plan(flow))
        found.append(multiset(written(sink)))
    assert found[0] == found[1]


def test_the_check_sees_a_difference_in_order() -> None:
    """The comparison itself: two orders of the same records differ, and so do types."""
    one, two = Collect(), Collect()
    flow = SHAPES["running"].build(one, 5, 0)
    run(make_plan(flow))
    for key, batch in one.parts.items():
        two.parts[key] = batch.take(range(len(batch))[::-1])
    assert written(one) == written(one) != written(two)
    assert multiset(written(one)) == multiset(written(two))


def test_more_epochs_than_rows_and_one_epoch_for_all() -> None:
    flow = rs.Flow("x")
    assert flow.key_groups == 256
    for seconds in (1, 10_000):
        sequential(SHAPES["union"], seconds, 2)


def test_there_is_room_for_the_rows_that_are_expected_from_the_beginning() -> None:
    sink = Collect()
    flow = SHAPES["running batch"].build(sink, 5, 0)
    plan = make_plan(flow, rows={"running_batch": 100_000}, instances={"running_batch": 2})
    job = LocalJob(plan)
    tables = [m.logic.table for m in job.instances if m.vertex.name == "running_batch"]
    assert [len(t.rows) for t in tables] == [50_000, 50_000]
    job.run()
    expected, _ = sequential(SHAPES["running batch"], 5, 0)
    assert written(sink) == expected
    with pytest.raises(ConfigError, match="rows: 'lines' is no compiled or batch operator"):
        make_plan(flow, rows={"lines": 5})
    with pytest.raises(ConfigError, match="running_batch=-1; an operator keeps up to"):
        make_plan(flow, rows={"running_batch": -1})
