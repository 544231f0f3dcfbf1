"""Replicas: a few expressways of traffic replayed as many, with other cars on other expressways.

The prepared expressways make up a *world*: a car may come back on another expressway, but never in
another world. Replica i is the whole world once more: expressway x becomes i * xways + x and car v
becomes i * vehicles + v. Questions keep their numbers: an answer is told by its car.

All other columns are those of the original, the slot too: a car's rows are due when those of its
original are. So the answers to a replica are those to the original, its cars renamed. The toll
history is not copied: that of a replica's car is looked up as that of its original.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import raystream as rs
from lrb.query.expenditure import Expenditure, History, Spent
from lrb.query.records import ExpenditureRequest, Row
from lrb.query.source import Prepared, PreparedRows
from raystream.errors import ConfigError

KEY_GROUPS = 256
"""As many as a flow has."""
BATCH_ROWS = 16_384
"""About how many rows a batch of the replicated source has."""


@dataclass(frozen=True)
class Replicas:
    """How cars and expressways of `count` worlds are numbered, the original being number 0.

    vehicles, xways: those of one world, of which the largest number plus one.

    Raises ConfigError where the numbers would not fit the columns of a row.
    """

    count: int
    vehicles: int
    xways: int

    def __post_init__(self) -> None:
        most = min((2**31 - 1) // self.vehicles, (2**15 - 1) // self.xways)
        if not 1 <= self.count <= most:
            raise ConfigError(
                f"{self.count} replicas of {self.vehicles:,} cars on {self.xways} expressways:"
                f" 1 to {most} have numbers"
            )

    def original(self, vid: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The cars of the prepared rows of which these are replicas."""
        return vid % self.vehicles

    def number(self, vid: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """To which replica cars belong."""
        return vid // self.vehicles

    def rows(self, batch: rs.Batch[Row], begin: int, end: int) -> rs.Batch[Row]:
        """Some rows of the original, each followed by its replicas: the order of time is kept."""
        kept = {name: batch[name][begin:end] for name in Row._fields}
        columns = {name: np.repeat(column, self.count) for name, column in kept.items()}
        number = np.tile(np.arange(self.count, dtype=np.int32), end - begin)
        columns["vid"] += number * np.int32(self.vehicles)
        used = columns["xway"] >= 0  # balance requests name none
        columns["xway"] += (number * np.int32(self.xways) * used).astype(np.int16)
        return rs.Batch(Row, columns)


def replicas(data: Prepared, count: int) -> Replicas:
    """The numbering of `count` worlds of prepared data."""
    return Replicas(count, data.meta.vehicles, data.meta.xways)


@dataclass(frozen=True)
class ReplicatedRows(rs.Source[Row]):
    """The rows of a prepared folder and their replicas. A position is a number of batches."""

    rows: PreparedRows
    replicas: Replicas

    def splits(self) -> Sequence[rs.Split]:
        """Those of the prepared rows; a replica is in the split of its original."""
        return self.rows.splits()

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Row]]]:
        """The batches from `position` on.

        Raises InputError as the prepared rows do.
        """
        step = max(1, BATCH_ROWS // self.replicas.count)
        at = 0
        for _, batch in self.rows.read(split, 0):
            for begin in range(0, len(batch), step):
                at += 1
                if at > position:
                    yield at, self.replicas.rows(batch, begin, min(begin + step, len(batch)))


@rs.operator(key="vid")
@dataclass(frozen=True)
class ReplicaExpenditure:
    """Looks up what the originals of cars have spent. Every instance loads the whole history: the
    replicas of a car are in many key groups."""

    expenditure: Expenditure
    replicas: Replicas

    def load(self, keys: rs.KeyRange) -> History:
        """The history of all cars of the original.

        Raises InputError if a file cannot be read.
        """
        return self.expenditure.load(rs.KeyRange(0, KEY_GROUPS))

    def process(self, requests: rs.Batch[ExpenditureRequest], history: History) -> rs.Batch[Spent]:
        """Answer requests in their order."""
        asked = {name: requests[name] for name in ExpenditureRequest._fields}
        vid = asked["vid"]
        asked["vid"] = self.replicas.original(vid)
        first = self.replicas.number(vid) * np.int32(self.replicas.xways)
        asked["xway"] = (asked["xway"] - first).astype(np.int16)
        spent = self.expenditure.process(rs.Batch(ExpenditureRequest, asked), history)
        return rs.Batch(Spent, {**{n: spent[n] for n in Spent._fields}, "vid": vid})
