"""Operators on batches: Arrow and NumPy columns in, columns out, state rows as columns.

It prints:

    Running(word='or', n=1)
    Running(word='be', n=1)
    Running(word='be', n=2)
    Running(word='not', n=1)
    Running(word='to', n=1)
    Running(word='to', n=2)

Run it:

    python examples/batch_operator.py
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import raystream as rs


class Line(NamedTuple):
    time: int
    text: str


class Word(NamedTuple):
    time: int
    word: str


class Running(NamedTuple):
    word: str
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator()
def split(lines: rs.Batch[Line]) -> rs.Batch[Word]:
    """Not one row out for one row in, so `origin` says which line each word comes from."""
    words = [text.split() for text in lines["text"].to_pylist()]
    origin = np.repeat(np.arange(len(words)), [len(w) for w in words])
    columns = {"time": lines["time"].take(origin), "word": [w for line in words for w in line]}
    return rs.Batch(Word, columns, origin=origin)


@rs.operator(key="word")
def count(words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
    """`rows` has an entry for each distinct word; `rows.index` says which is each record's, and
    `rows.nth` how many of its word came before it in this batch."""
    n = rows["n"][rows.index] + rows.nth + 1
    rows["n"] += rows.counts
    return rs.Batch(Running, {"word": words["word"], "n": n})


flow = rs.Flow("batches")
source = rs.io.iterable([Line(0, "to be or not to be")], Line)
flow.source(source, epochs=rs.by_time(seconds=1)).through(split).through(count).to(rs.io.console())

if __name__ == "__main__":
    flow.run()
