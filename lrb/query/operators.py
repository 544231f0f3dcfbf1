"""Linear Road: the operators and what they keep.

    rows -> forward -> Report ------> vehicles -> Seen ---------------> segments -> Toll, Alert
                                               -> Stopped -> places -> Accident ^
                                               -> Left ----------> accounts -> Balance
                    -> BalanceRequest -----------------------------^ (and every Toll)
                    -> ExpenditureRequest --> expenditure -> Spent

All of it is arithmetic on integers. Time is in seconds, speed in miles per hour, position in feet;
minute 1 begins at second 0. Nobody waits for anybody: an epoch has the same number everywhere, so
whatever is asked of a minute or a second comes after all that happened before it.

The rules are those of Arasu et al. (VLDB 2004) as the original validator computes them. Questions
for travel times (type 4) are counted and not answered: the published input leaves their fields
empty, and no validator judges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import raystream as rs
from lrb.query.records import (
    Accident,
    Alert,
    Balance,
    BalanceRequest,
    ExpenditureRequest,
    Left,
    Report,
    Row,
    Seen,
    Stopped,
    Toll,
)
from spark_ingest.layout import BALANCE, EXPENDITURE, REPORT, SEGMENTS_PER_MINUTE_MAX

EXIT = 4
"""The lane of the exit ramp."""
SILENCE = 60
"""A car that does not report for more than this many seconds has ended its journey."""


@rs.operator(compiled=True)
def forward(row: Row) -> Iterator[Report | BalanceRequest | ExpenditureRequest]:
    """Tell the types of rows apart. Reports and requests of one second stay in this order."""
    if row.type == REPORT:
        yield Report(row.time, row.vid, row.spd, row.xway, row.lane, row.dir, row.seg, row.pos)
    elif row.type == BALANCE:
        yield BalanceRequest(row.time, row.vid, row.qid)
    elif row.type == EXPENDITURE and 1 <= row.day <= 69:
        yield ExpenditureRequest(row.time, row.vid, row.qid, row.xway, row.day)


# ---- vehicles: what a report means, given the reports of this car before it --------------------

WHOLE = 2520
"""Speeds are summed in 1/2520 mph: the mean of up to ten reports of a car is then an integer."""
VISITS_MAX = SEGMENTS_PER_MINUTE_MAX
STOPS = 4
"""How many reports in a row from one place make a stopped car."""


Visited = Annotated[list[int], rs.Array("i4", VISITS_MAX)]
Speeds = Annotated[list[int], rs.Array("i2", VISITS_MAX)]
Counts = Annotated[list[int], rs.Array("i1", VISITS_MAX)]


class Vehicle(rs.State):
    """The last report of a car, how often in a row it came from that place (4 is four or more),
    and the segments that the car has visited in that minute, the last one first, with the sum and
    the number of its speeds there.

    Wide fields come first, so that a row has no gaps: with its key it takes 64 bytes, which is what
    memory is fetched by.
    """

    due: rs.Timer = rs.NEVER
    time: rs.Int32 = -1
    pos: rs.Int32 = -1
    visited: Visited = rs.zeros(VISITS_MAX)
    speeds: Speeds = rs.zeros(VISITS_MAX)
    reports: Counts = rs.zeros(VISITS_MAX)
    lane: rs.Int8 = EXIT
    visits: rs.Int8 = 0
    run: rs.Int8 = 0


@rs.operator(key="vid", order_by="time", compiled=True)
class Vehicles:
    """Journeys, crossings, stops and exits of a car.

    A journey ends with a report in the exit lane, or with more than 60 s of silence. A car enters a
    segment with the first report of a journey and with each in another segment than the one before,
    the exit lane excepted. An exit in the segment of the last report is no movement: nothing is
    charged for a segment that a car leaves by its own ramp.
    """

    def process(self, report: Report, car: Vehicle) -> Iterator[Seen | Stopped | Left]:
        segment = segment_of(report)
        driving = car.time >= 0 and car.lane != EXIT and report.time - car.time <= SILENCE
        crosses = driving and car.visited[0] != segment
        stands = driving and is_at(car, segment, report)

        visit(car, segment, minute(report.time))
        before = mean_speed(car)
        car.speeds[0] += report.spd
        car.reports[0] += 1
        yield Seen(
            report.time,
            report.vid,
            report.xway,
            report.dir,
            report.seg,
            enters=report.lane != EXIT and (crosses or not driving),
            starts=not driving,
            cars=1 if car.reports[0] == 1 else 0,
            speed=mean_speed(car) - before,
        )

        car.run = min(car.run + 1, STOPS) if stands else 1
        if report.lane == EXIT:
            if crosses:
                yield Left(report.time, report.vid)
        elif car.run == STOPS:
            yield Stopped(
                report.time,
                report.vid,
                report.xway,
                report.lane,
                report.dir,
                report.seg,
                report.pos,
            )
        car.time = report.time
        car.pos = report.pos
        car.lane = report.lane
        if car.due == rs.NEVER:
            car.due = report.time + SILENCE + 1

    def timer(self, key: int, time: int, car: Vehicle) -> None:
        """Forget a silent car. Its next report begins a journey in either case, and in another
        minute: so the time at which the row goes away does not show."""
        if car.time + SILENCE < time:
            rs.forget(car)
        else:
            car.due = car.time + SILENCE + 1


def minute(time: int) -> int:
    """The minute of a second; minute 1 begins at second 0."""
    return time // 60 + 1


def segment_of(report: Report) -> int:
    """Expressway, direction and segment as one number."""
    return (report.xway * 2 + report.dir) * 100 + report.seg


def is_at(car: Vehicle, segment: int, report: Report) -> bool:
    """Whether a car was last at the place of its report: expressway, direction, lane, position."""
    same_road = car.visited[0] // 100 == segment // 100
    return same_road and car.lane == report.lane and car.pos == report.pos


def visit(car: Vehicle, segment: int, now: int) -> None:
    """Let the segment where a car is in minute `now` be the first of its visits."""
    if minute(car.time) != now:
        car.visits = 0
    i = 0
    while i < car.visits and car.visited[i] != segment:
        i += 1
    speeds, reports = 0, 0
    if i < car.visits:
        speeds, reports = car.speeds[i], car.reports[i]
    elif car.visits == VISITS_MAX:
        raise ValueError("a car reports from more than 4 segments in one minute")
    else:
        car.visits += 1
    if i > 0:  # the last one changes places with it
        car.visited[i], car.speeds[i], car.reports[i] = (
            car.visited[0],
            car.speeds[0],
            car.reports[0],
        )
    car.visited[0], car.speeds[0], car.reports[0] = segment, speeds, reports


def mean_speed(car: Vehicle) -> int:
    """The car's mean speed in the segment where it is, in 1/2520 mph; 0 before any report."""
    return WHOLE * car.speeds[0] // car.reports[0] if car.reports[0] > 0 else 0


