"""Jobs whose sink is visible by epoch, in the simulator: each row once, whatever dies when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raystream.controller.protocol.parts import checkpoints
from raystream.dataflow.checkpoint_epochs import CheckpointEpochs
from raystream.simulation.scenarios import Scenario, command
from raystream.simulation.simulator import Outcome, simulate

BY_TIME = Scenario("words", database=True, fragile=0.5, moves=4)
BY_ARRIVAL = Scenario("arriving", database=True, durable=True, recovery="state", faults=10, moves=4)
STOPPED = Scenario("words", database=True, stop=True, durable=True, recovery="state", faults=2)


def outcomes(scenario: Scenario, seeds: range) -> list[Outcome]:
    return [simulate(scenario, seed, story=True) for seed in seeds]


def told(found: list[Outcome], what: str) -> int:
    return sum(any(what in line for line in outcome.story) for outcome in found)


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints on demand are so near that some sources pass them before they hear of them."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_AHEAD", 2)


@pytest.mark.parametrize(
    "scenario", [BY_TIME, BY_ARRIVAL, STOPPED], ids=["time", "arrival", "stop"]
)
def test_the_database_has_each_row_once(scenario: Scenario) -> None:
    found = outcomes(scenario, range(1, 11))
    wrong = [o for o in found if o.kind == "wrong"]
    assert not wrong, "\n".join(f"{o.why}\n{command(scenario, o.seed)}" for o in wrong)
    if scenario is not STOPPED:  # the sink scales out and in
        scaled = [line for o in found for line in o.story if "operator='collect'" in line]
        assert any("because='even'" in line for line in scaled)
    if scenario is BY_TIME:
        assert told(found, "dies between two calls to its database")
    if scenario is STOPPED:
        assert told(found, "stopped: the job was stopped: checkpoint") >= 4


def test_sources_that_go_on_after_the_last_checkpoint_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CheckpointEpochs, "stops", lambda self, position: False)
    monkeypatch.setattr(checkpoints.OnDemandCheckpoints, "stands_still", lambda self: True)
    found = (simulate(replace(STOPPED, faults=0), seed) for seed in range(1, 80))
    assert any("and the job was stopped at" in o.why for o in found)
