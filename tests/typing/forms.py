# pyright: strict
"""Every form in which operators, sources, sinks and flows are written.

mypy --strict and pyright strict are silent on this file, and it runs: `build` makes a flow of it.
What must be rejected is in `wrong.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, assert_type

import numpy as np

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


# ---------------------------------------------------------------- batches


@rs.operator()
def split_batch(lines: rs.Batch[Line]) -> rs.Batch[Word]:
    words = [str(text).split() for text in lines["text"].to_pylist()]
    origin = np.repeat(np.arange(len(words)), [len(w) for w in words])
    flat = [w for line in words for w in line]
    return rs.Batch(
        Word,
        {
            "time": lines["time"].take(origin),
            "word": flat,
            "maybe": [None] * len(flat),
            "kind": np.zeros(len(flat), np.int64),
        },
        origin=origin,
    )


@rs.operator()
def long_words(words: rs.Batch[Word]) -> rs.Batch[Word]:
    return words.take([len(w.word) > 3 for w in words.records()])


@rs.operator(key="word")
def running_batch(words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
    n = rows["n"][rows.index] + rows.nth + 1
    rows["n"] += rows.counts
    return rs.Batch(Running, {"word": words["word"], "n": n})


@rs.operator()
@dataclass(frozen=True)
class LongWords:
    at_least: int = 3

    def process(self, words: rs.Batch[Word]) -> rs.Batch[Word]:
        return words.take([len(w.word) >= self.at_least for w in words.records()])


@rs.operator(key="word")
@dataclass(frozen=True)
class RunningFrom:
    first: int = 1

    def process(self, words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
        n = rows["n"][rows.index] + rows.nth + self.first
        rows["n"] += rows.counts
        return rs.Batch(Running, {"word": words["word"], "n": n})


@rs.operator(key="vid")
@dataclass(frozen=True)
class Reference:
    price: int

    def load(self, keys: rs.KeyRange) -> dict[int, int]:
        return dict.fromkeys(range(keys.lo, keys.hi), self.price)

    def process(self, queries: rs.Batch[Query], prices: dict[int, int]) -> rs.Batch[Balance]:
        groups = rs.key_groups(queries["vid"])
        return rs.Batch(
            Balance,
            {
                "time": queries["time"],
                "qid": queries["qid"],
                "moved": queries["time"],
                "balance": np.array([prices[int(g)] for g in groups], np.int64),
            },
        )


# ---------------------------------------------------------------- sources and sinks


@dataclass(frozen=True)
class Files:
    pattern: str

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split(str(p)) for p in sorted(Path().glob(self.pattern))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        with open(split.name, "rb") as file:
            file.seek(position)
            while lines := file.readlines(1 << 20):
                text = [line.decode() for line in lines]
                yield file.tell(), rs.Batch(Line, {"time": [0] * len(text), "text": text})


@dataclass(frozen=True)
class Folder:
    path: Path

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        part = self.path / f"{epoch:012d}-{keys.lo:03d}-{keys.hi:03d}.txt"
        part.write_text("".join(f"{c.word} {c.n}\n" for c in batch.records()))

    def commit(self, epoch: int) -> None: ...


def print_counted(counted: Counted) -> None:
    print(counted)


# ---------------------------------------------------------------- wiring


def build() -> rs.Flow:
    flow = rs.Flow("forms", key_groups=16, time_unit="ms")
    lines = flow.source(Files("*.txt"), epochs=rs.by_arrival(seconds=0.05), name="files")
    assert_type(lines, rs.Stream[Line])
    words = lines.through(split)
    assert_type(words, rs.Stream[Word])
    assert_type(lines.through(split_batch), rs.Stream[Word])
    assert_type(words.through(running), rs.Stream[Running])
    assert_type(words.through(running, name="again"), rs.Stream[Running])
    assert_type(words.through(distinct), rs.Stream[Word])
    assert_type(words.through(long_words), rs.Stream[Word])
    assert_type(words.through(running_batch), rs.Stream[Running])
    assert_type(words.through(LongWords(at_least=4)), rs.Stream[Word])
    assert_type(words.through(RunningFrom(first=1)), rs.Stream[Running])

    counts, late = words.through(CountWords(at_least=2), late=True)
    assert_type(counts, rs.Stream[Counted])
    assert_type(late, rs.Stream[Word])
    assert_type(words.through(CountOften()), rs.Stream[Counted])
    assert_type(words.through(Sessions()), rs.Stream[Counted])
    assert_type(words.through(Silences()), rs.Stream[Counted])

    counts.to(Folder(Path("out")))
    (counts | words.through(running)).to(rs.io.parquet("counts"))
    counts.to(rs.io.csv("counts-csv", header=False), name="csv")
    counts.to(rs.io.json("counts-json"), name="json-parts")
    counts.to(rs.io.callable(print_counted, each=True))
    late.to(rs.io.console(limit=5))
    several(flow)
    return flow


def several(flow: rs.Flow) -> None:
    epochs = rs.by_time("time", seconds=1, speed=20, disorder=2)
    queries = flow.source(rs.io.iterable([Query(1, 2, 3)], Query, splits=2), epochs=epochs)
    assert_type(queries, rs.Stream[Query])
    tolls = flow.source(rs.io.parquet("tolls/*.parquet", Toll), epochs=epochs)
    assert_type(tolls, rs.Stream[Toll])
    left = flow.source(rs.io.csv("left.csv", Left, header=False), epochs=epochs)
    assert_type(left, rs.Stream[Left])
    assert_type(flow.source(rs.io.json("*.jsonl", Toll), name="json"), rs.Stream[Toll])
    assert_type(flow.source(rs.io.text("*.txt"), name="text"), rs.Stream[rs.io.Line])
    parsed = flow.source(rs.io.text("*.txt", Line, lambda s: Line(0, s)), name="parsed")
    assert_type(parsed, rs.Stream[Line])

    united = tolls | left | queries
    assert_type(united, rs.Stream[Toll | Left | Query])
    assert_type(united[Query], rs.Stream[Query])
    assert_type(united.through(accounts), rs.Stream[Balance])
    both = queries.through(either)
    assert_type(both, rs.Stream[Left | Toll])
    assert_type(both[Left] | both[Toll], rs.Stream[Left | Toll])
    assert_type((both | queries).through(accounts, name="accounts again"), rs.Stream[Balance])
    assert_type(queries.through(Reference(price=3)), rs.Stream[Balance])


def batches() -> None:
    batch = rs.Batch(Word, {"time": [1], "word": ["a"], "maybe": [None], "kind": [0]})
    assert_type(batch.record, type[Word])
    assert_type(list(batch.records()), list[Word])


class Halves:
    """A policy of a user's own."""

    interval = 10.0

    def decide(self, loads: Sequence[rs.Load]) -> list[rs.Target]:
        halves = (rs.KeyRange(0, 128), rs.KeyRange(128, 256))
        hot = [x for x in loads for mine in x.reports if mine and mine[-1].cpu > 0.5]
        return [rs.Target(x.operator, halves, "half of it is hot") for x in hot]


def policies() -> list[rs.Policy]:
    return [rs.CpuThreshold(threshold=0.5), rs.RateBased(use=0.5), Halves()]
