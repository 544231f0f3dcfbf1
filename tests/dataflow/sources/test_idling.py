"""Idle splits: decided once, they hold nothing back, and the answer does not depend on ranges."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.controller.reporting.report import totals
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.idling import Idle, Idling, carried, joint
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.local.job import LocalJob
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.keys import even_ranges
from raystream.testing import Collect
from tests.examples import examples


class Event(NamedTuple):
    time: int
    key: str


class Count(NamedTuple):
    key: str
    start: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key", window=rs.tumbling(seconds=10))
class Counts:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Count]:
        yield Count(key, window.start, tally.n)


# ---------------------------------------------------------------- the decision

part = st.one_of(
    st.tuples(st.integers(-50, 50) | st.just(BEFORE_ALL), st.booleans()),
    st.just((NEVER, False)),
)


@examples(200)
@given(st.lists(st.lists(part, min_size=1), min_size=1, max_size=4))
def test_parts_may_be_grouped_into_any_ranges(groups: list[list[tuple[int, bool]]]) -> None:
    together = joint([part for group in groups for part in group])
    assert joint([joint(group) for group in groups]) == together
    parts = [part for group in groups for part in group]
    active = [w for w, idle in parts if not idle and w != NEVER]
    idle = [w for w, idle in parts if idle]
    assert together == (
        (min(active), False) if active else (max(idle), True) if idle else (NEVER, False)
    )


def test_an_idle_split_never_ends_the_input() -> None:
    assert joint([(NEVER, False), (7, True)]) == (7, True)
    assert joint([(NEVER, False), (BEFORE_ALL, True)]) == (BEFORE_ALL, True)
    assert joint([]) == (NEVER, False)
    assert carried(Boundary(3, NEVER - 5, False, True, 100)) < NEVER
    assert carried(Boundary(0, BEFORE_ALL, False, True, 100)) == BEFORE_ALL
    assert carried(Boundary(3, NEVER, True)) == NEVER


silences = st.lists(st.floats(0, 100), max_size=10)


@examples(100)
@given(silences, st.floats(0.5, 50), st.integers(0, 1000))
def test_a_silent_split_goes_on_with_the_clock(
    silent: list[float], after: float, ticks: int
) -> None:
    rule, found = Idling(after, ticks), []
    for seconds in sorted(silent):
        found.append(rule.beyond(None, seconds))
        assert (found[-1] is None) == (seconds < after)
        if found[-1] is not None:
            assert found[-1] == int((seconds - after) * ticks)
    known = [beyond for beyond in found if beyond is not None]
    assert known == sorted(known)


def test_another_reader_goes_on_from_what_was_decided() -> None:
    """It has not heard the silence before its own beginning, and takes nothing back."""
    rule = Idling(5.0, 1000)
    assert rule.beyond(Idle(700, 0.0), 0.0) == 700
    assert rule.beyond(Idle(700, 0.0), 2.5) == 3200
    assert rule.beyond(Idle(700, 3.0), 2.0) == 700


# ---------------------------------------------------------------- a split


def rows(*times: int) -> Columns:
    return from_records(record_schema(Event), [Event(t, "a") for t in times])


def test_a_split_is_idle_until_its_next_record() -> None:
    split = ArrivalSplit("a", "0:a", "time", 2, Idling(5.0, 1))

    def end(silent: float) -> Boundary:
        boundary = split.wanted(silent)
        split.take(boundary)
        return boundary

    assert end(4.9) == Boundary(0, BEFORE_ALL, False)
    assert end(5.0) == Boundary(0, BEFORE_ALL, False, True, 0)
    split.add(1, rows(20))
    assert end(0.0) == Boundary(1, 18, False)
    assert end(9.0) == Boundary(1, 18, False, True, 4)
    assert end(10.0) == Boundary(1, 18, False, True, 5)
    split.add(2, rows(19))
    assert end(0.0) == Boundary(2, 18, False)
    split.done = True
    assert end(100.0) == Boundary(2, NEVER, True)


def test_a_split_without_a_rule_is_never_idle() -> None:
    assert not ArrivalSplit("a", "0:a", "time", 0).wanted(1e9).idle


# ---------------------------------------------------------------- a job


@dataclass
class Scripted:
    """Says of each epoch how many records of a split arrive, and for how long it was silent."""

    part: list[Event]
    script: list[tuple[int, float]]
    at: int = 0
    position: int = 0
    silent: float = 0.0

    @property
    def waiting(self) -> bool:
        return True

    @property
    def done(self) -> bool:
        return self.at >= len(self.script) and self.position >= len(self.part)

    def arrived(self, seconds: float = 0.0) -> list[tuple[int, Columns]]:
        many, self.silent = (
            self.script[self.at] if self.at < len(self.script) else (len(self.part), 0.0)
        )
        self.at += 1
        events = self.part[self.position : self.position + many]
        self.position += len(events)
        if not events:
            return []
        self.silent = 0.0
        return [(self.position, from_records(record_schema(Event), events))]

    def stop(self) -> None:
        pass


@dataclass(frozen=True)
class Parts:
    parts: tuple[tuple[Event, ...], ...]
    record: type = Event

    def splits(self) -> list[rs.Split]:
        return [rs.Split(f"s{i}") for i in range(len(self.parts))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Event]]]:
        part = self.parts[int(split.name[1:])]
        for n in range(position, len(part)):
            yield n + 1, rs.Batch(Event, {"time": [part[n].time], "key": [part[n].key]})


def modelled(
    parts: list[list[Event]], scripts: list[list[tuple[int, float]]], advance: bool, ticks: int
) -> tuple[list[Count], int]:
    """The windows and the number of late records, by the words of the guide."""
    place, greatest = [0] * len(parts), [BEFORE_ALL] * len(parts)
    open_: dict[tuple[str, int], int] = {}
    closed, late, watermark, epoch = [], 0, BEFORE_ALL, 0
    while True:
        taken, stands = [], []
        for i, (part, script) in enumerate(zip(parts, scripts, strict=True)):
            many, silent = script[epoch] if epoch < len(script) else (len(part), 0.0)
            mine = part[place[i] : place[i] + many]
            place[i] += len(mine)
            taken += mine
            greatest[i] = max([greatest[i], *(e.time for e in mine)])
            if epoch + 1 >= len(script) and place[i] >= len(part):
                stands.append(None)  # ended
            elif not mine and silent >= 5:
                on = int(silent - 5) * ticks if advance and greatest[i] > BEFORE_ALL else 0
                stands.append((greatest[i] + on, True))
            else:
                stands.append((greatest[i], False))
        for e in taken:
            start = e.time // 10 * 10
            if start + 10 <= watermark:
                late += 1
            else:
                open_[e.key, start] = open_.get((e.key, start), 0) + 1
        active = [w for s in stands if s is not None for w, idle in [s] if not idle]
        idle = [w for s in stands if s is not None for w, silent in [s] if silent]
        now = min(active) if active else max(idle) if idle else NEVER
        watermark = max(watermark, now)
        for key, start in sorted(k for k in open_ if k[1] + 10 <= watermark):
            closed.append(Count(key, start, open_.pop((key, start))))
        epoch += 1
        if watermark == NEVER:
            return sorted(closed), late


@st.composite
def scripted(draw: st.DrawFn) -> tuple[list[list[Event]], list[list[tuple[int, float]]]]:
    n = draw(st.integers(1, 4))
    event = st.builds(Event, st.integers(0, 60), st.sampled_from("ab"))
    parts = [draw(st.lists(event, max_size=8)) for _ in range(n)]
    scripts = []
    for part in parts:
        script, silent, left = [], 0.0, len(part)
        for wanted in draw(st.lists(st.integers(0, 2), max_size=10)):
            many = min(wanted, left)
            left -= many
            silent = 0.0 if many else silent + draw(st.sampled_from([0.0, 2.0, 5.0, 9.0]))
            script.append((many, silent))
        scripts.append(script)
    return parts, scripts


@examples(100)
@given(scripted(), st.integers(1, 4), st.booleans(), st.integers(0, 2**16))
def test_jobs_are_as_the_model_says(
    given_: tuple[list[list[Event]], list[list[tuple[int, float]]]],
    instances: int,
    advance: bool,
    seed: int,
) -> None:
    """And the same bits come again over the same boundaries, whatever the ranges."""
    parts, scripts = given_
    expected = modelled(parts, scripts, advance, 1)
    sink, flow = Collect(), rs.Flow("idle", key_groups=8)
    epochs = rs.by_arrival(idle=5, all_idle="advance" if advance else "stay")
    source = flow.source(Parts(tuple(map(tuple, parts))), epochs=epochs, name="in")
    source.through(Counts(), name="counts").to(sink)
    plan = make_plan(flow)
    plan.ranges[0] = even_ranges(8, instances)

    def feed(reader: SplitReader) -> Scripted:
        at = int(reader.split.name[1:])
        return Scripted(parts[at], scripts[at])

    job = LocalJob(plan, boundaries={}, feed=feed)
    job.run()
    late = next(o.late for o in totals(job.progress()) if o.name == "counts")
    assert (sorted(sink.records()), late) == expected
    again, sinks = Collect(), [v for v in plan.vertices if v.kind == "sink"]
    sinks[0].sink = again
    plan.ranges[0] = [KeyRange(0, 8)]
    LocalJob(plan, rng=random.Random(seed), boundaries=dict(job.boundaries)).run()
    assert {p: list(b.records()) for p, b in again.parts.items()} == {
        p: list(b.records()) for p, b in sink.parts.items()
    }


# ---------------------------------------------------------------- in this process, on a clock


@dataclass
class OneSilent:
    """Two splits, of which one says nothing until the other one's windows have closed."""

    record: type = Event

    def splits(self) -> list[rs.Split]:
        return [rs.Split("loud"), rs.Split("silent"), rs.Split("empty")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Event]]]:
        if split.name == "loud":
            for n in range(position, 4):
                yield n + 1, rs.Batch(Event, {"time": [n * 10], "key": ["a"]})
        if not _CLOSED.wait(60):
            raise TimeoutError("no window closed while a split was silent")
        if split.name == "silent" and position == 0:
            yield 1, rs.Batch(Event, {"time": [3], "key": ["b"]})


