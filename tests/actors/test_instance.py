"""What leaves an instance's process when it cannot take its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import (
    ActorDiedError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayError,
    RayTaskError,
)

from raystream.actors import instance
from raystream.actors.instance import InstanceActor
from raystream.controller.recovery import Place
from raystream.errors import InternalError
from raystream.schema.types import KeyRange


@pytest.mark.parametrize(
    ("raised", "leaves"), [(ActorDiedError(), RayError), (KeyError("rows"), InternalError)]
)
def test_the_death_of_a_keeper_is_no_fault_of_who_restores(
    raised: Exception, leaves: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller takes an error of ours for the end of the job, one of Ray's for a reason to
    try again."""

    def fetch(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(instance, "fetch", fetch)
    place = Place(0, "count", KeyRange(0, 16), 0)
    with pytest.raises(leaves):
        InstanceActor("token").become(place, 5, [], True, False)


@pytest.mark.parametrize(
    ("keepers", "whole"), [(("a",), True), (("b", "a"), True), (("a", "c"), False), ((), False)]
)
def test_a_delta_follows_a_restore_if_all_keepers_hold_what_was_restored(
    keepers: tuple[str, ...], whole: bool
) -> None:
    told: list[bool] = []
    machine = SimpleNamespace(position=7)
    shell: Any = SimpleNamespace(
        store_with_others=lambda *, whole: told.append(whole), machine=machine
    )
    actor = InstanceActor("token")
    actor._whole, actor._shell = frozenset("ab"), shell
    actor._keep(keepers, 3)
    machine.position = 9
    actor._keep(keepers, 3)
    assert actor._kept_at == 7, "what it stores later, these keepers hold"
    actor._keep(("a",), 4)
    assert actor._kept_at == 9
    assert told == [whole, False], "later they may have dropped it"


@pytest.mark.parametrize(
    ("raised", "told"),
    [(ActorDiedError(), ""), (OutOfDiskError("no room left"), "OutOfDiskError: no room left")],
)
def test_why_a_keeper_does_not_store_is_told_until_one_does(
    raised: RayError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a dead one the controller hears by itself."""
    kept = True
    failed = raised if not told else RayTaskError("store", "", raised)

    def get(calls: list[bool], timeout: float) -> list[bool]:
        if kept:
            return calls
        raise failed

    monkeypatch.setattr(ray, "get", get)
    actor = InstanceActor("token")
    role = SimpleNamespace(name="count/0", vertex=1)
    actor._shell = SimpleNamespace(role=role)  # type: ignore[assignment]
    room = True

    def store(*_: Any) -> bool:
        if not room:
            raise ObjectStoreFullError("no room here")
        return True

    keeper = SimpleNamespace(store=SimpleNamespace(remote=store))
    actor._keepers = (keeper,)
    keys = KeyRange(0, 16)
    header: Any = SimpleNamespace(
        keys=keys, base=0, cut=5, oldest=0, standing=SimpleNamespace(ended=False)
    )

    def ship() -> bool:
        return actor._ship(header, keys, memoryview(np.zeros(3, np.uint8)))

    assert ship() and not actor._unstored
    kept = False
    assert not ship() and actor._unstored == told
    kept = True
    assert ship() and not actor._unstored
    room = False  # of the node's own store, through which it goes
    assert not ship() and "no room here" in actor._unstored
    room = True
    assert ship() and not actor._unstored
