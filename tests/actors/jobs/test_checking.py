"""Checking mode in shells: an instance that is replaced shows whether it is deterministic."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import InternalError, JobError
from raystream.testing import Collect, run_local
from tests import unsound
from tests.actors.helpers.shells import Shells, Subscriber, shells_of
from tests.actors.jobs.test_recovery import FLOWS, Killer
from tests.flows import Line, Rows, running, split, word_flow
from tests.gates import Cycle, Gate


def culprit(shells: Shells, name: str) -> Any:
    return shells.of(name.partition(" ")[0])[0]


@pytest.mark.parametrize("name", unsound.FLOWS)
def test_who_sends_others_is_named(name: str) -> None:
    """It is replaced when its consumers have applied all: what it sends again is dropped, but
    compared."""
    with shells_of(unsound.FLOWS[name](Collect()), checkpoint_every=1000, check=True) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        shells.kill(culprit(shells, name))
        shells.until(lambda: any(s.error is not None for s in shells.shells))
        (error,) = (s.error for s in shells.shells if s.error is not None)
        assert isinstance(error, JobError)
        assert error.message.startswith(f"{name} is not deterministic: key groups [0, 256)")


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("seed", range(3))
def test_sound_flows_run_as_ever_whoever_is_killed(name: str, seed: int) -> None:
    expected, got = Collect(), Collect()
    run_local(FLOWS[name](expected))
    flow: rs.Flow = FLOWS[name](got)
    instances = {n.name: 1 + seed for n in flow.nodes if n.name not in ("split", "collect")}
    killer = Killer(seed)
    with shells_of(flow, checkpoint_every=7, instances=instances, check=True) as shells:
        shells.start(time.time())
        shells.watch(killer)
    assert got.by_epoch() == expected.by_epoch()
    assert killer.killed


class Drill:
    """Replaces the next shell, in turn, after every commit; opens a gate after some."""

    def __init__(self, gate: Gate, some: int = 4) -> None:
        self.gate = gate
        self.some = some
        self.seen = 0
        self.replaced: list[str] = []

    def __call__(self, shells: Shells) -> None:
        if shells.committed > self.seen:
            self.seen = shells.committed
            shell = shells.shells[len(self.replaced) % len(shells.shells)]
            if not (shell.machine.ended and shell.machine.position <= shells.committed):
                self.replaced.append(shell.role.name)
                shells.kill(shell)
        if len(self.replaced) >= self.some:
            self.gate.open()


def paced_flow(op: Any, gate: Gate) -> rs.Flow:
    flow = rs.Flow("paced")
    parts = tuple(tuple(Line(t, "to be or not") for t in range(300)) for _ in range(2))
    epochs = rs.by_time(seconds=1, speed=200)
    source = flow.source(Cycle(Rows(Line, parts), 300, gate), epochs=epochs)
    source.through(split).through(op).to(Collect())
    return flow


@pytest.mark.parametrize("op", unsound.KEYED, ids=lambda op: op.__name__)
def test_replacing_one_after_the_other_finds_who_it_is(op: Any, tmp_path: Path) -> None:
    drill = Drill(Gate(tmp_path), some=100)
    with shells_of(paced_flow(op, drill.gate), checkpoint_every=10, check=True) as shells:
        shells.start(time.time())
        with pytest.raises(JobError, match=f"^{op.__name__} is not deterministic"):
            shells.watch(drill)
    assert f"{op.__name__}/0" in drill.replaced


def test_replacing_one_after_the_other_disturbs_no_sound_flow(tmp_path: Path) -> None:
    drill = Drill(Gate(tmp_path))
    with shells_of(paced_flow(running, drill.gate), checkpoint_every=10, check=True) as shells:
        shells.start(time.time())
        shells.watch(drill)
    assert len(drill.replaced) >= drill.some


def test_a_consumer_is_sent_all_that_is_not_trimmed() -> None:
    """It asks for what it has applied, and needs not know how far the log was trimmed."""
    with shells_of(word_flow(Collect(), running), checkpoint_every=50, check=True) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        source, reader = shells.of("rows")[0], shells.of("running")[0]
        source.commit(50, 50)
        log = source.machine.outlets.logs[0]
        shells.until(lambda: log.first == 51)

        def follow(applied: int) -> Subscriber:
            subscriber = Subscriber(lambda: applied, since=lambda: 0)
            subscriber.follow(source.vertex.outputs[0], source.address, reader.role.name)
            return subscriber

        read = follow(applied=60)
        assert not read.errors
        assert [p.header.epoch for p in read.pieces] == list(range(51, source.machine.position + 1))
        (error,) = follow(applied=40).errors
        assert isinstance(error, InternalError)
        assert str(error) == f"{source.address} left out epochs before 51"
