"""The rules once more, in plain Python: slow, obvious, and written apart from the oracle's SQL.

Fractions for speeds, loops for accidents, a dictionary per car. A second reader of the same rules,
to find where the first one slipped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from math import floor

from tests.lrb.rows import Charge, Row

Answer = tuple[int, ...]
Segment = tuple[int, int, int]  # xway, dir, seg


def answers(rows: Iterable[Row], history: Iterable[Charge] = ()) -> dict[str, Counter[Answer]]:
    """All answers by the name of their kind, in the columns of `lrb.oracle.answers`."""
    # Reports before questions within a second.
    ordered = sorted(rows, key=lambda row: (row[1], row[0]))
    reports = [row for row in ordered if row[0] == 0]
    speeds = _speeds(reports)
    accidents = _accidents(reports)
    spent = Counter[tuple[int, int, int]]()
    for vid, day, xway, toll in history:
        spent[vid, day, xway] += toll
    found: dict[str, list[Answer]] = {"toll": [], "alert": [], "balance": [], "expenditure": []}
    cars: defaultdict[int, _Car] = defaultdict(_Car)
    for kind, time, vid, _, xway, lane, direction, seg, _, qid, *_, day in ordered:
        if kind == 0:
            segment = (xway, direction, seg)
            if cars[vid].enters(time, lane, segment):
                accident = _nearest(accidents, segment, time // 60)
                lav, toll = _toll(speeds, segment, time // 60, accident is not None)
                cars[vid].pending = toll
                found["toll"].append((vid, time, lav, toll))
                if accident is not None:
                    found["alert"].append((time, vid, accident))
        elif kind == 2:
            moved = cars[vid].moved
            found["balance"].append((time, qid, time if moved is None else moved, cars[vid].paid))
        elif kind == 3 and 1 <= day <= 69:
            found["expenditure"].append((time, qid, spent[vid, day, xway]))
    return {name: Counter(listed) for name, listed in found.items()}


def re_entries(rows: Iterable[Row]) -> int:
    """How many cars make more than one journey (of which some report is not in the exit lane)."""
    last: dict[int, tuple[int, int]] = {}  # vid -> time, lane
    journeys = Counter[int]()
    for _, time, vid, _, _, lane, *_ in sorted(row for row in rows if row[0] == 0):
        before = last.get(vid)
        if lane != 4 and (before is None or before[1] == 4 or time - before[0] > 60):
            journeys[vid] += 1
        last[vid] = (time, lane)
    return sum(number > 1 for number in journeys.values())


class _Car:
    """What is known of a car: where it was last, what it has paid, what it may have to pay."""

    def __init__(self) -> None:
        self.seen: int | None = None
        self.segment: Segment | None = None  # None between journeys
        self.pending = 0
        self.paid = 0
        self.moved: int | None = None

    def enters(self, time: int, lane: int, segment: Segment) -> bool:
        """Take in a report; whether it calls for a notification."""
        if self.seen is not None and time - self.seen > 60:
            self.segment = None
        self.seen = time
        previous, self.segment = self.segment, segment if lane != 4 else None
        crossed = previous is not None and previous != segment
        if previous is None:
            self.pending = 0
        if crossed:
            self.paid += self.pending
            self.pending = 0
        enters = lane != 4 and previous != segment
        if enters or crossed:
            self.moved = time
        return enters


def _speeds(reports: list[Row]) -> dict[tuple[Segment, int], list[Fraction]]:
    """The mean speeds of the cars in a segment and minute (minutes from 0 here)."""
    heard: defaultdict[tuple[Segment, int], defaultdict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for _, time, vid, spd, xway, _, direction, seg, *_ in reports:
        heard[(xway, direction, seg), time // 60][vid].append(spd)
    return {
        where: [Fraction(sum(speeds), len(speeds)) for speeds in cars.values()]
        for where, cars in heard.items()
    }


def _toll(
    speeds: dict[tuple[Segment, int], list[Fraction]], segment: Segment, minute: int, free: bool
) -> tuple[int, int]:
    """LAV and toll for who enters a segment in a minute."""
    window = [speeds[segment, m] for m in range(minute - 5, minute) if (segment, m) in speeds]
    means = [sum(cars) / len(cars) for cars in window]
    lav = floor(sum(means) / len(means)) if means else -1
    cars = len(speeds.get((segment, minute - 1), ()))
    return lav, 0 if free or lav >= 40 or cars <= 50 else 2 * (cars - 50) ** 2


def _accidents(reports: list[Row]) -> set[tuple[Segment, int]]:
    """Segments and minutes in which two cars stood at one place."""
    stopped: defaultdict[Answer, list[tuple[int, int]]] = defaultdict(list)
    runs: dict[int, tuple[Answer, int, int]] = {}  # vid -> place, time, reports there
    for _, time, vid, _, xway, lane, direction, _, pos, *_ in reports:
        place = (xway, direction, lane, pos)
        before, at, length = runs.get(vid, (None, 0, 0))
        length = length + 1 if before == place and time - at <= 60 and lane != 4 else 1
        runs[vid] = (place, time, length)
        if length >= 4:
            stopped[place].append((time, vid))
    return {
        ((xway, direction, pos // 5280), time // 60)
        for (xway, direction, _, pos), stops in stopped.items()
        for time, vid in stops
        if any(other != vid and time - 30 <= at <= time for at, other in stops)
    }


def _nearest(accidents: set[tuple[Segment, int]], entered: Segment, minute: int) -> int | None:
    """The segment of the nearest accident downstream that is in effect in a minute."""
    xway, direction, seg = entered
    for distance in range(5):
        ahead = seg - distance if direction else seg + distance
        if ((xway, direction, ahead), minute - 1) in accidents:
            return ahead
    return None
