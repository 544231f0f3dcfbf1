"""Two series of records: what one has that the other has not."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from raystream.local.comparing import difference


class Reading(NamedTuple):
    at: int
    value: float


class Other(NamedTuple):
    at: int
    value: float


@pytest.mark.parametrize(
    ("one", "two", "lacks", "more"),
    [
        ([1, 2, 3], [1, 3], [2], []),
        ([1, 1], [1], [1], []),
        ([1], [1, 2, 2], [], [2, 2]),
        ([1, 2], [3, 2], [1], [3]),
    ],
)
def test_what_is_there_more_often_is_told(
    one: list[int], two: list[int], lacks: list[int], more: list[int]
) -> None:
    def readings(ats: list[int]) -> tuple[Any, ...]:
        return tuple(Reading(at, 0.5) for at in ats)

    found = difference("out", 7, readings(one), readings(two))
    assert found is not None
    assert (found.lacks, found.more, found.of) == (readings(lacks), readings(more), len(one))
    lines = [f"  - {r!r}" for r in readings(lacks)] + [f"  + {r!r}" for r in readings(more)]
    assert found.lines() == ["epoch 7  out", *lines]


def test_every_bit_and_the_type_count() -> None:
    same = [Reading(1, 0.1), Reading(2, float("nan"))]
    assert difference("out", 1, same, [Reading(1, 0.1), Reading(2, float("nan"))]) is None
    for other in (Other(1, 0.1), Reading(1, 0.1 + 2**-56), Reading(1, 0), Reading(True, 0.1)):
        found = difference("out", 1, [Reading(1, 0.1)], [other])
        assert found is not None and found.more == (other,)
    assert difference("out", 1, [Reading(1, 0.0)], [Reading(1, -0.0)]) is not None


def test_the_order_counts() -> None:
    one = [Reading(1, 0.5), Reading(2, 0.5)]
    found = difference("out", 3, one, one[::-1])
    assert found is not None and not found.lacks and not found.more
    assert found.lines() == ["epoch 3  out", "  the same 2 records in another order"]
