"""What ran under faults in the simulator is replayed from its saved checkpoints, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

import raystream as rs
from raystream.local.job import LocalJob
from raystream.local.replay import Replay, replay_plan
from raystream.simulation import simulator
from raystream.simulation.flows import FLOWS
from raystream.simulation.processes.tier import Tier
from raystream.simulation.references import planned
from raystream.simulation.scenarios import Scenario
from raystream.simulation.simulator import simulate
from raystream.testing import Collect

SEEDS = (0, 1, 3, 4, 5)
"""With 2 the job of timers loses its only copy of a checkpoint."""


def undisturbed(flow: str) -> list[tuple[int, Any]]:
    plan, sink = planned(flow, (1,))[0], Collect()
    (vertex,) = (v for v in plan.vertices if v.kind == "sink")
    kept, vertex.sink = vertex.sink, sink
    LocalJob(plan).run()
    vertex.sink = kept
    return sink.by_epoch()


@pytest.mark.parametrize("flow", ["windows", "timers", "join"])
def test_what_ran_under_faults_is_replayed_bit_for_bit(
    flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers: list[Tier] = []

    class Noted(Tier):
        def __init__(self, job: str) -> None:
            super().__init__(job)
            tiers.append(self)

    monkeypatch.setattr(simulator, "Tier", Noted)
    whole, tried = undisturbed(flow), 0
    scenario = Scenario(
        flow, copies=1, recovery="state", faults=6, durable=True, together=False, cuts=0
    )
    for seed in SEEDS:
        outcome = simulate(scenario, seed)
        assert outcome.kind == "right" and outcome.faults, outcome.why
        saves = tiers[-1].saves
        for saved in saves.kept():
            plan, _ = replay_plan(FLOWS[flow](Collect()), saves, saved)
            with Replay(plan, saves) as replay:
                replay.advance(rs.NEVER)
                made = [(o.epoch, record) for o in replay.taken() for record in o.records]
            expected = [(epoch, record) for epoch, record in whole if epoch > saved.checkpoint]
            assert list(map(repr, made)) == list(map(repr, expected))
            tried += bool(expected)
    assert tried > 2
