"""Memory that grows where it is."""

from __future__ import annotations

import numpy as np
import pytest

from raystream.state.growable_array import HUGE_BYTES, LEAST_BYTES, Room

PAIR = np.dtype([("a", "i8"), ("b", "i4")])


@pytest.mark.parametrize("held", [False, True])
def test_what_was_there_stays(held: bool) -> None:
    room = Room(PAIR)
    room.grow(10)
    room.view(10)["b"] = range(10)
    before = room.view(10) if held else None
    room.grow(1_000_000)
    assert len(room) >= 1_000_000
    after = room.view(1_000_000)
    assert after["b"][:10].tolist() == [*range(10)]
    assert not after["a"].any() and not after["b"][10:].any()
    after["b"] = 1
    if before is not None:
        assert before["b"].tolist() == [*range(10)]


def test_it_does_not_shrink() -> None:
    room = Room(np.dtype(np.uint8))
    room.grow(HUGE_BYTES)
    room.grow(1)
    assert len(room) == HUGE_BYTES


def test_it_shrinks_when_it_is_told_and_nobody_looks() -> None:
    room = Room(np.dtype(np.uint8))
    room.grow(HUGE_BYTES)
    seen = room.view(HUGE_BYTES)
    seen[:9] = range(9)
    room.shrink(9)
    assert len(room) == HUGE_BYTES
    del seen
    room.shrink(HUGE_BYTES + 1)
    assert len(room) == HUGE_BYTES
    room.shrink(LEAST_BYTES + 1)
    assert len(room) == 2 * LEAST_BYTES
    room.shrink(0)
    assert len(room) == LEAST_BYTES
    assert room.view(9).tolist() == [*range(9)]
