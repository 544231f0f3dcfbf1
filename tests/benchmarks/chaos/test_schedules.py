"""Schedules on several processes: the same outcomes, and whatever is wrong is shown."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

from benchmarks.chaos import schedules
from benchmarks.chaos.schedules import Ran, run_on
from raystream.simulation.scenarios import Scenario
from raystream.simulation.simulator import Outcome, run_many
from tests.gates import LIMIT_SECONDS, until

app = typer.Typer()
app.command()(schedules.main)


def test_processes_run_the_same_schedules() -> None:
    scenarios = [Scenario("timers"), Scenario("join")]
    count = 2 * schedules.ROUNDS + 3
    parts = list(run_on(1, scenarios, count, 5, idle=False))
    assert [ran.kinds.total() for ran in parts] == [2 * schedules.ROUNDS, 3]
    kinds, faults, _ = run_many(scenarios, count, 5)
    assert sum((ran.kinds for ran in parts), Counter()) == kinds
    assert sum((ran.faults for ran in parts), Counter()) == faults


def test_nobody_is_left_when_the_command_is_killed() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "schedules",
        "--processes",
        "2",
        "--count",
        "9999",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        process = psutil.Process(running.pid)
        until(lambda: len(process.children(recursive=True)) > 2)  # and a resource tracker
        workers = process.children(recursive=True)
        running.kill()
    _, alive = psutil.wait_procs(workers, timeout=LIMIT_SECONDS)
    assert not alive


def test_what_is_wrong_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ran(processes: int, scenarios: Any, count: int, seed: int, *, idle: bool) -> Iterator[Ran]:
        asked.append((processes, [s.flow for s in scenarios], count, idle))
        bad = Outcome(seed=seed + 1, kind="wrong", why="too few words", events=9, faults=Counter())
        yield Ran(Counter(right=1, wrong=1), Counter(node=2), [(scenarios[0], bad)])
        yield Ran(Counter(right=1), Counter(node=1), [])

    monkeypatch.setattr(schedules, "run_on", ran)
    line = "--count 3 --seed 40 --processes 2 --flow words --set copies=2 --idle"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 1
    assert asked == [(2, ["words"], 3, True)]
    assert "wrong: too few words" in result.output
    assert "--seed 41 --flow words --set copies=2 --story" in result.output
    assert result.output.splitlines()[-2:] == [
        "faults 3 node",
        "3 schedules: 1 wrong, 0 stopped with lost checkpoints",
    ]


def test_seeds_are_drawn_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "run_on", lambda *a, **k: iter(()))
    said = {CliRunner().invoke(app, []).output.splitlines()[0] for _ in range(2)}
    assert len(said) == 2 and all("schedules 1000 from seed " in line for line in said)


def test_what_no_scenario_has_is_refused() -> None:
    result = CliRunner().invoke(app, ["--set", "flaw=1"])
    assert result.exit_code == 2 and "flaw" in result.output
