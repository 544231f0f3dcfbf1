"""What is due: old entries do not pile up, and what stands comes in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.dataflow.logic.alarms import LEAST, Dues
from raystream.dataflow.logic.timed import TimedLogic
from raystream.schema.blocks import Input
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, KeyRange
from raystream.testing import Collect, run_local
from tests.examples import examples


class Word(NamedTuple):
    time: int
    key: int


class Heard(rs.State):
    due: rs.Timer = rs.NEVER


@rs.operator(key="key")
class Silence:
    """Keys that were not heard for a million seconds."""

    def process(self, word: Word, heard: Heard) -> None:
        heard.due = word.time + 1_000_000

    def timer(self, key: int, time: int, heard: Heard) -> Iterator[Word]:
        yield Word(time, key)


def test_a_timer_that_every_record_sets_anew_leaves_little_behind() -> None:
    logic = TimedLogic(spec_of(Silence()), 1)
    for epoch in range(1, 1001):
        rows = from_records(record_schema(Word), [Word(epoch, key) for key in range(3)])
        logic.process(Input((rows,), None, None, np.array([0, 3]), 0), epoch, BEFORE_ALL)
    assert sum(map(len, logic.dues.heaps.values())) <= LEAST
    fired = logic.fire(KeyRange(0, 1), 1001, 1_001_000, last=False)
    assert fired is not None
    assert list(fired.emitted[0].rows.records()) == [Word(1_001_000, key) for key in range(3)]


@examples(100)
@given(st.integers(1, 80), st.lists(st.integers(0, 50), min_size=300, max_size=600))
def test_what_stands_comes_in_order(keys: int, times: list[int]) -> None:
    known: dict[int, int] = {}
    dues, most = Dues(spec_of(Silence()), lambda time, key: known.get(key) == time), 0
    for at, time in enumerate(times):
        key = at * 7 % keys
        known[key] = time
        dues.push(0, (time, key))
        most = max(most, len(known))
        if time % 5 == 0:
            del known[key]
    assert len(dues.heaps[0]) <= max(LEAST, 2 * most)
    expected = sorted((time, key) for key, time in known.items())
    found = []
    for time, key in dues.ready(0, 50):
        found.append((time, key))
        del known[key]
    assert found == expected
    assert 0 not in dues.heaps


class Maybe(NamedTuple):
    time: int
    key: str | None


class MaybeBoth(NamedTuple):
    time: int
    key: int | None
    other: str | None


class Result(NamedTuple):
    time: int
    key: str


class Tally(rs.State):
    n: int = 0
    due: rs.Timer = rs.NEVER


class Plain(rs.State):
    n: int = 0


@rs.operator(key="key")
class Alarms:
    def process(self, word: Maybe, tally: Tally) -> None:
        tally.due = 20

    def timer(self, key: str | None, time: int, tally: Tally) -> Iterator[Result]:
        yield Result(time, str(key))


@rs.operator(key=("key", "other"))
class AlarmsOfBoth:
    def process(self, word: MaybeBoth, tally: Tally) -> None:
        tally.due = 20

    def timer(
        self, key: tuple[int | None, str | None], time: int, tally: Tally
    ) -> Iterator[Result]:
        yield Result(time, f"{key[0]}{key[1]}")


class Windows:
    def process(self, word: Maybe, tally: Plain) -> None:
        tally.n += 1

    def merge(self, into: Plain, other: Plain) -> None:
        into.n += other.n

    def close(self, key: str | None, window: rs.Window, tally: Plain) -> Iterator[Result]:
        yield Result(window.end, str(key))


WINDOWS = {
    "tumbling": rs.tumbling(seconds=20),
    "sliding": rs.sliding(seconds=20, every=10),
    "session": rs.session(gap=20),
    "early": rs.tumbling(seconds=20, lateness=5),
}
KEYS = [None, "b", "a", None, "c"]
BOTH = [(None, "b"), (1, None), (None, None), (0, "a"), (1, "a")]


def results(op: Any, records: list[Any], *, wait: bool = False) -> list[str]:
    flow, sink = rs.Flow("maybe", key_groups=1), Collect()
    stream = flow.source(rs.io.iterable(records, type(records[0])), epochs=rs.by_time(seconds=5))
    stream.through(op, wait=wait).to(sink)
    run_local(flow, checkpoint_every=1, check=True)
    return [each.key for each in sink.records()]


@pytest.mark.parametrize("wait", [False, True])
def test_alarms_at_one_time_ring_though_a_key_may_be_none(wait: bool) -> None:
    assert results(Alarms(), [Maybe(1, key) for key in KEYS], wait=wait) == ["None", "a", "b", "c"]
    found = results(AlarmsOfBoth(), [MaybeBoth(1, *key) for key in BOTH], wait=wait)
    assert found == ["NoneNone", "Noneb", "0a", "1None", "1a"]


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_of_one_end_close_though_a_key_may_be_none(kind: str) -> None:
    op: Any = Windows
    if kind == "early":

        class Corrected(Windows):
            def close(  # type: ignore[override]
                self, key: str | None, window: rs.Window, tally: Plain, correction: bool
            ) -> Iterator[Result]:
                yield Result(window.end, str(key))

        op = Corrected
    windowed = rs.operator(key="key", window=WINDOWS[kind])(op)
    found = results(windowed(), [Maybe(1, key) for key in KEYS])
    assert found == ["None", "a", "b", "c"] * (2 if kind == "sliding" else 1)
