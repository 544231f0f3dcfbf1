"""A count per key, compiled with Numba: written as for Python, run without the interpreter.

It prints:

    Running(key=7, n=1)
    Running(key=3, n=1)
    Running(key=7, n=2)
    Running(key=7, n=3)

Run it:

    python examples/running_count_compiled.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs


class Event(NamedTuple):
    """Compiled operators take and yield numbers; text keys need the batch form."""

    time: rs.Int32
    key: rs.Int32


class Running(NamedTuple):
    key: rs.Int32
    n: int


class Count(rs.State):
    n: int = 0


@rs.operator(key="key", compiled=True)
def count(event: Event, row: Count) -> Iterator[Running]:
    row.n += 1
    yield Running(event.key, row.n)


EVENTS = [Event(0, 7), Event(1, 7), Event(1, 3), Event(2, 7)]

flow = rs.Flow("running-count")
events = flow.source(rs.io.iterable(EVENTS, Event), epochs=rs.by_time(seconds=1))
events.through(count).to(rs.io.console())

if __name__ == "__main__":
    flow.run()