# ---- places: where two cars stand ---------------------------------------------------------------

MEETING = 30
"""Cars report this often, so two that stand together have both reported within it."""
ZONE = 5
"""An accident concerns its own segment and the four upstream of it."""


class Place(rs.State):
    """Who stood here last, and the last one before who is another car."""

    vid: rs.Int32 = -1
    time: rs.Int32 = -1
    other: rs.Int32 = -1
    other_time: rs.Int32 = -1
    due: rs.Timer = rs.NEVER


@rs.operator(key=("xway", "dir", "lane", "pos"), order_by="time", compiled=True)
class Places:
    """Accidents: two cars stopped at the same place.

    A minute is an accident minute of a segment when a car reports a stop in it and another car has
    reported a stop at the same place in the 30 s up to then. A car that moves on takes nothing
    back: its pair is just not reported again.
    """

    def process(self, stop: Stopped, place: Place) -> Iterator[Accident]:
        if place.vid != stop.vid:
            place.other = place.vid
            place.other_time = place.time
            place.vid = stop.vid
        place.time = stop.time
        if place.other >= 0 and stop.time - place.other_time <= MEETING:
            for ahead in range(ZONE):
                seg = stop.seg + ahead if stop.dir == 1 else stop.seg - ahead
                if 0 <= seg <= 99:
                    yield Accident(stop.time, stop.xway, stop.dir, seg, ahead)
        if place.due == rs.NEVER:
            place.due = stop.time + MEETING + 1

    def timer(self, key: tuple[int, int, int, int], time: int, place: Place) -> None:
        """Forget the cars when a later stop can no longer meet them."""
        if place.time + MEETING < time:
            rs.forget(place)
        else:
            place.due = place.time + MEETING + 1


# ---- segments: tolls and alerts -----------------------------------------------------------------


Minutes = Annotated[list[int], rs.Array("i8", 6)]
Distances = Annotated[list[int], rs.Array("i4", ZONE)]


class Segment(rs.State):
    """This minute and the five before it, by minute modulo 6: the cars in the segment and the sum
    of their mean speeds (1/2520 mph). By distance: the two newest minutes with an accident. And
    what follows of the minutes before for all cars that enter in this one."""

    cars: Minutes = rs.zeros(6)
    speed: Minutes = rs.zeros(6)
    toll: int = 0
    newest: Distances = rs.zeros(ZONE)
    before: Distances = rs.zeros(ZONE)
    minute: rs.Int32 = 0
    lav: rs.Int16 = -1
    ahead: rs.Int8 = -1


