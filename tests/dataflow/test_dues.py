"""What is due: old entries do not pile up, and what stands comes in order."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.operators import spec_of
from raystream.dataflow.dues import LEAST, Dues
from raystream.dataflow.logic import Keyed
from raystream.schema.blocks import Input
from raystream.schema.columns import from_records
from raystream.schema.records import record_schema
from raystream.schema.types import BEFORE_ALL, KeyRange
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
    logic = Keyed(spec_of(Silence()), 1)
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
    dues, most = Dues(lambda time, key: known.get(key) == time), 0
    for at, time in enumerate(times):
        key = at * 7 % keys
        known[key] = time
        dues.push(0, (time, key))
        most = max(most, len(known))
        if time % 5 == 0:
            del known[key]
    heap = dues.heaps[0]
    assert len(heap) <= max(LEAST, 2 * most)
    left = dict.fromkeys(heappop(heap) for _ in range(len(heap)))
    stands = [(time, key) for time, key in left if known.get(key) == time]
    assert stands == sorted((time, key) for key, time in known.items())
