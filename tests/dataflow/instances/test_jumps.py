"""A run of epochs in which nothing is read, closed or due is one step, and changes no bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import Plan
from raystream.local.job import LocalJob, totals
from raystream.testing import Collect
from tests.dataflow import shapes
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.shapes import SHAPES
from tests.dataflow.test_l1 import counted, written
from tests.examples import examples

Parts = tuple[tuple[Any, ...], ...]
GAPS = [0, 0, 0, 2, 15]


def spread(make: Callable[..., Parts], seed: int) -> Callable[..., Parts]:
    """The rows that `make` gives, with gaps between them, which are the same for all of them."""
    rng = random.Random(seed)
    gaps = [rng.choice(GAPS) for _ in range(60)]

    def later(time: int) -> int:
        return time + sum(gaps[: max(0, time // 2)])

    def made(*args: Any, **options: Any) -> Parts:
        parts = make(*args, **options)
        return tuple(tuple(row._replace(time=later(row.time)) for row in part) for part in parts)

    return made


def plan_of(name: str, sink: Collect, data: int, every: int) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        for make in ("lines", "events"):
            patch.setattr(shapes, make, spread(getattr(shapes, make), data))
        return make_plan(SHAPES[name].build(sink, 1, data), checkpoint_every=every)


class Ran(NamedTuple):
    """What a run gave."""

    written: Any
    counted: list[Any]
    checkpoints: dict[int, Any]
    """Of every checkpoint that was taken, the images of all instances."""
    turns: int


def run(plan: Plan, sink: Collect, *, jumps: bool, rng: random.Random | None = None) -> Ran:
    job = LocalJob(plan, rng=rng, jumps=jumps)
    checkpoints, turns = {}, 0
    while not job.ended:
        job.turn()
        turns += 1
        at = job.committed
        if rng is None and all(m.ended or m.position == at for m in job.machines):
            stored = job.stored(at)
            checkpoints[at] = {v: [image.encode() for image in stored[v]] for v in stored}
        job.settle()
    job.finish()
    reports = [counted(report) for report in totals(job.progress())]
    return Ran(written(sink), reports, checkpoints, turns)


@pytest.mark.parametrize("name", SHAPES)
@examples(1)
@given(st.integers(0, 2**16), st.integers(0, 20), st.sampled_from([3, 11, 100]))
def test_the_same_bits_with_jumps_and_without(name: str, seed: int, data: int, every: int) -> None:
    sinks = [Collect() for _ in range(3)]
    plans = [plan_of(name, sink, data, every) for sink in sinks]
    expected = run(plans[0], sinks[0], jumps=False)
    found = run(plans[1], sinks[1], jumps=True)
    assert found.written == expected.written
    assert found.counted == expected.counted
    assert found.turns < expected.turns / 2
    for checkpoint, images in found.checkpoints.items():
        assert images == expected.checkpoints[checkpoint]
    rng = random.Random(seed)
    for vertex in plans[2].ranges:
        plans[2].ranges[vertex] = random_ranges(rng, plans[2].groups)
    scattered = run(plans[2], sinks[2], jumps=True, rng=rng)
    assert scattered.written == expected.written
    assert scattered.counted == expected.counted


class Bar(NamedTuple):
    time: int
    symbol: int


class Seen(NamedTuple):
    symbol: int
    at: int


class Quiet(rs.State):
    due: rs.Timer = rs.NEVER


@rs.operator(key="symbol")
class Silence:
    """Tells when nothing came for an hour."""

    def process(self, bar: Bar, row: Quiet) -> None:
        row.due = bar.time + 3600

    def timer(self, key: int, time: int, row: Quiet) -> Iterator[Seen]:
        yield Seen(key, time)


def daily(sink: Collect, days: int, *, compiled: bool = False) -> Plan:
    bars = [Bar(day * 86_400 + minute * 60, 7) for day in range(days) for minute in range(3)]
    flow = rs.Flow("daily")
    op = rs.operator(key="symbol", compiled=compiled)(Silence)
    flow.source(rs.io.iterable(bars, Bar), epochs=rs.by_time(seconds=1)).through(op()).to(sink)
    return make_plan(flow, checkpoint_every=20)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_timer_between_two_records_rings_in_its_own_epoch(compiled: bool) -> None:
    sink = Collect()
    job = LocalJob(daily(sink, 40, compiled=compiled), jumps=True)
    turns = 0
    while not job.ended:
        job.turn()
        turns += 1
    job.finish()
    expected = [day * 86_400 + 120 + 3600 for day in range(40)]
    assert [(seen.at, epoch) for epoch, seen in sink.by_epoch()] == [
        (at, min(at, 39 * 86_400 + 121)) for at in expected
    ]
    assert turns < 40 * 12


def test_runs_are_as_long_in_any_order_of_steps() -> None:
    """As with `run_local(flow, seed=...)`: a source by itself takes checkpoints by runs."""
    sinks = Collect(), Collect()
    run(daily(sinks[0], 40), sinks[0], jumps=True)
    ran = run(daily(sinks[1], 40), sinks[1], jumps=True, rng=random.Random(1))
    assert written(sinks[1]) == written(sinks[0])
    assert ran.turns < 40 * 60


def test_a_run_counts_as_one_epoch_between_checkpoints() -> None:
    job = LocalJob(daily(Collect(), 400), jumps=True)
    committed = [0]
    while not job.ended:
        job.turn()
        if job.committed != committed[-1]:
            committed.append(job.committed)
    *regular, last = committed
    assert last == job.sources[0].machine.position
    assert all(epoch % 20 == 0 for epoch in regular)
    days = [later // 86_400 - epoch // 86_400 for epoch, later in pairwise(committed)]
    assert min(days[:-1]) >= 20 and max(days) <= 40  # each day has one long run
