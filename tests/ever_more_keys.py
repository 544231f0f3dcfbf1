"""A job that only adds keys: each record makes a row of 80 bytes, and none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import raystream as rs

BLOCK = 200_000


class Key(NamedTuple):
    time: int
    key: int


class Nine(rs.State):
    n: int = 0
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    e: float = 0.0
    f: float = 0.0
    g: float = 0.0
    h: float = 0.0


@dataclass(frozen=True)
class NewKeys(rs.Source[Key]):
    """Keys from 0 on. A second is a block."""

    rows: int

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("keys")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Key]]]:
        for at in range(position, self.rows, BLOCK):
            keys = np.arange(at, min(at + BLOCK, self.rows))
            yield at + len(keys), rs.Batch(Key, {"time": keys // BLOCK, "key": keys})


@rs.operator(key="key")
def fill(keys: rs.Batch[Key], rows: rs.Rows[Nine]) -> rs.Batch[Key]:
    rows["n"] += rows.counts
    first = np.flatnonzero(keys["key"] % BLOCK == 0)
    columns = {"time": keys["time"][first], "key": keys["key"][first]}
    return rs.Batch(Key, columns, origin=first)


@dataclass(frozen=True)
class Nothing(rs.Sink[Any]):
    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        pass


def filled(rows: int) -> rs.Flow:
    flow = rs.Flow("filled")
    flow.source(NewKeys(rows), epochs=rs.by_time(seconds=1)).through(fill).to(Nothing())
    return flow
