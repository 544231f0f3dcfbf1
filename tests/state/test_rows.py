"""The structured table against a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import InternalError, StateError
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state import row_index
from raystream.state import rows as state_rows
from raystream.state import view as views
from raystream.state.kernels import key_groups
from raystream.state.keys import key_group
from raystream.state.room import Room
from raystream.state.row_kernels import AHEAD, PAGE, PAGE_BITS, PAGE_LEAST, PAGE_MOST
from raystream.state.rows import BLOCK, Part, StructuredTable, in_key_order
from raystream.state.view import Copy, View

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


def expected_in(model: Model, since: int, before: tuple[int, int]) -> dict[Key, Any]:
    """The rows of a view that is opened now, with their slots in place of their epochs. Those that
    it has because they are old count as touched now."""
    at = dict(zip(model.rows, model.table.find(columns_of(list(model.rows))).tolist(), strict=True))
    found = {}
    for k, (n, due, epoch) in model.rows.items():
        if epoch > since or (epoch, at[k]) < before:
            found[k] = (n, due, at[k])
            model.rows[k] = (n, due, epoch if epoch > since else model.epoch)
    return found


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
    model.table.settled(min(settled, since))

    gone, dirty = model.table.gone(since), model.table.dirty(since)
    assert {tuple(k) for k in gone.tolist()} == {
        k for k, e in model.removed.items() if e > since and k not in model.rows
    }
    assert content(dirty) == {k: r for k, r in model.rows.items() if r[2] > since}
    image = StructuredTable(SCHEMA, keys=2, groups=GROUPS)
    image.fill(parts_of(base))
    slots = image.find(list(gone.T))
    image.remove(slots[slots >= 0], 99)
    for part in parts_of(dirty):
        image.put(part)
    assert np.array_equal(image.ordered(), model.table.ordered())
    assert image.next_due <= min((r[1] for r in model.rows.values()), default=rs.NEVER)


def parts_of(rows: np.ndarray) -> list[Part]:
    """Rows as columns, per epoch."""
    return [
        Part(list(mine["_key"].T), epoch, {n: mine[n] for n in ("n", "due", "cars")})
        for epoch in np.unique(rows["_epoch"]).tolist()
        for mine in [rows[rows["_epoch"] == epoch]]
    ]


@pytest.mark.parametrize("rows", [0, 1, BLOCK, 3 * BLOCK + 1])
def test_filling_a_table_is_inserting_into_it(rows: int) -> None:
    keys = np.random.default_rng(rows).permutation(2 * rows + 1)[:rows] - rows
    parts = [Part([k], epoch, {"n": k * 3}) for epoch, k in enumerate((keys[::2], keys[1::2]), 1)]
    filled, inserted = (
        StructuredTable(state_schema(Tally), keys=1, groups=GROUPS) for _ in range(2)
    )
    filled.fill(parts)
    for part in parts:
        inserted.put(part)
    assert np.array_equal(filled.ordered(), inserted.ordered())
    assert np.array_equal(filled.rows["_key"][filled.find([keys]), 0], keys)
    more = np.array([5 * rows + 5])
    slots, _ = filled.slots_of([more], 9)
    assert filled.read(slots, "n").tolist() == [0]
    with pytest.raises(InternalError, match="has rows already"):
        filled.fill(parts)


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
    slots, offsets = table.in_firing_order(table.due(watermark))
    assert [tuple(k) for k in table.rows["_key"][slots].tolist()] == [k for _, _, k in expected]
    counts = np.bincount([g for g, _, _ in expected], minlength=GROUPS)
    assert offsets.tolist() == [0, *np.cumsum(counts).tolist()]
    rest = [due for _, due, _ in model.rows.values() if due > watermark]
    assert table.next_due <= min(rest, default=rs.NEVER)


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
        found = table.due(watermark)
        keys = table.rows["_key"][found, 0]
        assert sorted(keys.tolist()) == sorted(k for k, due in dues.items() if due <= watermark)
        assert watermark < table.next_due <= min(dues.values(), default=rs.NEVER) or len(keys)
        table.remove(found[::2], epoch)
        for key in keys[::2].tolist():
            del dues[key]
        if len(keys) > 1:
            set_due(keys[1::2].copy(), epoch)
        set_due(rng.choice(14_000, 300, replace=False), epoch)
    assert table.next_due <= min(dues.values())


def test_windows_are_due_at_their_end() -> None:
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS, window=30)
    starts = np.array([-60, 0, -30, 30, 0])
    keys = np.array([5, 5, 5, 5, -2])
    slots, _ = table.slots_of([keys, starts], epoch=1)
    table.write(slots, {}, 1)
    assert table.next_due == -30
    due = table.rows["_key"][table.in_firing_order(table.due(30))[0]].tolist()
    groups = [key_group(k, GROUPS) for k in (5, -2)]
    mine = [[5, -60], [5, -30], [5, 0]]
    assert due == (mine + [[-2, 0]] if groups[0] < groups[1] else [[-2, 0], *mine])
    assert table.next_due == 60
    assert table.due(59).tolist() == []


def test_nothing_is_scanned_when_nothing_can_be_due() -> None:
    table = StructuredTable(SCHEMA, keys=1, groups=GROUPS)
    slots, _ = table.slots_of([np.array([1])], epoch=1)
    table.write(slots, {"due": np.array([100])}, 1)
    table.rows = np.zeros(0, table.dtype)  # a scan would fail
    assert table.due(99).tolist() == []
    assert table.next_due == 100


def test_keys_are_numbered_by_first_appearance() -> None:
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
    keys = np.arange(1000)
    slots, inverse = table.slots_of([np.concatenate([keys, keys[::-1]])], epoch=1)
    assert len(slots) == 1000 and inverse.tolist() == [*range(1000), *range(999, -1, -1)]


# ---------------------------------------------------------------- growing


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
        index = self.table.index
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
    restored.fill([Part([rows["_key"][:, 0]], 7, {"n": rows["n"]})])
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
        pages.append(len(table.index.filled))
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
    table.fill([Part([keys], 7, {"n": keys})])
    filled = table.index.filled
    assert filled.sum() == n and len(filled) <= 16
    assert np.array_equal(table.read(table.find([keys]), "n"), keys)


def test_a_field_that_a_row_has_not_is_named() -> None:
    table = StructuredTable(SCHEMA, keys=1, groups=GROUPS)
    slots, _ = table.slots_of([np.array([1])], epoch=1)
    for name in ("m", "_epoch"):
        with pytest.raises(StateError, match=f"Row has no field '{name}'"):
            table.read(slots, name)


# ---------------------------------------------------------------- views


@settings(max_examples=100, deadline=None)
@given(
    steps,
    st.integers(0, 12),
    st.integers(-1, 12),
    st.lists(st.integers(0, 3), max_size=12),
    st.integers(-1, 12),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_a_view_has_the_rows_of_its_epoch_and_old_ones(
    plan: list[Any], at: int, since: int, slices: list[int], later: int, before: tuple[int, int]
) -> None:
    """Whatever is copied when, before, between and after changes; and so has the next one."""
    at = min(at, len(plan))
    model = grown(plan[:at])
    expected = expected_in(model, since, before)
    with patch.object(views, "SLICE_BYTES", 100):
        view = model.table.view(since, model.epoch, before)
    for (touch, keys, due), many in zip_longest(plan[at:], slices, fillvalue=(True, [(0, 0)], 0)):
        for _ in range(many if isinstance(many, int) else 1):
            view.advance()
        model.touch(keys, due) if touch else model.remove(keys)
    newer = expected_in(model, later, before)
    second = model.table.view(later, model.epoch, before)
    model.touch([(0, 0)], 0)
    assert content(view.rows()) == expected
    assert content(second.rows()) == newer
    assert content(model.table.ordered()) == model.rows


@pytest.mark.parametrize(("since", "finished"), [(-1, True), (1, False)])
def test_of_two_views_the_one_with_less_is_copied_at_once(since: int, finished: bool) -> None:
    grown = Grown()
    grown.touch(np.arange(9), 1)
    first = grown.table.view(-1, 1)
    grown.touch(np.arange(3), 2)
    second = grown.table.view(since, 2)
    assert isinstance(first, View) and first.whole == finished
    assert isinstance(second, Copy) != finished
    grown.touch(np.arange(9), 3)
    assert tallies(first.rows()) == {k: (1, k) for k in range(9)}
    old = {} if since == 1 else {k: (1, k) for k in range(3, 9)}
    assert tallies(second.rows()) == old | {k: (2, k) for k in range(3)}


def test_room_is_made_bit_by_bit_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = Grown()
    monkeypatch.setattr(state_rows, "READY_BYTES", 100 * grown.table.dtype.itemsize)
    grown.table.make_room(1234, ALL_KEYS)
    assert len(grown.table.rows) == 1234 and not grown.table.used
    assert (grown.table.rows["_epoch"] == grown.table._kernels.FREE).all()
    assert [room.touched for room in grown.table._spares] == [1234 // 4]
    grown.touch(np.arange(1234), 1)
    assert len(grown.table.rows) == 1234
    assert tallies(grown.table.dirty(0)) == dict.fromkeys(range(1234), (1, 1))
    grown.table.make_room(5, ALL_KEYS)
    assert len(grown.table) == 1234 and len(grown.table.find([np.arange(1234)])) == 1234


def test_a_sample_tells_how_old_the_rows_are() -> None:
    grown, many = Grown(), 3 * state_rows.SAMPLE
    assert not len(grown.table.sample())
    grown.touch(np.arange(many), 1)
    grown.touch(np.arange(many // 4), 2)
    grown.table.remove(grown.table.find([np.arange(many // 2, many)]), 3)
    view = grown.table.view(1, 3)
    assert not len(grown.table.sample()), "a view is copied"
    view.copy()
    sample = grown.table.sample()
    assert sample.tolist() == sorted(map(list, set(map(tuple, sample.tolist()))))
    assert abs(len(sample) - state_rows.SAMPLE // 2) < 9
    assert abs(int((sample[:, 0] == 1).sum()) - state_rows.SAMPLE // 4) < 9
    assert (grown.table.rows["_epoch"][sample[:, 1]] == sample[:, 0]).all()


def test_a_view_is_read_once() -> None:
    view = Grown().table.view(-1, 1)
    assert not len(view.rows())
    with pytest.raises(InternalError, match="asked for twice"):
        view.rows()


def test_the_memory_of_a_view_serves_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    grown, at = Grown(), []
    for epoch in range(1, 5):
        grown.touch(np.arange(100 * epoch), epoch)
        view = grown.table.view(epoch - 1, epoch)
        rows = view.rows()
        assert tallies(rows) == {k: (epoch - k // 100, k) for k in range(100 * epoch)}
        at.append(rows.ctypes.data)
        del rows
        view.close()
    assert at[1] == at[2]
    many = len(view._room)
    take, keep = partial(grown.table.take_spare, of_all=True), grown.table.keep_spare
    assert take(1) is view._room and len(view._room) == many
    keep(view._room, 1)
    monkeypatch.setattr(state_rows, "SPARE_BYTES", 0)
    assert len(take(1)) < many, "no more is kept than is worth it"


def test_the_memory_of_all_rows_is_kept_while_views_of_few_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkpoint that follows on a large one waits for it, and is closed after it."""
    monkeypatch.setattr(state_rows, "SPARE_BYTES", 0)
    grown, rooms = Grown(), []
    for epoch in range(1, 5):
        grown.touch(np.arange(9000), 2 * epoch)
        every = grown.table.view(-1, 2 * epoch)
        assert len(every.rows()) == 9000
        grown.touch(np.arange(5), 2 * epoch + 1)
        few = grown.table.view(2 * epoch, 2 * epoch + 1)
        assert len(few.rows()) == 5
        for view in (every, few):
            view.close()
        rooms.append((every._room, few._room))
    assert all(all_ is rooms[0][0] and few is rooms[0][1] for all_, few in rooms)
    small = rooms[0][1]
    small.touched = 8000
    last = grown.table.view(9, 10)
    assert isinstance(last, View) and last._room is small
    assert small.touched < 8000, "not all rows are kept room for twice"


