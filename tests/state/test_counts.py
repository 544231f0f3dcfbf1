"""Counts by key group: whatever images a range is made of, they add up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raystream.schema.types import KeyRange
from raystream.state.counts import IN, LATE, Counts, joined, part_of_counts

GROUPS = 6
KEYS = KeyRange(3, 3 + GROUPS)
steps = st.lists(
    st.tuples(
        st.sampled_from([IN, LATE, "port a"]),
        st.lists(st.integers(0, 9), min_size=GROUPS, max_size=GROUPS),
    ),
    max_size=8,
)


def counted(steps: list[tuple[str, list[int]]], keys: KeyRange = KEYS) -> Counts:
    """What an instance of a range inside KEYS counts."""
    counts = Counts(len(keys))
    for name, by_group in steps:
        mine = by_group[keys.lo - KEYS.lo : keys.hi - KEYS.lo]
        counts.add(name, np.concatenate([[0], np.cumsum(mine)]))
    return counts


@given(steps)
def test_totals_are_sums_over_key_groups(steps: list[tuple[str, list[int]]]) -> None:
    counts = counted(steps)
    for name in (IN, LATE, "port a", "port b"):
        by_group = np.sum([[0] * GROUPS, *(n for said, n in steps if said == name)], axis=0)
        assert counts.by_group(name).tolist() == by_group.tolist()
        assert counts.total(name) == by_group.sum()
    assert counts.stored() == Counts(GROUPS, counts.stored()).stored()


@given(steps, steps, st.integers(1, GROUPS - 1), st.booleans())
def test_parts_of_overlapping_ranges_add_up(
    before: list[tuple[str, list[int]]],
    after: list[tuple[str, list[int]]],
    at: int,
    low_is_of_owner: bool,
) -> None:
    """One part is of the owner of the whole range, the other of a candidate for that part, which
    began with what the owner had counted before."""
    low, high = KeyRange(KEYS.lo, KEYS.lo + at), KeyRange(KEYS.lo + at, KEYS.hi)
    owner = counted([*before, *after]).stored()
    begun = counted(before).stored()

    def of_candidate(part: KeyRange) -> dict[str, bytes]:
        counts = Counts(len(part), part_of_counts(begun, KEYS, part))
        for name, by_group in after:
            mine = by_group[part.lo - KEYS.lo : part.hi - KEYS.lo]
            counts.add(name, np.concatenate([[0], np.cumsum(mine)]))
        return counts.stored()

    if low_is_of_owner:
        parts = part_of_counts(owner, KEYS, low), of_candidate(high)
    else:
        parts = of_candidate(low), part_of_counts(owner, KEYS, high)
    assert joined(*parts) == owner
    alone = Counts(GROUPS, joined(counted([], low).stored(), parts[1]))
    for name in (IN, LATE, "port a"):
        expected = Counts(GROUPS, owner).by_group(name)
        expected[:at] = 0  # a name that was never counted there
        assert alone.by_group(name).tolist() == expected.tolist()
