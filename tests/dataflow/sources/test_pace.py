"""How long the epochs of a paced job are, and when each is released."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import Plan
from raystream.dataflow.sources.pace import PACED_EPOCH_SECONDS, length_of, release_of
from raystream.dataflow.sources.recorded import Recorded
from raystream.schema.types import KeyRange
from raystream.testing import Collect
from tests.flows import Rows


class Tick(NamedTuple):
    time: int
    id: int


def planned(times: list[int], *cuts: Any, unit: Any = "s") -> Plan:
    """The plan of a job whose sources have these times, and one of them each of these cuts."""
    flow = rs.Flow("paced", key_groups=8, time_unit=unit)
    rows = (tuple(Tick(t, 1) for t in times),)
    for number, epochs in enumerate(cuts):
        flow.source(Rows(Tick, rows), epochs=epochs, name=f"s{number}").to(
            Collect(), name=f"c{number}"
        )
    return make_plan(flow)


def seconds_of(plan: Plan) -> float:
    assert plan.clock is not None
    return plan.clock.seconds


@pytest.mark.parametrize(
    ("speed", "unit", "seconds"),
    [
        (1.0, "us", 0.01),
        (1.0, "ms", 0.01),
        (60.0, "ms", 0.6),
        (0.001, "ms", 0.001),  # a tick is the least
        (1.0, "s", 1.0),
        (450.0, "s", 4.0),
        (None, "ms", 1.0),
    ],
)
def test_a_flow_that_names_no_length_has_that_of_its_pace(
    speed: float | None, unit: str, seconds: float
) -> None:
    assert seconds_of(planned([0, 9], rs.by_time(speed=speed), unit=unit)) == seconds


def test_a_length_that_is_named_is_kept() -> None:
    assert seconds_of(planned([0], rs.by_time(seconds=2, speed=1))) == 2.0


@given(st.floats(1e-3, 1e4), st.sampled_from([1, 20, 1_000, 1_000_000]))
def test_a_length_is_whole_ticks_near_what_a_record_may_wait(speed: float, ticks: int) -> None:
    length = length_of(speed, ticks)
    assert round(length * ticks) >= 1
    assert abs(length * ticks - round(length * ticks)) < 1e-6
    assert abs(length / speed - PACED_EPOCH_SECONDS) <= 1 / ticks / speed


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=9),
    st.integers(1, 7),
    st.sampled_from([1, 3]),
    st.sampled_from([0.5, 1.0, 40.0]),
)
def test_no_record_comes_before_it_is_due_and_no_epoch_waits_longer(
    times: list[int], length: int, ticks: int, speed: float
) -> None:
    """The last tick of an epoch is when it is released. ticks: of the source in a second."""
    epochs = rs.by_time(seconds=length, ticks=ticks, speed=speed, disorder=60)
    plan = planned(times, epochs)
    clock, release = plan.clock, release_of(plan)
    assert clock is not None and release is not None
    reader = Recorded(plan, plan.vertices[0], KeyRange(0, plan.groups))
    ended, epoch = False, 0
    while not ended:
        epoch += 1
        taken = reader.take(epoch)
        ended = taken.ended
        due = [(t / ticks - clock.origin) / speed for t in taken.rows.column("time").tolist()]
        assert all(at <= release(epoch) + 1e-9 for at in due)
        assert release(epoch) == pytest.approx((epoch * length - 1 / ticks) / speed)


def test_sources_of_finer_ticks_are_waited_for() -> None:
    plan = planned([0], rs.by_time(seconds=1, speed=2), rs.by_time(seconds=1, ticks=10, speed=2))
    release = release_of(plan)
    assert release is not None
    assert release(1) == pytest.approx(0.45)


def test_without_a_pace_nothing_is_released_by_the_clock() -> None:
    assert release_of(planned([0], rs.by_time())) is None
    assert release_of(planned([0], rs.by_arrival())) is None
