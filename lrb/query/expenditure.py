"""Daily expenditure: what a car paid on an expressway on one of the 69 days before today.

The toll history is a reference table: each instance loads the rows of its key groups before the
clock starts, and again wherever they move; it is never part of a checkpoint. In memory a row takes
16 bytes: its key as one number, and the running sum of the tolls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import raystream as rs
from lrb.query.records import ExpenditureRequest
from raystream.errors import InputError
from spark_ingest.layout import HISTORY

Ints = npt.NDArray[np.int64]


class Spent(NamedTuple):
    """Answer 3: the sum of the tolls of that day. vid is not part of the answer."""

    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32
    bal: int


class History(NamedTuple):
    """Rows of the toll history by ascending key; `sums` [n + 1] are sums of the tolls before."""

    keys: Ints
    sums: Ints

    def spent(self, keys: Ints) -> Ints:
        """The tolls of each of these keys; 0 where there are none."""
        first = np.searchsorted(self.keys, keys, side="left")
        end = np.searchsorted(self.keys, keys, side="right")
        return self.sums[end] - self.sums[first]


@rs.operator(key="vid")
@dataclass(frozen=True)
class Expenditure:
    """Looks up what was spent; a day without a row is a day on which nothing was."""

    files: tuple[Path, ...]

    def load(self, keys: rs.KeyRange) -> History:
        """The history of the cars in these key groups.

        Raises InputError if a file cannot be read.
        """
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64)), *self._parts(keys)]
        packed, tolls = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(packed, kind="stable")  # quick where files follow each other, as they do
        return History(packed[order], np.concatenate([[0], np.cumsum(tolls[order])]))

    def _parts(self, keys: rs.KeyRange) -> Iterator[tuple[Ints, Ints]]:
        for file in self.files:
            try:
                table = pq.read_table(file, columns=HISTORY.names, partitioning=None)
            except (OSError, pa.ArrowException) as error:
                raise InputError(f"the toll history {file} cannot be read: {error}") from error
            vid, day, xway, toll = (table[name].to_numpy() for name in HISTORY.names)
            group = rs.key_groups(vid)
            mine = (group >= keys.lo) & (group < keys.hi)
            yield packed(vid[mine], day[mine], xway[mine]), toll[mine].astype(np.int64)

    def process(self, requests: rs.Batch[ExpenditureRequest], history: History) -> rs.Batch[Spent]:
        """Answer requests in their order."""
        keys = packed(requests["vid"], requests["day"], requests["xway"])
        answers = {name: requests[name] for name in ("time", "vid", "qid")}
        return rs.Batch(Spent, {**answers, "bal": history.spent(keys)})


def packed(vid: npt.NDArray[Any], day: npt.NDArray[Any], xway: npt.NDArray[Any]) -> Ints:
    """Car, day and expressway as one number: 31, 7 and 15 bits."""
    number: Ints = (vid.astype(np.int64) << 7 | day) << 15 | xway
    return number
