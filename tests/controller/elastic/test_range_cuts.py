"""Ranges that are cut by load."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.elastic.range_cuts import even, heaviest, weight, within
from raystream.schema.types import KeyRange
from raystream.state.keys import tiles

weights = st.lists(st.floats(0, 1e6), min_size=1, max_size=40).map(np.array)


@given(weights, st.integers(1, 50), st.data())
def test_parts_are_a_range_cut_and_none_has_more_than_its_share_and_a_group(
    load: np.ndarray, parts: int, data: st.DataObject
) -> None:
    lo = data.draw(st.integers(0, len(load) - 1))
    keys = KeyRange(lo, data.draw(st.integers(lo + 1, len(load))))
    cut = even(keys, load, parts)
    assert len(cut) == min(parts, len(keys))
    assert cut[0].lo == keys.lo and cut[-1].hi == keys.hi
    assert all(len(r) > 0 for r in cut)
    assert all(a.hi == b.lo for a, b in pairwise(cut))
    own = load[keys.lo : keys.hi]
    assert heaviest(cut, load) <= own.sum() / len(cut) + own.max() + 1e-6 * own.sum()


@given(weights.filter(lambda w: len(w) > 1))
def test_two_parts_are_the_best_two(load: np.ndarray) -> None:
    everything = KeyRange(0, len(load))
    best = min(max(load[:at].sum(), load[at:].sum()) for at in range(1, len(load)))
    found = heaviest(even(everything, load, 2), load)
    assert found <= best + 1e-5 * load.sum() + 1e-9


def test_a_range_without_load_is_cut_in_the_middle() -> None:
    assert even(KeyRange(10, 20), np.zeros(256), 2) == (KeyRange(10, 15), KeyRange(15, 20))


def test_a_range_is_cut_where_its_load_halves_not_where_its_keys_do() -> None:
    load = np.zeros(256)
    load[:4] = 10
    assert even(KeyRange(0, 256), load, 2) == (KeyRange(0, 2), KeyRange(2, 256))


@given(weights, st.integers(1, 40), st.integers(1, 40), st.integers(0, 40))
def test_bounds_are_met_by_halving_and_merging(
    load: np.ndarray, parts: int, least: int, more: int
) -> None:
    ranges = even(KeyRange(0, len(load)), load, parts)
    found = within(ranges, load, least, least + more)
    assert tiles(found, len(load))
    assert min(least, len(load)) <= len(found) <= max(least + more, 1)
    if least <= len(ranges) <= least + more:
        assert found == ranges
    bounds, old = {r.lo for r in found}, {r.lo for r in ranges}
    assert bounds <= old or bounds >= old


def test_what_does_not_tile_is_seen() -> None:
    whole = [KeyRange(0, 3), KeyRange(3, 8)]
    assert tiles(whole, 8) and not tiles(whole, 9) and not tiles(whole[1:], 8)
    assert not tiles([KeyRange(0, 3), KeyRange(4, 8)], 8)
    assert not tiles([KeyRange(0, 5), KeyRange(3, 8)], 8)
    assert not tiles([KeyRange(0, 3), KeyRange(3, 3), KeyRange(3, 8)], 8)
    assert not tiles([], 8)
    assert weight(whole[1], np.ones(8)) == 5
