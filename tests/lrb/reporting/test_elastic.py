"""A run that finds its own size: what it is asked, what it says it decided, and its picture."""

from __future__ import annotations

from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import lrb.query.run
from lrb import steps
from lrb.query.flow import OPERATORS
from lrb.query.source import look_through
from lrb.reporting import elastic_plot, plots
from lrb.reporting.elastic import (
    bounds_of,
    decisions_of,
    decisions_table,
    epoch_of,
    policy_of,
    speed_of,
)
from lrb.reporting.elastic_plot import MARK_APART, counts_of, rows_of
from lrb.reporting.plots import LIGHT, series_of
from lrb.reporting.report import write_report
from raystream.errors import ConfigError
from spark_ingest.layout import SLOTS, Meta, write_meta
from tests.lrb import plain_rules
from tests.lrb.random_traffic import random_traffic
from tests.lrb.reporting.test_report import PNG, Page, answers_folder, verdict_of
from tests.lrb.running import prepare, read_answers
from tests.lrb.sample_run import sample_latency, sample_run


def grown() -> dict[str, Any]:
    """A run in which vehicles became two, then one again, and segments did not become two."""
    run = sample_run(speed=60.0) | {"policy": str(policy_of(0.2, interval=5))}
    for point in run["series"]:
        for name, measured in point["operators"].items():
            measured["instances"] = 1 + (name == "vehicles" and 20 <= point["t"] < 60)
    phases = {"place": 0.5, "restore": 1.0, "replay": 0.5, "failed": ""}
    one, two, three = ["vehicles/0"], ["vehicles/1", "vehicles/2"], ["vehicles/3"]
    split = {"t": 18.0, "operator": "vehicles", "gone": one, "new": two, "instances": 2}
    merge = {"t": 58.0, "operator": "vehicles", "gone": two, "new": three, "instances": 1}
    other = {"t": 18.5, "operator": "segments", "gone": ["segments/0"], "new": ["a", "b"]}
    other |= {"instances": 2, "because": "busy"}
    run["moved"] = [
        {**merge, **phases, "because": "idle"},
        {**other, **phases, "failed": "nobody was left"},
        {**split, **phases, "because": "used 90 %"},
    ]
    return run


def test_three_hours_in_ten_minutes_are_eighteen_times_real_time() -> None:
    assert speed_of(hours=3, minutes=10) == (10_800, 18)


def test_an_epoch_is_whole_slots_of_the_traffic() -> None:
    assert epoch_of(0.25, speed=18) == 4.5
    assert epoch_of(0.01, speed=1) == 1 / SLOTS


def test_a_share_of_a_core_becomes_a_threshold() -> None:
    policy = policy_of(0.2, interval=5)
    assert (policy.threshold, policy.low) == pytest.approx((0.14, 0.07))
    assert policy.lull * policy.interval == 30
    for cores in (0.0, 1.5):
        with pytest.raises(ConfigError, match="no part of a core"):
            policy_of(cores, interval=5)
    assert {*bounds_of(4)} == {*OPERATORS} - {"answers"}


def test_traffic_is_generated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when another one is asked for."""
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(steps, "generate", lambda *asked: made.append(asked))
    meta = Meta("generated", 1, 600, 0, 599, 7, {"0": 1}, 1, 0, [1])
    write_meta(tmp_path, meta)
    for folder, seed in ((tmp_path, 7), (tmp_path / "none", 7), (tmp_path, 8)):
        steps.generate_once(folder, 1, 600, seed)
    assert made == [(tmp_path / "none", 1, 600, 7), (tmp_path, 1, 600, 8)]


def test_decisions_are_told_in_the_order_of_time() -> None:
    run = grown()
    first, failed, last = decisions_of(run)
    assert str(first) == "vehicles 1 to 2" and (first.t, first.at_work) == (18, 20)
    assert failed.failed and str(last) == "vehicles 2 to 1"
    assert [d.number for d in (first, failed, last)] == [1, 2, 3]
    console = Console(width=120, record=True, file=StringIO())
    console.print(decisions_table([first, failed, last]))
    told = console.export_text()
    assert "used 90 %" in told and "given up" in told and "nobody was left" in told
    assert decisions_of(sample_run(speed=60.0)) == []


@given(st.lists(st.floats(0, 100), min_size=1).map(sorted))
def test_no_mark_hides_another(t: list[float]) -> None:
    by_row: dict[int, list[float]] = {}
    for at, row in zip(t, rows_of(t, 100.0), strict=True):
        by_row.setdefault(row, []).append(at)
    assert all(b - a >= MARK_APART * 100 for row in by_row.values() for a, b in pairwise(row))
    assert {*by_row} == {*range(len(by_row))}


def test_the_picture_counts_all_instances_and_shows_whose_number_changed() -> None:
    series = series_of(grown())
    assert series is not None
    counts = counts_of(series)
    assert {name: (n.min(), n.max()) for name, n in counts.items()} == {
        "others": (6, 6), "vehicles": (1, 2),
    }  # fmt: skip


def test_the_report_has_the_picture_and_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "DPI", 40)
    run = grown()
    page = write_report(answers_folder(tmp_path / "answers", run), verdict_of(), tmp_path)
    assert (tmp_path / "elastic.png").read_bytes().startswith(PNG)
    text = Page(page.read_text("utf-8")).text
    assert "used 90 %" in text and "given up: nobody was left" in text
    assert "CpuThreshold(threshold=0.14" in text
    for other in (run | {"moved": []}, run | {"speed": None}):
        assert elastic_plot.draw(other, sample_latency(speed=60.0), LIGHT) == {}


def test_interpreted_operators_give_the_same_answers(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=3, roads=1, cars=40)
    data = look_through(prepare(tmp_path, rows, history))
    lrb.query.run.run(data, tmp_path / "out", interpreted=True)
    assert read_answers(tmp_path / "out") == plain_rules.answers(rows, history)
