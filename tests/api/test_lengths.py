"""Lengths of time are numbers of seconds, timedeltas or text, wherever seconds are said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import ConfigError, GraphError
from raystream.schema.lengths import seconds_of


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (300, 300),
        (0.25, 0.25),
        (timedelta(minutes=5), 300),
        (timedelta(milliseconds=250), 0.25),
        ("5m", 300),
        ("5 min", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("90s", 90),
        ("2d", 172_800),
        ("1w", 604_800),
    ],
)
def test_what_is_said_in_other_ways_is_the_same(given: Any, seconds: float) -> None:
    assert rs.tumbling(seconds=given) == rs.tumbling(seconds=seconds)
    assert rs.session(gap=given) == rs.session(gap=seconds)
    assert rs.by_time(seconds=given, disorder=given) == rs.by_time(
        seconds=seconds, disorder=seconds
    )
    assert rs.by_arrival(seconds=given) == rs.by_arrival(seconds=seconds)
    assert type(seconds_of("", "x", given)) is type(seconds)


@pytest.mark.parametrize("given", ["5", "m", "-5m", "5 parsecs", "5m!", True, None, b"5m", [5]])
def test_what_is_no_length_is_refused(given: Any) -> None:
    with pytest.raises(GraphError, match=r"is no length of time(.|\n)*timedelta"):
        rs.session(gap=given)


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=10_000)))
def test_timedeltas_are_taken_exactly(length: timedelta) -> None:
    assert seconds_of("", "x", length) == pytest.approx(length.total_seconds(), abs=0)


class Tick(NamedTuple):
    time: int
    key: str


class Tally(rs.State):
    n: int = 0


@pytest.mark.parametrize(
    ("given", "seconds"), [("-5m", -300), (timedelta(hours=-1), -3600), ("6h", 21_600), (-1, -1)]
)
def test_an_offset_may_be_negative(given: Any, seconds: float) -> None:
    assert rs.tumbling(seconds=1, offset=given).offset == seconds


@rs.operator(key="key", window=rs.tumbling(seconds="1m"))
class Count:
    def process(self, tick: Tick, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Tick]:
        yield Tick(window.start, f"{key}{tally.n}")


def test_a_flow_runs_with_them() -> None:
    from raystream.testing import Collect

    flow, sink = rs.Flow("x", time_unit="ms"), Collect()
    ticks = rs.io.iterable([Tick(n * 1000, "a") for n in range(120)], Tick)
    flow.source(ticks, epochs=rs.by_time(seconds="10s")).through(Count()).to(sink)
    flow.run(checkpoint_seconds=timedelta(seconds=1))
    assert sink.records() == [Tick(0, "a60"), Tick(60_000, "a60")]


NATS, REDIS = "nats://127.0.0.1", "redis://127.0.0.1"
WAITING: dict[str, Callable[[Any], Any]] = {
    "rs.io.kafka": lambda wait: rs.io.kafka("x", servers="a:9092", wait=wait).settings.wait,
    "rs.io.kinesis": lambda wait: rs.io.kinesis("x", Tick, wait=wait).where.wait,
    "rs.io.postgres_changes": lambda wait: (
        rs.io.postgres_changes("postgres://x", Tick, table="x", operation=None, wait=wait)
        .asked.wait
    ),
    "rs.io.postgres_rows": lambda every: (
        rs.io.postgres_rows("postgresql://x", Tick, table="x", rising="time", every=every)
        .asked.every
    ),
    "wait": lambda wait: rs.io.sqlite("x", table="x", wait=wait).wait,
    "nats": lambda give_up: rs.io.nats(NATS, "x", Tick, give_up=give_up).give_up,
    "redis": lambda give_up: rs.io.redis(REDIS, "x", Tick, give_up=give_up).give_up,
}  # fmt: skip


@pytest.mark.parametrize("name", WAITING)
def test_connectors_wait_as_long_as_is_said(name: str) -> None:
    of = WAITING[name]
    assert of("5m") == of(timedelta(minutes=5)) == of(300) == 300.0
    with pytest.raises(ConfigError, match=rf"{name}.*'soon'\)? is no length of time"):
        of("soon")
    with pytest.raises(ConfigError, match=r"must be (not below|above) 0"):
        of(-1)
