"""Which windows hold a time, where windows follow the clocks of a zone or months.

The same as `raystream.api.windows.assigner`, whose words and proofs hold here too: a *reading* is
what the clock has shown at most, and windows lie on readings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from raystream.api.windows import assigner
from raystream.api.windows.assigner import Assigner


class Calendar(NamedTuple):
    """An assigner as compiled code has it: arrays of int64, and numbers."""

    changes: np.ndarray
    offsets: np.ndarray
    peaks: np.ndarray
    size: int
    every: int
    offset: int
    months: int
    day: int


def calendar_of(windows: Assigner) -> Calendar:
    """The same windows, for compiled code."""
    numbers = (windows.size, windows.every, windows.offset, windows.months, windows.day)
    return Calendar(*windows.arrays, *numbers)


_month_of = njit(nogil=True)(assigner.month_of)
_first_day = njit(nogil=True)(assigner.first_day)


@njit(nogil=True)
def _up_to(values: Any, most: Any) -> Any:
    """How many of ascending values are at most `most`."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= most:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True)
def reading_at(time: Any, calendar: Any) -> Any:
    """The greatest reading that the clock has shown up to a time."""
    k = _up_to(calendar.changes, time)
    now = time + calendar.offsets[k]
    return max(now, calendar.peaks[k - 1] - 1) if k > 0 else now


@njit(nogil=True)
def moment_of(reading: Any, calendar: Any) -> Any:
    """The first time at which the clock has shown a reading, or a greater one."""
    k = _up_to(calendar.peaks, reading)
    at = reading - calendar.offsets[k]
    return max(at, calendar.changes[k - 1]) if k > 0 else at


@njit(nogil=True)
def newest_at(reading: Any, calendar: Any) -> Any:
    """The reading at which the newest window begins that has begun."""
    if calendar.months == 0:
        every, offset = calendar.every, calendar.offset
        return (reading - offset) // every * every + offset
    months = _month_of((reading - calendar.offset) // calendar.day)
    first = _first_day(months // calendar.months * calendar.months)
    return first * calendar.day + calendar.offset


@njit(nogil=True)
def oldest_at(reading: Any, newest: Any, calendar: Any) -> Any:
    """The reading at which the oldest window begins that holds a reading; after `newest` if none
    does."""
    if calendar.months > 0:
        return newest
    every = calendar.every
    return newest - (calendar.size - 1 - (reading - newest)) // every * every


@njit(nogil=True)
def closing_of(begins: Any, calendar: Any) -> Any:
    """The reading at which the window ends that begins at the reading `begins`."""
    return begins + calendar.size if calendar.months == 0 else _next_month(begins, calendar)


@njit(nogil=True)
def following(begins: Any, calendar: Any) -> Any:
    """The reading at which the window begins that follows the one that begins at `begins`."""
    return begins + calendar.every if calendar.months == 0 else _next_month(begins, calendar)


@njit(nogil=True)
def _next_month(begins: Any, calendar: Any) -> Any:
    months = _month_of((begins - calendar.offset) // calendar.day) + calendar.months
    return _first_day(months) * calendar.day + calendar.offset


@njit(nogil=True)
def end_of(start: Any, calendar: Any) -> Any:
    """When the window that begins at the time `start` ends."""
    begins = newest_at(reading_at(start, calendar), calendar)
    return moment_of(closing_of(begins, calendar), calendar)
