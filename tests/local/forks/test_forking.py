"""A version of a flow that is fed by a running job: here the job runs in this process, and the
pieces of its sources are handed over."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.errors import OperatorError
from raystream.local.comparing import Pair
from raystream.local.forking import (
    AskedRecords,
    EdgeFeed,
    Fork,
    asked_otherwise,
    fed_edges,
    fork_plan,
)
from raystream.local.job import LocalJob
from raystream.simulation.flows import FLOWS
from raystream.testing.collect import Collect

FED = ["words", "windows", "batches", "join", "timers", "arriving", "controlled", "asking"]


class Waiting(LocalJob):
    """A job that waits for each answer of the world, so that all instances are at one epoch."""

    def _deliver(self, machine: Any) -> None:
        super()._deliver(machine)
        self.askers.turn()
        while self.askers.wait():
            self.askers.turn()


class Job:
    """A job in this process, of which every piece that leaves a source is kept."""

    def __init__(self, flow: rs.Flow, sources: int = 2) -> None:
        plan = make_plan(flow, checkpoint_every=3)
        names = [v.name for v in plan.vertices if v.kind == "source"]
        self.plan = make_plan(flow, checkpoint_every=3, instances=dict.fromkeys(names, sources))
        self.job = Waiting(self.plan)

    def run_to(self, epoch: int) -> None:
        while not self.job.ended and max(m.position for m in self.job.machines) < epoch:
            self.turn()

    def turn(self) -> None:
        """A turn in which nothing is trimmed."""
        before = [m.outlets.trim for m in self.job.machines]
        for machine in self.job.machines:
            machine.outlets.trim = lambda *_: True  # type: ignore[method-assign]
        self.job.turn()
        for machine, trim in zip(self.job.machines, before, strict=True):
            machine.outlets.trim = trim  # type: ignore[method-assign]

    def since(self, epoch: int) -> list[tuple[int, Any]]:
        """All pieces on fed edges after an epoch."""
        found = []
        for edge in fed_edges(self.plan):
            e = self.plan.edges[edge]
            keys = rs.KeyRange(0, self.plan.groups)
            for machine in self.job.by_vertex[e.producer]:
                at = epoch + 1
                while at <= machine.position:
                    piece = machine.outlets.piece(edge, at, keys)
                    found.append((edge, piece))
                    at = piece.header.epoch + 1
        return found


def fork_of(flow: rs.Flow, job: Job, checkpoint: int) -> tuple[Fork, EdgeFeed]:
    plan = fork_plan(flow, job.plan.clock, job.plan.checkpoint_every)
    images = {} if not checkpoint else job.job.checkpoint(checkpoint)
    fork = Fork(plan, images, 0)
    feed = EdgeFeed(fed_edges(plan), plan.groups, checkpoint, 0)
    for edge in fed_edges(plan):
        feed.begin(edge, fork.ended_at_first(edge))
    return fork, feed


@pytest.mark.parametrize("begins", [0, 4])
@pytest.mark.parametrize("name", FED)
def test_a_fork_makes_what_the_job_makes(name: str, begins: int) -> None:
    sink = Collect()
    job = Job(FLOWS[name](sink))
    job.run_to(begins)
    at = max(m.position for m in job.job.machines)
    fork, feed = fork_of(FLOWS[name](Collect()), job, at)
    while not job.job.ended:
        job.turn()
    pieces = job.since(at)
    random.Random(name).shuffle(pieces)
    for edge, piece in [*pieces, *pieces[:5]]:
        feed.receive(edge, piece)
    made = []
    with fork:
        while given := feed.next():
            fork.give(given)
            fork.turn()
            made += [*fork.taken()]
    assert fork.ended and feed.finished
    (sink_vertex,) = [v for v in job.plan.vertices if v.kind == "sink"]
    found = {output.epoch: list(output.records) for output in made}
    wanted = {e: r for e, r in by_epoch(sink).items() if e > at}
    assert found == wanted and sink_vertex.name == made[0].sink


def by_epoch(sink: Collect) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for (epoch, *_), batch in sorted(sink.parts.items(), key=lambda p: str(p[0])):
        found.setdefault(epoch, []).extend(batch.records())
    return found


class Item(NamedTuple):
    time: rs.Int64
    name: str
    n: int


class Priced(NamedTuple):
    name: str
    cents: int


class Sum(NamedTuple):
    name: str
    cents: int


class Paid(rs.State):
    cents: int = 0


@rs.operator(key="name", recorded=True)
def price(item: Item) -> Priced:
    CALLS.append(item)
    return Priced(item.name, int(rs.random() * 1_000))


@rs.operator(key="name", recorded=True)
def fixed(item: Item) -> Priced:
    return Priced(item.name, -1)


@rs.operator(key="name")
def doubled(item: Item, paid: Paid) -> Iterator[Item]:
    yield item._replace(n=2 * item.n if item.n == 17 else item.n)


@rs.operator(key="name")
def same(item: Item, paid: Paid) -> Iterator[Item]:
    yield item


@rs.operator(key="name")
def summed(priced: Priced, paid: Paid) -> Iterator[Sum]:
    paid.cents += priced.cents
    yield Sum(priced.name, paid.cents)


@rs.operator(key="name")
def rounded(priced: Priced, paid: Paid) -> Iterator[Sum]:
    paid.cents += priced.cents
    yield Sum(priced.name, paid.cents // 10 * 10)


@rs.operator(key="name")
def failing(priced: Priced, paid: Paid) -> Iterator[Sum]:
    paid.cents += 1
    if paid.cents == 9:
        raise ValueError("nine")
    yield Sum(priced.name, 0)


CALLS: list[Item] = []


def shop(before: Any = same, asks: Any = price, sums: Any = summed) -> rs.Flow:
    items = [Item(t, "ab"[t % 2], t) for t in range(30)]
    flow = rs.Flow("shop", key_groups=4)
    source = flow.source(rs.io.iterable(items, Item), epochs=rs.by_time(seconds=2), name="items")
    asked = source.through(before, name="before").through(asks, name="price")
    asked.through(sums, name="sums").to(Collect(), name="out")
    return flow


class PaidOften(rs.State):
    cents: int = 0
    times: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> PaidOften:
        return cls(cents=old["cents"])


@rs.operator(key="name")
def summed_often(priced: Priced, paid: PaidOften) -> Iterator[Sum]:
    paid.cents, paid.times = paid.cents + priced.cents, paid.times + 1
    yield Sum(priced.name, paid.cents)


class Beside:
    """Two versions beside a job that has ended: what differs, and what would be asked otherwise."""

    def __init__(self, first: rs.Flow, second: rs.Flow, *, ask: bool = False) -> None:
        self.job = Job(first, sources=1)
        while not self.job.job.ended:
            self.job.turn()
        CALLS.clear()
        plans = [
            fork_plan(f, self.job.plan.clock, self.job.plan.checkpoint_every)
            for f in (first, second)
        ]
        self.one, self.two = Fork(plans[0], {}, 0), Fork(plans[1], {}, 0, ask=ask)
        self.one.beside, self.two.beside = self.two, self.one
        feed = EdgeFeed(fed_edges(plans[0]), 4, 0, 0)
        for edge, piece in self.job.since(0):
            feed.receive(edge, piece)
        self.pair = Pair(self.one, self.two)
        self.differences: list[Any] = []
        self.otherwise: AskedRecords | None = None
        with self.one, self.two:
            while given := feed.next():
                self.one.give(given)
                self.two.give(given)
                if (compared := self.pair.turn()) is not None:
                    self.differences += compared.differences
                if self.otherwise is None and self.pair.failed is None:
                    self.otherwise = asked_otherwise(self.one.asked(), self.two.asked())


def test_two_versions_are_given_the_answers_of_the_job_and_ask_nothing() -> None:
    found = Beside(shop(), shop())
    assert found.differences == [] and found.otherwise is None
    assert found.pair.records == 30 and not CALLS
    found = Beside(shop(), shop(sums=rounded))
    assert found.differences and not CALLS
    for difference in found.differences:
        rounded_to = [Sum(s.name, s.cents // 10 * 10) for s in difference.lacks]
        assert rounded_to == list(difference.more)


def test_other_code_that_asks_the_same_is_given_the_same_answers() -> None:
    found = Beside(shop(), shop(asks=fixed))
    assert found.differences == [] and found.otherwise is None


def test_other_questions_are_found_in_their_epoch() -> None:
    found = Beside(shop(), shop(before=doubled))
    assert found.otherwise == AskedRecords("price", 9, (Item(17, "b", 34),))


def test_a_version_that_is_to_ask_asks_by_itself() -> None:
    found = Beside(shop(), shop(before=doubled), ask=True)
    assert len(CALLS) == 30 and Item(17, "b", 34) in CALLS
    assert found.differences
    found = Beside(shop(), shop(asks=fixed), ask=True)
    assert all(record.cents < 0 for d in found.differences for record in d.more)


def test_an_error_of_the_second_version_is_raised() -> None:
    with pytest.raises(OperatorError, match="nine"):
        Beside(shop(), shop(sums=failing))


def test_epochs_are_complete_where_the_pieces_of_all_ranges_have_come() -> None:
    job = Job(FLOWS["words"](Collect()))
    job.run_to(3)
    feed = EdgeFeed(fed_edges(job.plan), job.plan.groups, 0, 0)
    pieces = job.since(0)
    (edge,) = fed_edges(job.plan)
    for at, piece in pieces[1:]:
        feed.receive(at, piece)
    assert feed.next() == [] and feed.reached(edge) == 0
    feed.receive(*pieces[0])
    given = feed.next()
    assert given and {at for at, _ in given} == {edge}
    assert not feed.finished


def test_rows_of_the_checkpoint_become_rows_of_the_new_class() -> None:
    job = Job(shop(), sources=1)
    job.run_to(6)
    forks = [fork_of(flow, job, 6) for flow in (shop(), shop(sums=summed_often))]
    while not job.job.ended:
        job.turn()
    made = []
    for fork, feed in forks:
        for edge, piece in job.since(6):
            feed.receive(edge, piece)
        while given := feed.next():
            fork.give(given)
            fork.turn()
        made.append([record for output in fork.taken() for record in output.records])
    assert made[0] == made[1] and len(made[0]) == 30 - 6 * 2


def test_pieces_of_an_older_version_of_the_code_do_not_count() -> None:
    """An instance that was replaced may still send them."""
    job = Job(shop(), sources=1)
    while not job.job.ended:
        job.turn()
    plan = fork_plan(shop(), job.plan.clock, job.plan.checkpoint_every)
    feed, fork = EdgeFeed(fed_edges(plan), 4, 0, 2), Fork(plan, {}, 2)
    for edge, piece in job.since(0):
        feed.receive(edge, piece)
    assert feed.next() == []
    for edge, piece in job.since(0):
        feed.receive(edge, piece._replace(header=piece.header._replace(code=2)))
    while given := feed.next():
        fork.give(given)
        fork.turn()
    assert fork.ended and sum(len(output.records) for output in fork.taken()) == 30
