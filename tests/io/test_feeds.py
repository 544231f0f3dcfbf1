"""Functions whose records come once are sources: synchronous and asynchronous ones, that end or
raise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError, OperatorError
from raystream.testing import Collect, run_local
from tests.flows import Running, Word, running
from tests.gates import LIMIT_SECONDS


def some() -> Iterator[Word]:
    for i in range(5):
        yield Word(i, f"w{i % 2}")


async def slowly() -> AsyncIterator[Word]:
    for i in range(5):
        await asyncio.sleep(0.001)
        yield Word(i, f"w{i % 2}")


def in_lists() -> Iterator[Any]:
    yield [Word(0, "w0"), Word(1, "w1")]
    yield rs.Batch(Word, {"time": [2, 3], "word": ["w0", "w1"]})
    yield Word(4, "w0")
    yield []


def counted(feed: Any, **options: Any) -> list[Running]:
    flow, sink = rs.Flow("fed"), Collect()
    words = flow.source(rs.io.recorded(feed, Word, **options), epochs=rs.by_arrival(seconds=0.01))
    words.through(running).to(sink)
    flow.run()
    return sink.records()


@pytest.mark.parametrize("feed", [some, slowly, in_lists])
def test_what_a_function_yields_is_counted(feed: Any) -> None:
    assert sorted(counted(feed)) == [
        Running("w0", 1), Running("w0", 2), Running("w0", 3), Running("w1", 1), Running("w1", 2),
    ]  # fmt: skip


def test_each_split_has_a_call_of_its_own() -> None:
    def lane(number: int) -> Iterator[Word]:
        for i in range(3):
            yield Word(i, f"lane{number}")

    found = counted(lane, splits=3)
    assert sorted(found) == [Running(f"lane{i}", n) for i in range(3) for n in (1, 2, 3)]


def test_the_function_is_called_once_and_not_while_the_job_is_planned() -> None:
    calls = []

    def once() -> Iterator[Word]:
        calls.append(threading.current_thread().name)
        yield Word(1, "a")

    assert counted(once) == [Running("a", 1)]
    assert calls == ["feed"]


def test_a_checked_run_takes_the_rows_from_the_record() -> None:
    calls = []

    def once() -> Iterator[Word]:
        calls.append(1)
        yield from some()

    flow, sink = rs.Flow("fed"), Collect()
    words = flow.source(rs.io.recorded(once, Word), epochs=rs.by_arrival())
    words.through(running).to(sink)
    run_local(flow, checkpoint_every=1, check=True)
    assert len(sink.records()) == 5
    assert calls == [1]


def test_what_the_function_raises_names_it() -> None:
    def broken() -> Iterator[Word]:
        yield Word(1, "a")
        raise ConnectionError("the socket is gone")

    with pytest.raises((OperatorError, InputError), match="the socket is gone"):
        counted(broken)


def test_records_of_another_type_are_refused() -> None:
    def others() -> Iterator[Any]:
        yield ("a", 1, 2)

    with pytest.raises(InputError, match=r"a record that .*others yielded"):
        counted(others)


def test_a_function_that_yields_faster_than_the_job_reads_waits() -> None:
    made = []

    def many() -> Iterator[Word]:
        for i in range(30_000):
            made.append(i)
            yield Word(i, f"w{i % 3}")

    found = counted(many)
    assert len(found) == len(made) == 30_000
    assert sorted(found)[-1] == Running("w2", 10_000)


def test_an_asynchronous_function_that_waits_for_ever_is_cancelled() -> None:
    cancelled = threading.Event()

    async def waits() -> AsyncIterator[Word]:
        try:
            yield Word(1, "a")
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    source = rs.io.recorded(waits, Word)
    reading = source.read(rs.Split("0/1"), 0)
    while not len(next(reading)[1]):
        pass
    reading.close()  # type: ignore[attr-defined]
    assert cancelled.wait(LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (some(), "it is no function"),
        ([1], "it is no function"),
        (Word, "is called with nothing, which it does not take"),
        (lambda lane: iter(()), "is called with nothing, which it does not take"),
    ],
)
def test_what_is_no_such_function_is_refused(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        rs.io.recorded(given, Word)


def test_a_function_that_returns_no_iterator_is_refused() -> None:
    with pytest.raises((GraphError, OperatorError), match="which is no iterator"):
        counted(lambda: 7)


def test_splits_are_a_number_and_their_function_takes_one() -> None:
    with pytest.raises(ConfigError, match="splits=0"):
        rs.io.recorded(some, Word, splits=0)
    with pytest.raises(ConfigError, match="the number of its split, which it does not take"):
        rs.io.recorded(some, Word, splits=2)


def test_such_a_source_is_cut_by_arrival() -> None:
    with pytest.raises(GraphError, match="is cut as its records come"):
        rs.Flow("x").source(rs.io.recorded(some, Word), epochs=rs.by_time(seconds=1))
