"""Functions that run inside a source are compared by a fork: what the source has read is read
again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.errors import OperatorError
from raystream.local.comparing import Difference, Pair
from raystream.local.forking import EdgeFeed, Fork, digest, fed_edges, fork_plan
from raystream.local.rereading import ReadAgain
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.testing.collect import Collect
from tests.local.forks.test_forking import Job


class Item(NamedTuple):
    time: int
    name: str
    n: int


class Total(NamedTuple):
    name: str
    n: int


TIMES = [*range(30), *range(8)]


class Sum(rs.State):
    n: int = 0


@rs.operator(key="name")
def total(item: Item, sum: Sum) -> Iterator[Total]:
    sum.n += item.n
    yield Total(item.name, sum.n)


def plain(item: Item) -> Iterator[Item]:
    if item.n % 3:
        yield item


def doubled(item: Item) -> Iterator[Item]:
    if item.n % 3:
        yield item._replace(n=2 * item.n if item.n >= 20 else item.n)


def fewer(item: Item) -> Iterator[Item]:
    if item.n % 3 and item.n != 25:
        yield item


def failing(item: Item) -> Iterator[Item]:
    if item.n == 22:
        raise ValueError("twenty-two")
    yield from plain(item)


class Parts:
    """Two splits that can be read again; the second ends earlier."""

    record = Item

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a"), rs.Split("b")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Item]]]:
        for t in (range(30) if split.name == "a" else range(8))[position:]:
            yield t + 1, rs.Batch(Item, {"time": [t], "name": ["xy"[t % 2]], "n": [t]})


def flow_of(made: Callable[..., Any] = plain, epochs: Any = None, source: Any = None) -> rs.Flow:
    flow = rs.Flow("parts", key_groups=4)
    read = flow.source(
        Parts() if source is None else source, epochs=epochs or rs.by_time(seconds=2), name="parts"
    )
    read.through(rs.operator(made), name="made").through(total, name="total").to(
        Collect(), name="out"
    )
    return flow


class Beside:
    """Two versions beside a job: what differs between them, and whether the first is the job's."""

    def __init__(
        self, job: rs.Flow, first: rs.Flow, second: rs.Flow, begins: int = 0, sources: int = 2
    ) -> None:
        self.job = Job(job, sources=sources)
        self.job.run_to(begins)
        at = max(m.position for m in self.job.job.machines)
        images: Any = {}
        if at:
            stored = self.job.job.stored(at)
            images = {self.job.plan.vertices[v].name: [[i] for i in s] for v, s in stored.items()}
        while not self.job.job.ended:
            self.job.turn()
        plan, other = (
            fork_plan(f, self.job.plan.clock, self.job.plan.checkpoint_every)
            for f in (first, second)
        )
        self.again = ReadAgain(plan, images)
        self.again.hand_splits(other)
        read = self.again.vertices
        self.one, self.two = Fork(plan, images, 0, again=read), Fork(other, images, 0, again=read)
        self.feed = EdgeFeed(fed_edges(plan), plan.groups, at, 0)
        for edge in fed_edges(plan):
            self.feed.begin(edge, self.one.ended_at_first(edge))
        self.pieces = self.job.since(at)
        random.Random(7).shuffle(self.pieces)
        self.differences: list[Difference] = []
        self.otherwise = ""
        self.pair = Pair(self.one, self.two)
        self._compare()

    def _compare(self) -> None:
        self.one.beside, self.two.beside = self.two, self.one
        with self.one, self.two:
            for edge, piece in self.pieces:
                self.feed.receive(edge, piece)
                while given := self.feed.next():
                    read = self.again.read(given)
                    self.one.give(given, read)
                    self.otherwise = self.otherwise or self.one.made_otherwise()
                    self.two.give(given, read)
                    if (compared := self.pair.turn()) is not None:
                        self.differences += compared.differences


@pytest.mark.parametrize("sources", [1, 2])
@pytest.mark.parametrize("begins", [0, 3, 7])
def test_the_same_functions_make_what_the_job_makes(begins: int, sources: int) -> None:
    found = Beside(flow_of(), flow_of(), flow_of(), begins, sources)
    assert found.again.vertices and not found.otherwise and not found.differences
    assert found.one.ended and found.two.ended and found.feed.finished
    assert found.pair.records == len([t for t in TIMES if t % 3 and t >= 2 * begins])


@pytest.mark.parametrize("begins", [0, 5])
def test_a_changed_function_inside_a_source_is_a_difference(begins: int) -> None:
    found = Beside(flow_of(), flow_of(), flow_of(doubled), begins)
    assert not found.otherwise
    assert min(d.epoch for d in found.differences) == 11  # of the item with time 20
    first = found.differences[0]
    assert [r.n for r in first.more] == [r.n + 20 for r in first.lacks]
    fewer_ = Beside(flow_of(), flow_of(), flow_of(fewer), begins)
    assert min(d.epoch for d in fewer_.differences) == 13


def test_an_error_of_a_function_inside_a_source_is_raised() -> None:
    with pytest.raises(OperatorError, match="twenty-two"):
        Beside(flow_of(), flow_of(), flow_of(failing))


@pytest.mark.parametrize("made", [fewer, doubled])
def test_a_first_version_that_is_not_the_job_s_is_noticed(made: Callable[..., Any]) -> None:
    """Also where it makes as many records, of other values."""
    assert Beside(flow_of(), flow_of(made), flow_of()).otherwise == "parts"


def rows_of(records: list[Item]) -> Columns:
    return from_records(record_schema(Item), records)


def test_rows_have_one_digest_however_they_are_cut_and_ordered() -> None:
    rows = rows_of([Item(t, "xy"[t % 2], t) for t in range(20)])
    order = np.random.default_rng(3).permutation(20)
    assert digest(rows) == digest(rows.take(order))
    assert digest(rows) == digest(rows.slice(0, 7)) + digest(rows.slice(7, 20))
    for other in (Item(3, "y", 4), Item(3, "x", 3), Item(4, "y", 3)):
        assert digest(rows.slice(3, 4)) != digest(rows_of([other]))
    two = rows_of([Item(0, "x", 1), Item(0, "y", 2)])
    assert digest(two) != digest(rows_of([Item(0, "x", 2), Item(0, "y", 1)]))


def test_what_is_cut_by_arrival_is_not_compared() -> None:
    flows = [flow_of(made, epochs=rs.by_arrival(seconds=0.01)) for made in (plain, plain, doubled)]
    found = Beside(*flows)
    assert not found.again.vertices and not found.differences
    assert found.again.why_not(found.one.plan.vertices[0]) == "its epochs are cut by arrival"


def test_a_split_that_is_gone_is_said() -> None:
    class Less(Parts):
        def splits(self) -> list[rs.Split]:
            return [rs.Split("a")]

    job = Job(flow_of())
    job.run_to(4)
    at = max(m.position for m in job.job.machines)
    images = {job.plan.vertices[v].name: [[i] for i in s] for v, s in job.job.stored(at).items()}
    plan = fork_plan(flow_of(source=Less()), job.plan.clock, job.plan.checkpoint_every)
    again = ReadAgain(plan, images)
    assert not again.vertices
    assert again.why_not(plan.vertices[0]) == "it cannot be read here: b is gone"
