"""What is told of single calls: of records, windows, timers and batches, also of compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import OperatorError
from raystream.local.probe import Probe, Visit
from raystream.local.replay import Replay, replay_plan
from raystream.testing import Collect
from tests.flows import CountWords, Line, Running, Tally, Word, split
from tests.flows import running_batch as batches


class Tick(NamedTuple):
    time: rs.Int64
    user: rs.Int32


class Rung(NamedTuple):
    user: rs.Int32
    seen: int


class Watch(rs.State):
    seen: int = 0
    due: rs.Timer = rs.NEVER


class Alarm:
    def process(self, tick: Tick, watch: Watch) -> None:
        watch.seen += 1
        watch.due = tick.time + 5

    def timer(self, user: int, time: int, watch: Watch) -> Iterator[Rung]:
        yield Rung(user, watch.seen)
        if watch.seen > 1:
            rs.forget(watch)


LINES = [Line(time, text) for time, text in enumerate(["a b", "b", "", "a b a", "b"])]


def visits(op: Any, rows: list[Any], through: Any = None, **wanted: str) -> list[Visit]:
    """What is told of the calls of an operator, in their order."""
    flow = rs.Flow("looked at")
    stream = flow.source(rs.io.iterable(rows, type(rows[0])), epochs=rs.by_time(seconds=1))
    if through is not None:
        stream = stream.through(through)
    stream.through(op, name="op").to(Collect())
    plan, _ = replay_plan(flow)
    seen: list[Visit] = []
    probe = Probe("op", told=seen.append, **wanted)
    probe.put_into(plan)
    with Replay(plan, before=probe.before) as replay:
        replay.advance(rs.NEVER)
    return seen


def test_windows_close() -> None:
    seen = visits(CountWords(), LINES, split, key="a")
    assert [(v.epoch, v.step, v.before, v.after) for v in seen] == [
        (1, "process", "Tally(n=0)", "Tally(n=1)"),
        (4, "process", "Tally(n=1)", "Tally(n=2)"),
        (4, "process", "Tally(n=2)", "Tally(n=3)"),
        (5, "close", "Tally(n=3)", "Tally(n=3)"),
    ]
    assert seen[-1].given == rs.Window(0, 30) and [r.n for r in seen[-1].emitted] == [3]


@pytest.mark.parametrize("compiled", [False, True])
def test_timers_ring_also_of_compiled_operators(compiled: bool) -> None:
    op = rs.operator(key="user", compiled=compiled)(type("Alarm", (Alarm,), {}))()
    seen = visits(op, [Tick(0, 1), Tick(0, 2), Tick(3, 1), Tick(30, 2)], key="1")
    assert [(v.epoch, v.step, v.key) for v in seen] == [
        (1, "process", 1),
        (4, "process", 1),
        (8, "timer", 1),
    ]
    assert seen[-1].given == 8 and seen[-1].emitted == [Rung(1, 2)]
    assert seen[-1].before.startswith("Watch(seen=2") and seen[-1].after == "forgotten"


def test_of_a_batch_the_records_of_the_key_are_told() -> None:
    seen = visits(batches, LINES, split, key="a")
    assert [(v.epoch, [w.word for w in v.given]) for v in seen] == [(1, ["a"]), (4, ["a", "a"])]
    assert [list(v.emitted) for v in seen] == [
        [Running("a", 1)],
        [Running("a", 2), Running("a", 3)],
    ]


def test_what_raises_is_told_with_what_came_before() -> None:
    def picky(word: Word, tally: Tally) -> Iterator[Running]:
        tally.n += 1
        yield Running(word.word, tally.n)
        if tally.n == 2:
            raise ValueError("twice")

    told: list[Visit] = []
    flow = rs.Flow("picky")
    lines = flow.source(rs.io.iterable(LINES, Line), epochs=rs.by_time(seconds=1))
    lines.through(split).through(rs.operator(key="word")(picky), name="op").to(Collect())
    plan, _ = replay_plan(flow)
    probe = Probe(told=told.append)
    probe.put_into(plan)
    with Replay(plan, before=probe.before) as replay, pytest.raises(OperatorError) as error:
        replay.advance(rs.NEVER)
    assert error.value.where is not None and "raise ValueError" in error.value.where.text
    last = told[-1]
    assert (last.operator, last.key, last.epoch) == ("op", "b", 2)
    assert last.emitted == [Running("b", 2)] and last.after == "Tally(n=2)"
    assert {v.operator for v in told} == {"split", "op"}
    assert [v.key for v in told if v.operator == "split"] == [None, None]
