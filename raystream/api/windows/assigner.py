"""From event times to windows, and from the start of a window to its end.

Windows lie on the *readings* of a clock. Without a zone the reading is the time itself. With one it
is the greatest reading that the clocks of the zone have shown up to that time: it stands still
while clocks that were set back show again what they have shown, and jumps when clocks are set
forward. So readings never fall, each window is one stretch of time, and a day on which clocks are
set back has 25 hours.

Changes of the clocks that are a whole number of windows are left out, where windows are shorter
than a day: hours in New York go on through the night in which clocks change, and each has 3600
seconds.

All numbers are in time units of the flow. The same is computed in compiled code by
`raystream.compiled.runtime.calendars`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from raystream.api.windows.zones import Zone

_DAY = 86_400


@dataclass(frozen=True)
class Assigner:
    """Which windows hold a time. Windows begin at the readings `offset + n * every`, or with every
    `months`-th month since January 1970, and last for `size`, or until the next one begins. Of
    several that would begin at one moment, because clocks are set forward, there is only the
    last."""

    size: int
    """The length of a window, in readings; 0 for months."""
    every: int
    """From the beginning of a window to that of the next one; 0 for months."""
    offset: int = 0
    months: int = 0
    """How many months a window has; 0 for windows of a fixed length."""
    day: int = _DAY
    """The time units of a day."""
    changes: tuple[int, ...] = ()
    """When clocks change."""
    offsets: tuple[int, ...] = (0,)
    """How far they are ahead of UTC: before the first change, and from each change on."""

    @classmethod
    def of(
        cls, size: int, every: int, offset: int, months: int, ticks: int, zone: Zone | None
    ) -> Assigner:
        """The assigner of windows that are declared so.

        Args:
            ticks: time units per second.
        """
        changes: list[int] = []
        offsets = [0]
        if zone is not None:
            offsets = [zone.offsets[0] * ticks]
            short = 0 < every < _DAY * ticks
            for at, before, after in zip(
                zone.changes, zone.offsets, zone.offsets[1:], strict=False
            ):
                by = (after - before) * ticks
                if not (short and by % every == 0):
                    changes.append(at * ticks)
                    offsets.append(offsets[-1] + by)
        if not months:
            if not changes:  # a clock that never changes: windows of UTC, shifted
                offset, offsets = offset - offsets[0], [0]
            offset %= every
        return cls(
            size=size,
            every=every,
            offset=offset,
            months=months,
            day=_DAY * ticks,
            changes=tuple(changes),
            offsets=tuple(offsets),
        )

    @cached_property
    def even(self) -> bool:
        """Whether all windows have the same length, and their starts the same distance."""
        return not self.months and not self.changes

    @property
    def tumbling(self) -> bool:
        """Whether each time is in exactly one window."""
        return self.months > 0 or self.every == self.size

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """For each change the reading that clocks have not yet shown before it."""
        found: list[int] = []
        for at, ahead in zip(self.changes, self.offsets, strict=False):
            found.append(max(at + ahead, found[-1] if found else at + ahead))
        return tuple(found)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Changes, offsets and peaks, int64 each."""
        return (
            np.array(self.changes, np.int64),
            np.array(self.offsets, np.int64),
            np.array(self.peaks, np.int64),
        )

    # ------------------------------------------------------------ one by one

    def windows(self, time: int) -> list[tuple[int, int]]:
        """Start and end of each window that holds a time, in order; none between windows that are
        shorter than their distance."""
        size, every = self.size, self.every
        reading = time if self.even else self.reading(time)
        newest = self._begins(reading)
        if self.months:
            return [(self.moment(newest), self.moment(self._after(newest)))]
        oldest = newest - (size - 1 - (reading - newest)) // every * every
        starts = range(oldest, newest + 1, every)
        if self.even:
            return [(start, start + size) for start in starts]
        moments = [(self.moment(s), self.moment(s + size), self.moment(s + every)) for s in starts]
        return [(start, end) for start, end, following in moments if start != following]

    def end(self, start: int) -> int:
        """When the window that begins at a time ends."""
        if self.even:
            return start + self.size
        return self.moment(self._after(self._begins(self.reading(start))))

    def reading(self, time: int) -> int:
        """The greatest reading that the clock has shown up to a time."""
        k = bisect_right(self.changes, time)
        now = time + self.offsets[k]
        return max(now, self.peaks[k - 1] - 1) if k else now

    def moment(self, reading: int) -> int:
        """The first time at which the clock has shown a reading, or a greater one."""
        k = bisect_right(self.peaks, reading)
        at = reading - self.offsets[k]
        return max(at, self.changes[k - 1]) if k else at

    def _begins(self, reading: int) -> int:
        """The reading at which the newest window begins that has begun."""
        if not self.months:
            return (reading - self.offset) // self.every * self.every + self.offset
        months = month_of((reading - self.offset) // self.day)
        return first_day(months // self.months * self.months) * self.day + self.offset

    def _after(self, start: int) -> int:
        """The reading at which the window ends that begins at the reading `start`."""
        if not self.months:
            return start + self.size
        months = month_of((start - self.offset) // self.day)
        return first_day(months + self.months) * self.day + self.offset

    # ------------------------------------------------------------ columns

    def starts(self, times: np.ndarray) -> np.ndarray:
        """int64: the start of the newest window that has begun at each time."""
        if self.even:
            return self._all_begin(times)
        return self._moments(self._all_begin(self._readings(times)))

    def ends(self, starts: np.ndarray) -> np.ndarray:
        """int64: as `end`, for many."""
        if self.even:
            return starts + self.size
        begins = self._all_begin(self._readings(starts))
        if not self.months:
            return self._moments(begins + self.size)
        months = month_of((begins - self.offset) // self.day)
        return self._moments(first_day(months + self.months) * self.day + self.offset)

    def _readings(self, times: np.ndarray) -> np.ndarray:
        changes, offsets, peaks = self.arrays
        k = np.searchsorted(changes, times, "right")
        now = times + offsets[k]
        if len(peaks):
            now = np.where(k > 0, np.maximum(now, peaks[k - 1] - 1), now)
        return now

    def _moments(self, readings: np.ndarray) -> np.ndarray:
        changes, offsets, peaks = self.arrays
        k = np.searchsorted(peaks, readings, "right")
        at = readings - offsets[k]
        return np.where(k > 0, np.maximum(at, changes[k - 1]), at) if len(peaks) else at

    def _all_begin(self, readings: np.ndarray) -> np.ndarray:
        if not self.months:
            return (readings - self.offset) // self.every * self.every + self.offset
        months = month_of((readings - self.offset) // self.day)
        return first_day(months // self.months * self.months) * self.day + self.offset


def month_of(day: Any) -> Any:
    """The month that a day is in: months and days since January 1970, in the Gregorian calendar.
    Years begin in March here, so that a leap day is the last of its year."""
    day = day + 719_468  # days since March of the year 0
    era, of_era = day // 146_097, day % 146_097
    years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    return (era * 400 + years) * 12 + (5 * of_year + 2) // 153 + 2 - 1970 * 12


def first_day(month: Any) -> Any:
    """The first day of a month. Months are counted from January 1970, days from its first."""
    months = month + 1970 * 12 - 2  # months since March of the year 0
    years, of_year = months // 12, months % 12
    era, of_era = years // 400, years % 400
    days = of_era * 365 + of_era // 4 - of_era // 100 + (153 * of_year + 2) // 5
    return era * 146_097 + days - 719_468
