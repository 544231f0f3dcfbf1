"""Accidents: two cars that stop in one place until the place is cleared.

The schedule says in which segment and from when an accident may happen, and how long it lasts. The
first car that reports there afterwards stops where it is; the next one that would pass it runs into
it. From then on the road before them is crowded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_ingest.traffic import calibration as cal
from spark_ingest.traffic.plan import Ints, random

Lanes = npt.NDArray[np.int8]

_SCHEDULE = 5  # stream of random numbers; those of the plan are below


@dataclass(frozen=True, slots=True)
class Due:
    """An accident that may happen from second `time` on, in segment `seg`."""

    time: int
    seg: int
    lasts: int


@dataclass(slots=True)
class Accident:
    """One that has happened, or for which one car stands waiting."""

    seg: int
    pos: int
    lane: int
    clear: int
    """Second in which the cars drive on."""
    vids: list[int]


def schedule(seed: int, road: int, seconds: int) -> deque[Due]:
    """The accidents of one road: its share of what befalls its expressway."""
    rng = random(seed, road // 2, _SCHEDULE)
    found: deque[Due] = deque()
    time = int(rng.integers(*cal.ACCIDENT_FIRST))
    while time < seconds:
        direction = int(rng.integers(2))
        due = Due(
            time, int(rng.integers(*cal.ACCIDENT_SEGMENTS)), int(rng.integers(*cal.ACCIDENT_LASTS))
        )
        if direction == road % 2:
            found.append(due)
        time += int(rng.integers(*cal.ACCIDENT_EVERY))
    return found


class Accidents:
    """What has happened on one road so far."""

    def __init__(self, due: deque[Due]) -> None:
        self._due = due
        self._open: list[Accident] = []

    def crowd(self, seen: npt.NDArray[np.float64], seg: Ints, pos: Ints) -> None:
        """Raise what drivers see (cars in their segment) where they have an accident ahead."""
        for accident in self._open:
            if len(accident.vids) == 2:
                before = (seg == accident.seg) & (pos < accident.pos)
                seen[before] *= cal.ACCIDENT_CROWDING

    def stop(
        self, now: int, vid: Ints, free: npt.NDArray[np.bool_], old: Ints, new: Ints, lane: Lanes
    ) -> npt.NDArray[np.bool_]:
        """Stop the cars that are, or now become, part of an accident.

        The arrays describe the cars that report now: `free` are those that may be stopped, `old`
        and `new` positions. Sets `new` and `lane` of stopped cars; returns which they are.
        """
        self._open = [accident for accident in self._open if now < accident.clear]
        while self._due and self._due[0].time <= now:
            due = self._due[0]
            there = np.flatnonzero(free & (new // cal.FEET == due.seg) & (lane > 0))
            if not len(there):
                break
            self._due.popleft()
            car = int(there[0])
            self._open.append(
                Accident(due.seg, int(new[car]), int(lane[car]), now + due.lasts, [int(vid[car])])
            )
        stopped = np.zeros(len(vid), dtype=bool)
        for accident in self._open:
            self._involve(accident, vid, free & ~stopped, old, new)
            involved = np.isin(vid, accident.vids)
            new[involved] = accident.pos
            lane[involved] = accident.lane
            stopped |= involved
        return stopped

    @staticmethod
    def _involve(
        accident: Accident, vid: Ints, free: npt.NDArray[np.bool_], old: Ints, new: Ints
    ) -> None:
        """Let the first car that would pass a waiting one run into it."""
        if len(accident.vids) == 2:
            return
        passing = free & (old < accident.pos) & (new >= accident.pos) & ~np.isin(vid, accident.vids)
        candidates = np.flatnonzero(passing)
        if len(candidates):
            accident.vids.append(int(vid[candidates[0]]))
