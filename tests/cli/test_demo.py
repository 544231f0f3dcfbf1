"""`raystream demo`: a job to look at."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.cli import demo
from raystream.cli.app import app
from raystream.testing import Collect, run_local


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PER_SECOND", 100)
    monkeypatch.setattr(demo, "DRIVERS", 20)


def test_it_runs_in_this_process() -> None:
    shown = CliRunner().invoke(app, ["demo", "--local", "--seconds", "1"])
    assert shown.exit_code == 0, shown.output
    assert "2,000" in shown.output
    assert "raystream top" not in shown.output, "only jobs on Ray can be watched"


@pytest.mark.usefixtures("quick")
def test_its_answers_do_not_depend_on_how_many_instances_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for instances in ({}, {"trips": 2, "fares": 3, "drivers": 2}):
        sink = Collect()
        monkeypatch.setattr(demo, "Board", lambda sink=sink: sink)
        run_local(demo.taxis(30, speed=None), instances=instances)
        found.append(sink.by_epoch())
    once, many = found
    assert once == many
    records = sink.records()
    fares = [r for r in records if isinstance(r, demo.ZoneFares)]
    rests = [r for r in records if isinstance(r, demo.Rest)]
    assert sum(r.trips for r in fares) == 30 * 100
    assert {r.trips for r in rests} == {demo.LONG_SHIFT}
    assert isinstance(demo.taxis(1), rs.Flow)
