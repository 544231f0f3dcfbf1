"""Structured tables for tests, each with a dict that says what it holds."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from hypothesis import strategies as st

import raystream as rs
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.tables.row_kernels import PAGE_BITS, PAGE_MOST
from raystream.state.tables.structured_table import StructuredTable

GROUPS = 16
ALL_KEYS = KeyRange(0, GROUPS)


class Row(rs.State):
    n: rs.Int32 = 7
    due: rs.Timer = rs.NEVER
    cars: Annotated[list[int], rs.Array("i1", 3)] = rs.zeros(3)


class Tally(rs.State):
    n: int = 0


Key = tuple[int, ...]
SCHEMA = state_schema(Row)
wide = st.one_of(st.integers(-4, 4), st.integers(-(2**63), 2**63 - 1))
keys_of_two = st.tuples(st.integers(-3, 3), wide)


class Model:
    """A table of two key columns, and what a dict says that it holds."""

    def __init__(self) -> None:
        self.table = StructuredTable(SCHEMA, keys=2, groups=GROUPS)
        self.rows: dict[Key, tuple[int, int, int]] = {}  # n, due, epoch
        self.removed: dict[Key, int] = {}
        self.epoch = 0

    def touch(self, keys: list[Key], due: int) -> None:
        self.epoch += 1
        columns = columns_of(keys)
        slots, inverse = self.table.slots_of(columns, self.epoch)
        rows = {name: self.table.read(slots, name) for name in ("n", "due", "cars")}
        rows["n"] += np.bincount(inverse, minlength=len(slots)).astype(np.int32)
        rows["due"][:] = due
        rows["cars"][:, 1] = 5
        self.table.write(slots, rows, self.epoch)
        for key in keys:
            self.rows[key] = (self.rows.get(key, (7, 0, 0))[0] + 1, due, self.epoch)

    def remove(self, keys: list[Key]) -> None:
        self.epoch += 1
        there = [k for k in dict.fromkeys(keys) if k in self.rows]
        if there:
            self.table.remove(self.table.find(columns_of(there)), self.epoch)
        for key in there:
            del self.rows[key]
            self.removed[key] = self.epoch


def columns_of(keys: list[Key]) -> list[np.ndarray]:
    return [np.array([k[j] for k in keys], np.int64) for j in range(2)]


def content(rows: np.ndarray) -> dict[Key, tuple[int, int, int]]:
    return {tuple(r["_key"].tolist()): (int(r["n"]), int(r["due"]), int(r["_epoch"])) for r in rows}


steps = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(keys_of_two, min_size=1, max_size=40),
        st.one_of(st.integers(0, 50), st.just(rs.NEVER)),
    ),
    max_size=12,
)


def grown(plan: list[Any]) -> Model:
    model = Model()
    for touch, keys, due in plan:
        if touch:
            model.touch(keys, due)
        else:
            model.remove(keys)
    return model


class Grown:
    """A table of one key column that is large enough to have many pages, and its model."""

    def __init__(self) -> None:
        self.table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
        self.rows: dict[int, tuple[int, int]] = {}  # n, epoch

    def touch(self, keys: np.ndarray, epoch: int) -> None:
        slots, inverse = self.table.slots_of([keys], epoch)
        n = self.table.read(slots, "n") + np.bincount(inverse, minlength=len(slots))
        self.table.write(slots, {"n": n}, epoch)
        for key in keys.tolist():
            self.rows[key] = (self.rows.get(key, (0, 0))[0] + 1, epoch)

    def remove(self, keys: np.ndarray, epoch: int) -> None:
        there = [key for key in np.unique(keys).tolist() if key in self.rows]
        self.table.remove(self.table.find([np.array(there, np.int64)]), epoch)
        for key in there:
            del self.rows[key]

    def check(self) -> None:
        index = self.table.store.index.arrays
        assert (np.bincount(np.flatnonzero(index.entries >= 0) >> PAGE_BITS).tolist()) == (
            index.filled[: np.flatnonzero(index.filled).max(initial=-1) + 1].tolist()
        )
        assert index.filled.max() <= PAGE_MOST and index.filled.sum() == len(self.rows)
        assert tallies(self.table.ordered()) == self.rows
        keys = np.array([*self.rows], np.int64)
        found = self.table.find([keys])
        assert np.array_equal(self.table.rows["_key"][found, 0], keys)


def tallies(rows: np.ndarray) -> dict[int, tuple[int, int]]:
    return dict(
        zip(
            rows["_key"][:, 0].tolist(),
            zip(rows["n"].tolist(), rows["_epoch"].tolist(), strict=True),
            strict=True,
        )
    )
