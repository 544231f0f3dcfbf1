"""The event time of a stream that is a field of its own: `Stream.timed`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.errors import GraphError
from raystream.local.job import LocalJob, totals
from raystream.testing import Collect
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.test_l1 import counted, written
from tests.examples import examples


class Raw(NamedTuple):
    stamp: str
    key: str


class Event(NamedTuple):
    time: int
    key: str


class Count(NamedTuple):
    time: int
    key: str
    n: int


class Top(NamedTuple):
    start: int
    of: int


class Tally(rs.State):
    n: int = 0


@dataclass(frozen=True)
class Feed:
    """Splits of records that come one after the other, two at a time."""

    record: type
    parts: tuple[tuple[Any, ...], ...]

    def splits(self) -> list[rs.Split]:
        return [rs.Split(str(i)) for i in range(len(self.parts))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        rows = self.parts[int(split.name)]
        for at in range(position, len(rows), 2):
            some = rows[at : at + 2]
            columns = {n: [getattr(row, n) for row in some] for n in self.record._fields}
            yield at + len(some), rs.Batch(self.record, columns)


@rs.operator()
def parsed(raw: Raw) -> Iterator[Event]:
    yield Event(int(raw.stamp), raw.key)


@rs.operator()
def some(event: Event) -> Iterator[Event]:
    if event.time % 7:
        yield event


@rs.operator(key="key")
def delayed(event: Event, tally: Tally) -> Iterator[Event]:
    """Emits the time of the record before."""
    if tally.n:
        yield Event(tally.n - 50, event.key)
    tally.n = max(1, event.time)


@rs.operator(key="key", window=rs.tumbling(seconds=10))
class Counts:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Count]:
        yield Count(window.start, key, tally.n)


@rs.operator(key="key", window=rs.tumbling(seconds=60))
class Tops:
    def process(self, count: Count, tally: Tally) -> None:
        tally.n += count.n

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Top]:
        yield Top(window.start, tally.n)


def times(seed: int) -> tuple[tuple[int, ...], ...]:
    rng = random.Random(seed)
    return tuple(
        tuple(max(0, t * 3 + rng.randrange(-8, 9)) for t in range(rng.randrange(5, 40)))
        for _ in range(3)
    )


def text(seed: int) -> Feed:
    parts = times(seed)
    return Feed(Raw, tuple(tuple(Raw(str(t), "abcde"[t % 5]) for t in part) for part in parts))


def numbers(seed: int) -> Feed:
    parts = times(seed)
    return Feed(Event, tuple(tuple(Event(t, "abcde"[t % 5]) for t in part) for part in parts))


def of_text(sink: Collect, seed: int) -> rs.Flow:
    flow = rs.Flow("text")
    flow.source(text(seed)).through(parsed).timed(disorder=9).through(Counts()).to(sink)
    return flow


def of_text_and_fused(sink: Collect, seed: int) -> rs.Flow:
    """What follows a stream with a time of its own keeps its watermark, fused or not."""
    flow = rs.Flow("fused")
    stream = flow.source(text(seed)).through(parsed).timed(disorder=9).through(some)
    stream.through(Counts()).through(Tops()).to(sink)
    return flow


def of_a_keyed_operator(sink: Collect, seed: int) -> rs.Flow:
    flow = rs.Flow("keyed")
    stream = flow.source(numbers(seed), epochs=rs.by_time(seconds=4, disorder=20))
    counts = stream.through(delayed).timed(disorder=5).through(some).through(Counts())
    counts.timed("time").through(Tops()).to(sink)
    return flow


def behind(sink: Collect, seed: int) -> rs.Flow:
    flow = rs.Flow("behind")
    stream = flow.source(numbers(seed), epochs=rs.by_time(seconds=4, disorder=20))
    stream.through(Counts()).timed(behind="10s").through(Tops()).to(sink)
    return flow


FLOWS = [of_text, of_text_and_fused, of_a_keyed_operator, behind]


@pytest.mark.parametrize("build", FLOWS)
@examples(4)
@given(st.integers(0, 2**16))
def test_the_same_bits_however_a_stream_is_cut_into_ranges(
    build: Callable[[Collect, int], rs.Flow], seed: int
) -> None:
    """Also after a restore, into other ranges; and with jumps."""
    whole, parts = Collect(), Collect()
    job = LocalJob(make_plan(build(whole, seed)), boundaries={})
    job.run()
    expected, ends = written(whole), job.boundaries
    reports = [counted(report) for report in totals(job.progress())]
    rng = random.Random(seed)
    plan = make_plan(build(parts, seed))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    scattered = LocalJob(plan, rng=rng, boundaries=ends, jumps=True)
    scattered.run()
    assert written(parts) == expected
    assert [counted(report) for report in totals(scattered.progress())] == reports

    first, again = make_plan(build(parts, seed)), make_plan(build(parts, seed))
    for plan in (first, again):
        for vertex in plan.ranges:
            plan.ranges[vertex] = random_ranges(rng, plan.groups)
    begun = LocalJob(first, boundaries=ends)
    for _ in range(rng.randrange(1, 20)):
        if not begun.ended:
            begun.turn()
    at = max(machine.position for machine in begun.machines)
    LocalJob(again, resume=stored(begun, at), boundaries=ends).run()
    assert written(parts) == expected


def stored(job: LocalJob, at: int) -> dict[str, Any]:
    names = {vertex.id: vertex.name for vertex in job.plan.vertices}
    return {
        names[vertex]: [[image] for image in images] for vertex, images in job.stored(at).items()
    }


@examples(10)
@given(st.integers(0, 2**16))
def test_a_time_made_of_text_does_what_a_time_of_the_source_does(seed: int) -> None:
    sinks = [Collect(), Collect()]
    LocalJob(make_plan(of_text(sinks[0], seed))).run()
    flow = rs.Flow("numbers")
    stream = flow.source(numbers(seed), epochs=rs.by_arrival(disorder=9))
    stream.through(Counts()).to(sinks[1])
    LocalJob(make_plan(flow)).run()
    assert written(sinks[0]) == written(sinks[1])
    assert len({epoch for epoch, _ in sinks[0].by_epoch()}) > 1


HOUR = 3600


@rs.operator()
def local_time(event: Event) -> Iterator[Event]:
    yield Event(event.time - 5 * HOUR, event.key)


@rs.operator(key="key", window=rs.tumbling(seconds=24 * HOUR))
class Days(Counts):
    pass


def days(timed: Callable[[rs.Stream[Event]], rs.Stream[Event]]) -> tuple[list[int], list[str]]:
    sink, flow = Collect(), rs.Flow("days")
    events = [Event(n * HOUR // 2, "a") for n in range(48 * 4)]
    stream = flow.source(rs.io.iterable(events, Event), epochs=rs.by_time(seconds=HOUR))
    timed(stream.through(local_time)).through(Days()).to(sink)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        report = flow.run(cluster=None)
    return [day.n for _, day in sink.by_epoch()], list(report.notes)


def test_earlier_times_are_not_late_where_the_stream_says_so() -> None:
    whole = [10, 48, 48, 48, 38]
    assert days(lambda stream: stream.timed(behind="5h")) == (whole, [])
    assert days(lambda stream: stream.timed("time")) == (whole, [])


def test_an_operator_whose_own_output_is_late_is_named() -> None:
    found, (note,) = days(lambda stream: stream)
    assert sum(found) == 192 - 38
    assert "38 of 192 records were late for Days" in note
    assert "local_time" in note and "timed(" in note


def test_what_cannot_be_a_time_is_refused() -> None:
    flow = rs.Flow("x")
    stream = flow.source(text(1))
    with pytest.raises(GraphError, match=r"timed\('stamp'\): Raw has no such field"):
        stream.timed("stamp")
    events = stream.through(parsed)
    with pytest.raises(GraphError, match="disorder= and behind= exclude each other"):
        events.timed("time", disorder=3, behind=4)
    with pytest.raises(GraphError, match="timed"):
        events.timed("time", disorder=-1)


def test_streams_of_one_operator_that_differ_in_their_time_are_not_mixed() -> None:
    flow = rs.Flow("x")
    stream = flow.source(numbers(1)).through(delayed)
    mixed = stream.timed("time") | stream.through(some)
    mixed.through(some, name="mixed").through(Counts()).to(Collect())
    with pytest.raises(GraphError, match="mixed takes streams of delayed that differ"):
        make_plan(flow)
