"""The pages of an index that is filled at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raystream.state.row_index import page_depths


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
