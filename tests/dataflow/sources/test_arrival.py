"""Sources cut by arrival: epochs end where the register says, also when they are read again."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.arrival import Arrival
from raystream.dataflow.sources.epochs import EpochRows, my_splits
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.errors import InputError
from raystream.local.job import LocalJob
from raystream.local.source import Ends
from raystream.schema.types import NEVER, KeyRange
from raystream.state.keys import even_ranges
from raystream.testing import Collect, run_local
from tests.dataflow.sources.ticks import numbered, plan_of, splits
from tests.examples import examples
from tests.flows import Line, Rows, lines, running, split


@dataclass
class Recorder:
    """Notes what every source instance of a job publishes."""

    job: LocalJob
    published: dict[KeyRange, list[EpochRows]]

    @classmethod
    def of(cls, job: LocalJob) -> Recorder:
        recorder = cls(job, {})
        for source in job.sources:
            recorder._wrap(source.machine)
        return recorder

    def _wrap(self, machine: SourceInstance) -> None:
        notes = self.published.setdefault(machine.keys, [])
        step = machine.step

        def noting(rows: EpochRows | None = None) -> Any:
            assert rows is not None
            notes.append(rows)
            return step(rows)

        machine.step = noting  # type: ignore[method-assign]


def again(plan: Plan, keys: KeyRange, ends: Ends, rng: random.Random) -> list[EpochRows]:
    """What a successor publishes that reads from the beginning and cuts where others did."""
    vertex = plan.vertex("ticks")
    arrival = Arrival(plan, vertex, keys)
    readers = [
        SplitReader(name, vertex.name, arrival.schema, vertex.source.read)
        for _, name in my_splits(plan, vertex, keys)
    ]
    out: list[EpochRows] = []
    while not out or not out[-1].ended:
        boundaries = []
        for each, reader in zip(arrival.splits, readers, strict=True):
            held = ends.get((each.registered, len(out) + 1), Boundary(each.position, NEVER, True))
            while reader.position < held.position or rng.random() < 0.3:
                rows = reader.next()
                if rows is None:
                    each.done = True
                    break
                each.add(reader.position, rows)
            boundaries.append(ends.setdefault((each.registered, len(out) + 1), each.wanted()))
        out.append(arrival.take(boundaries))
    return out


def shown(taken: list[EpochRows]) -> list[Any]:
    return [(list(t.rows.records()), t.offsets.tolist(), t.watermark, t.ended) for t in taken]


@examples(30)
@given(splits, st.integers(0, 2**16), st.integers(1, 8))
def test_a_successor_cuts_where_others_did(
    parts: list[list[int]], seed: int, instances: int
) -> None:
    rng = random.Random(seed)
    rows = numbered(parts)
    plan = plan_of(rows, rs.by_arrival(disorder=1))
    plan.ranges[plan.vertex("ticks").id] = even_ranges(8, instances)
    job = LocalJob(plan, rng=rng, boundaries={})
    recorder = Recorder.of(job)
    job.run()
    for keys, taken in recorder.published.items():
        if my_splits(plan, plan.vertex("ticks"), keys):
            assert shown(again(plan, keys, job.boundaries, rng)) == shown(taken)
    by_split = {name: i for i, name in enumerate(plan.splits[0])}
    for name, at in by_split.items():
        ends = [b for (s, _), b in sorted(job.boundaries.items()) if s == f"0:{name}"]
        assert [b.watermark for b in ends] == sorted(b.watermark for b in ends)
        assert ends[-1] == Boundary(len(parts[at]), NEVER, True)


class Stamped(NamedTuple):
    ts: int
    id: int


def test_by_arrival_the_watermark_follows_the_field_that_was_named() -> None:
    """It has to: windows over a source that never ends would never close."""
    flow = rs.Flow("stamped", key_groups=8)
    rows = Rows(Stamped, (tuple(Stamped(t, t) for t in (10, 30, 20, 40)),), 1)
    flow.source(rows, epochs=rs.by_arrival("ts", disorder=5)).to(Collect())
    job = LocalJob(make_plan(flow), boundaries={})
    job.run()
    seen = [b.watermark for _, b in sorted(job.boundaries.items(), key=lambda item: item[0][1])]
    assert list(dict.fromkeys(seen)) == [5, 25, 35, NEVER]


@examples(20)
@given(splits, st.integers(0, 2**16))
def test_a_job_is_run_again_over_its_boundaries(parts: list[list[int]], seed: int) -> None:
    plan = plan_of(numbered(parts), rs.by_arrival(disorder=1))
    one = LocalJob(plan, rng=random.Random(seed), boundaries={})
    first = Recorder.of(one)
    one.run()
    two = LocalJob(plan, boundaries=dict(one.boundaries))
    second = Recorder.of(two)
    two.run()
    assert two.boundaries == one.boundaries
    assert {k: shown(t) for k, t in second.published.items()} == {
        k: shown(t) for k, t in first.published.items()
    }


def test_a_source_that_reads_otherwise_is_refused() -> None:
    plan = plan_of(numbered([[1, 2, 3, 4, 5, 6, 7]]), rs.by_arrival(), batch=3)
    arrival = Arrival(plan, plan.vertex("ticks"), KeyRange(0, 8))
    source = replace(plan.vertex("ticks").source.given, batch=2)
    reader = SplitReader("split-0", "ticks", arrival.schema, source.read)
    for _ in range(3):
        rows = reader.next()
        assert rows is not None
        arrival.splits[0].add(reader.position, rows)
    with pytest.raises(
        InputError, match="ended an epoch at position 3 before, which reading it again"
    ):
        arrival.take([Boundary(3, 0, False)])


def test_by_arrival_gives_the_same_words_whatever_the_boundaries() -> None:
    found = []
    for seed in (None, 1, 2, 3):
        sink = Collect()
        flow = rs.Flow("arriving")
        source = Rows(Line, lines(3), batch=4)
        flow.source(source, epochs=rs.by_arrival()).through(split).through(running).to(sink)
        run_local(flow, seed=seed, instances={"rows": 2, "running": 3})
        found.append(sorted(sink.records()))
    assert found[0] and all(f == found[0] for f in found)