_CLOSED = threading.Event()


def test_a_silent_split_stops_neither_windows_nor_the_job() -> None:
    _CLOSED.clear()
    found: list[Count] = []

    def take(count: Count) -> None:
        found.append(count)
        if count.start == 20:
            _CLOSED.set()

    flow = rs.Flow("silent")
    epochs = rs.by_arrival(seconds=0.02, idle="200ms")
    counts = flow.source(OneSilent(), epochs=epochs).through(Counts())
    counts.to(rs.io.callable(take, each=True))
    report = flow.run(checkpoint_every=1)
    assert sorted(found) == [Count("a", n * 10, 1) for n in range(4)]
    assert [o.late for o in report.operators if o.name == "Counts"] == [1]


def test_nothing_is_idle_where_it_is_not_said() -> None:
    flow = rs.Flow("silent")
    flow.source(Parts(((Event(1, "a"),),)), name="in").to(Collect())
    LocalJob(make_plan(flow), feed=lambda reader: pytest.fail("a thread")).run()


def test_a_split_that_is_not_there_yet_holds_nothing_back() -> None:
    """Until its first record; from then on it is as any other."""
    split = ArrivalSplit("a", "0:a", "time", 0)
    split.later = True
    wanted = split.wanted()
    assert wanted == Boundary(0, BEFORE_ALL, False, True, 0)
    split.take(wanted)
    split.add(1, rows(7))
    assert split.wanted() == Boundary(1, 7, False)
    split.take(split.wanted())
    assert split.wanted(1e9) == Boundary(1, 7, False)
    assert joint([(BEFORE_ALL, True), (7, False)]) == (7, False)
