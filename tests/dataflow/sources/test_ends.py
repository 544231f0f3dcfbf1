"""Sources that say after each record where they are: an epoch may end inside a batch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.batch import Batch
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.errors import GraphError, InputError
from raystream.local.job import LocalJob
from raystream.schema.records import record_schema
from raystream.testing import Collect
from tests.examples import examples


class Tick(NamedTuple):
    time: int


class Log(rs.Source[Tick]):
    """Records at odd positions; the even ones are not shown. Batches are cut at random."""

    waits = True

    def __init__(self, upto: int, seed: int, begin: int = 0, wide: int = 0) -> None:
        self.upto, self.seed, self.begin, self.wide = upto, seed, begin, wide

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("log", self.begin)]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, Batch[Tick], Any]]:  # type: ignore[override]
        rng = random.Random(f"{self.seed} {position}")
        position = max(0, position - self.wide)
        while position < self.upto:
            upto = min(self.upto, position + rng.randrange(4))
            times = [n for n in range(position, upto) if n % 2]
            ends = np.array(times, object if self.wide else np.int64) + (self.wide + 1)
            position = upto
            yield position + self.wide, Batch(Tick, {"time": times}), ends


def split_of(
    seed: int, upto: int = 40, position: int = 0, wide: int = 0
) -> tuple[ArrivalSplit, SplitReader]:
    source = Log(upto, seed, wide=wide)
    reader = SplitReader("log", "log", record_schema(Tick), source.read, position)
    return ArrivalSplit("log", "0:log", "time", 0, position=position), reader


def add(split: ArrivalSplit, reader: SplitReader) -> None:
    rows = None if split.done else reader.next(empty=True)
    if rows is None:
        split.done = True
    else:
        split.add(reader.position, rows, *reader.more)


def times(taken: Sequence[Any]) -> list[int]:
    return [r.time for rows in taken for r in rows.records()]


@examples(50)
@given(
    st.integers(0, 2**16), st.integers(0, 2**16), st.integers(0, 2**16), st.sampled_from([0, 2**90])
)
def test_whoever_reads_again_cuts_at_the_same_records(
    one: int, two: int, seed: int, wide: int
) -> None:
    """Also where positions have more than 64 bits."""
    rng = random.Random(seed)
    first, reader = split_of(one, wide=wide)
    cut: list[tuple[Boundary, list[int]]] = []
    while not cut or not cut[-1][0].ended:
        for _ in range(rng.randrange(4)):
            add(first, reader)
        boundary = first.wanted()
        cut.append((boundary, times(first.take(boundary))))
    assert [t for _, found in cut for t in found] == [n for n in range(40) if n % 2]
    start = rng.randrange(len(cut))
    position = cut[start - 1][0].position if start else 0
    again, reader = split_of(two, position=position, wide=wide)
    for boundary, found in cut[start:]:
        while not again.reaches(boundary):
            add(again, reader)
        assert times(again.take(boundary)) == found


def test_epochs_end_where_no_record_is_shown() -> None:
    split, reader = split_of(1, upto=3)
    while not split.done:
        add(split, reader)
    assert split.wanted().position == 3
    assert split.reaches(Boundary(1, 0, False)) and not split.reaches(Boundary(4, 0, False))
    assert times(split.take(Boundary(1, 0, False))) == []
    assert split.position == 1
    assert times(split.take(Boundary(3, 0, False))) == [1]


def job(source: Log, epochs: Any = None) -> list[Tick]:
    flow, sink = rs.Flow("log", key_groups=4), Collect()
    flow.source(source, epochs=epochs or rs.by_arrival()).to(sink)
    LocalJob(make_plan(flow), boundaries={}).run()
    return sink.records()


def test_a_split_begins_where_it_says() -> None:
    assert [t.time for t in job(Log(10, 1, begin=4))] == [5, 7, 9]


@pytest.mark.parametrize("seed", range(5))
def test_recorded_data_is_read_again_in_other_batches(seed: int) -> None:
    """Epochs by time do not depend on batches, so a checkpoint is gone on from in others."""
    from raystream.dataflow.sources.recorded import Recorded
    from raystream.schema.types import KeyRange

    source = Log(40, seed)
    source.waits = False
    flow = rs.Flow("log", key_groups=4)
    flow.source(source, epochs=rs.by_time("time", seconds=4)).to(Collect())
    plan = make_plan(flow)
    vertex = plan.vertex("log")
    first = Recorded(plan, vertex, KeyRange(0, 4))
    taken = [times([first.take(epoch).rows]) for epoch in range(1, 6)]
    positions = first.positions()
    source.seed += 100
    again = Recorded(plan, vertex, KeyRange(0, 4), taken=5, positions=positions)
    taken += [times([again.take(epoch).rows]) for epoch in range(6, 11)]
    assert [t for found in taken for t in found] == [n for n in range(40) if n % 2]


def test_a_source_that_waits_is_not_cut_by_time() -> None:
    with pytest.raises(GraphError, match="waits for more records"):
        job(Log(4, 1), rs.by_time("time"))


@pytest.mark.parametrize(
    ("position", "ends", "said"),
    [
        (3, np.array([1.0, 2.0]), "float64 of shape"),
        (3, np.array([1]), "for 2 records"),
        (3, np.array([2, 2]), "do not rise"),
        (3, np.array([0, 2]), "0 to 2 for a batch from 0 to 3"),
        (1, np.array([1, 2]), "1 to 2 for a batch from 0 to 1"),
    ],
)
def test_wrong_positions_are_refused(position: int, ends: Any, said: str) -> None:
    batch = Batch(Tick, {"time": [1, 2]})
    reader = SplitReader(
        "log", "log", record_schema(Tick), lambda s, p: iter([(position, batch, ends)])
    )
    with pytest.raises(InputError, match=said):
        reader.next()
