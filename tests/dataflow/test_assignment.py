from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.dataflow.assignment import Assignment, Serving
from raystream.errors import InternalError
from raystream.schema.types import KeyRange

GROUPS = 16


def serving(name: str, lo: int, hi: int, **more: object) -> Serving:
    return Serving(0, KeyRange(lo, hi), name, f"grpc://{name}", **more)  # type: ignore[arg-type]


def test_a_candidate_owns_nothing_until_it_is_handed_the_range():
    a = Assignment(1, (serving("a", 0, 16),))
    b = a.with_candidates([serving("b", 0, 8), serving("c", 8, 16)])
    assert [s.instance for s in b.owners(0, 5)] == ["a"]
    c = b.handed_over(["b", "c"], 5, GROUPS)
    assert [(s.instance, s.first) for s in c.owners(0, 6)] == [("b", 6), ("c", 6)]
    assert c.version == 3 and c.instance("a") is None


def test_a_hand_over_that_leaves_a_hole_is_a_bug():
    a = Assignment(1, (serving("a", 0, 16),)).with_candidates([serving("b", 0, 8)])
    with pytest.raises(InternalError, match="nobody owns"):
        a.handed_over(["b"], 5, GROUPS)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [([(0, 8)], "nobody owns"), ([(0, 8), (9, 16)], "no owner"), ([(0, 8), (7, 16)], "two owners")],
)
def test_check_names_the_hole(ranges: list[tuple[int, int]], message: str):
    a = Assignment(1, tuple(serving(str(i), *r) for i, r in enumerate(ranges)))
    with pytest.raises(InternalError, match=message):
        a.check(0, 1, GROUPS)


bounds = st.lists(st.integers(1, GROUPS - 1), unique=True, max_size=5).map(
    lambda checkpoints: [0, *sorted(checkpoints), GROUPS]
)


@given(bounds, st.data())
def test_any_split_of_an_owner_and_merge_of_neighbours_keeps_the_tiling(
    at: list[int], data: st.DataObject
):
    ranges = list(pairwise(at))
    a = Assignment(1, tuple(serving(f"i{i}", *r) for i, r in enumerate(ranges)))
    lo = data.draw(st.integers(0, len(ranges) - 1))
    hi = data.draw(st.integers(lo, len(ranges) - 1))
    start, end = ranges[lo][0], ranges[hi][1]
    middle = data.draw(st.integers(start, end))
    new = [(start, end)] if middle in (start, end) else [(start, middle), (middle, end)]
    names = [f"n{i}" for i in range(len(new))]
    b = a.with_candidates([serving(n, *r) for n, r in zip(names, new, strict=True)])
    c = b.handed_over(names, 7, GROUPS)
    c.check(0, 8, GROUPS)
    assert {s.instance for s in c.serving} == set(names) | {
        f"i{i}" for i, r in enumerate(ranges) if not KeyRange(*r).overlaps(KeyRange(start, end))
    }
