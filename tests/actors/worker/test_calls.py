"""The real processes and the simulated ones take the calls that the controller's side makes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from raystream.actors.keepers.keeper import Keeper
from raystream.actors.worker.instance import InstanceActor
from raystream.actors.worker.seat import OF_ACTOR, PLACING, Seat
from raystream.controller.protocol.messages.calls import (
    InstanceCalls,
    KeeperActorCalls,
    KeeperCalls,
    ProcessCalls,
    SeatCalls,
)
from raystream.simulation.processes.instances import SimulatedInstance
from raystream.simulation.processes.keepers import SimulatedKeeper

OF_RAY = "_ray_trace_ctx"
"""A parameter that Ray gives to the methods of a class which was made an actor, in another test."""


def calls_of(protocol: type) -> dict[str, Any]:
    """The methods of a protocol and of those that it extends."""
    found: dict[str, Any] = {}
    for base in protocol.__mro__:
        if base.__module__ == protocol.__module__:
            found |= {n: m for n, m in vars(base).items() if not n.startswith("_") and callable(m)}
    return found


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    """What a caller has to know of a method: names, kinds and defaults."""
    signature = inspect.signature(method)
    given = [p for p in signature.parameters.values() if p.name != OF_RAY]
    return [(p.name, p.kind, p.default) for p in given]


@pytest.mark.parametrize(
    ("protocol", "process"),
    [
        (SeatCalls, Seat),
        (InstanceCalls, SimulatedInstance),
        (KeeperActorCalls, Keeper),
        (KeeperCalls, SimulatedKeeper),
    ],
)
def test_processes_take_the_calls_of_their_protocol(protocol: type, process: type) -> None:
    calls = calls_of(protocol)
    assert len(calls) > 5
    for name, method in calls.items():
        assert parameters(getattr(process, name)) == parameters(method), name


@pytest.mark.parametrize(("protocol", "process"), [(SeatCalls, Seat), (KeeperActorCalls, Keeper)])
def test_every_call_of_a_process_is_in_its_protocol(protocol: type, process: type) -> None:
    public = {n for n, m in vars(process).items() if not n.startswith("_") and callable(m)}
    assert public == set(calls_of(protocol))


def test_what_a_process_is_asked_itself_is_no_call_of_its_seats() -> None:
    own = set(calls_of(ProcessCalls)) - set(calls_of(SeatCalls))
    assert own == set(OF_ACTOR)
    for name in own:
        assert parameters(getattr(InstanceActor, name)) == parameters(getattr(ProcessCalls, name))
    assert set(PLACING) < set(calls_of(SeatCalls))


def as_calls(
    seat: Seat, simulated: SimulatedInstance, keeper: Keeper, shelf: SimulatedKeeper
) -> tuple[SeatCalls, InstanceCalls, KeeperActorCalls, KeeperCalls]:
    """For the type checker: their types fit, too."""
    return seat, simulated, keeper, shelf
