"""Simulated jobs under faults: the same bits, whatever fails; and the world that they are in."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raystream.controller.protocol.parts import rebalancing, requests
from raystream.simulation import simulator
from raystream.simulation.flows import FLOWS
from raystream.simulation.job import SimulatedJob
from raystream.simulation.scenarios import Scenario, command
from raystream.simulation.simulator import Outcome, run_many, simulate
from raystream.simulation.world import Box, World
from tests.examples import FACTOR

FRESH = 126
"""Schedules with seeds that nobody tried before, over all flows in turn, 6 of each."""
SCHEDULES, FIRST = 12, 13
"""The seed is one from which every kind of fault comes in each flow."""


@pytest.fixture(autouse=True, scope="module")
def _what_was_there_is_no_garbage() -> Iterator[None]:
    """Schedules make much garbage. Each full collection would walk over all modules and tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("flow", FLOWS)
def test_faults_change_no_bit(flow: str) -> None:
    needed = {"operator", "source", "sink", "keeper", "node", "pause", "connection", "node cut"}
    struck = Counter[str]()
    for first in range(FIRST, FIRST + 3 * SCHEDULES, SCHEDULES):
        kinds, faults, wrong = run_many([Scenario(flow)], SCHEDULES, first)
        assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
        assert kinds["right"] > SCHEDULES * 0.6
        struck += faults
        if needed <= {*struck}:  # kinds are drawn, so a few schedules may lack one
            break
    assert needed <= {*struck}


def test_faults_change_no_bit_by_fresh_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    count, seed = round(FRESH * FACTOR), random.SystemRandom().randrange(1 << 32)
    kinds, faults, wrong = run_many([Scenario(name) for name in FLOWS], count, seed)
    with capsys.disabled():
        print(f"\n{count} schedules from seed {seed}: {dict(kinds)}, {faults.total()} faults")
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)


def test_without_faults_nothing_is_recovered() -> None:
    outcome = simulate(Scenario(faults=0, loss=0, doubling=0, slow=0, moves=0), 1, story=True)
    assert outcome.kind == "right"
    assert not [line for line in outcome.story if "Kill" in line]
    assert [line for line in outcome.story if "commits" in line]


@pytest.mark.parametrize("flow", FLOWS)
def test_without_faults_all_that_is_asked_for_in_time_moves(flow: str) -> None:
    scenario = Scenario(flow, faults=0, loss=0, doubling=0, slow=0, fragile=0, moves=3, copies=1)
    outcomes = [simulate(replace(scenario, recovery="state"), seed) for seed in range(8)]
    assert not [o.why for o in outcomes if o.kind != "right"]
    assert sum(o.faults["move"] for o in outcomes) > 6


@pytest.mark.parametrize("flow", ["windows", "join", "arriving"])
def test_instances_leave_a_shared_thread_and_come_back(flow: str) -> None:
    """Whatever fails meanwhile: whoever is calm is where its bundle is (`check_together`)."""
    scenario = Scenario(flow, together=True, eases=40, recovery="state", durable=False, moves=0)
    calm = replace(scenario, faults=0, cuts=0, loss=0, doubling=0, slow=0, fragile=0)
    for each in (calm, scenario):
        outcomes = [simulate(each, seed) for seed in range(6)]
        assert not [o.why for o in outcomes if o.kind == "wrong"]
        assert sum(o.faults["seat at work"] for o in outcomes)


def test_a_node_is_left_although_moves_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first death ends a move, and another one begins soon."""
    monkeypatch.setattr(rebalancing, "TRIES_MAX", 1)
    monkeypatch.setattr(requests, "LEAVE_AGAIN_SECONDS", 0.3)
    left: Counter[bool] = Counter()

    def moves(job: SimulatedJob) -> Counter[str]:
        ended = [m for m in job.entry.moved if "node" in m.because]
        given_up = {m.operator for m in ended if m.failed}
        left.update(m.operator in given_up for m in ended if not m.failed)
        return Counter()

    monkeypatch.setattr(simulator, "_moves", moves)
    scenario = Scenario("join", recovery="state", moves=20, faults=8, fragile=0.5, kinds=("kill",))
    for first in range(1, 201, 20):  # it comes about in one schedule of ten
        _, _, wrong = run_many([scenario], 20, first)
        assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
        if left[True]:
            return
    raise AssertionError(left)


def test_a_seed_tells_the_same_story() -> None:
    one, two = (simulate(Scenario("join"), 7, story=True) for _ in range(2))
    assert one == two
    assert one.story != simulate(Scenario("join"), 8, story=True).story


def test_faults_do_not_drive_a_job_to_give_up() -> None:
    """It gives up a place that five processes died for, and faults alone would kill so many."""
    hunted = Scenario("words", instances=(1, 2), copies=2, faults=30, kinds=("kill two", "node"),
                      moves=0)  # fmt: skip
    kinds, faults, wrong = run_many([hunted], 8, 109)
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
    assert kinds["right"] and faults["operator"] > 30


def test_lost_checkpoints_stop_the_job_and_are_named() -> None:
    """Keepers and instances die all the time, and there is one copy of everything."""
    stopped = [o for o in _outcomes(Scenario(copies=1, faults=10)) if o.kind == "lost"]
    assert stopped
    named = [o for o in stopped if "the checkpoint of" in o.why and "[" in o.why]
    assert named
    assert all(o in named or o.why == "the journal is lost" for o in stopped)


def _outcomes(scenario: Scenario) -> Iterator[Outcome]:
    for seed in range(30):
        outcome = simulate(scenario, seed)
        assert outcome.kind != "wrong", f"{outcome.why}\n{command(scenario, seed)}"
        yield outcome


def test_what_is_sent_to_a_sleeper_is_done_in_order_when_it_wakes() -> None:
    world, box, got = World(1), Box("box"), list[int]()
    box.asleep = True
    for i in range(5):
        world.at(1.0, box, got.append, i)
    while world.step():
        pass
    assert got == []
    world.wake(box)
    while world.step():
        pass
    assert got == [0, 1, 2, 3, 4]


def test_messages_are_lost_and_doubled_as_often_as_said() -> None:
    world, box, got = World(3), Box("box"), list[int]()
    world.loss, world.doubling = 0.25, 0.5
    for i in range(400):
        world.send(0.1, box, got.append, i)
    while world.step():
        pass
    times = [got.count(i) for i in range(400)]
    assert {0, 1, 2} == set(times)
    assert 60 < times.count(0) < 140 < times.count(2) < 260
