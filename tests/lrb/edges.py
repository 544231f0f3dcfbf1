"""Small worlds at the edges of the rules: silence, exits, re-entries, ends of the road, crowds."""

from __future__ import annotations

from collections.abc import Callable

from tests.lrb.micro import Outcome, World, crowd, stop
from tests.lrb.rows import balance, report, travel_time


def silence() -> World:
    """60 s without a report are nothing; 61 s end the journey, and its toll is never charged."""
    rows = [
        *crowd(1000, 60, 0, 30),
        *crowd(2000, 60, 60, 30),
        *crowd(3000, 59, 120, 30),  # and car 1
        report(61, 1, 30, spd=20),
        report(121, 1, 30, spd=20),  # 60 s later: the same journey, nothing new
        report(182, 1, 30, spd=20),  # 61 s later: a notification in the same segment
        report(212, 1, 31, spd=20),
        *(balance(time, 1, time) for time in (61, 121, 182, 212)),
    ]

    def check(outcome: Outcome) -> None:
        mine = {time: toll for (vid, time), (_, toll) in outcome.tolls.items() if vid == 1}
        assert mine == {61: 200, 182: 200, 212: 0}
        assert list(outcome.balances.values()) == [(61, 0), (61, 0), (182, 0), (212, 200)]

    return World(rows, check)


