"""Jobs whose code is changed while they run, with faults: all epochs up to one are made by the code
before, all later ones by the new code, and another time back."""

from __future__ import annotations

from collections import Counter

import pytest

from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.simulation.references import other_version, planned, upgraded
from raystream.simulation.scenarios import Scenario
from raystream.simulation.simulator import simulate
from raystream.simulation.upgrades.other_flows import OTHER_VERSIONS


def scenario(flow: str, **others: object) -> Scenario:
    chosen = {"durable": False, **others}
    return Scenario(flow, recovery="state", upgrades=2, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("flow", OTHER_VERSIONS)
def test_every_epoch_is_made_by_the_code_of_its_version(flow: str) -> None:
    done = 0
    for seed in range(4):
        outcome = simulate(scenario(flow), 100 + seed)
        assert outcome.kind != "wrong", (seed, outcome.why)
        done += outcome.faults["upgrade"]
    assert done


@pytest.mark.parametrize("flow", OTHER_VERSIONS)
def test_a_saved_checkpoint_says_which_version_made_it(flow: str) -> None:
    """Jobs lose everything, or are stopped, before and after they have gone over to other code."""
    done = Counter[str]()
    for seed in range(4):
        outcome = simulate(scenario(flow, durable=True, stop=True), 300 + seed)
        assert outcome.kind != "wrong", (seed, outcome.why)
        done += outcome.faults
    assert done["upgrade"]


@pytest.mark.parametrize("durable", [False, True])
def test_rows_on_disk_go_over_to_other_code(durable: bool) -> None:
    done = Counter[str]()
    for flow in OTHER_VERSIONS:
        for seed in range(2):
            outcome = simulate(scenario(flow, durable=durable, state_memory=900), seed)
            assert outcome.kind != "wrong", (flow, seed, outcome.why)
            done += outcome.faults
    assert done["upgrade"] and done["files opened"]


def test_a_job_goes_on_with_the_code_that_it_had_gone_over_to() -> None:
    done = 0
    for seed in range(6):
        outcome = simulate(scenario("derived", durable=True, stop=True, faults=1), seed)
        assert outcome.kind == "right", (seed, outcome.why)
        done += outcome.faults["resumed after an upgrade"]
    assert done


@pytest.mark.parametrize(
    ("flow", "seed"),
    [
        ("derived", 36),  # all instances die before they have heard; a sink has shown more
        ("idling", 1028),  # a source waits for its claim when it hears
        ("arriving", 1094),  # those that were replaced store checkpoints of later epochs
        ("words", 1099),
    ],
)
def test_schedules_that_were_wrong(flow: str, seed: int) -> None:
    outcome = simulate(scenario(flow), seed)
    assert outcome.kind != "wrong", outcome.why


def test_the_versions_differ() -> None:
    """Otherwise nothing would be seen of an instance that runs the wrong one."""
    for flow in OTHER_VERSIONS:
        plan, reference = planned(flow, (1,))
        wanted = other_version(flow)
        version = CodeVersion(number=1, after=3, code=wanted.code, settled=True)
        changed, _ = upgraded(plan, {}, (version,))
        if reference is not None:
            assert changed != reference, flow
