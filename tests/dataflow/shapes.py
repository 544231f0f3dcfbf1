"""Flows of every shape, with operators that notice any change in what they see and in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import raystream as rs
from raystream.testing import Collect
from tests.flows import (
    Account,
    CorrectedCount,
    CountWords,
    Ledger,
    Line,
    Missed,
    Order,
    Owed,
    Payment,
    Rows,
    SessionCount,
    SlidingCount,
    Threes,
    Word,
    events,
    lines,
    running,
    running_batch,
    split,
)


class Seen(NamedTuple):
    user: rs.Int32
    place: int
    amount: int


class Gone(NamedTuple):
    place: int
    user: rs.Int32
    amount: int


class Note(NamedTuple):
    text: str
    place: int
    tags: list[str]


class Link(NamedTuple):
    place: int
    digest: int
    kind: str


class Chain(rs.State):
    digest: int = 7


class Trail(rs.State):
    amounts: list[int] = rs.field(factory=list)
    last: str | None = None


def chained(chain: Chain, *values: int) -> int:
    """A number that depends on all values that came before, and on their order."""
    for value in values:
        chain.digest = (chain.digest * 1000003 + value) % (2**61 - 1)
    return chain.digest


@rs.operator()
def tell(order: Order) -> Iterator[Seen | Gone]:
    """Two types, interleaved."""
    for i in range(order.amount % 4):
        if (order.amount + i) % 3:
            yield Seen(order.user, (order.amount + i) % 5, order.amount)
        else:
            yield Gone(order.amount % 5, order.user, i)


@rs.operator(key="user")
def watch(order: Order, trail: Trail) -> Iterator[Seen | Note | Gone]:
    """Three types, interleaved, from state that is not plain numbers."""
    trail.amounts.append(order.amount)
    if order.amount % 2:
        yield Gone(order.amount % 5, order.user, sum(trail.amounts))
    yield Seen(order.user, order.amount % 5, len(trail.amounts))
    if order.amount % 3 == 0:
        trail.last = f"{order.time}"
        yield Note(trail.last, order.amount % 5, [str(a) for a in trail.amounts[-2:]])
        yield Seen(order.user, order.amount % 5, -1)
    if len(trail.amounts) > 6:
        rs.forget(trail)


@rs.operator(key="place")
def chain(record: Seen | Gone, state: Chain) -> Iterator[Link]:
    """Depends on the order of all records of a place, of both types."""
    kind = type(record).__name__
    yield Link(record.place, chained(state, len(kind), record.user, record.amount), kind)


@rs.operator(key="place")
def pass_on(seen: Seen, state: Chain) -> Iterator[Gone]:
    yield Gone(seen.place, seen.user, chained(state, seen.amount) % 1000)


@rs.operator(key="place")
def no_state(seen: Seen) -> Iterator[Seen]:
    yield seen
    if seen.amount % 2:
        yield Seen(seen.user, seen.place + 1, 5)


@rs.operator()
def turn(seen: Seen) -> Iterator[Gone]:
    if seen.amount % 3:
        yield Gone(seen.place, seen.user, -seen.amount)


@rs.operator()
def mix(record: Seen | Gone) -> Iterator[Seen]:
    yield Seen(record.user, record.place, record.amount * (2 if isinstance(record, Gone) else 1))


@rs.operator()
def double(seen: rs.Batch[Seen]) -> rs.Batch[Seen]:
    """A batch function whose rows are not aligned with its input."""
    twice = np.flatnonzero(seen["amount"] % 2)
    origin = np.concatenate([np.arange(len(seen)), twice])
    columns = {n: seen[n][origin] for n in ("user", "place", "amount")}
    columns["amount"][len(seen) :] *= 10
    return rs.Batch(Seen, columns, origin=origin)


@rs.operator(key="owed", order_by="user")
def chain_owed(record: Owed | Missed, state: Chain) -> Iterator[Link]:
    """Records of one operator's two phases, keyed by something else."""
    time = record.time if isinstance(record, Owed) else -record.due
    yield Link(record.owed, chained(state, record.user, time), type(record).__name__)


@rs.operator(key="word")
def chain_late(word: Word, state: Chain) -> Iterator[Link]:
    yield Link(0, chained(state, word.time), word.word)


@rs.operator(key="word", window=rs.tumbling(seconds=3))
class ShortCount(CountWords):
    """Windows so short that many records are late."""


@dataclass(frozen=True)
class Shape:
    """A flow that can be built again and again, with epochs of so many seconds.

    free: whether other epochs give the same records, in whatever order.
    """

    build: Callable[[Collect, float, int], rs.Flow]
    free: bool = False


def _orders(flow: rs.Flow, seed: int, seconds: float, name: str = "orders") -> rs.Stream[Order]:
    source = Rows(Order, events(seed, Order, splits=3, rows=25))
    return flow.source(source, epochs=rs.by_time(seconds=seconds), name=name)


def _words(
    flow: rs.Flow,
    seed: int,
    seconds: float,
    disorder: float = 0,
    shuffled: int = 0,
    name: str = "lines",
) -> rs.Stream[Word]:
    parts = lines(seed, rows=30)
    if shuffled:
        parts = tuple(_shuffled(part, shuffled) for part in parts)
    epochs = rs.by_time(seconds=seconds, disorder=disorder)
    return flow.source(Rows(Line, parts), epochs=epochs, name=name).through(split)


def _shuffled(part: tuple[Line, ...], by: int) -> tuple[Line, ...]:
    """Lines that come up to `by` seconds after later ones."""
    return tuple(
        sorted(part, key=lambda line: line.time + (line.time * 2654435761 >> 7) % (by + 1))
    )


