# mypy: warn-return-any
# pyright: strict
"""Every form of operator that takes records one by one, and the records and state of all forms.

mypy --strict and pyright strict are silent on this file. `forms.py` makes a flow of the operators.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import raystream as rs

# ---------------------------------------------------------------- records and state


class Kind(enum.IntEnum):
    CAR = 0
    LORRY = 1


class Line(NamedTuple):
    time: rs.Int64
    text: str


class Word(NamedTuple):
    time: rs.Int64
    word: str
    maybe: rs.Int16 | None = None
    kind: Kind = Kind.CAR


class Counted(NamedTuple):
    word: str
    start: int
    n: int


class Tally(rs.State):
    n: int = 0


class Seen(rs.State):
    words: list[str] = rs.field(factory=list)
    last: str | None = None


# ---------------------------------------------------------------- per record


@rs.operator()
def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(line.time, word)


class Running(NamedTuple):
    word: str
    n: int


@rs.operator(key="word", order_by="time")
def running(word: Word, tally: Tally) -> Iterator[Running]:
    tally.n += 1
    yield Running(word.word, tally.n)


@rs.operator(key="word")
def distinct(word: Word, seen: Seen) -> Iterable[Word]:
    if word.word not in seen.words:
        seen.words.append(word.word)
        return [word]
    return ()


# ---------------------------------------------------------------- control streams


class Stopped(rs.State):
    words: list[str] = rs.field(factory=list)


@rs.operator(key="word")
class RunningBut:
    def control(self, line: Line, stopped: Stopped) -> None:
        stopped.words.append(line.text)

    def process(self, word: Word, tally: Tally, stopped: Stopped) -> Iterator[Running]:
        tally.n += word.word not in stopped.words
        yield Running(word.word, tally.n)


@rs.operator()
class Allowed:
    def control(self, line: Line, stopped: Stopped) -> None:
        stopped.words.append(line.text)

    def process(self, word: Word, stopped: Stopped) -> Iterator[Word]:
        if word.word not in stopped.words:
            yield word


# ---------------------------------------------------------------- windows; parameters are fields


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
class CountOften:
    def process(self, word: Word, tally: Tally) -> Iterator[Counted]:
        tally.n += 1
        yield Counted(word.word, 0, tally.n)

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


@rs.operator(key="word", window=rs.session(gap=10))
class Sessions:
    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def merge(self, into: Tally, other: Tally) -> None:
        into.n += other.n

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


@rs.operator(key="word", window=rs.tumbling(seconds=30, lateness=5, every=10))
class CountAgain:
    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(
        self, key: str, window: rs.Window, tally: Tally, early: bool, correction: bool
    ) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


# ---------------------------------------------------------------- timers


class Quiet(rs.State):
    n: int = 0
    due: rs.Timer = rs.NEVER


@rs.operator(key="word")
class Silences:
    def process(self, word: Word, quiet: Quiet) -> None:
        quiet.n += 1
        quiet.due = word.time + 10

    def timer(self, key: str, time: int, quiet: Quiet) -> Iterator[Counted]:
        yield Counted(key, time, quiet.n)
        rs.forget(quiet)


@rs.operator(key="word", end_rings=5)
class SilencesToTheEnd:
    def process(self, word: Word, quiet: Quiet) -> None:
        quiet.due = word.time + 10

    def timer(self, key: str, time: int, quiet: Quiet, last: bool) -> Iterator[Counted]:
        yield Counted(key, time, quiet.n if last else 0)


@rs.operator(key="word", window=rs.tumbling(seconds=10))
class CountToTheEnd:
    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally, last: bool) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


# ---------------------------------------------------------------- several inputs, compiled


class Toll(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    toll: int


class Left(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    charged: bool


class Query(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32


class Balance(NamedTuple):
    time: rs.Int32
    qid: rs.Int32
    moved: rs.Int32
    balance: int


class Account(rs.State):
    balance: int = 0
    pending: int = 0
    moved: rs.Int32 = -1
    recent: Annotated[list[int], rs.Array("i8", 3)] = rs.zeros(3)


@rs.operator(key="vid", order_by="time", compiled=True)
def accounts(event: Toll | Left | Query, account: Account) -> Iterator[Balance]:
    match event:
        case Toll():
            account.balance += account.pending
            account.pending = event.toll
            account.moved = event.time
            account.recent[event.time % 3] = event.toll
        case Left():
            if event.charged:
                account.balance += account.pending
            account.pending = 0
        case Query():
            yield Balance(event.time, event.qid, account.moved, account.balance)


@rs.operator(key="vid")
def either(query: Query) -> Iterator[Left | Toll]:
    yield Left(query.time, query.vid, False)
    yield Toll(query.time, query.vid, query.qid)


# ---------------------------------------------------------------- asking the world


@rs.operator(key="word", concurrency=4)
async def asked(word: Word) -> Running | None:
    return Running(word.word, 1)


@rs.operator(recorded=True, retries=0)
def asked_plainly(word: Word) -> Running:
    return Running(word.word, 1)


@rs.operator(recorded=True, batch=8)
def asked_together(words: list[Word]) -> list[Running]:
    return [Running(word.word, 1) for word in words]


@rs.operator()
async def asked_for_several(word: Word) -> AsyncIterator[Running]:
    yield Running(word.word, 1)


@rs.operator()
@dataclass(frozen=True)
class AskedAt:
    url: str

    async def process(self, word: Word) -> Running:
        return Running(self.url + word.word, 1)
