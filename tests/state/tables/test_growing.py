"""Structured tables that grow: pages of the index, room for rows, what is restored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raystream.errors import InternalError
from raystream.schema.state import state_schema
from raystream.state.growable_array import Room
from raystream.state.kernels import key_groups
from raystream.state.tables import row_index
from raystream.state.tables import structured_table as state_rows
from raystream.state.tables.row_kernels import PAGE, PAGE_LEAST
from raystream.state.tables.structured_restore import RowColumns
from raystream.state.tables.structured_table import StructuredTable
from tests.state.tables.models import ALL_KEYS, GROUPS, Grown, Tally, tallies

churn = st.lists(
    st.tuples(st.booleans(), st.integers(1, 3 * PAGE), st.integers(0, 99)), min_size=1, max_size=8
)


@settings(max_examples=25, deadline=None)
@given(churn)
def test_a_table_of_many_pages_holds_what_a_dict_holds(plan: list[tuple[bool, int, int]]) -> None:
    """Whatever was inserted and removed in between; and it is what a restored one holds."""
    grown = Grown()
    for epoch, (touch, n, seed) in enumerate(plan, 1):
        keys = np.random.default_rng(seed).integers(-5 * PAGE, 5 * PAGE, n)
        (grown.touch if touch else grown.remove)(keys, epoch)
    grown.check()
    rows = grown.table.ordered()
    restored = StructuredTable(grown.table.schema, keys=1, groups=GROUPS)
    restored.fill_columns([RowColumns([rows["_key"][:, 0]], 7, {"n": rows["n"]})])
    rows["_epoch"] = 7
    assert np.array_equal(restored.ordered(), rows)
    more = np.random.default_rng(1).integers(-6 * PAGE, 6 * PAGE, PAGE)
    for table in (grown.table, restored):
        slots, inverse = table.slots_of([more], 9)
        assert np.array_equal(table.rows["_key"][slots[inverse], 0], more)


def test_growing_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(room: Room, size: int) -> None:
        raise AssertionError(f"a room was copied to have {size} bytes")

    monkeypatch.setattr(Room, "_copy", refuse)
    grown = Grown()
    view = None
    for epoch in range(1, 9):
        grown.touch(np.arange(epoch * PAGE), epoch)
        view = grown.table.view(-1, epoch)
    grown.touch(np.arange(9 * PAGE), 9)
    assert view is not None and len(view.rows()) == 8 * PAGE


def test_pages_are_split_at_different_times_while_a_table_doubles() -> None:
    """Else whoever computes would do nothing but split pages in those moments."""
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
    pages, steps = list[int](), 16
    for end in [32 * PAGE * (steps + i) // steps for i in range(steps + 1)]:
        table.slots_of([np.arange(len(table), end)], 1)
        pages.append(len(table.store.index.arrays.filled))
    splits = np.diff(pages)
    assert splits.sum() >= 32 and splits.max() <= splits.sum() / 4


def test_hashes_that_are_too_much_alike_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_index, "DEPTH_MAX", 1)
    with pytest.raises(InternalError, match="hashes of the same 1 bits"):
        Grown().table.slots_of([np.arange(3 * PAGE)], 1)


@pytest.mark.parametrize("groups", [1, 64])
def test_pages_are_laid_where_rows_are(groups: int) -> None:
    """Also when an instance has a small range of the key groups, and so of the first bits."""
    n = 4 * PAGE_LEAST
    keys = np.arange(2 * groups * n)
    keys = keys[key_groups([keys], groups) == groups // 2][:n]
    table = StructuredTable(state_schema(Tally), keys=1, groups=groups)
    table.fill_columns([RowColumns([keys], 7, {"n": keys})])
    filled = table.store.index.arrays.filled
    assert filled.sum() == n and len(filled) <= 16
    assert np.array_equal(table.read(table.find([keys]), "n"), keys)


def test_room_is_made_bit_by_bit_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = Grown()
    monkeypatch.setattr(state_rows, "READY_BYTES", 100 * grown.table.store.dtype.itemsize)
    grown.table.make_room(1234, ALL_KEYS)
    assert len(grown.table.rows) == 1234 and not grown.table.store.used
    assert (grown.table.rows["_epoch"] == grown.table.store.kernels.FREE).all()
    assert [room.touched for room in grown.table.views._spares] == [1234 // 4]
    grown.touch(np.arange(1234), 1)
    assert len(grown.table.rows) == 1234
    assert tallies(grown.table.dirty(0)) == dict.fromkeys(range(1234), (1, 1))
    grown.table.make_room(5, ALL_KEYS)
    assert len(grown.table) == 1234 and len(grown.table.find([np.arange(1234)])) == 1234
