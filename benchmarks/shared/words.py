"""Windowed word count over lines that are made as they are read: the work that is recovered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import raystream as rs

WORDS = np.array([f"word-{i:04d}" for i in range(2_000)])
WINDOW_SECONDS = 30
EPOCH_SECONDS = 0.05
"""Of sources that are cut by the clock."""


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


class Tally(rs.State):
    n: int = 0


@dataclass(frozen=True)
class Lines:
    """`rate` lines of five words a second for `seconds`, the same however they are read."""

    rate: int
    seconds: int
    seed: int = 1

    record = Line

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("even"), rs.Split("odd")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        half = int(split.name == "odd")
        for t in range(position, self.seconds):
            rng = np.random.Generator(np.random.Philox(key=[self.seed, 2 * t + half]))
            ranks = rng.zipf(1.3, (self.rate // 2, 5)) % len(WORDS)
            text = [" ".join(words) for words in WORDS[ranks].tolist()]
            yield t + 1, rs.Batch(Line, {"time": np.full(len(text), t), "text": text})


@dataclass(frozen=True)
class Drip:
    """The same lines, each of their seconds after `wait` real ones, however often it is read."""

    lines: Lines
    wait: float

    record = Line

    def splits(self) -> Sequence[rs.Split]:
        return self.lines.splits()

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for block in self.lines.read(split, position):
            time.sleep(self.wait)
            yield block


@rs.operator()
def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(line.time, word)


@rs.operator(key="word", window=rs.tumbling(seconds=WINDOW_SECONDS))
class CountWords:
    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


@rs.operator(key="word")
def running(word: Word, tally: Tally) -> Iterator[Counted]:
    """Numbers the occurrences of each word."""
    tally.n += 1
    yield Counted(word.word, 0, tally.n)


def flow(folder: Path, *, rate: int, seconds: int, speed: float | None, seed: int = 1) -> rs.Flow:
    """The flow. speed: event seconds a second; None for as fast as it goes."""
    built = rs.Flow("words")
    lines = built.source(
        Lines(rate, seconds, seed), epochs=rs.by_time(seconds=1, speed=speed), name="lines"
    )
    counts = lines.through(split).through(CountWords(), name="count")
    counts.to(rs.io.parquet(folder), name="counts")
    return built


def answers(folder: Path) -> list[tuple[str, int, int]]:
    """What a finished run has counted, sorted."""
    found = rs.io.read_parts(folder, Counted)
    return sorted((r.word, r.start, r.n) for batch in found for r in batch.records())


def arriving(folder: Path, lines: Lines, *, wait: float) -> rs.Flow:
    """The flow over a source whose epochs are cut by the clock."""
    built = rs.Flow("arriving")
    dripping = built.source(
        Drip(lines, wait), epochs=rs.by_arrival(seconds=EPOCH_SECONDS), name="lines"
    )
    dripping.through(split).through(running, name="count").to(rs.io.parquet(folder), name="counts")
    return built


def numbered(lines: Lines) -> list[tuple[str, int, int]]:
    """What `arriving` has to count, sorted, wherever its epochs end."""
    batches = (batch for part in lines.splits() for _, batch in lines.read(part, 0))
    words = Counter(
        w for batch in batches for line in batch["text"].to_pylist() for w in line.split()
    )
    return sorted((word, 0, i) for word, n in words.items() for i in range(1, n + 1))