def words(op: object, disorder: float = 0, shuffled: int = 0) -> Callable[..., rs.Flow]:
    def build(sink: Collect, seconds: float, seed: int) -> rs.Flow:
        flow = rs.Flow("words")
        _words(flow, seed, seconds, disorder, shuffled).through(op).to(sink)  # type: ignore[arg-type]
        return flow

    return build


def waiting_words(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """Records out of order, and an operator that depends on their order and waits for it. Windows
    and late records beside it: some come later than was said."""
    flow = rs.Flow("waiting")
    stream = _words(flow, seed, seconds, disorder=6, shuffled=6)
    chained = stream.through(chain_late, wait=True)
    hasty = _words(flow, seed + 1, seconds, shuffled=25, name="hasty")
    counts, late = hasty.through(ShortCount(), late=True, wait=True)
    (chained | counts | late | late.through(chain_late, name="chain-late")).to(sink)
    return flow


def waiting_ledger(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """As `chain_late` above, with two types and timers."""
    flow = rs.Flow("waiting-ledger")
    epochs = rs.by_time(seconds=seconds, disorder=9)
    streams = []
    for kind, more in ((Order, 0), (Payment, 1)):
        parts = tuple(
            tuple(sorted(part, key=lambda r: r.time + r.amount % 10))
            for part in events(seed + more, kind, splits=1, rows=40)
        )
        streams.append(flow.source(Rows(kind, parts), epochs=epochs, name=kind.__name__))
    (streams[0] | streams[1]).through(Reminded(), name="ledger", wait=True).to(sink)
    return flow


@rs.operator(key="user", order_by="time")
class Reminded(Ledger):
    """Rings once for an order, and never of its own."""

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield Missed(key, time, account.owed)


def late_words(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """Counts and late records: to a sink, and to one consumer that depends on their order."""
    flow = rs.Flow("late")
    stream = _words(flow, seed, seconds, shuffled=25)
    counts, late = stream.through(ShortCount(), late=True)
    (counts | late | late.through(chain_late)).to(sink)
    return flow


def ledger(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """A join with timers; both phases go on to a consumer with other keys."""
    flow = rs.Flow("ledger")
    orders = _orders(flow, seed, seconds)
    payments = flow.source(
        Rows(Payment, events(seed + 1, Payment, splits=2, rows=25)),
        epochs=rs.by_time(seconds=seconds),
        name="payments",
    )
    owed = (payments | orders).through(Ledger(), name="ledger")
    (owed | owed.through(chain_owed)).to(sink)
    return flow


def diamond(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """One producer, two types, one consumer."""
    flow = rs.Flow("diamond")
    _orders(flow, seed, seconds).through(tell).through(chain).to(sink)
    return flow


def diamond_stateless(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """As before, with a stateless operator on one side: all edges come from one vertex."""
    flow = rs.Flow("diamond-stateless")
    told = _orders(flow, seed, seconds).through(watch)
    (told[Seen] | told[Gone] | told[Seen].through(turn)).through(chain).to(sink)
    return flow


def diamond_keyed(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """As before, with a keyed operator on one side: two producers."""
    flow = rs.Flow("diamond-keyed")
    told = _orders(flow, seed, seconds).through(watch)
    (told[Seen] | told[Seen].through(pass_on) | told[Gone]).through(chain).to(sink)
    return flow


def union(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """Several producers into one stateless operator, which is copied into each."""
    flow = rs.Flow("union")
    told = _orders(flow, seed, seconds).through(tell)
    watched = _orders(flow, seed + 5, seconds, "more").through(watch)
    mixed = (told | watched[Seen] | watched[Gone]).through(mix).through(double)
    (mixed | mixed.through(no_state) | mixed.through(chain_seen)).to(sink)
    return flow


@rs.operator(key=("place", "user"))
def chain_seen(seen: Seen, state: Chain) -> Iterator[Link]:
    """A key of two fields."""
    yield Link(seen.place, chained(state, seen.amount), str(seen.user))


def outputs(sink: Collect, seconds: float, seed: int) -> rs.Flow:
    """Three types to one sink, one of them also through others."""
    flow = rs.Flow("outputs")
    told = _orders(flow, seed, seconds).through(watch)
    (told | told[Seen].through(no_state).through(turn).through(chain_gone)).to(sink)
    return flow


@rs.operator(key="user")
def chain_gone(gone: Gone, state: Chain) -> Iterator[Link]:
    yield Link(gone.place, chained(state, gone.amount), "gone")


SHAPES = {
    "running": Shape(words(running), free=True),
    "running batch": Shape(words(running_batch), free=True),
    "tumbling": Shape(words(CountWords()), free=True),
    "tumbling, disorder": Shape(words(CountWords(), disorder=6, shuffled=6)),
    "sliding": Shape(words(SlidingCount()), free=True),
    "sessions": Shape(words(SessionCount()), free=True),
    "sessions, disorder": Shape(words(SessionCount(), disorder=1, shuffled=25)),
    "corrected": Shape(words(CorrectedCount(), disorder=1, shuffled=25)),
    "by count": Shape(words(Threes())),
    "late": Shape(late_words),
    "ledger": Shape(ledger),
    "waiting": Shape(waiting_words),
    "waiting, timers": Shape(waiting_ledger, free=True),
    "diamond": Shape(diamond),
    "diamond, stateless": Shape(diamond_stateless),
    "diamond, keyed": Shape(diamond_keyed),
    "union": Shape(union),
    "outputs": Shape(outputs),
}
