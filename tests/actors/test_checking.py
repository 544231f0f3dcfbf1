"""Checking mode in shells: an instance that is replaced shows whether it is deterministic."""

from __future__ import annotations

import time
from typing import Any

import pytest

import raystream as rs
from raystream.actors.subscription import Subscription
from raystream.dataflow.pieces import Piece
from raystream.errors import InternalError, JobError
from raystream.schema.types import KeyRange
from raystream.testing import Collect, run_local
from tests import unsound
from tests.actors.shells import TOKEN, Shells, shells_of
from tests.actors.test_recovery import FLOWS, Killer
from tests.flows import Line, Rows, running, split, word_flow


def culprit(shells: Shells, name: str) -> Any:
    return shells.of(name.partition(" ")[0])[0]


@pytest.mark.parametrize("name", unsound.FLOWS)
def test_who_sends_others_is_named(name: str) -> None:
    """It is replaced when its consumers have applied all: what it sends again is dropped, but
    compared."""
    with shells_of(unsound.FLOWS[name](Collect()), cut_every=1000, check=True) as shells:
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
    with shells_of(flow, cut_every=7, instances=instances, check=True) as shells:
        shells.start(time.time())
        shells.watch(killer)
    assert got.by_epoch() == expected.by_epoch()
    assert killer.killed


class Drill:
    """Replaces the next shell, in turn, after every commit."""

    def __init__(self) -> None:
        self.seen = 0
        self.replaced: list[str] = []

    def __call__(self, shells: Shells) -> None:
        if shells.committed > self.seen:
            self.seen = shells.committed
            shell = shells.shells[len(self.replaced) % len(shells.shells)]
            if not (shell.machine.ended and shell.machine.position <= shells.committed):
                self.replaced.append(shell.role.name)
                shells.kill(shell)


def paced_flow(op: Any) -> rs.Flow:
    flow = rs.Flow("paced")
    parts = tuple(tuple(Line(t, "to be or not") for t in range(300)) for _ in range(2))
    epochs = rs.by_time(seconds=1, speed=200)
    source = flow.source(Rows(Line, parts, batch=5), epochs=epochs)
    source.through(split).through(op).to(Collect())
    return flow


@pytest.mark.parametrize("op", unsound.KEYED, ids=lambda op: op.__name__)
def test_replacing_one_after_the_other_finds_who_it_is(op: Any) -> None:
    drill = Drill()
    with shells_of(paced_flow(op), cut_every=10, check=True) as shells:
        shells.start(time.time())
        with pytest.raises(JobError, match=f"^{op.__name__} is not deterministic"):
            shells.watch(drill)
    assert f"{op.__name__}/0" in drill.replaced


def test_replacing_one_after_the_other_disturbs_no_sound_flow() -> None:
    drill = Drill()
    with shells_of(paced_flow(running), cut_every=10, check=True) as shells:
        shells.start(time.time())
        shells.watch(drill)
    assert len(drill.replaced) > 3


def test_a_consumer_is_sent_all_that_is_not_trimmed() -> None:
    """It asks for what it has applied, and needs not know how far the log was trimmed."""
    with shells_of(word_flow(Collect(), running), cut_every=50, check=True) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        source, reader = shells.of("rows")[0], shells.of("running")[0]
        source.commit(50, 50)
        log = source.machine.outlets.logs[0]
        shells.until(lambda: log.first == 51)
        pieces: list[Piece] = []
        errors: list[BaseException] = []

        def follow(applied: int) -> None:
            subscription = Subscription(
                source.vertex.outputs[0], source.address, TOKEN, reader.role.name,
                KeyRange(0, 256), lambda: applied,
                lambda edge, piece: pieces.append(piece), errors.append, lambda: 0)  # fmt: skip
            subscription.start()
            subscription.join(30.0)

        follow(applied=60)
        assert not errors
        assert [p.header.epoch for p in pieces] == list(range(51, source.machine.position + 1))
        follow(applied=40)
        (error,) = errors
        assert isinstance(error, InternalError)
        assert str(error) == f"{source.address} left out epochs before 51"