def exit_in_the_segment() -> World:
    """Who leaves by the ramp of the segment itself does not pay for it."""
    rows = [
        *crowd(1000, 60, 0, 30),
        report(61, 1, 30, lane=0, spd=20),
        report(91, 1, 30, lane=4, spd=20),
        balance(91, 1, 1),
        report(200, 1, 50, lane=0),
        balance(200, 1, 2),
        report(230, 1, 51),
        balance(230, 1, 3),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls[1, 61] == (20, 200)
        assert outcome.balances == {(91, 1): (61, 0), (200, 2): (200, 0), (230, 3): (230, 0)}

    return World(rows, check)


def exit_beyond_the_segment() -> World:
    """An exit seen in the next segment charges the toll, and the balance outlives the journey."""
    rows = [
        *crowd(1000, 60, 0, 30),
        report(61, 1, 30, lane=0, spd=20),
        report(91, 1, 31, lane=4, spd=20),
        balance(91, 1, 1),
        report(200, 1, 50, lane=0),
        balance(200, 1, 2),
    ]

    def check(outcome: Outcome) -> None:
        assert (1, 91) not in outcome.tolls
        assert outcome.balances == {(91, 1): (91, 200), (200, 2): (200, 200)}

    return World(rows, check)


def exit_without_a_journey() -> World:
    """A report in the exit lane that continues nothing is no movement and starts nothing."""
    rows = [
        report(0, 1, 30, lane=4),
        balance(0, 1, 1),
        report(10, 1, 31),
        report(40, 1, 31, lane=4),
        report(70, 1, 35, lane=4),
        balance(70, 1, 2),
    ]

    def check(outcome: Outcome) -> None:
        assert set(outcome.tolls) == {(1, 10)}
        assert outcome.balances == {(0, 1): (0, 0), (70, 2): (10, 0)}

    return World(rows, check)


def question_before_any_movement() -> World:
    """A car unknown so far owes nothing, now; a question of its own second sees its report."""
    rows = [
        balance(5, 1, 1),
        report(20, 1, 3),
        balance(20, 1, 2),
        balance(20, 1, 3),
        balance(30, 99, 4),
        travel_time(30, 1, 5),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.balances == {
            (5, 1): (5, 0),
            (20, 2): (20, 0),
            (20, 3): (20, 0),
            (30, 4): (30, 0),
        }

    return World(rows, check)


def both_directions() -> World:
    """Eastbound the zone lies west of the accident, westbound east of it; the nearest is named."""
    rows = [
        *(report(t, vid, seg, spd=0) for vid, seg in _STOPPED for t in _FOUR_TIMES),
        *(
            report(time, vid + 10, seg, spd=0, dir=1)
            for vid, seg in _STOPPED
            for time in _FOUR_TIMES
        ),
        *(report(130, 100 + seg, seg) for seg in range(14, 28)),
        *(report(130, 200 + seg, seg, dir=1) for seg in range(14, 28)),
    ]

    def check(outcome: Outcome) -> None:
        east = {vid - 100: seg for _, vid, seg in outcome.alerts if vid < 200}
        west = {vid - 200: seg for _, vid, seg in outcome.alerts if vid >= 200}
        assert east == {16: 20, 17: 20, 18: 20, 19: 20, 20: 20, 21: 22, 22: 22}
        assert west == {26: 22, 25: 22, 24: 22, 23: 22, 22: 22, 21: 20, 20: 20}

    return World(rows, check)


_STOPPED = ((1, 20), (2, 20), (3, 22), (4, 22))
_FOUR_TIMES = range(0, 91, 30)


def ends_of_the_road() -> World:
    """A zone ends with the road, and does not go on in the other direction."""
    rows = [
        *stop(1, range(0, 91, 30), seg=1),
        *stop(2, range(0, 91, 30), seg=1),
        *[report(t, vid, 98, dir=1, spd=0) for vid in (3, 4) for t in range(0, 91, 30)],
        *(report(130, 100 + seg, seg) for seg in (0, 1, 2, 96, 97, 98, 99)),
        *(report(130, 200 + seg, seg, dir=1) for seg in (0, 1, 2, 97, 98, 99)),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == {(130, 100, 1), (130, 101, 1), (130, 298, 98), (130, 299, 98)}

    return World(rows, check)


def standing_without_accident() -> World:
    """A broken run, the exit lane, and two cars one after the other are no accidents."""
    rows = [
        *stop(1, range(0, 61, 30)),  # three reports, then 61 s of silence, then three more
        *stop(1, range(121, 182, 30)),
        *stop(2, range(0, 182, 30)),
        *stop(3, range(0, 182, 30), seg=40, lane=4),
        *stop(4, range(0, 182, 30), seg=40, lane=4),
        *stop(5, range(0, 91, 30), seg=60),
        *stop(6, range(31, 122, 30), seg=60),  # its fourth is 31 s after the other's last
        *(report(time, time * 100 + seg, seg, spd=9) for time in (130, 190) for seg in (9, 39, 59)),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == set()

    return World(rows, check)


def just_together() -> World:
    """Two stops 30 s apart make an accident of the minute of the later one."""
    rows = [
        *stop(1, range(0, 91, 30)),
        *stop(2, range(30, 121, 30)),
        *(report(time, time, 9) for time in (179, 180, 239, 240)),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.alerts == {(180, 180, 10), (239, 239, 10)}

    return World(rows, check)


def toll_free_by_accident() -> World:
    """In the zone of an accident the toll is 0 and LAV is as ever."""
    rows = [
        *stop(1, range(0, 91, 30), seg=31),
        *stop(2, range(0, 91, 30), seg=31),
        *crowd(1000, 60, 60, 30),
        report(125, 5, 30, spd=20),
    ]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls[5, 125] == (20, 0)
        assert (125, 5, 31) in outcome.alerts

    return World(rows, check)


def exact_mean_of_a_crowd() -> World:
    """LAV of 7,001 cars a minute that is 30 exactly, and the same less one mile an hour.

    The common denominator of five such minutes has 20 digits: more than 64 bits hold.
    """
    rows = []
    for segment, short in ((30, 0), (50, 1)):
        for minute in range(5):
            cars = 7001 - minute
            first = segment * 100_000 + minute * 10_000
            spd = [20 + 20 * (i % 2) for i in range(cars)]
            spd[-1] = 30 if cars % 2 else spd[-1]
            spd[0] -= short if minute == 0 else 0
            rows += [
                report(minute * 60 + i % 60, first + i, segment, spd=spd[i]) for i in range(cars)
            ]
    rows += [report(310, 1, 30), report(310, 2, 50)]

    def check(outcome: Outcome) -> None:
        assert outcome.tolls[1, 310] == (30, 2 * (6997 - 50) ** 2)
        assert outcome.tolls[2, 310] == (29, 2 * (6997 - 50) ** 2)

    return World(rows, check)


EDGES: dict[str, Callable[[], World]] = {
    make.__name__: make
    for make in (
        silence,
        exit_in_the_segment,
        exit_beyond_the_segment,
        exit_without_a_journey,
        question_before_any_movement,
        both_directions,
        ends_of_the_road,
        standing_without_accident,
        just_together,
        toll_free_by_accident,
        exact_mean_of_a_crowd,
    )
}
