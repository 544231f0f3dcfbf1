"""Traffic that no road has seen: everything the rules speak of, often, in little space.

Cars stand, creep, skip segments, fall silent for a little less or more than a minute, leave by
ramps of their own and of other segments, come back elsewhere, and ask all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from tests.lrb.rows import Charge, Row, balance, expenditure, report, travel_time

SECONDS = 900
GAPS = (30, 30, 30, 30, 30, 30, 30, 20, 45, 60, 61, 62, 95)


def random_traffic(seed: int, roads: int, cars: int) -> tuple[list[Row], list[Charge]]:
    """Rows and history for `roads` expressways with `cars` cars each; a function of its arguments.

    A car changes to any expressway when it comes back.
    """
    random = Random(seed)
    rows: list[Row] = []
    history: list[Charge] = []
    qids = count()
    for vid in range(roads * cars):
        trips = list(_reports(random, vid, roads))
        rows += trips
        for trip in trips:
            if random.random() < 0.15:
                rows.append(_question(random, vid, trip[1], next(qids), roads))
        days = random.sample(range(1, 70), 40)
        history += [(vid, day, random.randrange(roads), random.randrange(99)) for day in days]
    return rows, history


def _question(random: Random, vid: int, time: int, qid: int, roads: int) -> Row:
    time += random.choice((0, 0, 1, 7, 40))
    kind = random.randrange(4)
    if kind == 3:
        return travel_time(time, vid, qid)
    if kind == 2:
        day = random.randrange(0, 71)  # one too many at both ends
        return expenditure(time, vid, qid, day, xway=random.randrange(roads))
    return balance(time, vid, qid)


def _reports(random: Random, vid: int, roads: int) -> Iterator[Row]:
    """The life of a car; each road has three busy segments, at an end or in the middle."""
    time = random.randrange(300)
    xway, direction, seg, lane, feet = _entry(random, roads)
    while time < SECONDS:
        # The roads differ in pace, so that LAV falls on both sides of 40.
        spd = min(100, random.randrange(40) + 10 * (xway % 5))
        yield report(time, vid, seg, spd=spd, lane=lane, dir=direction, xway=xway, feet=feet)
        if lane == 4 and random.random() < 0.9:
            time += random.choice((1, 30, 61, 100))
            xway, direction, seg, lane, feet = _entry(random, roads)
            continue
        time += random.choice(GAPS)
        chance = random.random()
        if chance < 0.55:
            continue  # stands, whatever its speed
        lane = random.choice((1, 1, 1, 2, 2, 3, 3, 4))
        feet = _feet(random, xway)
        if chance > 0.8:
            seg = min(99, max(0, seg + random.choice((-1, 1, 1, 2))))


def _entry(random: Random, roads: int) -> tuple[int, int, int, int, int]:
    xway = random.randrange(roads)
    first = (0, 45, 97)[xway % 3]
    lane = random.choice((0, 0, 0, 1))
    return xway, random.randrange(2), first + random.randrange(3), lane, _feet(random, xway)


def _feet(random: Random, xway: int) -> int:
    """Where in its segment a car is: on every other road cars meet, so that accidents happen."""
    return random.choice((0, 0, 77, 2000)) if xway % 2 else random.randrange(5280)
