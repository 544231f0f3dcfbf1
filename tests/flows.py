"""Small flows that the tests of every layer run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import raystream as rs
from raystream.simulation.flows import Account, Missed, Order, Owed, Payment
from raystream.testing import Collect


class Line(NamedTuple):
    time: rs.Int64
    text: str


class Word(NamedTuple):
    time: rs.Int64
    word: str


class Counted(NamedTuple):
    word: str
    start: int
    n: int


class Running(NamedTuple):
    word: str
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator()
def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(line.time, word)


@rs.operator(key="word")
def running(word: Word, tally: Tally) -> Iterator[Running]:
    tally.n += 1
    yield Running(word.word, tally.n)


@rs.operator(key="word")
def running_batch(words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
    n = rows["n"][rows.index] + rows.nth + 1
    rows["n"] += rows.counts
    return rs.Batch(Running, {"word": words["word"], "n": n})


@rs.operator(key="word", window=rs.tumbling(seconds=30))
@dataclass(frozen=True)
class CountWords:
    at_least: int = 1

    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        if tally.n >= self.at_least:
            yield Counted(key, window.start, tally.n)


@rs.operator(key="word", window=rs.sliding(seconds=30, every=10))
class SlidingCount(CountWords):
    pass


@rs.operator(key="word", window=rs.session(gap=7))
class SessionCount(CountWords):
    def merge(self, into: Tally, other: Tally) -> None:
        into.n += other.n


@rs.operator(key="word", window=rs.tumbling(seconds=12, lateness=9, every=5))
class CorrectedCount:
    """Early results and corrections; a correction is told from them by a start below zero."""

    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(
        self, key: str, window: rs.Window, tally: Tally, correction: bool, early: bool
    ) -> Iterator[Counted]:
        start = -1 - window.start if correction else window.start
        yield Counted(key, start, -tally.n if early else tally.n)


@rs.operator(key="word", window=rs.tumbling(count=3))
class Threes(CountWords):
    pass


@rs.operator(key="user", order_by="time", end_rings=1)
class Ledger:
    """A join of two inputs with a timer: what is owed, and what stays owed for 20 s."""

    def process(self, event: Order | Payment, account: Account) -> Iterator[Owed]:
        if isinstance(event, Order):
            account.owed += event.amount
            account.orders += 1
            account.due = event.time + 20
        else:
            account.owed -= event.amount
        yield Owed(event.time, event.user, account.owed)

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield Missed(key, time, account.owed)
        if account.owed <= 0:
            rs.forget(account)
        elif account.orders % 3:
            account.due = time + 5


@rs.operator(key="user", order_by="time", compiled=True, end_rings=1)
class CompiledLedger(Ledger):
    pass


@dataclass(frozen=True)
class Rows:
    """A source over lists of records, one per split; a position is a row number."""

    record: type
    parts: tuple[tuple[Any, ...], ...]
    batch: int = 7

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split(f"split-{i}") for i in range(len(self.parts))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        rows = self.parts[int(split.name.split("-")[1])]
        for at in range(position, len(rows), self.batch):
            part = rows[at : at + self.batch]
            columns = dict(zip(self.record._fields, zip(*part, strict=True), strict=True))  # type: ignore[attr-defined]
            yield at + len(part), rs.Batch(self.record, columns)


def lines(seed: int, splits: int = 3, rows: int = 40) -> tuple[tuple[Line, ...], ...]:
    rng = random.Random(seed)
    out = []
    for _ in range(splits):
        times = sorted(rng.randrange(0, 120) for _ in range(rows))
        out.append(
            tuple(Line(t, " ".join(rng.choices("abcdefgh", k=rng.randrange(4)))) for t in times)
        )
    return tuple(out)


def events(seed: int, kind: type, splits: int = 2, rows: int = 60) -> tuple[tuple[Any, ...], ...]:
    rng = random.Random(seed)
    return tuple(
        tuple(
            kind(t, rng.randrange(12), rng.randrange(50))
            for t in sorted(rng.randrange(0, 150) for _ in range(rows))
        )
        for _ in range(splits)
    )


def word_flow(
    sink: Collect,
    op: Any,
    *,
    seed: int = 1,
    seconds: float = 1,
    disorder: float = 0,
    late: Collect | None = None,
) -> rs.Flow:
    flow = rs.Flow("words")
    stream = flow.source(
        Rows(Line, lines(seed)), epochs=rs.by_time(seconds=seconds, disorder=disorder)
    )
    words = stream.through(split)
    if late is not None:
        counts, lates = words.through(op, late=True)
        lates.to(late)
    else:
        counts = words.through(op)
    counts.to(sink)
    return flow


def ledger_flow(sink: Collect, *, seed: int = 1, seconds: float = 1, op: Any = None) -> rs.Flow:
    flow = rs.Flow("ledger")
    epochs = rs.by_time(seconds=seconds)
    orders = flow.source(Rows(Order, events(seed, Order)), epochs=epochs, name="orders")
    paid = flow.source(Rows(Payment, events(seed + 1, Payment)), epochs=epochs, name="payments")
    (orders | paid).through(op or Ledger(), name="ledger").to(sink)
    return flow
