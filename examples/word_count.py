"""Words of a text, counted in windows of 10 seconds.

It prints:

    Counted(word='be', start=0, n=2)
    Counted(word='to', start=0, n=2)
    Counted(word='be', start=10, n=2)
    Counted(word='it', start=10, n=2)

Run it:

    python examples/word_count.py
    raystream run examples.word_count:flow --address auto --instances CountWords=2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import raystream as rs


class Line(NamedTuple):
    time: int
    text: str


class Word(NamedTuple):
    time: int
    word: str


class Counted(NamedTuple):
    word: str
    start: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator()
def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(line.time, word)


@rs.operator(key="word", window=rs.tumbling(seconds=10))
@dataclass(frozen=True)
class CountWords:
    """Words that come at least `at_least` times in 10 seconds."""

    at_least: int = 1

    def process(self, word: Word, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        if tally.n >= self.at_least:
            yield Counted(key, window.start, tally.n)


LINES = [Line(1, "to be or not to be"), Line(12, "be it so, be it not so")]

flow = rs.Flow("word-count")
lines = flow.source(rs.io.iterable(LINES, Line), epochs=rs.by_time(seconds=1), name="lines")
lines.through(split).through(CountWords(at_least=2)).to(rs.io.console())

if __name__ == "__main__":
    flow.run()