@pytest.mark.parametrize(("more", "turns"), [(0, 40), (2, 14), (1000, 3)])
def test_as_many_slices_are_copied_in_a_turn_as_it_has_time_for(
    monkeypatch: pytest.MonkeyPatch, more: int, turns: int
) -> None:
    """Else a view of a large table would be open as long as somebody computes without a pause."""
    grown, taken = Grown(), [0]

    @contextmanager
    def turn() -> Iterator[Callable[[], bool]]:
        taken[0] += 1
        left = iter(range(more))
        yield lambda: next(left, None) is not None

    grown.touch(np.arange(40 * 100), 1)
    monkeypatch.setattr(views, "SLICE_BYTES", 100 * grown.table.dtype.itemsize)
    view = grown.table.view(-1, 1)
    while not view.whole:
        grown.table.guard = turn()
        view.advance()
    assert len(view.rows()) == 40 * 100
    assert taken[0] == turns


def test_rows_are_not_put_aside_for_a_view_that_nobody_has() -> None:
    grown = Grown()
    grown.touch(np.arange(9), 1)
    grown.table.view(-1, 1)
    grown.table.view(0, 1).rows()
    grown.touch(np.arange(9), 2)
    assert not len(grown.table.aside)


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
    assert table.next_due == rows["due"].min()


def test_key_order_is_numeric() -> None:
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
    table.slots_of([np.array([10, -1, 9, 2**62])], epoch=1)
    assert in_key_order(table.dirty(0))["_key"][:, 0].tolist() == [-1, 9, 10, 2**62]
