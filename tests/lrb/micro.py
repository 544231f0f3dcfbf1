"""Small worlds for single rules: what happens in them, and what the rules say of it.

Each world is a list of rows and a function of assertions on the answers to it. They follow the
examples that were run against the original validator, with the names these have there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.lrb.rows import Row, balance, report


class Outcome(NamedTuple):
    """The answers to one world, cars and questions numbered as in it."""

    tolls: dict[tuple[int, int], tuple[int, int]]  #: (vid, time) -> (lav, toll)
    alerts: set[tuple[int, int, int]]  #: (time, vid, seg)
    balances: dict[tuple[int, int], tuple[int, int]]  #: (time, qid) -> (result time, balance)

    def alerted(self) -> set[int]:
        """Times of all alerts."""
        return {time for time, _, _ in self.alerts}


class World(NamedTuple):
    """Rows, and what must be true of the answers to them."""

    rows: list[Row]
    check: Callable[[Outcome], None]


def stop(vid: int, times: range, *, lane: int = 1, seg: int = 10, feet: int = 100) -> list[Row]:
    """A car that stands in one place and reports it."""
    return [report(time, vid, seg, spd=0, lane=lane, feet=feet) for time in times]


def crowd(first_vid: int, cars: int, start: int, seg: int, *, spd: int = 20) -> list[Row]:
    """Cars that report once each, all in one segment and minute."""
    return [
        report(start + i % 60, first_vid + i, seg, spd=spd, lane=2, feet=i) for i in range(cars)
    ]


# ---- speeds and tolls -------------------------------------------------------------------------


def t7_lav() -> World:
    rows = [
        report(0, 1, 20, spd=30),
        report(10, 2, 20, spd=60),
        report(30, 1, 20, spd=40),
        report(70, 3, 20),
        report(400, 4, 20),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls == {
            (1, 0): (-1, 0),
            (2, 10): (-1, 0),
            (3, 70): (47, 0),  # of 35 and 60; a mean over reports would say 43
            (4, 400): (50, 0),  # only minute 2 had a car
        }

    return World(rows, check)


def t7_empty_window() -> World:
    rows = [report(70, 3, 20), report(500, 4, 20)]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls[4, 500] == (-1, 0)

    return World(rows, check)


def t8_toll() -> World:
    rows = [
        *crowd(1000, 60, 0, 30),
        *crowd(2000, 50, 0, 31),
        *crowd(3000, 51, 0, 32),
        report(61, 5, 30, spd=20),
        report(61, 7, 31, spd=20),
        report(61, 8, 32, spd=20),
        report(125, 6, 30, spd=20),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls[5, 61] == (20, 200)
        assert outcome.tolls[7, 61] == (20, 0)
        assert outcome.tolls[8, 61] == (20, 2)
        assert outcome.tolls[6, 125] == (20, 0)  # one car in the minute before
        assert all(outcome.tolls[1000 + i, i] == (-1, 0) for i in range(60))

    return World(rows, check)


def t8b_trunc() -> World:
    rows = [
        *crowd(1000, 1, 0, 30, spd=39),
        *crowd(1001, 59, 0, 30, spd=40),
        report(61, 5, 30, spd=20),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls[5, 61] == (39, 200)  # 39.98 is below 40

    return World(rows, check)


# ---- accidents --------------------------------------------------------------------------------


def _t3_entries() -> list[Row]:
    return [
        report(59, 100, 6, feet=7),
        report(100, 101, 7, feet=7),
        report(119, 102, 8, feet=7),
        report(120, 103, 9, feet=7),
        report(200, 104, 10, feet=7),
        report(200, 150, 5, feet=7),
        report(200, 151, 11, feet=7),
        report(200, 152, 9, lane=4, feet=7),
        report(200, 153, 12, dir=1, feet=7),
        report(200, 154, 8, lane=0, feet=7),
        report(359, 105, 6, feet=7),
        report(365, 106, 7, feet=7),
        report(419, 107, 8, feet=7),
        report(420, 108, 9, feet=7),
        report(425, 109, 10, feet=7),
    ]


def t3_clear() -> World:
    rows = [
        *stop(1, range(0, 301, 30)),
        report(330, 1, 10, feet=1000),
        *stop(2, range(10, 311, 30)),
        report(340, 2, 10, feet=1000),
        *_t3_entries(),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == {
            (120, 103, 10),
            (200, 104, 10),
            (200, 154, 10),
            (359, 105, 10),
            (365, 106, 10),
            (419, 107, 10),
        }
        assert not any(vid == 152 for vid, _ in outcome.tolls)
        assert (153, 200) in outcome.tolls

    return World(rows, check)


def t9_lane() -> World:
    rows = [
        *stop(1, range(0, 301, 30)),
        *stop(2, range(10, 311, 30), lane=2),
        report(200, 9, 9),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == set()

    return World(rows, check)


def t2_four_only() -> World:
    rows = [
        *stop(1, range(0, 91, 30)),
        *stop(2, range(5, 96, 30)),
        report(120, 1, 10, spd=40, feet=1000),
        report(125, 2, 10, spd=40, feet=1000),
        report(130, 9, 9, spd=40),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == {(130, 9, 10)}  # the accident was in minute 2

    return World(rows, check)


def t2b_five() -> World:
    rows = [
        *stop(1, range(0, 121, 30)),
        *stop(2, range(5, 126, 30)),
        report(130, 9, 9, spd=40),
        report(150, 1, 10, spd=40, feet=1000),
        report(155, 2, 10, spd=40, feet=1000),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == {(130, 9, 10)}

    return World(rows, check)


def t4_two_accidents() -> World:
    rows = [
        *stop(1, range(0, 301, 30)),
        report(330, 1, 10, spd=40, feet=1000),
        *stop(2, range(10, 311, 30)),
        report(340, 2, 10, spd=40, feet=1000),
        report(800, 9, 9),
        *stop(1201, range(1200, 1501, 30)),
        *stop(1202, range(1210, 1511, 30)),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == set()  # at 800 there is none, although both are at one place

    return World(rows, check)


# ---- journeys and balances --------------------------------------------------------------------


def t5_reentry() -> World:
    rows = [
        report(0, 1, 40, lane=0),
        report(30, 1, 40, lane=4, feet=900),
        report(600, 1, 40, lane=0),
        report(630, 1, 41),
    ]

    def check(outcome: Outcome) -> None:
        assert set(outcome.tolls) == {(1, 0), (1, 600), (1, 630)}

    return World(rows, check)


def t10_balance() -> World:
    steps = [(130, 50), (160, 51), (190, 51), (220, 52), (250, 52), *((t, 53) for t in _IN_53)]
    rows = [
        *crowd(1000, 60, 60, 50),
        *crowd(2000, 61, 60, 51),
        *crowd(3000, 70, 120, 52),
        *crowd(4000, 55, 180, 53),
        *(report(time, 1, seg, spd=20, lane=int(time > 130)) for time, seg in steps),
        report(400, 1, 54, spd=20, lane=4),
        *(balance(time, 1, 100 + i) for i, time in enumerate(range(130, 401, 30))),
    ]

    def check(outcome: Outcome) -> None:
        entered = {time: toll for (vid, time), (_, toll) in outcome.tolls.items() if vid == 1}
        assert entered == {130: 200, 160: 242, 220: 800, 280: 50}
        assert {time: found for (time, _), found in outcome.balances.items()} == {
            130: (130, 0),
            160: (160, 200),
            190: (160, 200),
            220: (220, 442),
            250: (220, 442),
            280: (280, 1242),
            310: (280, 1242),
            340: (280, 1242),
            370: (280, 1242),
            400: (400, 1292),
        }

    return World(rows, check)


_IN_53 = (280, 310, 340, 370)

#: By the name of the file that holds the same example where official slices are at hand.
OFFICIAL: dict[str, Callable[[], World]] = {
    "T2_four_only": t2_four_only,
    "T2b_five": t2b_five,
    "T3_clear": t3_clear,
    "T4_merge": t4_two_accidents,
    "T5_reentry": t5_reentry,
    "T7_lav": t7_lav,
    "T8_toll": t8_toll,
    "T8b_trunc": t8b_trunc,
    "T9_lane": t9_lane,
    "T10_balance": t10_balance,
}
