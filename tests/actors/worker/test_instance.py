"""What leaves an instance's process when it cannot take its place."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from ray.exceptions import ActorDiedError, RayError

import raystream as rs
from raystream.actors.worker import seat as module
from raystream.actors.worker.seat import Seat
from raystream.controller.planning.plans import make_plan
from raystream.controller.protocol.messages.calls import Refusal
from raystream.controller.protocol.recovery import Place
from raystream.errors import InternalError
from raystream.schema.types import KeyRange
from raystream.security.credentials import Credentials


class Word(NamedTuple):
    time: int


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

    monkeypatch.setattr(module, "fetch", fetch)
    place = Place(0, "count", KeyRange(0, 16), 0)
    seat = Seat(Credentials("token"))
    flow = rs.Flow("words")
    flow.source(rs.io.iterable([], Word), epochs=rs.by_time(seconds=1)).to(rs.io.console())
    seat.plan = make_plan(flow)
    with pytest.raises(leaves):
        seat.become(place, 5, [], True, False)


def test_a_seat_that_is_told_to_end_takes_no_place_and_is_watched_no_more() -> None:
    """Others of its process go on: what comes late does no harm."""
    seat = Seat(Credentials("token"), goes_on=lambda: True)
    assert seat.stop()
    assert seat.watch() is None
    taken = seat.become(Place(0, "count", KeyRange(0, 16), 0), 5, [], True, False)
    assert taken is Refusal.PLACED
