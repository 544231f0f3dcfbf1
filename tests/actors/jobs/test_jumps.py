"""Runs of empty epochs in shells: one step at each instance, also when instances are replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.pieces import Header
from raystream.testing import Collect, run_local
from tests.actors.helpers.shells import run_in_shells, shells_of
from tests.actors.jobs.test_recovery import Killer

DAY = 86_400


class Bar(NamedTuple):
    time: int
    symbol: int


class Quiet(rs.State):
    due: rs.Timer = rs.NEVER


@rs.operator(key="symbol")
class Silence:
    """Passes records on, and tells when nothing came for an hour."""

    def process(self, bar: Bar, row: Quiet) -> Iterator[Bar]:
        row.due = bar.time + 3600
        yield bar

    def timer(self, key: int, time: int, row: Quiet) -> Iterator[Bar]:
        yield Bar(time, -key)


def daily(sink: Collect, days: int) -> rs.Flow:
    """Records of three symbols on most days, of a few minutes each."""
    bars = [Bar(day * DAY + 60 * s, s) for day in range(days) for s in (1, 2, 3) if (day + s) % 4]
    flow = rs.Flow("daily")
    flow.source(rs.io.iterable(bars, Bar), epochs=rs.by_time(seconds=1)).through(Silence()).to(sink)
    return flow


def test_years_of_daily_records_take_as_many_steps_as_their_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, got = Collect(), Collect()
    run_local(daily(expected, 200))
    steps: list[int] = []
    step = ReceivingInstance.step

    def counted(self: ReceivingInstance, rows: Any = None) -> Header:
        header = step(self, rows)
        steps.append(header.epoch)
        return header

    monkeypatch.setattr(ReceivingInstance, "step", counted)
    run_in_shells(daily(got, 200), checkpoint_every=20, instances={"Silence": 2})
    assert got.by_epoch() == expected.by_epoch()
    assert max(steps) > 17_000_000  # epochs
    assert len(steps) < 20 * 450, len(steps)  # records, and as many alarms


@pytest.mark.parametrize("seed", range(2))
def test_whoever_is_killed(seed: int) -> None:
    expected, got = Collect(), Collect()
    run_local(daily(expected, 60))
    killer = Killer(seed)
    with shells_of(daily(got, 60), checkpoint_every=20, instances={"Silence": 2}) as shells:
        shells.start(time.time())
        shells.watch(killer)
    assert got.by_epoch() == expected.by_epoch()
    assert killer.killed
