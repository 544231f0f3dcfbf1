"""The command that simulates: counts, stories, the same schedule again, scenarios as data."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from raystream.errors import ConfigError
from raystream.simulation.scenarios import Scenario, command, scenarios_of
from raystream.simulation.simulator import main, simulate


def test_the_command_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "3", "--seed", "5", "--flow", "timers"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "schedules 3: timers"
    assert out[2] == "wrong     0"


def test_the_command_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    again = command(Scenario("words", copies=2), 1).split()
    assert main(again[again.index("--seed") :]) == 0
    assert " commits " in capsys.readouterr().out


def test_a_command_runs_the_same_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Scenario("join", copies=2, recovery="source", kinds=("kill", "cut"), loss=0.5)
    again = shlex.split(command(scenario, 7))
    assert main(again[again.index("--seed") :]) == 0
    assert capsys.readouterr().out.splitlines() == simulate(scenario, 7, story=True).story


def test_scenarios_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).with_name("scenarios.toml")
    assert all(s.faults for s in scenarios_of(path.read_text()))
    assert main(["--schedules", "20", "--seed", "3", "--scenarios", str(path)]) == 0
    assert "wrong     0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["[[scenario]]\nflaw = 1", '[[scenario]]\nkinds = ["flood"]', "no", "scenario = 1"]
)
def test_what_no_scenario_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        scenarios_of(text)


def test_an_unknown_flow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--flow", "no"]) == 2
    assert "there is no flow 'no'" in capsys.readouterr().err
    assert main(["--flow", "nowhere:f"]) == 2
