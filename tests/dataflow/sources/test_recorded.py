"""Recorded data is cut into epochs by event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.dataflow.sources.recorded import Cutting, Recorded
from raystream.errors import ConfigError, InputError
from raystream.schema.types import NEVER
from raystream.state.keys import even_ranges
from raystream.testing import Collect, run_local
from tests.dataflow.sources.ticks import Tick, numbered, plan_of, splits
from tests.examples import examples
from tests.flows import Line


def naive(parts: tuple[tuple[Tick, ...], ...], origin: int, length: int) -> dict[int, list[Tick]]:
    """Per epoch the rows of all splits, split by split."""
    out: dict[int, list[Tick]] = {}
    for part in parts:
        epoch = 1
        for tick in part:
            epoch = max(epoch, (tick.time - origin) // length + 1)
            out.setdefault(epoch, []).append(tick)
    return out


@examples(60)
@given(splits, st.integers(1, 20), st.integers(1, 8), st.integers(1, 4))
def test_recorded_epochs(parts: list[list[int]], length: int, instances: int, batch: int) -> None:
    rows = numbered(parts)
    plan = plan_of(rows, rs.by_time(seconds=length, disorder=2), batch=batch)
    assert plan.clock is not None
    origin = int(plan.clock.origin)
    # The origin is on the grid, at or before the first row of every split, whatever its batches.
    assert origin % length == 0
    assert origin == min(part[0] for part in parts) // length * length
    machines = [Recorded(plan, plan.vertex("ticks"), k) for k in even_ranges(8, instances)]
    expected = naive(rows, origin, length)
    ended = [False] * instances
    for epoch in range(1, max(expected) + 2):
        taken = [m.take(epoch) for m in machines]
        assert [r for t in taken for r in t.rows.records()] == expected.get(epoch, [])
        for i, t in enumerate(taken):
            assert t.ended >= ended[i]
            assert t.watermark == (NEVER if t.ended else origin + epoch * length - 2)
            assert t.offsets[-1] == len(t.rows)
            ended[i] = t.ended
        last = epoch >= max(expected)
        assert all(ended) == last


wild = st.one_of(st.integers(-50, 50), st.integers(-(2**63), 2**63 - 1))
lengths = st.one_of(st.integers(1, 9), st.integers(1, 2**63 - 1))


@examples(200)
@given(st.lists(wild), wild, lengths, st.one_of(st.integers(0, 9), st.integers(0, 2**62)))
def test_runs_are_the_running_maximum(
    times: list[int], origin: int, length: int, last: int
) -> None:
    """Also where a time is more than 63 bits from the origin; the last epoch has the rest."""
    values = np.array(times, np.int64)
    raw = [min((time - origin) // length + 1, NEVER) for time in times]
    expected = np.array([max(raw[: i + 1] + [last]) for i in range(len(raw))], np.int64)
    runs = Cutting("time", origin, length, 1, 0).runs(values, last)
    assert runs.epochs.tolist() == sorted(set(expected.tolist()))
    starts = [0, *runs.ends.tolist()]
    assert np.repeat(runs.epochs, np.diff(starts)).tolist() == expected.tolist()
    assert [runs.epoch_at(i) for i in range(len(times))] == expected.tolist()
    for epoch in {0, last, *expected.tolist()}:
        assert runs.end_of(epoch) == np.searchsorted(expected, epoch, side="right")


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8"])
def test_any_integer_column_is_cut(kind: str) -> None:
    values = np.array([-3, 5, 4, 12, 12, 30], kind)
    runs = Cutting("time", -5, 10, 1, 0).runs(values, 1)
    assert runs.ends.tolist() == [1, 5, 6] and runs.epochs.tolist() == [1, 2, 4]


@pytest.mark.filterwarnings("ignore::raystream.controller.planning.time_units.DoubtfulTimeWarning")
@pytest.mark.parametrize("times", [[0, 5, 10**10, 3], [2**40, 0, 2**40], [-(2**61), 7]])
def test_a_row_that_no_job_would_come_to_is_refused(times: list[int]) -> None:
    flow = rs.Flow("leap")
    lines = [Line(time, "") for time in times]
    late = [Line(time, "") for time in sorted(times)[:1]]
    for i, part in enumerate((lines, late)):
        source = rs.io.iterable(part, Line)
        flow.source(source, epochs=rs.by_time(seconds=1), name=f"lines-{i}").to(Collect())
    with pytest.raises(InputError, match=r"lines-0: .* time=\d+, \d+ epochs after those") as told:
        run_local(flow)
    assert "rs.by_time(ticks=...)" in told.value.hint


def test_the_greatest_time_is_one() -> None:
    flow, sink = rs.Flow("last"), Collect()
    lines = [Line(2**63 - 1, "end")]
    flow.source(rs.io.iterable(lines, Line), epochs=rs.by_time(seconds=1)).to(sink)
    run_local(flow)
    assert sink.records() == lines


def test_an_epoch_is_a_whole_number_of_ticks() -> None:
    with pytest.raises(ConfigError, match=r"an epoch of 0\.5 s is not a whole number of ticks"):
        plan_of(numbered([[1]]), rs.by_time(seconds=0.5))
    plan_of(numbered([[1]]), rs.by_time(seconds=0.5, ticks=4))


@pytest.mark.filterwarnings("ignore::raystream.controller.planning.time_units.DoubtfulTimeWarning")
@pytest.mark.parametrize(
    ("unit", "seconds", "length"),
    [("us", 8.2, 8_200_000), ("ms", 1.001, 1001), ("ns", 1, 10**9), ("ns", 0.01, 10**7)],
)
def test_epochs_begin_at_multiples_of_their_length_whatever_the_unit(
    unit: Any, seconds: float, length: int
) -> None:
    """Times of these days have more digits in nanoseconds than a float."""
    begin = 1_700_000_000_123_456_789 // length * length
    times = [begin + length - 1, begin + length, begin + 2 * length]
    flow = rs.Flow("ticks", time_unit=unit)
    kept: Collect[Tick] = Collect()
    epochs = rs.by_time("time", seconds=seconds)
    flow.source(rs.io.iterable([Tick(t, 0) for t in times], Tick), epochs=epochs).to(kept)
    run_local(flow)
    assert [epoch for epoch, _ in kept.by_epoch()] == [1, 2, 3]


@pytest.mark.parametrize("given", [{"seconds": 2**70}, {"seconds": 1, "ticks": 2**70}])
def test_an_epoch_is_no_longer_than_numbers_are(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"more ticks of 'time' than 2\*\*62"):
        plan_of(numbered([[1]]), rs.by_time(**given))
