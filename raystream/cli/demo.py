"""`raystream demo`: a job to look at. Trips of taxis, made up as they happen.

trips -> fares (by zone, windows of ten seconds) -> board
trips -> drivers (one row of state for each of 5,000) -> board
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import raystream as rs

PER_SECOND = 2000
"""Trips."""
ZONES = ("Airport", "Harbour", "Market", "Museum", "Old Town", "Station", "Stadium", "University")
DRIVERS = 5_000
LONG_SHIFT = 10
"""Trips after which a driver is told to rest."""


class Trip(NamedTuple):
    time: int
    zone: str
    driver: int
    cents: int


class ZoneFares(NamedTuple):
    time: int
    zone: str
    trips: int
    dollars: float


class Rest(NamedTuple):
    time: int
    driver: int
    trips: int
    dollars: float


class Fares(rs.State):
    trips: int = 0
    cents: int = 0


class Shift(rs.State):
    trips: int = 0
    cents: int = 0


@dataclass(frozen=True)
class Trips(rs.Source[Trip]):
    """The same trips in each run: a second of them depends on its number alone."""

    seconds: int

    record = Trip

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("north"), rs.Split("south")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Trip]]]:
        for second in range(position, self.seconds):
            draw = random.Random(f"{split.name} {second}")
            many = range(PER_SECOND // 2)
            # Most trips begin in few zones, so some key groups have more to do than others.
            zones = draw.choices(ZONES, weights=range(1, len(ZONES) + 1), k=len(many))
            columns = {
                "time": [1000 * second + 1000 * n // len(many) for n in many],
                "zone": zones,
                "driver": [draw.randrange(DRIVERS) for _ in many],
                "cents": [draw.randrange(400, 6000) for _ in many],
            }
            yield second + 1, rs.Batch(Trip, columns)


@rs.operator(key="zone", window=rs.tumbling(seconds=10))
class FaresOfZones:
    def process(self, trip: Trip, fares: Fares) -> None:
        fares.trips += 1
        fares.cents += trip.cents

    def close(self, zone: str, window: rs.Window, fares: Fares) -> Iterator[ZoneFares]:
        yield ZoneFares(window.end, zone, fares.trips, fares.cents / 100)


@rs.operator(key="driver")
def drivers(trip: Trip, shift: Shift) -> Iterator[Rest]:
    shift.trips += 1
    shift.cents += trip.cents
    if shift.trips == LONG_SHIFT:
        yield Rest(trip.time, trip.driver, shift.trips, shift.cents / 100)
        rs.forget(shift)


class Board(rs.Sink[ZoneFares | Rest]):
    """Where the answers of a real job would go; this one only counts them."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[ZoneFares | Rest]) -> None:
        pass

    def commit(self, epoch: int) -> None:
        pass


def taxis(seconds: int, speed: float | None = 1.0) -> rs.Flow:
    """Trips of a number of seconds.

    Args:
        speed: seconds of event time per second; None: as fast as possible.
    """
    flow = rs.Flow("taxis", time_unit="ms")
    trips = flow.source(Trips(seconds), epochs=rs.by_time(seconds=0.25, speed=speed), name="trips")
    fares = trips.through(FaresOfZones(), name="fares")
    rests = trips.through(drivers)
    (fares | rests).to(Board(), name="board")
    return flow


HINTS = """
While it runs, from another terminal of this machine:

    raystream top                    what runs where, how fast and how hard
    raystream scale taxis drivers=3  more instances, without a pause
    raystream status                 with the process of each instance: kill -9 one of them
    raystream story                  what happened, why, and how long it took
    raystream ui                     the same in a browser (first: pip install 'raystream[ui]')
"""
