# mypy: warn-return-any
# pyright: strict
"""Every form of operator that takes batches, and how a batch is made.

mypy --strict and pyright strict are silent on this file. `forms.py` makes a flow of the operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import numpy as np

import raystream as rs
from tests.typing.operators import Balance, Line, Query, Running, Tally, Word


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


def batches() -> None:
    batch = rs.Batch(Word, {"time": [1], "word": ["a"], "maybe": [None], "kind": [0]})
    assert_type(batch.record, type[Word])
    assert_type(list(batch.records()), list[Word])
