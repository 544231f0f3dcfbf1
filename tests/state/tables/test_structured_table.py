"""The structured table against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import InternalError, StateError
from raystream.schema.state import state_schema
from raystream.state.keys import key_group
from raystream.state.tables.row_kernels import AHEAD
from raystream.state.tables.row_store import in_key_order
from raystream.state.tables.structured_restore import BLOCK, RowColumns
from raystream.state.tables.structured_table import StructuredTable
from tests.state.tables.models import (
    GROUPS,
    SCHEMA,
    Key,
    Tally,
    columns_of,
    content,
    grown,
    keys_of_two,
    steps,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.lists(keys_of_two, min_size=1))
def test_it_holds_what_a_dict_holds(plan: list[Any], others: list[Key]) -> None:
    model = grown(plan)
    assert len(model.table) == len(model.rows)
    assert content(model.table.ordered()) == model.rows
    assert [tuple(k) for k in model.table.ordered()["_key"].tolist()] == sorted(model.rows)
    found = model.table.find(columns_of(others))
    assert [slot >= 0 for slot in found.tolist()] == [k in model.rows for k in others]


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(0, 12), st.integers(0, 12))
def test_a_delta_on_its_base_is_the_table(plan: list[Any], base_at: int, settled: int) -> None:
    base_at = min(base_at, len(plan))
    model = grown(plan[:base_at])
    base = model.table.dirty(-1)
    since = model.epoch
    for touch, keys, due in plan[base_at:]:
        model.touch(keys, due) if touch else model.remove(keys)
    model.table.settle(min(settled, since))

    gone, dirty = model.table.removals.gone(since), model.table.dirty(since)
    assert {tuple(k) for k in gone.tolist()} == {
        k for k, e in model.removed.items() if e > since and k not in model.rows
    }
    assert content(dirty) == {k: r for k, r in model.rows.items() if r[2] > since}
    image = StructuredTable(SCHEMA, keys=2, groups=GROUPS)
    image.fill_columns(parts_of(base))
    slots = image.find(list(gone.T))
    image.remove(slots[slots >= 0], 99)
    for part in parts_of(dirty):
        image.put_columns(part)
    assert np.array_equal(image.ordered(), model.table.ordered())
    assert image.timers.next_due <= min((r[1] for r in model.rows.values()), default=rs.NEVER)


def parts_of(rows: np.ndarray) -> list[RowColumns]:
    """Rows as columns, per epoch."""
    return [
        RowColumns(list(mine["_key"].T), epoch, {n: mine[n] for n in ("n", "due", "cars")})
        for epoch in np.unique(rows["_epoch"]).tolist()
        for mine in [rows[rows["_epoch"] == epoch]]
    ]


@pytest.mark.parametrize("rows", [0, 1, BLOCK, 3 * BLOCK + 1])
def test_filling_a_table_is_inserting_into_it(rows: int) -> None:
    keys = np.random.default_rng(rows).permutation(2 * rows + 1)[:rows] - rows
    parts = [
        RowColumns([k], epoch, {"n": k * 3}) for epoch, k in enumerate((keys[::2], keys[1::2]), 1)
    ]
    filled, inserted = (
        StructuredTable(state_schema(Tally), keys=1, groups=GROUPS) for _ in range(2)
    )
    filled.fill_columns(parts)
    for part in parts:
        inserted.put_columns(part)
    assert np.array_equal(filled.ordered(), inserted.ordered())
    assert np.array_equal(filled.rows["_key"][filled.find([keys]), 0], keys)
    more = np.array([5 * rows + 5])
    slots, _ = filled.slots_of([more], 9)
    assert filled.read(slots, "n").tolist() == [0]
    with pytest.raises(InternalError, match="has rows already"):
        filled.fill_columns(parts)


@settings(max_examples=150, deadline=None)
@given(steps, st.one_of(st.integers(0, 60), st.just(rs.NEVER)))
def test_due_rows_come_by_group_time_and_key(plan: list[Any], watermark: int) -> None:
    model = grown(plan)
    table = model.table
    expected = sorted(
        (key_group(k, GROUPS), due, k)
        for k, (_, due, _) in model.rows.items()
        if due <= watermark and due != rs.NEVER
    )
    slots, offsets = table.timers.in_firing_order(table.timers.due(watermark))
    assert [tuple(k) for k in table.rows["_key"][slots].tolist()] == [k for _, _, k in expected]
    counts = np.bincount([g for g, _, _ in expected], minlength=GROUPS)
    assert offsets.tolist() == [0, *np.cumsum(counts).tolist()]
    rest = [due for _, due, _ in model.rows.values() if due > watermark]
    assert table.timers.next_due <= min(rest, default=rs.NEVER)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_alarms_find_what_a_look_at_all_rows_finds(seed: int, watermarks: list[int]) -> None:
    """Many rows, set anew when they were due or at any time, removed, and back in other slots."""
    rng = np.random.default_rng(seed)
    table = StructuredTable(SCHEMA, keys=1, groups=GROUPS)
    dues: dict[int, int] = {}

    def set_due(keys: np.ndarray, epoch: int) -> None:
        slots, _ = table.slots_of([keys], epoch)
        chosen = rng.choice([*range(60), rs.NEVER], len(keys))
        table.write(slots, {"due": chosen}, epoch)
        dues.update(zip(keys.tolist(), chosen.tolist(), strict=True))

    set_due(rng.permutation(12_000), 1)
    for epoch, watermark in enumerate(watermarks, 2):
        found = table.timers.due(watermark)
        keys = table.rows["_key"][found, 0]
        assert sorted(keys.tolist()) == sorted(k for k, due in dues.items() if due <= watermark)
        assert watermark < table.timers.next_due <= min(dues.values(), default=rs.NEVER) or len(
            keys
        )
        table.remove(found[::2], epoch)
        for key in keys[::2].tolist():
            del dues[key]
        if len(keys) > 1:
            set_due(keys[1::2].copy(), epoch)
        set_due(rng.choice(14_000, 300, replace=False), epoch)
    assert table.timers.next_due <= min(dues.values())


def test_windows_are_due_at_their_end() -> None:
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS, window=30)
    starts = np.array([-60, 0, -30, 30, 0])
    keys = np.array([5, 5, 5, 5, -2])
    slots, _ = table.slots_of([keys, starts], epoch=1)
    table.write(slots, {}, 1)
    assert table.timers.next_due == -30
    due = table.rows["_key"][table.timers.in_firing_order(table.timers.due(30))[0]].tolist()
    groups = [key_group(k, GROUPS) for k in (5, -2)]
    mine = [[5, -60], [5, -30], [5, 0]]
    assert due == (mine + [[-2, 0]] if groups[0] < groups[1] else [[-2, 0], *mine])
    assert table.timers.next_due == 60
    assert table.timers.due(59).tolist() == []


def test_nothing_is_scanned_when_nothing_can_be_due() -> None:
    table = StructuredTable(SCHEMA, keys=1, groups=GROUPS)
    slots, _ = table.slots_of([np.array([1])], epoch=1)
    table.write(slots, {"due": np.array([100])}, 1)
    table.store.rows = np.zeros(0, table.store.dtype)  # a scan would fail
    assert table.timers.due(99).tolist() == []
    assert table.timers.next_due == 100


def test_keys_are_numbered_by_first_appearance() -> None:
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
    keys = np.arange(1000)
    slots, inverse = table.slots_of([np.concatenate([keys, keys[::-1]])], epoch=1)
    assert len(slots) == 1000 and inverse.tolist() == [*range(1000), *range(999, -1, -1)]


def test_a_field_that_a_row_has_not_is_named() -> None:
    table = StructuredTable(SCHEMA, keys=1, groups=GROUPS)
    slots, _ = table.slots_of([np.array([1])], epoch=1)
    for name in ("m", "_epoch"):
        with pytest.raises(StateError, match=f"Row has no field '{name}'"):
            table.read(slots, name)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_batches_number_keys_as_a_dict_does(data: st.DataObject, columns: int) -> None:
    """Whatever the number of key columns, and over more than one block that is fetched ahead."""
    table = StructuredTable(SCHEMA, keys=columns, groups=GROUPS)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    known: dict[Key, int] = {}
    for epoch in range(1, 4):
        n = data.draw(st.integers(1, 3 * AHEAD))
        given_keys = [rng.integers(-5, 6, n).astype(np.int32) for _ in range(columns)]
        keys: list[Key] = list(zip(*(c.tolist() for c in given_keys), strict=True))
        slots, index = table.slots_of(given_keys, epoch)
        assert [keys[i] for i in np.unique(index, return_index=True)[1]] == list(
            dict.fromkeys(keys)
        )
        for key, slot in zip(keys, slots[index].tolist(), strict=True):
            assert known.setdefault(key, slot) == slot
        assert table.find(given_keys).tolist() == slots[index].tolist()
        assert list(map(tuple, table.rows["_key"][slots].tolist())) == list(dict.fromkeys(keys))
    assert len(table) == len(known)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(0, 99))
def test_reading_and_writing_rows_is_indexing(n: int, seed: int) -> None:
    table = StructuredTable(SCHEMA, keys=2, groups=GROUPS)
    rng = np.random.default_rng(seed)
    table.slots_of([rng.integers(-9, 9, 300), rng.integers(-9, 9, 300)], epoch=1)
    slots = rng.permutation(len(table))[:n]
    fields, expected = ("n", "due", "cars"), table.rows.copy()
    for name in fields:
        assert np.array_equal(table.read(slots, name), table.rows[name][slots])
    rows: dict[str, np.ndarray] = {
        "n": rng.integers(-9, 9, len(slots)),
        "due": rng.integers(0, 9, len(slots)),
        "cars": rng.integers(-9, 9, (len(slots), 3)),
    }
    for name in fields:
        expected[name][slots] = rows[name]
    expected["_epoch"][slots] = 7
    table.write(slots, rows, 7)
    assert np.array_equal(table.rows, expected)
    assert table.timers.next_due == rows["due"].min()


def test_key_order_is_numeric() -> None:
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
    table.slots_of([np.array([10, -1, 9, 2**62])], epoch=1)
    assert in_key_order(table.dirty(0))["_key"][:, 0].tolist() == [-1, 9, 10, 2**62]
