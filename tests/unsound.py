"""Operators and a source that are not deterministic, each for another of the usual reasons."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import raystream as rs
from raystream.testing import Collect
from tests.flows import Line, Rows, Running, Tally, Word, lines, split, word_flow

COUNTER = itertools.count()


@rs.operator(key="word")
def by_clock(word: Word, tally: Tally) -> Iterator[Running]:
    yield Running(word.word, time.time_ns())


@rs.operator(key="word")
def by_chance(word: Word, tally: Tally) -> Iterator[Running]:
    tally.n += 1
    yield Running(f"{word.word}{random.random()}", tally.n)


@rs.operator(key="word")
def by_counter(word: Word, tally: Tally) -> Iterator[Running]:
    yield Running(word.word, next(COUNTER))


@rs.operator(key="word")
def by_chance_in_state(words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
    rows["n"] += np.random.default_rng().integers(1 << 40, size=len(rows))
    return rs.Batch(Running, {"word": words["word"], "n": rows["n"][rows.index]})


class Salted(str):
    """A string whose hash is never the same twice, as between processes of different hash seeds."""

    def __hash__(self) -> int:
        return hash((str(self), next(COUNTER)))


@rs.operator()
def by_set(line: Line) -> Iterator[Word]:
    for word in {Salted(w) for w in f"{line.text} to be or not".split()}:
        yield Word(line.time, str(word))


@dataclass(frozen=True)
class Grows(Rows):
    """A source whose last record is another each time that it is read."""

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        for at, batch in super().read(split, position):
            text = [*batch["text"].to_pylist()[:-1], f"read {next(COUNTER)}"]
            yield at, rs.Batch(Line, {"time": batch["time"], "text": text})


def set_flow(sink: Collect) -> rs.Flow:
    flow = rs.Flow("sets")
    flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=1)).through(by_set).to(sink)
    return flow


def growing_flow(sink: Collect) -> rs.Flow:
    flow = rs.Flow("growing")
    source = flow.source(Grows(Line, lines(1)), epochs=rs.by_time(seconds=1))
    source.through(split).to(sink)
    return flow


KEYED = [by_clock, by_chance, by_counter, by_chance_in_state]
FLOWS = {
    **{op.__name__: lambda sink, op=op: word_flow(sink, op) for op in KEYED},
    "rows (or by_set, which runs inside it)": set_flow,
    "grows (or split, which runs inside it)": growing_flow,
}
"""By what they are called when they are found out."""
