"""What an instance spends its time with, on a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.actors.worker import busy_meter as metering
from raystream.actors.worker.busy_meter import Meter

DOINGS = ("idle", "busy", "blocked")


class Clock:
    """Stands in for the module `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.sampled_from(DOINGS), st.integers(0, 9), st.booleans())))
def test_every_second_is_counted_once_whenever_somebody_asks(turns: list[Any]) -> None:
    clock = Clock()
    spent = dict.fromkeys(DOINGS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metering, "time", clock)
        meter = Meter()
        for doing, seconds, nested in turns:
            meter.turn(doing)
            clock.now += seconds
            spent[doing] += seconds
            if nested:
                with meter.meanwhile("blocked"):
                    clock.now += 2
                    spent["blocked"] += 2
                clock.now += 1
                spent[doing] += 1
            found = meter.spent()
            assert found[:3] == (sum(spent.values()), spent["busy"], spent["blocked"])
        meter.begin()
        assert meter.spent() == (0.0, 0.0, 0.0, 0)


def test_it_counts_how_often_work_begins_after_a_wait_for_input() -> None:
    meter = Meter()
    for _ in range(3):
        meter.turn("busy")
        with meter.meanwhile("blocked"):
            meter.turn("blocked")
        meter.turn("busy")
        meter.turn("idle")
    assert meter.spent().rounds == 3
