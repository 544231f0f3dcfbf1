"""Linear Road under simulated faults: the same answers."""

from __future__ import annotations

from raystream.simulation.scenarios import Scenario, command
from raystream.simulation.simulator import run_many

FLOW = "tests.lrb.simulated:linear_road"


def test_faults_change_no_answer() -> None:
    kinds, _, wrong = run_many([Scenario(FLOW)], 8, 1)
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
    assert kinds["right"]
