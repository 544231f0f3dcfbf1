"""When a keeper says that it holds an image which comes in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ray

from raystream.actors.keeper import Keeper
from raystream.schema.types import KeyRange

ALL = KeyRange(0, 16)
FIRST, LAST = KeyRange(0, 7), KeyRange(7, 16)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(ray, "put", lambda value: value)
    plan: Any = None
    return Keeper(plan)


def store(keeper: Keeper, part: KeyRange, *, base: int = 0, cut: int = 5) -> bool:
    return keeper.store("count/0", 1, ALL, base, cut, False, part, np.zeros(3, np.uint8))


def test_an_image_is_held_with_its_last_part(keeper: Keeper) -> None:
    assert store(keeper, FIRST)
    assert not keeper.images(1, 5, ALL)
    assert store(keeper, LAST)
    (((keys, (parts,))),) = keeper.images(1, 5, ALL)
    assert keys == ALL and len(parts) == 2


def test_an_image_of_which_another_got_the_first_part_is_not_held(keeper: Keeper) -> None:
    """Keepers were replaced while it was sent."""
    assert not store(keeper, LAST)
    assert not keeper.images(1, 5, ALL)


def test_an_image_that_was_whole_before_its_last_part_came_is_held(keeper: Keeper) -> None:
    """It is sent again, and its end was here from the first time."""
    assert not store(keeper, LAST)
    assert store(keeper, FIRST)
    assert store(keeper, LAST)


def test_a_delta_on_what_is_not_held_is_refused_with_its_last_part(keeper: Keeper) -> None:
    assert store(keeper, FIRST, base=3)
    assert not store(keeper, LAST, base=3)