@rs.operator(key=("xway", "dir", "seg"), order_by="time", compiled=True)
def segments(event: Seen | Accident, segment: Segment) -> Iterator[Toll | Alert]:
    """Tolls and alerts for the cars that enter.

    The toll in minute M is 2 * (cars - 50)^2 for the cars of minute M - 1, if these were more than
    50 and the latest average velocity is below 40 mph. It is 0 otherwise, and 0 where an accident
    stood in minute M - 1 in this segment or in one of the next four; then an alert names the
    nearest. The notification itself is always due.
    """
    now = minute(event.time)
    match event:
        case Accident():
            if segment.newest[event.ahead] != now:
                segment.before[event.ahead] = segment.newest[event.ahead]
                segment.newest[event.ahead] = now
        case Seen():
            if segment.minute != now:
                advance(segment, now)
            segment.cars[now % 6] += event.cars
            segment.speed[now % 6] += event.speed
            if event.enters:
                yield Toll(event.time, event.vid, segment.lav, segment.toll, event.starts)
                if segment.ahead >= 0:
                    ahead = segment.ahead
                    seg = event.seg - ahead if event.dir == 1 else event.seg + ahead
                    yield Alert(event.time, event.vid, seg)


def advance(segment: Segment, now: int) -> None:
    """Begin a minute: all that happened before it is known. Minutes without reports are empty."""
    for m in range(max(segment.minute + 1, now - 5), now + 1):
        segment.cars[m % 6] = 0
        segment.speed[m % 6] = 0
    segment.minute = now
    segment.lav = latest_average_velocity(segment, now)
    segment.ahead = accident_ahead(segment, now - 1)
    cars = segment.cars[(now - 1) % 6]
    free = segment.lav >= 40 or cars <= 50 or segment.ahead >= 0
    segment.toll = 0 if free else 2 * (cars - 50) ** 2


DIGIT = 45
"""Fractions are added in digits of 45 bits."""
CARS_MAX = 1 << 17


def latest_average_velocity(segment: Segment, now: int) -> int:
    """The mean over the last five minutes that had cars of the mean speed of their cars, each car
    counting once; in mph, truncated; -1 if there were no cars in these minutes.

    Exact: the whole part of (s1/n1 + ... + sk/nk) / 2520k is that of its numerator's whole part
    over 2520k. The proper fractions that are left are divided to two digits of 45 bits, and the 4
    stands for what is cut off, which is below k <= 5. Unless their sum is a whole number it is at
    least 1/(n1...nk) away from one, and 4/2^90 is less than that for up to 2^17 cars.
    """
    whole, high, low, k = 0, 0, 0, 0
    for m in range(now - 5, now):
        n = segment.cars[m % 6]
        if n > CARS_MAX:
            raise ValueError("more than 131,072 cars in one segment and minute")
        if n > 0:
            speed = segment.speed[m % 6]
            whole += speed // n
            rest = (speed % n) << DIGIT
            high += rest // n
            low += ((rest % n) << DIGIT) // n
            k += 1
    if k == 0:
        return -1
    carried = (high + ((low + 4) >> DIGIT)) >> DIGIT
    return (whole + carried) // (WHOLE * k)


def accident_ahead(segment: Segment, m: int) -> int:
    """Segments from here to the nearest accident downstream in minute `m`; -1 if there is none."""
    for ahead in range(ZONE):
        if m > 0 and (segment.newest[ahead] == m or segment.before[ahead] == m):
            return ahead
    return -1


# ---- accounts: what a car has paid --------------------------------------------------------------


class Account(rs.State):
    """What was paid, the toll of the segment that the car is in, and its last movement.

    This is kept for ever: a car that comes back has what it paid before.
    """

    paid: int = 0
    pending: int = 0
    moved: rs.Int32 = -1


@rs.operator(key="vid", order_by="time", compiled=True)
def accounts(event: Toll | Left | BalanceRequest, account: Account) -> Iterator[Balance]:
    """Balances.

    The toll of a segment is charged by the car's next movement in the same journey: a notification
    in another segment, or an exit there. A journey that ends otherwise leaves its last toll unpaid.
    An answer is as of the last movement, questions coming after the movement of their second. A
    car that has not moved yet has paid nothing, as of now.
    """
    match event:
        case Toll():
            if not event.starts:
                account.paid += account.pending
            account.pending = event.toll
            account.moved = event.time
        case Left():
            account.paid += account.pending
            account.pending = 0
            account.moved = event.time
        case BalanceRequest():
            moved = account.moved if account.moved >= 0 else event.time
            yield Balance(event.time, event.vid, event.qid, moved, account.paid)
