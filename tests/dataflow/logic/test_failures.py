"""`on_error="stream"`: a failing record leaves nothing behind but a record of its failure.

The model is the same operator over the input without the records that fail: it must end with the
same rows, and emit the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.errors import GraphError
from raystream.local.job import LocalJob
from raystream.testing import Collect, run_local
from tests.examples import examples
from tests.flows import Rows


class Event(NamedTuple):
    time: int
    key: str
    id: int
    way: int
    """How it fails; 0: it does not."""


class Out(NamedTuple):
    key: str
    id: int
    seen: int


class Other(NamedTuple):
    key: str
    start: int
    n: int


class Row(rs.State):
    n: int = 0
    seen: list[int] = rs.field(factory=list)
    due: rs.Timer = rs.NEVER


class Plain(rs.State):
    n: int = 0
    seen: list[int] = rs.field(factory=list)


def fail(event: Event, row: Any = None) -> Iterator[Any]:
    """Fails in one of many ways, after it has changed the row and emitted records."""
    if event.way:
        if row is not None:
            row.n += 100
            row.seen.append(-1)
            if hasattr(row, "due"):
                row.due = event.time + 1
        yield Out(event.key, -1, -1)
    if event.way == 1:
        raise ValueError(f"no {event.id}")
    if event.way == 2:
        yield Out(event.key, 1 << 80, 0)
    elif event.way == 3:
        yield object()
    elif event.way == 4 and row is not None:
        rs.forget(row)
        raise KeyError(event.key)
    elif event.way:
        raise RuntimeError


@rs.operator()
def stateless(event: Event) -> Iterator[Out]:
    yield from fail(event)
    yield Out(event.key, event.id, 0)


@rs.operator(key="key")
def keyless(event: Event) -> Iterator[Out]:
    yield from fail(event)
    yield Out(event.key, event.id, 1)


@rs.operator(key="key")
def keyed(event: Event, row: Plain) -> Iterator[Out]:
    yield from fail(event, row)
    row.n += 1
    row.seen.append(event.id)
    yield Out(event.key, event.id, sum(row.seen) + row.n)
    if row.n == 3:
        rs.forget(row)


@rs.operator(key="key")
class Timed:
    def process(self, event: Event, row: Row) -> Iterator[Out]:
        yield from fail(event, row)
        row.n += 1
        row.seen.append(event.id)
        row.due = event.time + 4
        yield Out(event.key, event.id, sum(row.seen))

    def timer(self, key: str, time: int, row: Row) -> Iterator[Other]:
        yield Other(key, time, row.n)
        if row.n % 2:
            row.n += 1
            row.due = time + 2


@rs.operator(key="key", window=rs.tumbling(seconds=10))
class Tumbled:
    def process(self, event: Event, row: Plain) -> Iterator[Out]:
        yield from fail(event, row)
        row.n += 1
        yield Out(event.key, event.id, row.n)

    def close(self, key: str, window: rs.Window, row: Plain) -> Iterator[Other]:
        yield Other(key, window.start, row.n)


@rs.operator(key="key", window=rs.sliding(seconds=10, every=5))
class Slid(Tumbled):
    pass


@rs.operator(key="key", window=rs.session(gap=6))
class Sessions(Tumbled):
    def merge(self, into: Plain, other: Plain) -> None:
        into.n += other.n


OPERATORS = [stateless, keyless, keyed, Timed(), Tumbled(), Slid(), Sessions()]

event = st.builds(
    Event,
    st.integers(0, 40),
    st.sampled_from("ab"),
    st.just(0),
    st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5]),
)


def run(op: Any, events: list[Event], seed: int, *, failing: bool, disorder: int = 6) -> list[Any]:
    """What an operator emits, in order."""
    sink, flow = Collect(), rs.Flow("failures", key_groups=4)
    stream = flow.source(
        Rows(Event, (tuple(events),), 3), epochs=rs.by_time(seconds=5, disorder=disorder, origin=0)
    )
    (stream.through(op, on_error="stream") if failing else stream.through(op)).to(sink)
    LocalJob(make_plan(flow, checkpoint_every=2), rng=random.Random(seed)).run()
    return list(sink.records())


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: getattr(op, "__name__", type(op).__name__))
@examples(40)
@given(st.lists(event, max_size=25), st.integers(0, 999))
def test_a_record_that_fails_leaves_nothing_behind(op: Any, events: list[Event], seed: int) -> None:
    events = [e._replace(id=i) for i, e in enumerate(events)]
    found = run(op, events, seed, failing=True)
    failed = [r for r in found if isinstance(r, rs.FailedRecord)]
    windows = op.__class__.__name__ in ("Tumbled", "Slid", "Sessions")
    told = [json.loads(r.data)["id"] for r in failed]
    bad = [e.id for e in events if e.way]
    assert len(set(told)) == len(told)
    assert set(told) <= set(bad) if windows else sorted(told) == bad  # the others were late
    assert all(r.operator == getattr(op, "__name__", type(op).__name__) for r in failed)
    sound = [r for r in found if not isinstance(r, rs.FailedRecord)]
    assert sound == expected(op, events, seed)


def expected(op: Any, events: list[Event], seed: int) -> list[Any]:
    """What the operator emits without records that fail; but their times are there."""
    keep = [e if not e.way else e._replace(key="~", way=0) for e in events]
    found = run(op, keep, seed, failing=False)
    return [r for r in found if r.key != "~"]


# ---------------------------------------------------------------- timers and windows


@rs.operator(key="key")
class Late:
    """Its timer fails the first time."""

    def process(self, event: Event, row: Row) -> Iterator[Out]:
        row.due = event.time + 3
        row.n += 1
        yield Out(event.key, event.id, row.n)

    def timer(self, key: str, time: int, row: Row) -> Iterator[Other]:
        row.n += 10
        yield Other(key, time, row.n)
        if time == 3:
            row.due = 1
        if time == 7:
            raise ValueError("seven")


def test_a_timer_that_fails_has_rung() -> None:
    """One that sets itself back, and one that raises; rows stay, and records go on."""
    events = [Event(t, "a", t, 0) for t in (0, 4, 8, 12)]
    found = run(Late(), events, 1, failing=True, disorder=0)
    assert [r for r in found if isinstance(r, Out)] == [
        Out("a", t, n) for n, t in enumerate((0, 4, 8), 1)
    ] + [Out("a", 12, 14)]
    failed = [r for r in found if isinstance(r, rs.FailedRecord)]
    assert [(r.step, r.time, r.key, r.data) for r in failed] == [
        ("timer", t, "'a'", f'{{"time": {t}}}'.encode()) for t in (3, 7)
    ]
    assert failed[1].reason == "ValueError: seven"
    assert failed[1].place.startswith("test_failures.py:")
    assert [r for r in found if isinstance(r, Other)] == [Other("a", 11, 13), Other("a", 15, 24)]


@rs.operator(key="key", window=rs.session(gap=6))
class Closing(Sessions):
    def close(self, key: str, window: rs.Window, row: Plain) -> Iterator[Other]:
        yield Other(key, window.start, row.n)
        if window.start == 10:
            raise ValueError("ten")


def test_a_window_whose_close_fails_is_over() -> None:
    events = [Event(t, "a", t, 0) for t in (0, 10, 11, 20, 30)]
    found = run(Closing(), events, 1, failing=True)
    (failed,) = (r for r in found if isinstance(r, rs.FailedRecord))
    assert (failed.step, failed.time, failed.record) == ("close", 17, None)
    assert failed.data == b'{"start": 10, "end": 17}'
    assert [r.start for r in found if isinstance(r, Other)] == [0, 20, 30]


# ---------------------------------------------------------------- the flow


def test_whoever_takes_no_failures_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for taken in (True, False):
        sink, flow = Collect(), rs.Flow("failures")
        events = tuple(Event(i, "a", i, int(i == 3)) for i in range(9))
        out = flow.source(Rows(Event, (events,), 3)).through(keyed, on_error="stream")
        out[Out].to(sink)
        if taken:
            out[rs.FailedRecord].to(Collect(), name="failed")
        report = flow.run()
        told = "1 records failed in keyed and were left out: nothing takes its stream"
        assert [n[: len(told)] for n in report.notes] == ([] if taken else [told])
        assert report.operator("keyed").by_port["keyed.FailedRecord"] == 1


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: getattr(op, "__name__", type(op).__name__))
def test_the_same_bits_in_checking_mode(op: Any) -> None:
    events = tuple(Event(i // 2, "ab"[i % 2], i, i % 6) for i in range(40))
    found = []
    for instances in (1, 3):
        sink, flow = Collect(), rs.Flow("failures", key_groups=8)
        source = flow.source(Rows(Event, (events, events[::3]), 4), epochs=rs.by_time(seconds=3))
        source.through(op, on_error="stream", name="op").to(sink)
        many = {} if op is stateless else {"op": instances}
        run_local(flow, instances=many, check=True, checkpoint_every=2)
        found.append(list(sink.records()))
    assert found[0] == found[1]


@rs.operator(key="key")
def batched(events: rs.Batch[Event], rows: rs.Rows[Digits]) -> rs.Batch[Out]:
    raise NotImplementedError


class Digits(rs.State):
    n: int = 0


class Digit(NamedTuple):
    id: int


@rs.operator(key="id", compiled=True)
def compiled(digit: Digit, row: Digits) -> Iterator[Digit]:
    yield Digit(digit.id)


@rs.operator(key="key", window=rs.tumbling(count=3))
class Counted(Tumbled):
    pass


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (batched, "of a batch nobody knows which"),
        (compiled, "compiled code undoes nothing"),
        (Counted(), "not for windows with early results"),
    ],
)
def test_what_cannot_undo_is_refused(op: Any, words: str) -> None:
    flow = rs.Flow("failures")
    stream: Any = flow.source(rs.io.iterable([], Digit if op is compiled else Event))
    with pytest.raises(GraphError, match=words):
        stream.through(op, on_error="stream")
    with pytest.raises(GraphError, match='it is "end" or "stream"'):
        stream.through(op, on_error="drop")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "op",
    [keyed, Timed(), Tumbled(), Sessions()],
    ids=["keyed", "timed", "tumbled", "sessions"],
)
def test_records_that_were_waited_for_fail_alike(op: Any) -> None:
    events = tuple(Event(t, "a", t, int(t == 7)) for t in (0, 5, 3, 7, 20, 15))
    sink, flow = Collect(), rs.Flow("failures", key_groups=4)
    source = flow.source(
        Rows(Event, (events,), 2), epochs=rs.by_time(seconds=5, disorder=6, origin=0)
    )
    source.through(op, wait=True, on_error="stream").to(sink)
    flow.run()
    (failed,) = (r for r in sink.records() if isinstance(r, rs.FailedRecord))
    assert (failed.time, failed.reason) == (7, "ValueError: no 7")
    assert [r.id for r in sink.records() if isinstance(r, Out)] == [0, 3, 5, 15, 20]
