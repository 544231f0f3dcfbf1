"""Views of a structured table: the rows of one epoch, copied while the table changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raystream.errors import InternalError
from raystream.state.tables import structured_table as state_rows
from raystream.state.tables import view as views
from raystream.state.tables import views as rooms_of_views
from raystream.state.tables.view import Copy, TableView
from tests.state.tables.models import Grown, Key, Model, columns_of, content, grown, steps, tallies


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
    assert isinstance(first, TableView) and first.whole == finished
    assert isinstance(second, Copy) != finished
    grown.touch(np.arange(9), 3)
    assert tallies(first.rows()) == {k: (1, k) for k in range(9)}
    old = {} if since == 1 else {k: (1, k) for k in range(3, 9)}
    assert tallies(second.rows()) == old | {k: (2, k) for k in range(3)}


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
    take, keep = partial(grown.table.views.take_spare, of_all=True), grown.table.views.keep_spare
    assert take(1) is view._room and len(view._room) == many
    keep(view._room, 1)
    monkeypatch.setattr(rooms_of_views, "SPARE_BYTES", 0)
    assert len(take(1)) < many, "no more is kept than is worth it"


def test_the_memory_of_all_rows_is_kept_while_views_of_few_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkpoint that follows on a large one waits for it, and is closed after it."""
    monkeypatch.setattr(rooms_of_views, "SPARE_BYTES", 0)
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
    assert isinstance(last, TableView) and last._room is small
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
    monkeypatch.setattr(views, "SLICE_BYTES", 100 * grown.table.store.dtype.itemsize)
    view = grown.table.view(-1, 1)
    while not view.whole:
        grown.table.views.guard = turn()
        view.advance()
    assert len(view.rows()) == 40 * 100
    assert taken[0] == turns


def test_rows_are_not_put_aside_for_a_view_that_nobody_has() -> None:
    grown = Grown()
    grown.touch(np.arange(9), 1)
    grown.table.view(-1, 1)
    grown.table.view(0, 1).rows()
    grown.touch(np.arange(9), 2)
    assert not len(grown.table.views.aside)
