"""One wrong time far ahead is refused, left out or streamed, and makes no other record late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.epochs import Epochs
from raystream.controller.planning.plans import make_plan
from raystream.controller.reporting.report import totals
from raystream.dataflow.sources.ahead import AheadGuard, AheadRule, stilled
from raystream.dataflow.sources.recorded import Recorded
from raystream.errors import InputError
from raystream.local.job import LocalJob
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, KeyRange
from raystream.state.keys import even_ranges
from raystream.testing import Collect, run_local
from tests.examples import examples
from tests.flows import Rows


class Event(NamedTuple):
    time: int
    id: int


class Count(NamedTuple):
    start: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="id", window=rs.tumbling(seconds=10))
class Counts:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: int, window: rs.Window, tally: Tally) -> Iterator[Count]:
        yield Count(window.start, tally.n)


def modelled(times: list[int], most: int) -> list[bool]:
    """Which are set aside, record by record."""
    greatest, aside = None, []
    for time in times:
        aside.append(greatest is not None and time > greatest + most)
        if not aside[-1]:
            greatest = time if greatest is None else max(greatest, time)
    return aside


wild = st.one_of(st.integers(-20, 60), st.integers(-(2**62), 2**63 - 1))


@pytest.mark.parametrize("epochs", [rs.by_time(seconds=1), rs.by_time(seconds=1, max_ahead=60)])
def test_a_time_far_ahead_is_refused_with_the_line_of_the_source(epochs: Epochs) -> None:
    flow = rs.Flow("far")
    events = [Event(1, 0), Event(1_700_000_000_000, 0)]
    flow.source(rs.io.iterable(events, Event), epochs=epochs, name="events").to(Collect())
    with pytest.raises(InputError, match=r"events: split 0/1 has .* time=1700000000000") as refused:
        flow.run()
    where = refused.value.where
    assert where is not None and where.file == __file__ and 'name="events"' in where.text
    assert 'ahead="drop"' in refused.value.hint


@examples(200)
@given(st.lists(st.lists(wild, max_size=8), max_size=4), st.integers(0, 30))
def test_a_guard_takes_what_the_model_takes(batches: list[list[int]], most: int) -> None:
    guard = AheadGuard(AheadRule("time", most, float(most), False), "s", "a")
    expected, at = modelled([t for batch in batches for t in batch], most), 0
    for batch in batches:
        before = guard.greatest
        rows = from_records(record_schema(Event), [Event(t, 0) for t in batch])
        aside = guard.aside(rows)
        mine = expected[at : at + len(batch)]
        assert (aside is None) == (not any(mine))
        if aside is not None:
            assert aside.tolist() == mine
            start = batch[0] if before == BEFORE_ALL else before
            shown = stilled(np.array(batch, np.int64), aside, start)
            taken = [t for t, out in zip(batch, mine, strict=True) if not out]
            assert shown.max() == max([start, *taken]) or shown.max() == max(taken)
        at += len(batch)


times = st.lists(st.one_of(st.integers(0, 60), st.just(400)), min_size=1, max_size=12)


def numbered(parts: list[list[int]]) -> tuple[tuple[Event, ...], ...]:
    ids = iter(range(1000))
    return tuple(tuple(Event(t, next(ids)) for t in part) for part in parts)


def cut(arrival: bool, **more: Any) -> Epochs:
    if arrival:
        return rs.by_arrival(max_ahead=100, **more)
    return rs.by_time(seconds=5, max_ahead=100, **more)


@examples(60)
@given(
    st.lists(times, min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_jobs_set_aside_what_the_model_does(
    parts: list[list[int]], batch: int, instances: int, arrival: bool, seed: int
) -> None:
    rows = numbered(parts)
    aside, kept = set[int](), set[int]()
    for part, times_ in zip(rows, parts, strict=True):
        for event, out in zip(part, modelled(times_, 100), strict=True):
            (aside if out else kept).add(event.id)
    for streamed in (True, False):
        sink, far, flow = Collect(), Collect(), rs.Flow("ahead", key_groups=8)
        source = Rows(Event, rows, batch)
        if streamed:
            main, rest = flow.source(source, epochs=cut(arrival), name="in", ahead=True)
            rest.to(far)
        else:
            main = flow.source(source, epochs=cut(arrival, ahead="drop"), name="in")
        main.to(sink)
        plan = make_plan(flow, checkpoint_every=2)
        plan.ranges[0] = even_ranges(8, instances)
        job = LocalJob(plan, rng=random.Random(seed), boundaries={})
        job.run()
        (report,) = (o for o in totals(job.progress()) if o.name == "in")
        assert (report.ahead, report.records_in) == (len(aside), len(aside) + len(kept))
        assert sorted(e.id for e in sink.records()) == sorted(kept)
        assert sorted(e.id for e in far.records()) == (sorted(aside) if streamed else [])


@examples(40)
@given(times, st.integers(1, 4), st.integers(0, 8))
def test_a_successor_sets_the_same_records_aside(part: list[int], batch: int, taken: int) -> None:
    flow = rs.Flow("ahead", key_groups=8)
    source = Rows(Event, numbered([part]), batch)
    flow.source(source, epochs=cut(False, ahead="drop"), name="in").to(Collect())
    plan = make_plan(flow)
    whole = Recorded(plan, plan.vertices[0], KeyRange(0, 8))
    for epoch in range(1, taken + 1):
        whole.take(epoch)
    after = Recorded(
        plan, plan.vertices[0], KeyRange(0, 8), taken=taken, positions=whole.positions()
    )
    for epoch in range(taken + 1, taken + 15):
        one, two = whole.take(epoch), after.take(epoch)
        assert list(one.rows.records()) == list(two.rows.records())
        found = [[] if t.aside is None else list(t.aside.rows.records()) for t in (one, two)]
        assert found[0] == found[1]
        assert (one.watermark, one.ended) == (two.watermark, two.ended)


WRONG = [*range(20), 10**7, *range(20, 100)]


@pytest.mark.parametrize("arrival", [True, False])
def test_one_wrong_time_makes_nothing_late(
    arrival: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sink, flow = Collect(), rs.Flow("wrong")
    rows = (tuple(Event(t, 0) for t in WRONG),)
    flow.source(Rows(Event, rows, 1), epochs=cut(arrival, ahead="drop"), name="in").through(
        Counts()
    ).to(sink)
    report = flow.run()
    assert sorted(sink.records()) == [Count(start, 10) for start in range(0, 100, 10)]
    (note,) = report.notes
    assert note.startswith("1 of 101 records of in were left out: their times were further ahead")
    assert capsys.readouterr().err == f"{note}\n"


def test_a_stream_of_them_needs_no_note() -> None:
    sink, far, flow = Collect(), Collect(), rs.Flow("wrong")
    rows = (tuple(Event(t, 0) for t in WRONG),)
    events, rest = flow.source(Rows(Event, rows, 7), epochs=cut(False), ahead=True)
    events.through(Counts()).to(sink)
    rest.to(far)
    assert flow.run().notes == ()
    assert list(far.records()) == [Event(10**7, 0)]
    assert sum(c.n for c in sink.records()) == 100


def test_both_streams_may_meet_again_in_order() -> None:
    found = []
    for n in (1, 3):
        sink, flow = Collect(), rs.Flow("wrong", key_groups=8)
        rows = tuple(tuple(Event(t, t % 3) for t in [0, 10**7 + i, 1, 2]) for i in range(3))
        events, rest = flow.source(Rows(Event, rows, 3), epochs=cut(False), ahead=True, name="in")
        (events | rest).to(sink)
        run_local(flow, instances={"in": n}, check=True)
        found.append(list(sink.records()))
    assert found[0] == found[1]
    assert [e.time for e in found[0][:4]] == [0, 10**7, 1, 2]


@pytest.mark.parametrize("arrival", [True, False])
def test_it_is_refused_by_default(arrival: bool) -> None:
    flow = rs.Flow("wrong")
    rows = (tuple(Event(t, 0) for t in WRONG),)
    flow.source(Rows(Event, rows, 7), epochs=cut(arrival), name="in").to(Collect())
    with pytest.raises(
        InputError, match="in: split split-0 has a record with time=10000000, more than"
    ):
        flow.run()
