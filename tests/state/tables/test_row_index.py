"""The pages of an index that is filled at once, or laid for rows that are expected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.kernels import key_groups
from raystream.state.tables.row_index import page_depths
from raystream.state.tables.row_kernels import PAGE_LEAST
from raystream.state.tables.structured_table import StructuredTable

GROUPS = 16


class Tally(rs.State):
    n: int = 0


@given(
    bits=st.integers(0, 7),
    seed=st.integers(0, 2**32 - 1),
    most=st.integers(0, 40),
    room=st.integers(1, 60),
)
def test_pages_are_as_few_as_have_room_and_the_directory_as_short_as_tells_them_apart(
    bits: int, seed: int, most: int, room: int
) -> None:
    counts = np.random.default_rng(seed).integers(0, most + 1, 1 << bits).astype(np.int32)
    depths = page_depths(counts, room)
    length = len(depths).bit_length() - 1
    assert len(depths) == 1 << length and length == depths.max()
    by_value = depths.repeat(len(counts) >> length)
    at = 0
    while at < len(counts):
        depth = int(by_value[at])
        span = len(counts) >> depth  # values of the page
        assert at % span == 0 and (by_value[at : at + span] == depth).all()
        assert counts[at : at + span].sum() <= room or depth == bits
        if depth:  # it and its neighbour do not go on one page
            both = slice(at // (2 * span) * 2 * span, (at // (2 * span) + 1) * 2 * span)
            assert counts[both].sum() > room
        at += span


def pages_of(table: StructuredTable) -> int:
    return len(table.store.index.arrays.filled)


@pytest.mark.parametrize("keys", [KeyRange(0, GROUPS), KeyRange(3, 9), KeyRange(15, 16)])
def test_an_index_for_the_rows_that_are_expected_is_hardly_split(keys: KeyRange) -> None:
    expected, grown = (StructuredTable(state_schema(Tally), keys=1, groups=GROUPS) for _ in "ab")
    many = np.arange(100_000 * GROUPS // len(keys))
    group = key_groups([many], GROUPS)
    mine = many[(group >= keys.lo) & (group < keys.hi)]
    expected.make_room(100_000, keys)
    laid = pages_of(expected)
    assert laid * PAGE_LEAST > 60_000  # or all would be split
    for part in np.array_split(mine, 9):
        expected.slots_of([part], 1)
        grown.slots_of([part], 1)
    assert laid <= pages_of(expected) < laid * 1.2
    assert pages_of(expected) < 2 * pages_of(grown)
    assert (expected.find([mine]) == np.arange(len(mine))).all()


def test_an_index_that_has_rows_is_not_laid_anew() -> None:
    table, some = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS), np.arange(5)
    table.slots_of([some], 1)
    table.make_room(100_000, KeyRange(0, GROUPS))
    assert pages_of(table) == 1 and (table.find([some]) == some).all()
