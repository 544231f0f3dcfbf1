# mypy: warn-return-any
# pyright: strict
"""What must be rejected: a line that ends in `# no` is an error for mypy and for pyright, one that
ends in `# no: pyright` for pyright alone; no other line is.

What one of them lets pass is refused when the flow is built or when the records are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import raystream as rs
from tests.typing.batches import running_batch
from tests.typing.connectors import Files, Folder
from tests.typing.operators import (
    Account,
    Balance,
    Counted,
    CountWords,
    Left,
    Line,
    Query,
    Running,
    Tally,
    Toll,
    Word,
    accounts,
    running,
    split,
)


class Price(rs.State):
    cents: int = 0


# ---------------------------------------------------------------- operators


@rs.operator()
def returns_one(line: Line) -> Word:
    return Word(line.time, line.text)


@rs.operator()
def returns_text(line: Line) -> Iterator[str]:
    yield line.text


@rs.operator()
def yields_another(line: Line) -> Iterator[Word]:
    yield line  # no


@rs.operator(key="word")
def misspelt(word: Word, tally: Tally) -> Iterator[Running]:
    tally.m += 1  # no
    yield Running(word.word, tally.number)  # no


@rs.operator(key="word")
def text_into_a_number(word: Word, tally: Tally) -> Iterator[Running]:
    tally.n = word.word  # no
    yield Running(word.word, tally.n)


@rs.operator(key="word")
def three(word: Word, tally: Tally, price: Price) -> Iterator[Running]:
    yield Running(word.word, tally.n + price.cents)


@rs.operator(key="vid")
def forgets_a_case(event: Toll | Left | Query, account: Account) -> Iterator[Balance]:
    match event:  # no: pyright
        case Toll():
            account.balance += event.toll
        case Query():
            yield Balance(event.time, event.qid, account.moved, account.balance)


@rs.operator(key=1)  # no
def key_is_a_number(word: Word, tally: Tally) -> Iterator[Running]:
    yield Running(word.word, tally.n)


@rs.operator(keys="word")  # no
def misspelt_option(word: Word, tally: Tally) -> Iterator[Running]:
    yield Running(word.word, tally.n)


@rs.operator("word")  # no
def key_without_its_name(word: Word, tally: Tally) -> Iterator[Running]:
    yield Running(word.word, tally.n)


@rs.operator(key="word", window=30)  # no
@dataclass(frozen=True)
class WindowIsANumber:
    def process(self, word: Word, tally: Tally) -> None: ...
    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


@rs.operator(key="word", window=rs.tumbling(seconds=1))
class NoClose:
    def process(self, word: Word, tally: Tally) -> None: ...


@rs.operator(key="word", window=rs.tumbling(seconds=1))
class CloseOfAnotherState:
    def process(self, word: Word, tally: Tally) -> None: ...
    def close(self, key: str, window: rs.Window, price: Price) -> Iterator[Counted]:
        yield Counted(key, window.start, price.cents)


# ---------------------------------------------------------------- state and records


def misuse_of_state() -> None:
    Tally(m=1)  # no
    Tally(1)  # no
    Tally(n="one")  # no
    rs.forget(Word(1, "a"))  # no


def misuse_of_records(word: Word) -> None:
    Word("1", "a")  # no
    word.time = 2  # no
    print(word.words)  # no


def misuse_of_windows() -> None:
    rs.tumbling(30)  # no
    rs.sliding(seconds=30)  # no
    rs.session(seconds=3)  # no


# ---------------------------------------------------------------- wiring


class Nothing(NamedTuple):
    time: int


class NoSource:
    def splits(self) -> list[rs.Split]:
        return []


class NoSink:
    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None: ...


class WrongSource(rs.Source[Nothing]):
    def splits(self) -> rs.Split:  # no
        return rs.Split("all")

    def read(self, split: str, position: int) -> Iterator[rs.Batch[Nothing]]:  # no
        yield rs.Batch(Nothing, {"time": [position]})


class WrongSink(rs.Sink[Nothing]):
    def accept(self, record: type, other: type) -> None: ...  # no
    def open(self) -> None: ...  # no
    def write(self, epoch: int, batch: rs.Batch[Nothing]) -> None: ...  # no
    def prepare(self, epoch: str) -> None: ...  # no
    def commit(self) -> None: ...  # no
    def close(self, epoch: int) -> None: ...  # no


class NoWrite(rs.Sink[Nothing]):
    def commit(self, epoch: int) -> None: ...


def wire(
    flow: rs.Flow,
    lines: rs.Stream[Line],
    words: rs.Stream[Word],
    tolls: rs.Stream[Toll],
    mixed: rs.Stream[Toll | Query],
    counts: rs.Stream[Counted],
) -> None:
    rs.by_tiem(seconds=1)  # no
    words.through(split)  # no
    lines.through(running)  # no
    lines.through(running_batch)  # no
    lines.through(CountWords())  # no
    words.through(CountWords)  # no
    lines.through(returns_one)  # no
    lines.through(returns_text)  # no
    words.through(three)  # no
    words.through(NoClose())  # no
    words.through(CloseOfAnotherState())  # no: pyright
    words.through(running, late=True)  # no
    lines.through(split, "name")  # no
    mixed.through(split)  # no
    mixed[Word].through(split)  # no
    (tolls | words).through(accounts)  # no
    words.to(Folder)  # no
    words.to(NoSink())  # no
    words.to(WrongSink())  # no
    print(NoWrite())  # no
    lines.to(CountWords())  # no
    flow.source(NoSource())  # no
    flow.source(Files)  # no
    flow.source(Files("*"), epochs=0.05)  # no
    flow.source(rs.io.parquet("out/"))  # no
    counts.to(rs.io.parquet("rows/", Counted))  # no
    rs.io.text("*.txt", Line)  # no
    rs.io.text("*.txt", Line, lambda s: Word(0, s))  # no: mypy
    rs.io.iterable([Nothing(1)], Line)  # no: mypy
    rs.by_time("time", 1)  # no
    rs.Flow("name", time_unit="m")  # no
    nothing: rs.Stream[Word] = lines  # no
    print(nothing)
