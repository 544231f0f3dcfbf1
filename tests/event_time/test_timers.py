"""Timers: random flows answer what a loop over one key answers, for epochs of every length and by
arrival, interpreted and compiled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.errors import GraphError, OperatorError
from raystream.testing import Collect, run_local
from tests.event_time.models import disordered, emitted, lengths, timed
from tests.examples import examples
from tests.flows import Rows

SECONDS = 14
"""Of event time, in random flows."""


class Item(NamedTuple):
    time: rs.Int64
    key: rs.Int64
    value: rs.Int64


class Other(NamedTuple):
    value: rs.Int64
    key: rs.Int64
    time: rs.Int32


KINDS = [Item, Other]


class Took(NamedTuple):
    key: rs.Int64
    time: rs.Int64
    n: rs.Int64


class Rang(NamedTuple):
    n: rs.Int64
    key: rs.Int64
    time: rs.Int64


class Counter(rs.State):
    n: rs.Int64 = 0
    due: rs.Timer = rs.NEVER
    again: rs.Int64 = 0


@dataclass(frozen=True)
class Any1:
    """Sets, moves, unsets and leaves its alarm; forgets its row; rings again and again. What it
    does follows from all that it has seen."""

    salt: int

    def process(self, item: Item, row: Counter) -> Iterator[Took]:
        row.n = (row.n * 31 + item.value + self.salt) % 1000
        yield Took(item.key, item.time, row.n)
        kind = row.n % 7
        if kind < 3:
            row.due = item.time + row.n % 5
            row.again = row.n % 4
        elif kind == 3:
            row.due = rs.NEVER
        elif kind == 4:
            row.due = item.time - 2
        elif kind == 5:
            rs.forget(row)

    def timer(self, key: int, time: int, row: Counter) -> Iterator[Took | Rang]:
        row.n = (row.n * 17 + time) % 1000
        if row.n % 3:
            yield Rang(row.n, key, time)
        yield Took(key, time, -row.n)
        if row.again > 0:
            row.again -= 1
            row.due = time + 1 + row.n % 3
        elif row.n % 5 == 0:
            rs.forget(row)


@dataclass(frozen=True)
class Any2:
    """The same for two inputs, where alarms are silent."""

    salt: int

    def process(self, item: Item | Other, row: Counter) -> Iterator[Took]:
        row.n = (row.n * 31 + item.value + self.salt) % 1000
        yield Took(item.key, item.time, row.n)
        if isinstance(item, Other):
            row.due = item.time + 1 + row.n % 5
            row.again = row.n % 4

    def timer(self, key: int, time: int, row: Counter) -> None:
        row.n += 1
        if row.again > 0:
            row.again -= 1
            row.due = time + 2
        elif row.n % 3 == 0:
            rs.forget(row)


FORMS = {
    name: [
        rs.operator(key="key", compiled=c, **more)(type(op.__name__, (op,), {}))
        for c in (False, True)
    ]
    for name, op, more in (("one", Any1, {}), ("two", Any2, {"order_by": "time"}))
}


def items(rng: random.Random, kind: Any = Item, most: int = 30) -> list[Any]:
    """Records in order of time, of few keys."""
    times = sorted(rng.randrange(SECONDS) for _ in range(rng.randrange(1, most)))
    keys = rng.choice((1, 2, 5))
    return [kind(time=t, key=rng.randrange(keys), value=rng.randrange(50)) for t in times]


def answers(op: Any, inputs: dict[type, list[Any]], epochs: rs.Epochs | None, **run: Any) -> Any:
    flow, sink, streams = rs.Flow("timers", key_groups=4), Collect(), None
    batch = run.pop("batch", 1)
    for kind, records in inputs.items():
        rows = Rows(kind, (tuple(records),), batch=batch)
        stream = flow.source(rows, epochs=epochs, name=kind.__name__)
        streams = stream if streams is None else streams | stream
    wait = run.pop("wait", False)
    streams.through(op, wait=wait, name="timed").to(sink)
    run_local(flow, **run)
    return emitted(sink.records())


@pytest.mark.parametrize("compiled", [False, True])
@examples(6)
@given(seed=st.integers(0, 2**20))
def test_alarms_ring_before_the_first_record_that_is_not_earlier(seed: int, compiled: bool) -> None:
    rng = random.Random(seed)
    op, records = FORMS["one"][compiled](seed % 11), items(rng)
    expected = timed(op, Counter, [Item], records)
    for epochs in lengths(SECONDS):
        found = answers(
            op,
            {Item: records},
            epochs,
            batch=rng.randrange(1, 9),
            instances={"timed": rng.randrange(1, 4)},
        )
        assert found == expected, epochs


@pytest.mark.parametrize("compiled", [False, True])
@examples(6)
@given(seed=st.integers(0, 2**20))
def test_two_inputs_and_silent_alarms(seed: int, compiled: bool) -> None:
    rng = random.Random(seed)
    op, inputs = (
        FORMS["two"][compiled](seed % 11),
        {kind: items(rng, kind) for kind in KINDS},
    )
    expected = timed(op, Counter, KINDS, inputs[Item] + inputs[Other])
    for epochs in lengths(SECONDS):
        if epochs.column is not None:
            assert answers(op, inputs, epochs) == expected, epochs


@pytest.mark.parametrize("compiled", [False, True])
@examples(5)
@given(seed=st.integers(0, 2**20))
def test_waiting_makes_good_for_disorder(seed: int, compiled: bool) -> None:
    """Two inputs, each in disorder, and by arrival also one before the other."""
    rng = random.Random(seed)
    by = rng.randrange(7)
    op, inputs = FORMS["two"][compiled](seed % 11), {kind: items(rng, kind) for kind in KINDS}
    expected = timed(op, Counter, KINDS, inputs[Item] + inputs[Other])
    mixed = {kind: disordered(rng, records, by) for kind, records in inputs.items()}
    for epochs in lengths(SECONDS, disorder=by):
        found = answers(op, mixed, epochs, batch=rng.randrange(1, 9), wait=True, seed=seed)
        assert found == expected, epochs


class Heard(rs.State):
    last: int = 0
    due: rs.Timer = rs.NEVER


class Silence:
    """Keys that were not heard for 10 seconds."""

    def process(self, item: Item, heard: Heard) -> None:
        heard.last = item.time
        heard.due = item.time + 10

    def timer(self, key: int, time: int, heard: Heard) -> Iterator[Rang]:
        yield Rang(heard.last, key, time)
        rs.forget(heard)


@pytest.mark.parametrize("compiled", [False, True])
def test_each_silence_is_reported_for_all_epochs(compiled: bool) -> None:
    heard = [Item(t, 7, 0) for t in (0, 8, 30, 100, 105, 500)]
    op = rs.operator(key="key", compiled=compiled)(Silence)()
    for seconds in (1, 7, 60, 10_000, None):
        epochs = None if seconds is None else rs.by_time(seconds=seconds)
        (rang,) = answers(op, {Item: heard}, epochs, batch=4).values()
        assert [r.n for r in rang] == [8, 30, 105, 500], seconds


class Queue(rs.State):
    waiting: list[int] = rs.field(factory=list)
    due: rs.Timer = rs.NEVER


class Unmatched:
    """Items that have waited 10 seconds. The one alarm of a row is for the oldest."""

    def process(self, item: Item, queue: Queue) -> None:
        queue.waiting.append(item.time)
        queue.due = queue.waiting[0] + 10

    def timer(self, key: int, time: int, queue: Queue) -> Iterator[Rang]:
        while queue.waiting and queue.waiting[0] + 10 <= time:
            yield Rang(queue.waiting.pop(0), key, time)
        if queue.waiting:
            queue.due = queue.waiting[0] + 10
        else:
            rs.forget(queue)


def test_a_queue_empties_at_the_end() -> None:
    op = rs.operator(key="key")(Unmatched)()
    for epochs in (rs.by_time(seconds=1), rs.by_time(seconds=60), None):
        (rang,) = answers(op, {Item: [Item(t, 1, 0) for t in range(5)]}, epochs).values()
        assert [r.n for r in rang] == [0, 1, 2, 3, 4]


class Beat:
    """Rings on forever, after the first record of a key."""

    def process(self, item: Item, heard: Heard) -> None:
        heard.due = item.time + 1

    def timer(self, key: int, time: int, heard: Heard) -> Iterator[Rang]:
        yield Rang(0, key, time)
        heard.due = time + 1


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_that_ring_on_at_the_end_are_cut_off_counted_and_named(
    compiled: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    op = rs.operator(key="key", end_rings=3, compiled=compiled)(Beat)()
    flow, sink = rs.Flow("beats"), Collect()
    items = [Item(5, key, 0) for key in range(6)]
    flow.source(rs.io.iterable(items, Item)).through(op, name="beat").to(sink)
    report = flow.run(instances={"beat": 2})
    assert sorted(r.time for r in sink.records()) == [6] * 6 + [7] * 6 + [8] * 6
    told = report.operator("beat")
    assert told.cut_off == 6 and set(told.cut_off_keys) <= set("012345") and told.cut_off_keys
    (note,) = report.notes
    assert (
        "6 rows of beat were cut off" in note
        and "end_rings=" in note
        and note in capsys.readouterr().err
    )


def test_a_named_field_of_event_time_must_be_there() -> None:
    with pytest.raises(GraphError, match="time 'stamp' is not a field of Item"):
        spec_of(rs.operator(key="key", time="stamp")(Silence)())


class Set(rs.State):
    last: int = 0
    due: rs.Timer = 0


def test_compiled_alarms_are_unset_in_a_new_row() -> None:
    class Early:
        def process(self, item: Item, row: Set) -> None: ...

        def timer(self, key: int, time: int, row: Set) -> None: ...

    with pytest.raises(GraphError, match=r"Set.due is set in a new row") as told:
        spec_of(rs.operator(key="key", compiled=True)(Early)())
    assert "rs.NEVER" in told.value.hint


class Owed(NamedTuple):
    key: rs.Int64
    ratio: float


class Divides:
    def process(self, item: Item, heard: Heard) -> None:
        heard.due = item.time + 1

    def timer(self, key: int, time: int, heard: Heard) -> Iterator[Owed]:
        yield Owed(key, 1 / (3 - key))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_error_of_an_alarm_that_rings_among_records_says_so(compiled: bool) -> None:
    op = rs.operator(key="key", compiled=compiled)(Divides)()
    items = [Item(t, key, 0) for t in (0, 9) for key in range(5)]
    with pytest.raises(OperatorError, match="division by zero") as told:
        answers(op, {Item: items}, None, batch=10)
    assert "key 3, epoch 1, timer 1" in told.value.hint
    assert told.value.where is not None and told.value.where.line


class Tick(rs.State):
    n: rs.Int64 = 0
    due: rs.Timer = rs.NEVER


class Tells:
    """Says of each alarm whether it rings at the end."""

    def process(self, item: Item, row: Tick) -> None:
        row.n = item.value
        row.due = item.time + 3

    def timer(self, key: int, time: int, row: Tick, last: bool) -> Iterator[Rang]:
        yield Rang(100 + row.n if last else row.n, key, time)
        row.n += 1
        if row.n < 7 and not last:
            row.due = time + 3
        elif row.n < 9:
            row.due = time + 1


@pytest.mark.parametrize("compiled", [False, True])
def test_timer_is_told_of_the_end(compiled: bool) -> None:
    op = rs.operator(key="key", compiled=compiled)(Tells)()
    items = [Item(0, 1, 5), Item(8, 1, 2), Item(20, 1, 7)]
    for epochs in (rs.by_time(seconds=1), rs.by_time(seconds=50)):
        rang = answers(op, {Item: items}, epochs)[1, Rang]
        assert [(r.time, r.n) for r in rang[:4]] == [(3, 5), (6, 6), (7, 7), (8, 8)]
        assert [(r.time, r.n) for r in rang[4:8]] == [(11, 2), (14, 3), (17, 4), (20, 5)]
        assert [(r.time, r.n) for r in rang[8:]] == [(23, 107), (24, 108)]


class Count(rs.State):
    n: int = 0


class Closes:
    def process(self, item: Item, row: Count) -> None:
        row.n += 1

    def close(self, key: int, window: rs.Window, row: Count, last: bool) -> Iterator[Rang]:
        yield Rang(100 + row.n if last else row.n, key, window.start)


class Visits(Closes):
    def merge(self, into: Count, other: Count) -> None:
        into.n += other.n


@pytest.mark.parametrize(
    ("op", "window", "compiled"),
    [
        (Closes, rs.tumbling(seconds=5), False),
        (Closes, rs.tumbling(seconds=5), True),
        (Visits, rs.session(gap=5), False),
    ],
)
def test_close_is_told_of_the_end(op: Any, window: Any, compiled: bool) -> None:
    made = rs.operator(key="key", window=window, compiled=compiled)(op)()
    items = [Item(0, 1, 0), Item(9, 1, 0), Item(20, 1, 0)]
    found = answers(made, {Item: items}, rs.by_time(seconds=1))[1, Rang]
    assert [r.n for r in found] == [1, 1, 101]
