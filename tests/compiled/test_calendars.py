"""Windows of a zone, of months and with gaps, compiled against interpreted, through moves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

import raystream as rs
from raystream.testing import Collect
from raystream.testing.check import check_operator
from tests.examples import FACTOR

HOUR = 3_600
NEW_YORK = ZoneInfo("America/New_York")
SPRING = int(datetime(2024, 3, 8, tzinfo=NEW_YORK).timestamp())


class Event(NamedTuple):
    time: int
    key: rs.Int32


class Closed(NamedTuple):
    key: rs.Int32
    start: int
    end: int
    n: int


class Tally(rs.State):
    n: int = 0


class _Counts:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: int, window: rs.Window, tally: Tally) -> Iterator[Closed]:
        yield Closed(key, window.start, window.end, tally.n)


@rs.operator(key="key", window=rs.tumbling(days=1, zone="America/New_York"), compiled=True)
class Days(_Counts):
    pass


@rs.operator(key="key", window=rs.tumbling(months=1, offset="6h"), compiled=True)
class Months(_Counts):
    pass


@rs.operator(key="key", window=rs.tumbling(weeks=1), compiled=True)
class Weeks(_Counts):
    pass


@rs.operator(
    key="key",
    window=rs.sliding(seconds="2d", every="1d", offset="6h", zone=NEW_YORK),
    compiled=True,
)
class Hops(_Counts):
    pass


@rs.operator(key="key", window=rs.sliding(seconds="1h", every="6h"), compiled=True)
class Gaps(_Counts):
    pass


@rs.operator(
    key="key", window=rs.sliding(seconds="4h", every="1d", zone="America/Havana"), compiled=True
)
class Mornings(_Counts):
    pass


@pytest.mark.parametrize("op", [Days(), Months(), Weeks(), Hops(), Gaps(), Mornings()])
def test_compiled_is_interpreted(op: _Counts) -> None:
    rng = random.Random(type(op).__name__)
    for _ in range(max(1, round(3 * FACTOR))):
        wide = rng.choice([4, 40, 300]) * 24 * HOUR
        times = sorted(SPRING + rng.randrange(wide) for _ in range(80))
        mixed = [Event(t - rng.choice([0, 0, 0, 9 * HOUR]), rng.randrange(4)) for t in times]
        check_operator(op, mixed, examples=4, recut=False)


def closed(op: _Counts, hours: int) -> list[Closed]:
    events = [Event(SPRING + n * HOUR // 2, 1) for n in range(2 * hours)]
    sink, flow = Collect(), rs.Flow("calendar")
    source = rs.io.iterable(events, Event)
    flow.source(source, epochs=rs.by_time(seconds=HOUR)).through(op).to(sink)
    flow.run()
    return [record for _, record in sink.by_epoch()]


def test_the_day_on_which_clocks_are_set_forward_has_23_hours() -> None:
    days = closed(Days(), 4 * 24)
    assert [d.n for d in days] == [48, 48, 46, 48, 2]
    begins = [datetime.fromtimestamp(d.start, NEW_YORK).isoformat() for d in days]
    assert begins[2:4] == ["2024-03-10T00:00:00-05:00", "2024-03-11T00:00:00-04:00"]
    assert all(d.end == after.start for d, after in pairwise(days))


def test_records_between_windows_are_in_none() -> None:
    gaps = closed(Gaps(), 24)
    assert [(g.end - g.start, g.n) for g in gaps] == [(HOUR, 2)] * 4
    assert [datetime.fromtimestamp(g.start, UTC).hour for g in gaps] == [6, 12, 18, 0]
