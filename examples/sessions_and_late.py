"""Visits: clicks less than 10 seconds apart. Clicks that come too late are a stream of their own.

It prints:

    Visit(user='ann', start=0, end=16, clicks=3)
    Visit(user='bob', start=25, end=35, clicks=1)
    late: Click(time=2, user='ann')

Run it:

    python examples/sessions_and_late.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs


class Click(NamedTuple):
    time: int
    user: str


class Visit(NamedTuple):
    user: str
    start: int
    end: int
    clicks: int


class Clicks(rs.State):
    n: int = 0


@rs.operator(key="user", window=rs.session(gap=10))
class Visits:
    def process(self, click: Click, clicks: Clicks) -> None:
        clicks.n += 1

    def merge(self, into: Clicks, other: Clicks) -> None:
        """A click may join two sessions that were apart."""
        into.n += other.n

    def close(self, key: str, window: rs.Window, clicks: Clicks) -> Iterator[Visit]:
        yield Visit(key, window.start, window.end, clicks.n)


# Clicks may be up to 3 seconds behind those before them (`disorder`): the one of time 4 is in time,
# the one of time 2 comes after one of time 25, when ann's visit has closed.
CLICKS = [Click(0, "ann"), Click(6, "ann"), Click(4, "ann"), Click(25, "bob"), Click(2, "ann")]


def print_late(click: Click) -> None:
    print("late:", click)


flow = rs.Flow("visits")
clicks = flow.source(rs.io.iterable(CLICKS, Click), epochs=rs.by_time(seconds=1, disorder=3))
visits, late = clicks.through(Visits(), late=True)
visits.to(rs.io.console())
late.to(rs.io.callable(print_late, each=True))

if __name__ == "__main__":
    flow.run()
