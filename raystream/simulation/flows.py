"""Small flows for the simulator: their output depends on every record and on its order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import raystream as rs
from raystream.simulation.processes.asking_flows import asking, asking_arriving
from raystream.simulation.processes.control_flows import controlled, controlled_arriving
from raystream.simulation.processes.lists import ListSource, LiveSource, Numbered
from raystream.simulation.upgrades.rows import Digest, Tally
from raystream.testing.collect import Collect

SECONDS = 40
EPOCH_SECONDS = 2
GROUPS = 16


class WordLine(NamedTuple):
    time: rs.Int64
    text: str


class Word(NamedTuple):
    time: rs.Int64
    word: str


class Nth(NamedTuple):
    word: str
    n: int


class GraphLink(NamedTuple):
    length: int
    digest: int


class CountedWord(NamedTuple):
    word: str
    start: int
    end: int
    n: int


class Order(NamedTuple):
    time: rs.Int32
    user: rs.Int32
    amount: int


class Payment(NamedTuple):
    time: rs.Int32
    user: rs.Int32
    amount: int


class Owed(NamedTuple):
    time: rs.Int32
    user: rs.Int32
    owed: int


class Missed(NamedTuple):
    user: rs.Int32
    due: int
    owed: int


class Balance(rs.State):
    owed: int = 0


class ChainStep(rs.State):
    digest: int = 7


class Account(rs.State):
    owed: int = 0
    orders: int = 0
    due: rs.Timer = rs.NEVER


@rs.operator()
def split(line: WordLine) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(line.time, word)


@rs.operator(key="word")
def count(word: Word, tally: Tally) -> Iterator[Nth]:
    """Lists come, change and go, so that deltas hold all kinds of change."""
    tally.n += 1
    tally.seen.append(word.time)
    yield Nth(word.word, tally.n * 1000 + sum(tally.seen))
    if tally.n == 3:
        rs.forget(tally)


@rs.operator(key="n")
def chain(nth: Nth, state: ChainStep) -> Iterator[GraphLink]:
    """Depends on the order of everything that has its key."""
    for c in nth.word:
        state.digest = (state.digest * 1000003 + ord(c)) % (2**61 - 1)
    yield GraphLink(nth.n, state.digest)


@rs.operator()
def short(nth: Nth) -> Iterator[Nth]:
    yield Nth(nth.word, nth.n % 5)


@rs.operator(key="word", window=rs.tumbling(seconds=6))
class Count:
    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[CountedWord]:
        yield CountedWord(key, window.start, window.end, tally.n)


@rs.operator(key="word", window=rs.tumbling(seconds=0.6))
class CountSlots(Count):
    """Windows of a flow that counts milliseconds."""


class CountedLate(NamedTuple):
    n: int
    start: int
    words: int


@rs.operator(key="n", window=rs.tumbling(seconds=12), time="end")
class CountAgain:
    """Counts the windows in which words were counted, by how often; with other keys than these."""

    def process(self, counted: CountedWord, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: int, window: rs.Window, tally: Tally) -> Iterator[CountedLate]:
        yield CountedLate(key, window.start, tally.n)


@rs.operator(key="word")
def digest(words: rs.Batch[Word], rows: rs.Rows[Digest]) -> rs.Batch[Nth]:
    """Depends on the order of everything; its rows are structured."""
    found, digests = [], rows["digest"]
    for time, row in zip(words["time"].tolist(), rows.index.tolist(), strict=True):
        digests[row] = (digests[row] * 31 + time) % 1_000_003
        found.append(int(digests[row]))
    rows["n"] += rows.counts
    return rs.Batch(Nth, {"word": words["word"], "n": found})


@rs.operator(key="user")
def balance(orders: rs.Batch[Order], rows: rs.Rows[Balance]) -> rs.Batch[Owed]:
    """Structured rows of many keys."""
    return balanced(orders, rows, 31)


def balanced(orders: rs.Batch[Order], rows: rs.Rows[Balance], factor: int) -> rs.Batch[Owed]:
    """What is owed after each order, as a digest that depends on their order."""
    found, owed = [], rows["owed"]
    for amount, row in zip(orders["amount"].tolist(), rows.index.tolist(), strict=True):
        owed[row] = (owed[row] * factor + amount) % 1_000_003
        found.append(int(owed[row]))
    return rs.Batch(Owed, {"time": orders["time"], "user": orders["user"], "owed": found})


@rs.operator(key="word", window=rs.session(gap=4))
class CountedSessions(Count):
    def merge(self, into: Tally, other: Tally) -> None:
        into.n += other.n


@rs.operator(key="user", order_by="time", end_rings=3)
class Remind:
    """Timers that are set, moved and set again."""

    def process(self, order: Order, account: Account) -> Iterator[Owed]:
        account.owed += order.amount
        account.orders += 1
        account.due = order.time + 5
        yield Owed(order.time, order.user, account.owed)

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield Missed(key, time, account.owed)
        if account.orders % 3 == 0:
            rs.forget(account)
        elif account.orders % 2:
            account.due = time + 3


@rs.operator(key="user", order_by="time")
class Settle:
    """A join of two inputs, with timers."""

    def process(self, event: Order | Payment, account: Account) -> Iterator[Owed]:
        if isinstance(event, Order):
            account.owed += event.amount
            account.due = event.time + 7
        else:
            account.owed -= event.amount
        yield Owed(event.time, event.user, account.owed)

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield Missed(key, time, account.owed)
        if account.owed <= 0:
            rs.forget(account)


@rs.operator()
def split_numbered(line: Numbered) -> Iterator[Word]:
    yield Word(line.time, f"#{line.number}")
    for word in line.text.split():
        yield Word(line.time, word)


def _times(rng: random.Random, rows: int, until: int) -> list[int]:
    return sorted(rng.randrange(until) for _ in range(rows))


def _lines(flow: rs.Flow) -> rs.Stream[Word]:
    epochs = rs.by_time(seconds=EPOCH_SECONDS)
    return flow.source(ListSource(WordLine, _texts()), epochs=epochs, name="lines").through(split)


def _texts() -> tuple[tuple[WordLine, ...], ...]:
    rng = random.Random(1)
    return tuple(
        tuple(
            WordLine(t, " ".join(rng.choices("abcdefgh", k=rng.randrange(4))))
            for t in _times(rng, 14, until)
        )
        for until in (SECONDS, SECONDS, SECONDS // 2)  # one split ends long before the others
    )


def _events(flow: rs.Flow, record: type[Any], name: str, seed: int) -> rs.Stream[Any]:
    parts = _parts(record, random.Random(seed), 16)
    return flow.source(
        ListSource(record, parts), epochs=rs.by_time(seconds=EPOCH_SECONDS), name=name
    )


def _parts(record: type[Any], rng: random.Random, rows: int) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        tuple(record(t, rng.randrange(8), rng.randrange(50)) for t in _times(rng, rows, SECONDS))
        for _ in range(2)
    )


def words(sink: Collect) -> rs.Flow:
    """Two keyed operators one after the other."""
    flow = rs.Flow("words", key_groups=GROUPS)
    _lines(flow).through(count).through(short).through(chain).to(sink)
    return flow


def windows(sink: Collect) -> rs.Flow:
    flow = rs.Flow("windows", key_groups=GROUPS)
    _lines(flow).through(Count(), name="count").to(sink)
    return flow


def derived(sink: Collect) -> rs.Flow:
    """Windows whose watermark follows times that operators emit, in a source and after windows."""
    flow = rs.Flow("derived", key_groups=GROUPS)
    counted = _lines(flow).timed("time", disorder=3).through(Count(), name="count")
    counted.timed("end").through(CountAgain(), name="again").to(sink)
    return flow


def gaps(sink: Collect) -> rs.Flow:
    """Runs of empty epochs of many lengths, in two sources. Timers ring in them."""
    flow = rs.Flow("gaps", key_groups=GROUPS)
    both = []
    for seed, name in ((2, "orders"), (6, "more")):
        parts = tuple(
            tuple(o._replace(time=o.time + 15 * (o.time // seed**2)) for o in part)
            for part in _parts(Order, random.Random(seed), 12)
        )
        epochs = rs.by_time(seconds=EPOCH_SECONDS)
        both.append(flow.source(ListSource(Order, parts), epochs=epochs, name=name))
    (both[0] | both[1]).through(Remind(), name="remind").to(sink)
    return flow


def sessions(sink: Collect) -> rs.Flow:
    flow = rs.Flow("sessions", key_groups=GROUPS)
    _lines(flow).through(CountedSessions(), name="sessions").to(sink)
    return flow


def batches(sink: Collect) -> rs.Flow:
    flow = rs.Flow("batches", key_groups=GROUPS)
    _lines(flow).through(digest).to(sink)
    return flow


def seldom(sink: Collect) -> rs.Flow:
    """All keys come at the beginning and at the end, and few in between."""
    flow = rs.Flow("seldom", key_groups=GROUPS)
    orders = flow.source(
        ListSource(Order, _seldom()), epochs=rs.by_time(seconds=EPOCH_SECONDS), name="orders"
    )
    orders.through(balance).to(sink)
    return flow


@cache
def _seldom() -> tuple[tuple[Order, ...], ...]:
    rng, early, late = random.Random(5), SECONDS // 8, SECONDS - SECONDS // 8

    def rows(users: range) -> Iterator[Order]:
        often = rng.choices(users[::5], k=15)
        for some, since, until in ((users, 0, early), (often, early, late), (users, late, SECONDS)):
            for user in some:
                yield Order(rng.randrange(since, until), user, rng.randrange(1, 50))

    return tuple(tuple(sorted(rows(range(i * 20, 20 * i + 20)))) for i in range(2))


def timers(sink: Collect) -> rs.Flow:
    flow = rs.Flow("timers", key_groups=GROUPS)
    _events(flow, Order, "orders", 2).through(Remind(), name="remind").to(sink)
    return flow


def waiting(sink: Collect) -> rs.Flow:
    """As `timers`, of orders that come up to 3 seconds after later ones, and wait."""
    flow = rs.Flow("waiting", key_groups=GROUPS)
    rng = random.Random(2)
    parts = tuple(
        tuple(sorted(part, key=lambda order: (order.time + rng.randrange(4), order.time)))
        for part in _parts(Order, random.Random(7), 16)
    )
    epochs = rs.by_time(seconds=EPOCH_SECONDS, disorder=3)
    orders = flow.source(ListSource(Order, parts), epochs=epochs, name="orders")
    orders.through(Remind(), name="remind", wait=True).to(sink)
    return flow


def join(sink: Collect) -> rs.Flow:
    flow = rs.Flow("join", key_groups=GROUPS)
    orders = _events(flow, Order, "orders", 3)
    paid = _events(flow, Payment, "payments", 4)
    (orders | paid).through(Settle(), name="settle").to(sink)
    return flow


def arriving(sink: Collect) -> rs.Flow:
    """Cut by arrival: otherwise in every schedule."""
    flow = rs.Flow("arriving", key_groups=GROUPS)
    lines = flow.source(
        ListSource(WordLine, _texts(), batch=1), epochs=rs.by_arrival(), name="lines"
    )
    lines.through(split).through(count).through(short).through(chain).to(sink)
    return flow


def arriving_join(sink: Collect, wait: bool = False) -> rs.Flow:
    """Two sources cut by arrival, of different lengths, whose splits have the same names."""
    flow = rs.Flow("arriving_join", key_groups=GROUPS)
    sources = []
    for record, name, rows in ((Order, "orders", 16), (Payment, "payments", 5)):
        parts = _parts(record, random.Random(rows), rows)
        sources.append(
            flow.source(ListSource(record, parts, batch=1), epochs=rs.by_arrival(), name=name)
        )
    orders, paid = sources
    (orders | paid).through(Settle(), name="settle", wait=wait).to(sink)
    return flow


def arriving_waiting(sink: Collect) -> rs.Flow:
    """The same. One source may be far ahead: the join waits for the other."""
    return arriving_join(sink, wait=True)


def idling(sink: Collect) -> rs.Flow:
    """Windows over splits that fall silent by chance: which records are late is decided by the
    boundary register."""
    flow = rs.Flow("idling", key_groups=GROUPS, time_unit="ms")
    splits = tuple(tuple(WordLine(t * 100, text) for t, text in part) for part in _texts())
    epochs = rs.by_arrival(idle=0.2, all_idle="advance", disorder=0.1)
    lines = flow.source(ListSource(WordLine, splits, batch=1), epochs=epochs, name="lines")
    counts, late = lines.through(split).through(CountSlots(), name="count", late=True)
    (counts | late).to(sink)
    return flow


def live(sink: Collect) -> rs.Flow:
    """Counts words of a source that cannot be read again."""
    flow = rs.Flow("live", key_groups=GROUPS)
    lines = flow.source(LiveSource(), epochs=rs.by_arrival(), name="lines")
    lines.through(split_numbered).through(count).to(sink)
    return flow


def ahead(sink: Collect) -> rs.Flow:
    """Some records are far ahead of those before them, and go their own way."""
    flow, parts = rs.Flow("ahead", key_groups=GROUPS), _parts(Order, random.Random(7), 16)
    parts = tuple(
        tuple(o._replace(time=o.time + 1000 * (o.amount % 5 == 4)) for o in p) for p in parts
    )
    epochs = rs.by_time(seconds=EPOCH_SECONDS, max_ahead=100)
    orders, rest = flow.source(ListSource(Order, parts), epochs=epochs, name="orders", ahead=True)
    (orders.through(Remind(), name="remind") | rest).to(sink)
    return flow


@rs.operator(key="user")
class Picky(Remind):
    """Fails at some records, after it has changed the row, and at some alarms."""

    def process(self, order: Order, account: Account) -> Iterator[Owed]:
        yield from super().process(order, account)
        if order.amount % 4 == 0:
            raise ValueError(f"an amount of {order.amount}")

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield from super().timer(key, time, account)
        if time % 5 == 0:
            raise ValueError(f"the time {time}")


def failing(sink: Collect) -> rs.Flow:
    """Records and alarms at which an operator raises are records of their own."""
    flow = rs.Flow("failing", key_groups=GROUPS)
    orders = _events(flow, Order, "orders", 8)
    orders.through(Picky(), on_error="stream").to(sink)
    return flow


FLOWS: dict[str, Callable[[Collect], rs.Flow]] = {
    f.__name__: f
    for f in (words, windows, sessions, batches, seldom, timers, join, arriving, arriving_join,
              idling, live, ahead, waiting, arriving_waiting, derived, failing, gaps, asking,
              asking_arriving, controlled, controlled_arriving)
}  # fmt: skip
