"""Windows against brute force: which windows hold a time, what sessions are, what is late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.api.windows.assigner import Assigner
from raystream.dataflow.logic.alarms import LEAST
from raystream.dataflow.logic.select import window_logic
from raystream.dataflow.logic.sessions import ROOM, Ascending
from raystream.errors import GraphError, OperatorError
from raystream.schema.blocks import Input
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from tests.examples import examples

ALL = KeyRange(0, 1)


@examples(150)
@given(st.integers(-100, 100), st.integers(1, 40), st.integers(1, 60), st.integers(-90, 90))
def test_windows_of_a_time(time: int, size: int, every: int, offset: int) -> None:
    expected = [s for s in range(-200, 200) if (s - offset) % every == 0 and s <= time < s + size]
    found = Assigner.of(size, every, offset, 0, 1, None).windows(time)
    assert found == [(s, s + size) for s in expected]


class Event(NamedTuple):
    time: int
    key: int
    id: int


class Closed(NamedTuple):
    key: int
    start: int
    end: int
    ids: list[int]


class Seen(rs.State):
    ids: list[int] = rs.field(factory=list)


@rs.operator(key="key", window=rs.tumbling(seconds=10))
@dataclass(frozen=True)
class Tumble:
    def process(self, event: Event, seen: Seen) -> None:
        seen.ids.append(event.id)

    def close(self, key: int, window: rs.Window, seen: Seen) -> Iterator[Closed]:
        yield Closed(key, window.start, window.end, sorted(seen.ids))


@rs.operator(key="key", window=rs.sliding(seconds=10, every=4))
class Slide(Tumble):
    pass


@rs.operator(key="key", window=rs.session(gap=5))
class Sess(Tumble):
    def merge(self, into: Seen, other: Seen) -> None:
        into.ids.extend(other.ids)


class Run(NamedTuple):
    closed: list[Closed]
    late: list[int]
    rows_left: int


def run(op: Any, epochs: list[list[Event]], watermarks: list[int]) -> Run:
    """All events in one key group; the last watermark is the end of the input."""
    logic = window_logic(spec_of(op), 1, 1)
    closed: list[Closed] = []
    late: list[int] = []
    before = BEFORE_ALL
    for e, (events, watermark) in enumerate(zip([*epochs, []], [*watermarks, NEVER], strict=True)):
        rows = from_records(record_schema(Event), events)
        given_input = Input((rows,), None, None, np.array([0, len(events)]), 0)
        out = logic.process(given_input, e + 1, before)
        assert out.late is not None
        late += [events[i].id for i in out.late]
        assert not len(out.emitted[0].rows)
        fired = logic.fire(ALL, e + 1, watermark, last=watermark == NEVER)
        if fired is not None:
            closed += fired.emitted[0].rows.records()
        before = watermark
    return Run(closed, late, len(logic.table))


epoch = st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 1)), max_size=6)
streams = st.lists(epoch, max_size=6)


def numbered(stream: list[list[tuple[int, int]]]) -> list[list[Event]]:
    ids = iter(range(1000))
    return [[Event(t, k, next(ids)) for t, k in events] for events in stream]


def rising(n: int, data: st.DataObject) -> list[int]:
    return sorted(data.draw(st.lists(st.integers(-30, 70), min_size=n, max_size=n)))


@pytest.mark.parametrize(("op", "size", "every"), [(Tumble(), 10, 10), (Slide(), 10, 4)])
@examples(60)
@given(stream=streams, data=st.data())
def test_fixed_windows(op: Any, size: int, every: int, stream: Any, data: st.DataObject) -> None:
    epochs = numbered(stream)
    watermarks = rising(len(epochs), data)
    found = run(op, epochs, watermarks)

    held: dict[tuple[int, int], list[int]] = {}
    late = []
    for events, before in zip(epochs, [BEFORE_ALL, *watermarks], strict=False):
        for event in events:
            starts = [s for s in range(-100, 100) if s % every == 0 and s <= event.time < s + size]
            open_ones = [s for s in starts if s + size > before]
            late += [] if open_ones else [event.id]
            for s in open_ones:
                held.setdefault((event.key, s), []).append(event.id)
    assert sorted(found.closed) == sorted(
        Closed(k, s, s + size, ids) for (k, s), ids in held.items()
    )
    assert found.late == late
    assert found.rows_left == 0


def merged(events: list[Event], gap: int) -> list[Closed]:
    """Sessions by brute force: intervals [t, t + gap) of a key that overlap are one."""
    out: list[Closed] = []
    for event in sorted(events, key=lambda e: (e.key, e.time)):
        last = out[-1] if out else None
        if last is not None and last.key == event.key and event.time < last.end:
            out[-1] = Closed(event.key, last.start, event.time + gap, sorted([*last.ids, event.id]))
        else:
            out.append(Closed(event.key, event.time, event.time + gap, [event.id]))
    return out


@examples(150)
@given(streams)
def test_sessions_are_merged_intervals(stream: Any) -> None:
    """With a watermark that stays behind, the order of arrival does not matter."""
    epochs = numbered(stream)
    found = run(Sess(), epochs, [-1000] * len(epochs))
    assert sorted(found.closed) == merged([e for events in epochs for e in events], 5)
    assert found.late == [] and found.rows_left == 0


@examples(150)
@given(streams, st.data())
def test_sessions_that_close_meanwhile(stream: Any, data: st.DataObject) -> None:
    epochs = numbered(stream)
    watermarks = rising(len(epochs), data)
    found = run(Sess(), epochs, watermarks)

    closed: list[Closed] = []
    late: list[int] = []
    live: list[Event] = []
    for events, before, after in zip(
        [*epochs, []], [BEFORE_ALL, *watermarks], [*watermarks, NEVER], strict=True
    ):
        for event in events:
            joins = any(
                s.key == event.key and s.start - 5 < event.time < s.end for s in merged(live, 5)
            )
            if joins or event.time + 5 > before:
                live.append(event)
            else:
                late.append(event.id)
        done = [s for s in merged(live, 5) if s.end <= after]
        closed += sorted(done, key=lambda s: (s.end, s.key))
        live = [e for e in live if not any(e.id in s.ids for s in done)]
    assert found.closed == closed
    assert found.late == late
    assert found.rows_left == 0


@examples(60)
@given(st.lists(st.integers(0, 50 * ROOM), unique=True), st.data())
def test_many_starts(values: list[int], data: st.DataObject) -> None:
    values = [*values, *range(50 * ROOM + 1, 50 * ROOM + 1 + 3 * ROOM)]
    held = Ascending()
    for value in values:
        held.add(value)
    gone = set(data.draw(st.lists(st.sampled_from(values)))) | set(values[-ROOM:])
    for value in gone:
        held.remove(value)
    left = sorted(set(values) - gone)
    for asked in [-1, 0, *data.draw(st.lists(st.integers(0, 60 * ROOM), max_size=5))]:
        first = max([v for v in left if v <= asked], default=-1)
        assert list(held.since(asked)) == [v for v in left if v >= first]
    assert bool(held) == bool(left)


def test_many_open_sessions_of_one_key_cost_no_more_each() -> None:
    """20,000 sessions of a key that are open together took minutes."""
    logic = window_logic(spec_of(Sess()), 1, 1)
    times = [(7 * n) % 20_011 for n in range(20_011)]
    rows = from_records(record_schema(Event), [Event(10 * t, 1, t) for t in times])
    began = perf_counter()
    logic.process(Input((rows,), None, None, np.array([0, len(times)]), 0), 1, BEFORE_ALL)
    assert len(logic.table) == len(times)
    out = logic.fire(ALL, 2, NEVER, last=True)
    assert out is not None and len(out.emitted[0].rows) == len(times)
    assert perf_counter() - began < 20


def test_session_bookkeeping_does_not_grow_with_records() -> None:
    logic = window_logic(spec_of(Sess()), 1, 1)
    for e in range(500):
        rows = from_records(record_schema(Event), [Event(e, 1, e)] * 4)
        logic.process(Input((rows,), None, None, np.array([0, 4]), 0), e + 1, BEFORE_ALL)
    assert len(logic.table) == 1
    assert len(logic.table.removed) == 0
    assert sum(map(len, logic.dues.heaps.values())) <= LEAST


def test_sizes_are_whole_time_units() -> None:
    spec = spec_of(Tumble())
    assert spec.units(0.25, 1000) == 250
    with pytest.raises(GraphError, match=r"more time units of the flow than 2\*\*62(.|\n)*coarser"):
        spec.units(1e10, 10**9)
    with pytest.raises(GraphError, match=r"a window of 0\.5 s is not a whole number"):
        spec.units(0.5, 1)


@pytest.mark.parametrize("op", [Tumble(), Slide(), Sess()])
@pytest.mark.parametrize("time", [2**63 - 1, 2**63 - 5, 2**62 + 1, -(2**63), -(2**62) - 1])
def test_a_time_whose_window_has_no_end_is_an_error(op: Any, time: int) -> None:
    with pytest.raises(
        OperatorError, match=r"too far off for a window .*epoch 2, record 1"
    ) as told:
        run(op, [[Event(0, 0, 0)], [Event(5, 0, 1), Event(time, 0, 2)]], [0, 20])
    assert told.value.where is not None
    furthest = max(-(2**62), min(time, 2**62))
    assert run(op, [[Event(furthest, 0, 7)]], [0]).closed[0].ids == [7]


@pytest.mark.parametrize("seconds", [0.001, 1.001, 2.01, 4.35, 16.1, 1e6 + 0.001])
def test_windows_of_fractions_of_seconds_are_whole_milliseconds(seconds: float) -> None:
    assert spec_of(Tumble()).units(seconds, 1000) == round(seconds * 1000)
    with pytest.raises(GraphError, match="whole number"):
        spec_of(Tumble()).units(seconds + 0.0004, 1000)
