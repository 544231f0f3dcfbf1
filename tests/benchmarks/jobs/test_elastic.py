"""Moves at steady load, at a tiny size: every count is right, and gaps are what they are called."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.jobs import elastic
from benchmarks.jobs.elastic import Form, Keys, Mover, first, longest_gap, measures, table


@given(st.lists(st.floats(0, 100), min_size=2, unique=True))
def test_the_longest_gap_is_between_neighbours(at: list[float]) -> None:
    gaps = [b - a for a, b in zip(sorted(at), sorted(at)[1:], strict=False)]
    assert longest_gap(np.array(at), -1, 101) == max(gaps)
    assert longest_gap(np.array(at), 101, 102) == 0


def test_a_moment_comes_when_it_came_first() -> None:
    t, at = first(np.array([2, 1, 2]), np.array([5.0, 1.0, 4.0]))
    assert t.tolist() == [1, 2] and at.tolist() == [1.0, 4.0]


def test_every_key_comes_once_at_first() -> None:
    keys = Keys(elastic.FILL_KEYS + 1, 4)
    assert keys.filled == 2
    assert keys.sums()[:2] == [elastic.FILL_KEYS, 1]
    assert keys.sums()[2] >= 2 * elastic.RATE


def test_gaps_of_keys_that_move_and_stay_are_told_apart() -> None:
    ticks = np.arange(400)
    usual = ticks / elastic.TICKS
    late = np.where((ticks >= 200) & (ticks < 204), usual[204], usual)  # four epochs at once
    made = np.array(
        [("moves", t, at) for t, at in enumerate(late)]
        + [("stays", t, at) for t, at in enumerate(usual)],
        dtype=[("side", "U5"), ("t", "i8"), ("at", "f8")],
    )
    came = np.array([(t, at + 0.06, 0) for t, at in enumerate(late)], dtype=[
        ("t", "i8"), ("at", "f8"), ("sum", "i8")])  # fmt: skip
    mover = Mover("replay", 1, 0.0, at=[usual[195]], ended=[usual[206]], level=[0.5],
                  megabytes=[2.0])  # fmt: skip
    found = measures(0.0, mover, made, came)
    assert found["usual_gap_ms"] == pytest.approx(50)
    assert found["staying_gap_ms"] == [pytest.approx(50)]
    assert found["moving_gap_ms"] == found["sink_gap_ms"] == [pytest.approx(250)]
    assert found["usual_p99_ms"] == pytest.approx(60) and found["moving_p99_ms"] > 100
    again = Mover("replay", 2, 0.0, at=[usual[100], usual[195]], ended=[usual[110], usual[206]],
                  level=[0.5, 0.5], megabytes=[2.0, 2.0])  # fmt: skip
    both = measures(0.0, again, made, came)
    assert both["moving_gap_ms"] == [pytest.approx(50), pytest.approx(250)]
    assert both["usual_p99_ms"] == pytest.approx(60) and both["moving_p99_ms"] > 100
    stopped = Mover("restart", 1, 0.0, at=[usual[195]], megabytes=[4.0])
    one = measures(0.0, stopped, made, came)
    assert one["moving_gap_ms"] == one["sink_gap_ms"] == [pytest.approx(250)]
    assert one["level_ms"] == [pytest.approx(510)] and one["usual_p99_ms"] is None
    form = Form("replay", 1.0)
    shown = table({form: [{**found, "moves": 1}]})
    assert [list(c.cells) for c in shown.columns[:3]] == [["1 MB, replay"], ["1"], ["2.0"]]
    assert list(shown.columns[3].cells) == ["250"]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_moves_and_a_restart_are_measured(runtime: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "WARM_SECONDS", 4.0)
    monkeypatch.setattr(elastic, "SPARES_SECONDS", 0.0)
    monkeypatch.setattr(elastic, "BETWEEN_SECONDS", 1.0)
    monkeypatch.setattr(elastic, "CHECKPOINT_SECONDS", 0.5)
    line = "elastic --megabytes 0.1 --ways handover,restart --moves 1 --json"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    moved, stopped = [json.loads(t) for t in result.stdout.splitlines()]
    (megabytes,) = moved["megabytes_moved"]
    assert moved["moves"] == 1 and 0.05 < megabytes < 1  # an image, and deltas on it
    assert stopped["usual_p99_ms"] is None
    assert min(moved["moving_gap_ms"]) > 0 and min(stopped["moving_gap_ms"]) > 0


def test_what_is_unknown_is_refused() -> None:
    result = CliRunner().invoke(app, ["elastic", "--ways", "fly"])
    assert result.exit_code == 2 and "fly" in result.output
