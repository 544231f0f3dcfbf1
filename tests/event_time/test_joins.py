"""Joins of two inputs with a time limit: random flows answer what a loop over all pairs answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import GraphError
from raystream.testing import Collect, run_local
from tests.event_time.models import disordered, lengths
from tests.examples import examples
from tests.flows import Rows

SECONDS = 14
LIMIT = 4


class Ask(NamedTuple):
    time: int
    key: str
    id: int


class Reply(NamedTuple):
    id: int
    time: int
    key: str


class Pair(NamedTuple):
    key: str
    ask: int
    reply: int | None
    """None: there was none in time."""


class Open(rs.State):
    asks: list[tuple[int, int]] = rs.field(factory=list)
    due: rs.Timer = rs.NEVER


@rs.operator(key="key")
class LeftJoin:
    """Each ask with the first reply within `LIMIT` seconds, or with none."""

    def process(self, event: Ask | Reply, row: Open) -> Iterator[Pair]:
        if isinstance(event, Ask):
            row.asks.append((event.time, event.id))
            row.due = row.asks[0][0] + LIMIT
            return
        for _, ask in row.asks:
            yield Pair(event.key, ask, event.id)
        rs.forget(row)

    def timer(self, key: str, time: int, row: Open) -> Iterator[Pair]:
        while row.asks and row.asks[0][0] + LIMIT <= time:
            yield Pair(key, row.asks.pop(0)[1], None)
        if row.asks:
            row.due = row.asks[0][0] + LIMIT
        else:
            rs.forget(row)


def joined(asks: list[Ask], replies: list[Reply]) -> Counter[Pair]:
    found: Counter[Pair] = Counter()
    for ask in asks:
        fit = (r.id for r in replies if r.key == ask.key and ask.time <= r.time < ask.time + LIMIT)
        found[Pair(ask.key, ask.id, next(fit, None))] += 1
    return found


def answers(
    asks: list[Ask], replies: list[Reply], epochs: rs.Epochs, batch: int, **how: Any
) -> Counter[Pair]:
    flow, sink = rs.Flow("join", key_groups=4), Collect()
    left = flow.source(Rows(Ask, (tuple(asks),), batch=batch), epochs=epochs, name="asks")
    right = flow.source(Rows(Reply, (tuple(replies),), batch=batch), epochs=epochs, name="replies")
    (left | right).through(LeftJoin(), **how).to(sink)
    run_local(flow)
    return Counter(sink.records())


@pytest.mark.parametrize("wait", [False, True])
@examples(8)
@given(seed=st.integers(0, 2**20))
def test_a_join_finds_what_a_loop_over_all_pairs_finds(seed: int, wait: bool) -> None:
    rng = random.Random(seed)
    n, keys, by = rng.randrange(1, 20), rng.choice(["a", "abc"]), rng.randrange(7) if wait else 0
    times = [sorted(rng.randrange(SECONDS) for _ in range(n)) for _ in range(2)]
    asks = [Ask(t, rng.choice(keys), i) for i, t in enumerate(times[0])]
    replies = [Reply(i, t, rng.choice(keys)) for i, t in enumerate(times[1])]
    expected = joined(asks, replies)
    mixed = disordered(rng, asks, by), disordered(rng, replies, by)
    for epochs in lengths(SECONDS, disorder=by):
        if wait or epochs.column is not None:
            assert answers(*mixed, epochs, rng.randrange(1, 9), wait=wait) == expected, epochs


def test_what_comes_after_the_watermark_is_late_counted_and_a_stream() -> None:
    asks = [Ask(t, "a", i) for i, t in enumerate((0, 9, 3, 20, 19))]
    for late in (False, True):
        flow, sink, lates = rs.Flow("late"), Collect(), Collect()
        stream = flow.source(
            rs.io.iterable(asks, Ask), epochs=rs.by_time(seconds=1, disorder=2), name="asks"
        )
        replies = flow.source(
            rs.io.iterable([Reply(0, 21, "a")], Reply), epochs=rs.by_time(seconds=1), name="replies"
        )
        if late:
            out, too_late = (stream | replies).through(LeftJoin(), late=True, wait=True)
            too_late.to(lates)
        else:
            out = (stream | replies).through(LeftJoin(), wait=True)
        out.to(sink)
        report = flow.run()
        waited = report.operator("LeftJoin.wait")
        assert (waited.records_in, waited.late) == (6, 1)
        assert report.operator("LeftJoin").records_in == 5
        assert [a.id for a in lates.records()] == [2] * late
        assert any("late for LeftJoin.wait" in note for note in report.notes) is not late
        assert {(p.ask, p.reply) for p in sink.records()} == {(0, None), (1, None), (3, 0), (4, 0)}


def test_waiting_has_as_many_instances_as_what_it_waits_for() -> None:
    flow = rs.Flow("many")
    stream = flow.source(rs.io.iterable([Ask(0, "a", 0)], Ask))
    replies = flow.source(rs.io.iterable([Reply(0, 1, "a")], Reply))
    (stream | replies).through(LeftJoin(), name="join", wait=True).to(Collect())
    report = flow.run(instances={"join": 3})
    assert report.operator("join.wait").instances == 3
    report = flow.run(instances={"join": 3, "join.wait": 2})
    assert report.operator("join.wait").instances == 2


class Untimed(NamedTuple):
    key: str


def test_what_cannot_wait_is_refused() -> None:
    @rs.operator(key="key")
    def seen(record: Untimed) -> Iterator[Untimed]:
        yield record

    @rs.operator()
    def same(ask: Ask) -> Iterator[Ask]:
        yield ask

    flow = rs.Flow("refused")
    stream = flow.source(rs.io.iterable([Untimed("a")], Untimed))
    with pytest.raises(GraphError, match="Untimed has no integer field 'time'") as told:
        stream.through(seen, wait=True)
    assert 'time="..."' in told.value.hint
    asks = flow.source(rs.io.iterable([Ask(0, "a", 0)], Ask))
    with pytest.raises(GraphError, match="it has no key"):
        asks.through(same, wait=True)
