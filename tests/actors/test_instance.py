"""What leaves an instance's process when it cannot take its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayError

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
