"""Timers that are set as they ring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import OperatorError
from raystream.testing import Collect, run_local


class In(NamedTuple):
    time: int
    key: int


class Rang(NamedTuple):
    key: int
    time: int


class Alarm(rs.State):
    due: rs.Timer = rs.NEVER


@dataclass(frozen=True)
class Again:
    """Rings every `step` seconds, once it has begun."""

    step: int

    def process(self, r: In, row: Alarm) -> None:
        row.due = r.time

    def timer(self, key: int, time: int, row: Alarm) -> Iterator[Rang]:
        yield Rang(key, time)
        row.due = time + self.step


def rings(op: Any) -> list[Rang]:
    flow, sink = rs.Flow("ringing", key_groups=4), Collect()
    rows = [In(0, 1), In(9, 2)]
    epochs = rs.by_time(seconds=1)
    flow.source(rs.io.iterable(rows, In), epochs=epochs).through(op, name="again").to(sink)
    run_local(flow)
    return [r for r in sink.records() if r.key == 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_timer_may_be_set_to_any_later_time(compiled: bool) -> None:
    op = rs.operator(key="key", compiled=compiled)(Again)
    assert [r.time for r in rings(op(step=1))] == [*range(11)]
    assert [r.time for r in rings(op(step=3))] == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("step", [0, -5])
def test_one_that_would_never_stop_ringing_is_refused(compiled: bool, step: int) -> None:
    op = rs.operator(key="key", compiled=compiled)(Again)
    with pytest.raises(OperatorError, match=r"Again.timer set Alarm.due (.|\n)*never stop") as told:
        rings(op(step=step))
    assert "rs.NEVER" in str(told.value)
