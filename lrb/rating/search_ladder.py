"""The search for the largest number of expressways that a machine keeps up with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence


def rungs(unit: int, most: int) -> list[int]:
    """The numbers of expressways that are tried, ascending: `unit` times the whole numbers with at
    most two digits that are not trailing zeros (1, 2, ... 99, 100, 110, ... 990, 1000, ...), up to
    `most`; none if `most` is below `unit`."""
    found = []
    factor = 1
    while unit * factor <= most:
        found.append(unit * factor)
        factor += 10 ** max(0, len(str(factor)) - 2)
    return found


def search(numbers: Sequence[int], passes: Callable[[int], bool], *, begin: int = 1) -> int | None:
    """The largest of ascending numbers that passes, if what is above one that fails fails too.

    It doubles from `begin` on until one fails, then halves what is between the last that passed
    and the first that failed. Every number is tried at most once. None if the least one fails.
    """
    low, high = -1, len(numbers)  # numbers[low] passes, numbers[high] fails
    at = max(0, bisect_right(numbers, begin) - 1)
    while low + 1 < high:
        if passes(numbers[at]):
            low = at
        else:
            high = at
        if high == len(numbers):  # nothing has failed yet
            at = max(low + 1, bisect_right(numbers, 2 * numbers[low]) - 1)
        else:
            at = (low + high) // 2 if high - low > 1 else low
    return numbers[low] if low >= 0 else None
