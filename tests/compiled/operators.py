"""Operators that are run compiled and interpreted: Linear Road's, windows, timers, flat maps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, NamedTuple

import raystream as rs

EXIT = 4


class Report(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    spd: rs.Int8
    xway: rs.Int16
    lane: rs.Int8
    dir: rs.Int8
    seg: rs.Int8
    pos: rs.Int32


class Seen(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    xway: rs.Int16
    dir: rs.Int8
    seg: rs.Int8
    enters: bool
    cars: rs.Int8
    speed: rs.Int16


class Stopped(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    xway: rs.Int16
    lane: rs.Int8
    dir: rs.Int8
    pos: rs.Int32


class Left(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    charged: bool


class Vehicle(rs.State):
    xway: rs.Int16 = -1
    dir: rs.Int8 = 0
    seg: rs.Int8 = 0
    lane: rs.Int8 = 4
    pos: rs.Int32 = 0
    run: rs.Int32 = 0
    minute: rs.Int32 = 0
    first: rs.Int8 = 0


def minute(time: int) -> int:
    return time // 60 + 1


@rs.operator(key="vid", order_by="time", compiled=True)
def vehicles(r: Report, v: Vehicle) -> Iterator[Seen | Stopped | Left]:
    """Several outputs, of which a record emits one or two."""
    same_place = (
        v.run > 0 and v.xway == r.xway and v.dir == r.dir and v.lane == r.lane and v.pos == r.pos
    )
    on = v.run > 0 and v.lane != EXIT
    same_segment = on and v.xway == r.xway and v.dir == r.dir and v.seg == r.seg
    counted = (
        v.run > 0
        and v.minute == minute(r.time)
        and v.xway == r.xway
        and v.dir == r.dir
        and v.seg == r.seg
    )
    enters = not same_segment and r.lane != EXIT
    if counted:
        yield Seen(r.time, r.vid, r.xway, r.dir, r.seg, enters, 0, r.spd - v.first)
    else:
        yield Seen(r.time, r.vid, r.xway, r.dir, r.seg, enters, 1, 2 * r.spd)
        v.minute = minute(r.time)
        v.first = r.spd
    v.run = v.run + 1 if same_place else 1
    if r.lane == EXIT:
        if on:
            yield Left(r.time, r.vid, not same_segment)
    elif v.run >= 4:
        yield Stopped(r.time, r.vid, r.xway, r.lane, r.dir, r.pos)
    v.xway = r.xway
    v.dir, v.seg = r.dir, r.seg
    v.lane = r.lane
    v.pos = r.pos


class Accident(NamedTuple):
    time: rs.Int32
    xway: rs.Int16
    dir: rs.Int8
    seg: rs.Int8
    ahead: rs.Int8


class Toll(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    lav: rs.Int16
    toll: int


class Alert(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    seg: rs.Int16


Six = Annotated[list[int], rs.Array("i8", 6)]
Five = Annotated[list[int], rs.Array("i4", 5)]


class Segment(rs.State):
    minute: rs.Int32 = 0
    cars: Six = rs.zeros(6)
    speed: Six = rs.zeros(6)
    last: Five = rs.zeros(5)
    before: Five = rs.zeros(5)


def advance(segment: Segment, now: int) -> None:
    for m in range(max(segment.minute + 1, now - 5), now + 1):
        segment.cars[m % 6] = 0
        segment.speed[m % 6] = 0
    segment.minute = max(segment.minute, now)


def latest_average_velocity(segment: Segment, now: int) -> int:
    whole, num, den, k = 0, 0, 1, 0
    for m in range(max(1, now - 5), now):
        n = segment.cars[m % 6]
        if n > 0:
            whole += segment.speed[m % 6] // n
            num, den = num * n + segment.speed[m % 6] % n * den, den * n
            k += 1
    return (whole + num // den) // (2 * k) if k else -1


def accident_ahead(segment: Segment, m: int) -> int:
    for i in range(5):
        if m > 0 and (segment.last[i] == m or segment.before[i] == m):
            return i
    return -1


@rs.operator(key=("xway", "dir", "seg"), order_by="time", compiled=True)
def segments(event: Seen | Accident, segment: Segment) -> Iterator[Toll | Alert]:
    """Two inputs, a key of three columns, arrays in the state, four helpers."""
    now = minute(event.time)
    match event:
        case Accident():
            if segment.last[event.ahead] != now:
                segment.before[event.ahead] = segment.last[event.ahead]
                segment.last[event.ahead] = now
        case Seen():
            advance(segment, now)
            segment.cars[now % 6] += event.cars
            segment.speed[now % 6] += event.speed
            if event.enters:
                lav = latest_average_velocity(segment, now)
                cars = segment.cars[(now - 1) % 6] if now > 1 else 0
                ahead = accident_ahead(segment, now - 1)
                free = lav >= 40 or cars <= 5 or ahead >= 0
                yield Toll(event.time, event.vid, lav, 0 if free else 2 * (cars - 5) ** 2)
                if ahead >= 0:
                    yield Alert(
                        event.time,
                        event.vid,
                        event.seg + ahead if event.dir == 0 else event.seg - ahead,
                    )


class Query(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32


class Charge(NamedTuple):
    time: rs.Int32
    vid: rs.Int32
    toll: int


class Balance(NamedTuple):
    time: rs.Int32
    qid: rs.Int32
    moved: rs.Int32
    balance: int


class Account(rs.State):
    balance: int = 0
    pending: int = 0
    moved: rs.Int32 = -1


@rs.operator(key="vid", order_by="time", compiled=True)
def accounts(event: Charge | Left | Query, account: Account) -> Iterator[Balance]:
    """Three inputs, of which one emits."""
    match event:
        case Charge():
            account.balance += account.pending
            account.pending = event.toll
            account.moved = event.time
        case Left(_, _, charged):
            if charged:
                account.balance += account.pending
                account.moved = event.time
            account.pending = 0
        case Query(qid=qid):
            yield Balance(event.time, qid, account.moved, account.balance)


# ---------------------------------------------------------------- windows and timers


class Event(NamedTuple):
    time: int
    key: rs.Int32
    value: float


class Counted(NamedTuple):
    key: rs.Int32
    start: int
    n: int


class Summed(NamedTuple):
    key: rs.Int32
    sum: rs.Float32


class Sum(rs.State):
    n: int = 0
    sum: float = 0.0


@rs.operator(key="key", window=rs.tumbling(seconds=5), compiled=True)
@dataclass(frozen=True)
class Busy:
    """A tumbling window with a parameter."""

    at_least: int = 1

    def process(self, event: Event, state: Sum) -> None:
        state.n += 1

    def close(self, key: int, window: rs.Window, state: Sum) -> Iterator[Counted]:
        if state.n >= self.at_least:
            yield Counted(key, window.start, state.n)


@rs.operator(key=("key", "odd"), window=rs.sliding(seconds=7, every=2), compiled=True)
@dataclass(frozen=True)
class Sliding:
    """A record is in three or four windows, and both methods emit; a key with a bool."""

    factor: float

    def process(self, event: Odd, state: Sum) -> Iterator[Counted]:
        state.n += 1
        if state.n % 3 == 0:
            yield Counted(event.key, event.time, state.n)

    def close(self, key: tuple[int, bool], window: rs.Window, state: Sum) -> Iterator[Counted]:
        if key[1]:
            yield Counted(key[0], window.end, self.scaled(state.n))
        yield Counted(key[0], window.start, state.n)

    def scaled(self, n: int) -> int:
        return int(n * self.factor)


class Odd(NamedTuple):
    time: rs.Int32
    key: rs.Int8
    odd: bool


class Session(rs.State):
    n: int = 0
    start: int = 0
    due: rs.Timer = rs.NEVER


@rs.operator(key="key", compiled=True)
class Sessions:
    """A session by hand: it ends when its key was silent for ten."""

    def process(self, event: Event, session: Session) -> None:
        if session.n == 0:
            session.start = event.time
        session.n += 1
        session.due = event.time + 10

    def timer(self, key: int, time: int, session: Session) -> Iterator[Counted]:
        yield Counted(key, session.start, session.n)
        rs.forget(session)


@rs.operator(key="key", compiled=True)
class Echo:
    """Timers that are set anew: several rounds, and two outputs."""

    def process(self, event: Event, session: Session) -> Iterator[Counted]:
        session.n += 1
        session.due = min(session.due, event.time)
        if session.n % 4 == 0:
            session.due = rs.NEVER
        if session.n > 6:
            rs.forget(session)
        yield Counted(event.key, event.time, session.n)

    def timer(self, key: int, time: int, session: Session) -> Iterator[Counted | Summed]:
        if session.n % 2:
            yield Summed(key, time)
        yield Counted(key, time, session.n)
        if session.n < 6:
            session.n += 1
            session.due = time + 3
            rest(session)


def rest(session: Session) -> None:
    if session.n == 5:
        rs.forget(session)


# ---------------------------------------------------------------- flat maps and the rest


class Kind(IntEnum):
    SMALL = 1
    LARGE = 2


class Note(NamedTuple):
    time: int
    code: rs.Int16 | None
    weight: float | None = None


class Parts(NamedTuple):
    time: int
    part: rs.Int32 | None
    kind: rs.Int8
    root: float = 0.5


TABLE = (3, 1, 4)


@rs.operator(compiled=True)
def parts(record: Note | Odd) -> Iterator[Parts | Note]:
    """No state; fields that may be None, isinstance, loops, defaults, keywords, constants."""
    if isinstance(record, Note) and record.code is not None:
        for i in range(record.code % 4):
            yield Parts(record.time, part=i if i else None, kind=Kind.SMALL)
        yield from pieces(record.time, 2)
        yield Note(record.time, record.code, record.weight)
    elif isinstance(record, Odd):
        if record.odd:
            yield Parts(record.time, None, Kind.LARGE, math.sqrt(abs(record.key)))
        yield Note(TABLE[record.key % 3], record.key) if record.key > 0 else Parts(0, 1, 2, 3)


def pieces(time: int, n: int) -> Iterator[Parts]:
    for i in range(n):
        if i == 1 and time % 2:
            return
        yield Parts(time, i, Kind.SMALL)


@rs.operator(compiled=True)
def ask(event: Charge | Left | Query) -> Iterator[Balance]:
    """Every way of asking for the type of the record."""
    match event:
        case Charge(time, _, toll) if toll > 1:
            yield Balance(time, 1, 0, toll)
        case Charge(toll=0 | 1, vid=vid):
            yield Balance(0, 2, vid, 0)
        case Left(charged=True) as left:
            yield Balance(left.time, 3, 0, 0)
        case Left() | Query():
            yield Balance(event.time, 4, 0, 0)
        case _:
            yield Balance(0, 5, 0, 0)
    if type(event) is Query or (isinstance(event, Left) and event.charged):
        yield Balance(0, 6, event.vid, 0)
    if isinstance(event, Charge | Query) and not isinstance(event, Query):
        yield Balance(0, 7, 0, event.toll)
    elif type(event) is not Charge and isinstance(event, (Left, Query)):
        yield Balance(0, 8, event.vid, 0)
    if event.time > 3 and isinstance(event, Query):
        yield Balance(0, event.qid, 9, 0)
    yield Balance(0, 10, event.toll if isinstance(event, Charge) else -1, 0)


class Level(rs.State):
    mean: float = 0.0
    low: rs.Int8 = 0
    up: bool = False


class Smooth(NamedTuple):
    key: rs.Int32
    mean: float
    up: bool


@rs.operator(key="key", compiled=True)
def smooth(event: Event, level: Level) -> Iterator[Smooth]:
    """Narrow state is wide when it is computed with."""
    level.mean += (event.value - level.mean) * 0.1
    level.low = level.low - 1 if level.low > -128 else 127
    level.up = abs(level.low) > 127 or -level.low == 128
    if level.up or event.value > level.mean:
        yield Smooth(event.key, level.mean * level.mean, level.up)
