"""Rows on disk change no bit, whatever the operator: budgets of a few rows, compared with tables
that are in memory as a whole."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.logic import tiered
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import capture
from raystream.local.job import LocalJob, totals
from raystream.state.images.chain import CheckpointRequest
from raystream.state.keys import even_ranges
from raystream.state.segments import cold_rows
from raystream.state.tiers import object_tier, rounds, structured_tier
from raystream.state.tiers.tiered_table import TieredTable
from raystream.testing import Collect
from tests.compiled import operators as ops
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.shapes import SHAPES
from tests.dataflow.test_l1 import counted, written

TIERED = [
    "running", "running batch", "tumbling", "sliding", "sessions, disorder", "late", "ledger",
    "waiting", "diamond, keyed", "outputs",
]  # fmt: skip
"""Shapes with every kind of operator that has rows on disk."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records are taken at once, and few rows folded."""
    monkeypatch.setattr(tiered, "LEAST_AT_ONCE", 5)
    monkeypatch.setattr(cold_rows, "FOLD_BYTES", 2000)
    monkeypatch.setattr(cold_rows, "UNSTORED_MOST", 2)


ROWS_LEAVE = ["at once", "bit by bit"]


@pytest.fixture
def rows_leave(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much memory rows may take: none, or enough for rounds that go on a few rows at a time."""
    if request.param == "at once":
        return 1
    monkeypatch.setattr(rounds, "BEGIN_SHARE", 0.0)
    monkeypatch.setattr(rounds, "LEAVE_LEAST", 0.0)
    monkeypatch.setattr(rounds, "STRETCH_BYTES", 1)
    pace = random.Random(1)
    monkeypatch.setattr(structured_tier, "LOOKED_AT", 3)
    monkeypatch.setattr(object_tier, "LOOKED_AT", 3)
    monkeypatch.setattr(rounds.Rounds, "_pace", lambda *_: pace.randrange(1, 16))
    return 1 << 20


def event(rng: random.Random, kind: Any, time: int) -> Any:
    if kind is ops.Event:
        return kind(time, rng.randrange(40), float(rng.randrange(5)))
    if kind is ops.Odd:
        return kind(time, rng.randrange(9), rng.random() < 0.5)
    spot = rng.randrange(3), rng.randrange(2), rng.randrange(4)
    return ops.Report(
        time=time, vid=rng.randrange(60), spd=rng.randrange(60), xway=spot[0],
        lane=rng.randrange(5), dir=spot[1], seg=spot[2], pos=rng.randrange(3),
    )  # fmt: skip


COMPILED: dict[str, tuple[Any, Any]] = {
    "compiled, several outputs": (ops.vehicles, ops.Report),
    "compiled, tumbling": (ops.Busy(at_least=2), ops.Event),
    "compiled, sliding": (ops.Sliding(1.5), ops.Odd),
    "compiled, timer": (ops.Sessions(), ops.Event),
    "compiled, timers in rounds": (ops.Echo(), ops.Event),
}


def compiled_flow(name: str, sink: Collect, seed: int) -> rs.Flow:
    op, kind = COMPILED[name]
    rng, time = random.Random(seed), 0
    records = []
    for _ in range(400):
        time += rng.randrange(3)
        records.append(event(rng, kind, time))
    flow = rs.Flow("compiled", key_groups=16)
    source = flow.source(rs.io.iterable(records, kind), epochs=rs.by_time(seconds=12))
    source.through(op, name="op").to(sink)
    return flow


def flow_of(name: str, sink: Collect, seed: int) -> rs.Flow:
    if name in COMPILED:
        return compiled_flow(name, sink, seed)
    return SHAPES[name].build(sink, random.Random(seed).choice([5, 8, 20]), seed % 4)


def finished(plan: Plan, rng: random.Random | None = None) -> tuple[LocalJob, list[Any]]:
    job = LocalJob(plan, rng=rng)
    job.run()
    return job, [counted(r) for r in totals(job.progress())]


def tiers_of(job: LocalJob) -> Iterator[TieredTable]:
    return (m.table for m in job.machines if isinstance(m.table, TieredTable))


@pytest.mark.parametrize("rows_leave", ROWS_LEAVE, indirect=True)
@pytest.mark.parametrize("name", [*TIERED, *COMPILED])
def test_the_same_bits_with_rows_on_disk(name: str, rows_leave: int) -> None:
    seed = sum(map(ord, name))
    plain, sink = Collect(), Collect()
    _, expected = finished(make_plan(flow_of(name, plain, seed), checkpoint_every=3))
    plan, rng = make_plan(flow_of(name, sink, seed), checkpoint_every=3), random.Random(seed)
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    plan.state_memory = rows_leave
    job, found = finished(plan, rng)
    assert written(sink) == written(plain)
    assert found == expected
    assert sum(t.brought for t in tiers_of(job)) > 0


IMAGES = ["running batch", "sliding", "sessions", "ledger", *list(COMPILED)[2:]]


@pytest.mark.parametrize("rows_leave", ROWS_LEAVE, indirect=True)
@pytest.mark.parametrize("name", IMAGES)
def test_the_same_images_and_a_restore_from_each(name: str, rows_leave: int) -> None:
    """Full images and deltas of both are equal, and each goes on from those of the other."""
    seed, sinks = sum(map(ord, name)), (Collect(), Collect())
    jobs = []
    for sink, memory in zip(sinks, (None, rows_leave), strict=True):
        plan = make_plan(flow_of(name, sink, seed), checkpoint_every=2)
        plan.state_memory = memory
        for vertex in plan.ranges:
            plan.ranges[vertex] = even_ranges(plan.groups, 3)
        jobs.append(LocalJob(plan))
    base, compared, half = 0, 0, None
    while not jobs[0].ended:
        for job in jobs:
            job.turn()
        if jobs[0].committed > base:
            for one, two in zip(jobs[0].machines, jobs[1].machines, strict=True):
                if one.table is None or one.ended:
                    continue
                for since in {0, base}:
                    images = [capture(m, CheckpointRequest(since)).image() for m in (one, two)]
                    same_images(*images)
                    compared += 1
                    tile(capture(two, CheckpointRequest(since)).parts(1), two.keys)
                same_look_ups(one.table, two.table, images[0].rows)
            base = jobs[0].committed
            for job in jobs:
                job.settle()
            if half is None and base >= 6:
                half = [job.checkpoint(base) for job in jobs] if not jobs[0].ended else None
                boundaries = base
    assert compared > 4
    assert half is not None
    for job, memory in zip(reversed(half), (None, rows_leave), strict=True):
        sink = Collect()
        plan = make_plan(flow_of(name, sink, seed), checkpoint_every=2)
        plan.state_memory = memory
        LocalJob(plan, resume=job).run()
        rest = {k: v for k, v in written(sinks[0]).items() if k[0] > boundaries}
        again = {k: v for k, v in written(sink).items() if k[0] > boundaries}
        assert again == rest


def tile(parts: Iterable[Any], keys: Any) -> None:
    """The smallest parts of an image follow each other, and are all of the range. None is there for
    rows on disk that are not in the image: a delta has few of those of a segment."""
    at, before = keys.lo, 2
    for part in parts:
        assert part.header.keys.lo == at < part.header.keys.hi
        at, size = part.header.keys.hi, part.rows.num_rows + part.gone.num_rows
        assert before + size > 1
        before = size
    assert at == keys.hi


def same_look_ups(one: Any, two: Any, rows: Any) -> None:
    """Also of keys that have no row: the rows are of a delta, and some may be gone since."""
    keys = rows.select(one.shape.gone.names)
    found = [table.look_up(keys) for table in (one, two)]
    assert found[0].at.tolist() == found[1].at.tolist()
    assert found[0].batch().to_pydict() == found[1].batch().to_pydict()


def same_images(one: Any, two: Any) -> None:
    assert (one.header.base, one.header.checkpoint) == (two.header.base, two.header.checkpoint)
    assert two.rows.to_pydict() == one.rows.to_pydict()
    assert two.gone.to_pydict() == one.gone.to_pydict()
