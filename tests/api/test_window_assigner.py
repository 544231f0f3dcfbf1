"""Which windows hold a time: one by one, as columns and compiled, against a model that asks
zoneinfo by the half hour."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.windows.assigner import Assigner, first_day, month_of
from raystream.api.windows.zones import Zone, zone_of
from raystream.compiled.runtime import calendars
from tests.examples import examples

DAY, HOUR, MINUTE = 86_400, 3_600, 60
ZONES = [
    "America/New_York",
    "America/Havana",  # its clocks are set back at 1 o'clock, so midnight comes twice
    "America/Sao_Paulo",  # they were set forward at midnight, so there was none
    "Pacific/Apia",  # it left a day out
    "Africa/Casablanca",
    "Australia/Lord_Howe",  # by half an hour
    "Asia/Kolkata",
    "UTC",
]
zones = st.sampled_from(ZONES)


@cache
def table(zone: str) -> Zone | None:
    return zone_of("test", zone)


def local(zone: str, time: int) -> datetime:
    return datetime.fromtimestamp(time, ZoneInfo(zone)).replace(tzinfo=None)


@st.composite
def times(draw: Any, zone: str) -> int:
    """Times since 1950, most of them near a change of the clocks."""
    changes = [c for c in (table(zone) or Zone("", (), ())).changes if c > -20 * 365 * DAY]
    near = st.sampled_from(changes or [0])
    some = draw(st.one_of(near, near, st.integers(-20 * 365 * DAY, 80 * 365 * DAY)))
    return int(some + draw(st.integers(-2 * DAY, 2 * DAY)))


def compiled(windows: Assigner, time: int) -> list[tuple[int, int]]:
    """As the text of a driver does it."""
    calendar = calendars.calendar_of(windows)
    reading = calendars.reading_at(time, calendar)
    newest = calendars.newest_at(reading, calendar)
    begins = calendars.oldest_at(reading, newest, calendar)
    found = []
    while begins <= newest:
        start, then = calendars.moment_of(begins, calendar), calendars.following(begins, calendar)
        if start != calendars.moment_of(then, calendar):
            end = calendars.moment_of(calendars.closing_of(begins, calendar), calendar)
            assert end == calendars.end_of(start, calendar)
            found.append((start, end))
        begins = then
    return found


def everywhere(windows: Assigner, time: int) -> list[tuple[int, int]]:
    """The windows of a time; all forms agree on them."""
    found = windows.windows(time)
    assert compiled(windows, time) == found
    assert [windows.end(start) for start, _ in found] == [end for _, end in found]
    starts = np.array([start for start, _ in found], np.int64)
    assert windows.ends(starts).tolist() == [end for _, end in found]
    if windows.tumbling:
        assert windows.starts(np.array([time])).tolist() == starts.tolist()
    assert all(start <= time < end for start, end in found)
    return found


# ---------------------------------------------------------------- by date


def day(at: date) -> object:
    return at


def week(at: date) -> object:
    return at.isocalendar()[:2]


def month(at: date) -> object:
    return at.year, at.month


def quarter(at: date) -> object:
    return at.year, (at.month - 1) // 3


DATES: dict[str, tuple[Any, Callable[[date], object]]] = {
    "days": (rs.tumbling(days=1), day),
    "weeks": (rs.tumbling(weeks=1), week),
    "months": (rs.tumbling(months=1), month),
    "quarters": (rs.tumbling(months=3), quarter),
}


def made(window: Any, zone: str, offset: int = 0) -> Assigner:
    size = int(window.seconds)
    return Assigner.of(size, size, int(window.offset) + offset, window.months, 1, table(zone))


@pytest.mark.parametrize("kind", DATES)
@examples(80)
@given(zone=zones, data=st.data())
def test_days_weeks_and_months_of_a_zone(kind: str, zone: str, data: st.DataObject) -> None:
    window, of_date = DATES[kind]
    hours = data.draw(st.sampled_from([0, 0, 6, -2]))
    time = data.draw(times(zone))
    [(start, end)] = everywhere(made(window, zone, hours * HOUR), time)

    def period(at: int) -> object:
        """Clocks that are set back do not bring yesterday back, in Havana."""
        shown = max(local(zone, at), local(zone, at - HOUR), local(zone, at - 2 * HOUR))
        return of_date((shown - timedelta(hours=hours)).date())

    assert period(start) == period(time) == period(end - 1)
    assert period(start - 1) != period(start)
    assert period(end) != period(time)


# ---------------------------------------------------------------- by the half hour


def shown(zone: str, time: int) -> int:
    """The greatest reading of the clocks in the two days up to a minute, in minutes."""
    zero, clock = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None), ZoneInfo(zone)
    readings = (
        datetime.fromtimestamp(at, clock).replace(tzinfo=None)
        for at in range(time, time - 26 * HOUR, -30 * MINUTE)
    )
    return max(int((r - zero).total_seconds()) for r in readings) // MINUTE


@examples(60)
@given(
    zone=zones,
    size=st.sampled_from([90, 120, 180, 240, 360, 480, 24 * 60, 48 * 60]),
    hop=st.sampled_from([90, 180, 240, 360, 1440]),
    offset=st.sampled_from([0, 30, -60, 360]),
    data=st.data(),
)
def test_windows_follow_the_clocks(
    zone: str, size: int, hop: int, offset: int, data: st.DataObject
) -> None:
    windows = Assigner.of(size * MINUTE, hop * MINUTE, offset * MINUTE, 0, 1, table(zone))
    time = data.draw(times(zone)) // (30 * MINUTE) * 30 * MINUTE
    found = everywhere(windows, time)
    if any(abs(c - time) < 5 * DAY and by % (hop * MINUTE) == 0 for c, by in shifts(zone)):
        assert hop < 24 * 60 or zone == "Pacific/Apia"  # such changes are left out; see below
        return

    def begun(at: int) -> int:
        """How many windows have begun by then."""
        return (shown(zone, at) - offset) // hop

    def over(at: int) -> int:
        """How many have ended by then."""
        return (shown(zone, at) - offset - size) // hop

    held = list(range(over(time) + 1, begun(time) + 1))
    starts = [first(lambda at, n=n: begun(at) >= n, time) for n in held]
    ends = [last(lambda at, n=n: over(at) < n, time) for n in held]
    following = [begun(start) for start in starts]
    expected = [
        (start, end) for start, end, n, newest in zip(starts, ends, held, following, strict=True)
        if newest == n
    ]  # fmt: skip
    assert found == expected


def shifts(zone: str) -> list[tuple[int, int]]:
    """When the clocks change, and by how much."""
    found = table(zone)
    if found is None:
        return []
    pairs = zip(found.offsets, found.offsets[1:], strict=False)
    return list(zip(found.changes, [b - a for a, b in pairs], strict=True))


def first(holds: Callable[[int], bool], time: int) -> int:
    """The first half hour since which something holds, up to a time."""
    while holds(time - 30 * MINUTE):
        time -= 30 * MINUTE
    return time


def last(holds: Callable[[int], bool], time: int) -> int:
    """The half hour at which it holds no more."""
    while holds(time):
        time += 30 * MINUTE
    return time


@examples(80)
@given(zone=st.sampled_from(["America/New_York", "America/Havana"]), data=st.data())
@pytest.mark.parametrize("minutes", [10, 15, 30, 60])
def test_hours_go_on_when_clocks_change(minutes: int, zone: str, data: st.DataObject) -> None:
    size = minutes * MINUTE
    time = data.draw(times(zone))
    start = time // size * size
    assert everywhere(Assigner.of(size, size, 0, 0, 1, table(zone)), time) == [
        (start, start + size)
    ]


# ---------------------------------------------------------------- the rest


@examples(200)
@given(
    st.integers(-(10**6), 10**6),
    st.integers(1, 400),
    st.integers(1, 600),
    st.integers(-900, 900),
    st.sampled_from([1, 1000]),
)
def test_windows_of_utc(time: int, size: int, every: int, offset: int, ticks: int) -> None:
    windows = Assigner.of(size, every, offset, 0, ticks, None)
    starts = range(time - size - every, time + 1)
    expected = [s for s in starts if (s - offset) % every == 0 and s <= time < s + size]
    assert everywhere(windows, time) == [(s, s + size) for s in expected]


@examples(200)
@given(st.dates())
def test_months_and_days(at: date) -> None:
    number = at.toordinal() - date(1970, 1, 1).toordinal()
    assert month_of(number) == (at.year - 1970) * 12 + at.month - 1
    assert first_day(month_of(number)) == number - at.day + 1


def test_the_table_of_a_zone() -> None:
    berlin = table("Europe/Berlin")
    assert berlin is not None and repr(berlin) == "Zone('Europe/Berlin')"
    assert table("UTC") is None
    changes = [datetime.fromtimestamp(c, UTC) for c in berlin.changes]
    assert [c.isoformat() for c in changes if c.year == 2024] == [
        "2024-03-31T01:00:00+00:00",
        "2024-10-27T01:00:00+00:00",
    ]
    assert table("Asia/Tokyo") == zone_of("test", ZoneInfo("Asia/Tokyo"))
