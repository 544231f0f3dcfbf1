"""What flows between the operators of Linear Road.

Time is in seconds, speed in miles per hour, position in feet.
"""

from __future__ import annotations

from typing import NamedTuple

import raystream as rs


class Row(NamedTuple):
    """A row of the input, of any type. `release` is when it is due, in slots of a second."""

    release: rs.Int32
    type: rs.Int8
    time: rs.Int32
    vid: rs.Int32
    spd: rs.Int16
    xway: rs.Int16
    lane: rs.Int8
    dir: rs.Int8
    seg: rs.Int16
    pos: rs.Int32
    qid: rs.Int32
    day: rs.Int16


class Report(NamedTuple):
    """Where a car is. dir: 0 east, 1 west. lane: 0 entry, 1 to 3 travel, 4 exit."""

    time: rs.Int32
    vid: rs.Int32
    spd: rs.Int16
    xway: rs.Int16
    lane: rs.Int8
    dir: rs.Int8
    seg: rs.Int16
    pos: rs.Int32


class BalanceRequest(NamedTuple):
    """What has this car paid so far?"""

    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32


class ExpenditureRequest(NamedTuple):
    """What did this car pay on an expressway on an earlier day? Day 1 is yesterday."""

    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32
    xway: rs.Int16
    day: rs.Int16


class Seen(NamedTuple):
    """A report, and what it adds to its segment.

    enters: the car enters the segment, so a toll notification is due. starts: it begins a journey.
    cars, speed: what the report adds to the number of cars in the segment in this minute, and to
    the sum of their mean speeds (1/2520 mph).
    """

    time: rs.Int32
    vid: rs.Int32
    xway: rs.Int16
    dir: rs.Int8
    seg: rs.Int16
    enters: bool
    starts: bool
    cars: rs.Int8
    speed: rs.Int32


class Stopped(NamedTuple):
    """The fourth or a later report in a row from one place."""

    time: rs.Int32
    vid: rs.Int32
    xway: rs.Int16
    lane: rs.Int8
    dir: rs.Int8
    seg: rs.Int16
    pos: rs.Int32


class Left(NamedTuple):
    """A car has taken an exit in another segment than that of its last notification."""

    time: rs.Int32
    vid: rs.Int32


class Accident(NamedTuple):
    """In this minute an accident stands `ahead` segments downstream of this segment."""

    time: rs.Int32
    xway: rs.Int16
    dir: rs.Int8
    seg: rs.Int16
    ahead: rs.Int8


class Toll(NamedTuple):
    """Answer 0: a car enters a segment. lav: the latest average velocity there, in mph, or -1."""

    time: rs.Int32
    vid: rs.Int32
    lav: rs.Int16
    toll: int
    starts: bool


class Alert(NamedTuple):
    """Answer 1: and there is an accident ahead, in segment `seg`."""

    time: rs.Int32
    vid: rs.Int32
    seg: rs.Int16


class Balance(NamedTuple):
    """Answer 2: what the car had paid at its last movement. vid is not part of the answer."""

    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32
    result_time: rs.Int32
    bal: int
