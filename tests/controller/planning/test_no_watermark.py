"""Windows and timers that wait for a time which never comes are warned of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.controller.planning.no_watermark import NoWatermarkWarning
from raystream.controller.planning.plans import make_plan
from raystream.testing import Collect


class Raw(NamedTuple):
    stamp: str


class Event(NamedTuple):
    time: int
    key: str


class Tally(rs.State):
    n: int = 0
    due: rs.Timer = rs.NEVER


class Feed(rs.Source[Raw]):
    waits = True

    def splits(self) -> list[rs.Split]:
        return [rs.Split("feed")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Raw]]]:
        return iter(())


class Ends(Feed):
    waits = False


class Kept(rs.State):
    n: int = 0


@rs.operator()
def parsed(raw: Raw) -> Iterator[Event]:
    yield Event(int(raw.stamp), "a")


def counts(window: Any) -> Any:
    @rs.operator(key="key", window=window)
    class Counts:
        def process(self, event: Event, kept: Kept) -> None: ...

        def close(self, key: str, window: rs.Window, kept: Kept) -> Iterator[Event]:
            return iter(())

    return Counts()


@rs.operator(key="key")
class Timed:
    def process(self, event: Event, tally: Tally) -> None: ...

    def timer(self, key: str, time: int, tally: Tally) -> Iterator[Event]:
        return iter(())


@rs.operator(key="key")
def kept(event: Event, kept: Kept) -> Iterator[Event]:
    yield event


@pytest.mark.parametrize(
    ("operator", "held"),
    [(counts(rs.tumbling(seconds=5)), "windows never close"), (Timed(), "timers never ring")],
)
def test_a_source_that_goes_on_without_event_time_is_warned_of(operator: Any, held: str) -> None:
    flow = rs.Flow("feed")
    flow.source(Feed(), name="lines").through(parsed).through(kept).through(operator).to(Collect())
    wanted = rf"its {held} while the job runs\. lines has no watermark: Raw has no integer 'time'"
    with pytest.warns(NoWatermarkWarning, match=wanted) as told:
        make_plan(flow)
    assert [each.filename for each in told] == [__file__]


def test_sources_that_end_event_times_of_streams_and_counts_are_not() -> None:
    flow = rs.Flow("feed")
    window = counts(rs.tumbling(seconds=5))
    flow.source(Ends(), name="ends").through(parsed, name="a").through(window).to(Collect())
    lines = flow.source(Feed(), name="lines").through(parsed, name="b")
    lines.timed("time").through(window, name="timed").to(Collect(), name="c")
    lines.through(counts(rs.tumbling(count=5)), name="counted").to(Collect(), name="d")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_plan(flow)
