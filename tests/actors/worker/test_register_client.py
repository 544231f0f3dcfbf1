"""A source instance asks the boundary register, while its places change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from raystream.actors.control.processes import REGISTER_SECONDS, WRITE_SECONDS
from raystream.actors.worker import register_client as claiming
from raystream.actors.worker.register_client import Claimer
from raystream.dataflow.register import (
    LOOK_EPOCHS,
    Boundaries,
    Boundary,
    HeldBoundary,
    PlaceSet,
    Register,
)
from raystream.errors import JobError
from tests.gates import LIMIT_SECONDS

X, Y = Boundary(3, 10, False), Boundary(5, 12, False)


class Places:
    """Places by name, some of which do not answer. asked: set when one of those was asked."""

    def __init__(self, *names: str) -> None:
        self.registers = {name: Register() for name in names}
        self.silent: set[str] = set()
        self.asked = threading.Event()
        self.looked = 0

    def fill(self, view: int, *names: str) -> PlaceSet[str]:
        for name in names:
            assert self.registers[name].fill(view, Boundaries())
        return PlaceSet(view, names)

    def __call__(
        self, place: str, view: int, epoch: int, wanted: Mapping[str, Boundary]
    ) -> Mapping[str, HeldBoundary] | None:
        if place in self.silent:
            self.asked.set()
            return None
        return self.registers[place].claim_all(view, epoch, wanted)

    def look(
        self, place: str, view: int, epoch: int, names: Sequence[str]
    ) -> Mapping[tuple[str, int], Boundary] | None:
        self.looked += 1
        return self.registers[place].look(view, epoch, names)


def meanwhile(claimer: Claimer, do: Callable[[], None]) -> HeldBoundary:
    """What is held, where it is claimed on another thread."""
    with ThreadPoolExecutor(1) as pool:
        claimed = pool.submit(claimer, "a", 1, X)
        do()
        return claimed.result(LIMIT_SECONDS)


def test_all_places_hold_what_was_claimed() -> None:
    places = Places("p", "q")
    claimer = Claimer(places)
    claimer.follow(places.fill(1, "p", "q"), Boundaries())
    assert claimer("a", 1, X) == HeldBoundary(X, 1)
    for register in places.registers.values():
        assert register.hand(1) == Boundaries(0, {("a", 1): X})
    assert claimer.boundaries(2) == Boundaries(0, {("a", 1): X})


def test_a_source_that_is_behind_hears_how_far_others_are() -> None:
    """Otherwise it would wait at each epoch as if it were the first there, and never catch up."""
    places = Places("p")
    claimer, other = Claimer(places), Claimer(places)
    view = places.fill(1, "p")
    claimer.follow(view, Boundaries())
    other.follow(view, Boundaries())
    other("b", 230, Y)
    assert claimer("a", 1, X) == HeldBoundary(X, 230)


def test_what_is_known_is_not_asked_for() -> None:
    places = Places("p")
    places.silent.add("p")
    claimer = Claimer(places)
    claimer.follow(places.fill(3, "p"), Boundaries(0, {("a", 1): Y, ("b", 4): X}))
    assert claimer("a", 1, X) == HeldBoundary(Y, 4)
    assert not places.asked.is_set()
    assert claimer.view == 3


def test_it_waits_for_its_first_view() -> None:
    places = Places("p")
    claimer = Claimer(places)
    assert meanwhile(claimer, lambda: claimer.follow(places.fill(1, "p"), Boundaries())).newest == 1


def test_it_goes_on_under_a_newer_view_when_a_place_is_gone() -> None:
    places = Places("p", "q", "r")
    claimer = Claimer(places)
    claimer.follow(places.fill(1, "p", "q"), Boundaries())
    places.silent.add("q")

    def change() -> None:
        assert places.asked.wait(LIMIT_SECONDS)
        held = places.registers["p"].hand(2)
        assert held == Boundaries(0, {("a", 1): X})
        assert places.registers["p"].fill(2, held) and places.registers["r"].fill(2, held)
        claimer.follow(PlaceSet(2, ("p", "r")), held)

    assert meanwhile(claimer, change).boundary == X
    assert places.registers["r"].claim(2, "a", 1, Y) == HeldBoundary(X, 1)


def test_the_wait_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "CLAIM_SECONDS", 0.0)
    claimer = Claimer(Places("p"))
    with pytest.raises(JobError, match="did not say within 0 s where epoch 1 of a ends"):
        claimer("a", 1, X)


def test_who_waits_is_let_go_when_all_ends() -> None:
    claimer = Claimer(Places("p"))
    with pytest.raises(JobError, match="was stopped"):
        meanwhile(claimer, claimer.stop)


def test_epochs_up_to_the_floor_are_forgotten() -> None:
    claimer = Claimer(Places())
    claimer.follow(PlaceSet(1, ()), Boundaries(0, {("a", 1): X, ("a", 2): Y}))
    claimer.trim(1)
    assert claimer.boundaries(2) == Boundaries(1, {("a", 2): Y})


def test_a_source_waits_longer_than_a_keeper_that_hangs_takes_to_be_replaced() -> None:
    assert claiming.CLAIM_SECONDS > 2 * WRITE_SECONDS + REGISTER_SECONDS


def test_several_entries_are_claimed_side_by_side_and_each_is_decided_by_itself() -> None:
    places = Places("p", "q")
    view = places.fill(1, "p", "q")
    assert places.registers["p"].claim(1, "b", 1, Y) == HeldBoundary(Y, 1)  # another was first
    asked: list[str] = []

    def ask(
        place: str, number: int, epoch: int, wanted: Mapping[str, Boundary]
    ) -> Mapping[str, HeldBoundary] | None:
        asked.append(place)
        return places.registers[place].claim_all(number, epoch, wanted)

    claimer = Claimer(ask, places.look)
    assert claimer.find(1, ["a", "b"]) is None  # it was told no view yet
    claimer.follow(view, Boundaries())
    assert claimer.find(1, ["a", "b"]) == {}  # not all places hold it
    held = claimer.all(1, {"a": X, "b": X})
    assert {name: one.boundary for name, one in held.items()} == {"a": X, "b": Y}
    assert asked == ["p", "q"]
    assert claimer.known(1, ["a", "b", "c"]) == {"a": X, "b": Y}
    for register in places.registers.values():
        assert register.hand(1) == Boundaries(0, {("a", 1): X, ("b", 1): Y})


def test_an_instance_that_is_behind_takes_many_epochs_with_one_look() -> None:
    places = Places("p", "q")
    view = places.fill(1, "p", "q")
    owner, candidate = Claimer(places), Claimer(places, places.look)
    for claimer in (owner, candidate):
        claimer.follow(view, Boundaries())
    ends = {epoch: Boundary(10 * epoch, epoch, False) for epoch in range(1, LOOK_EPOCHS + 3)}
    for epoch, end in ends.items():
        owner("a", epoch, end)
    places.silent |= {"p", "q"}  # it could not claim
    for epoch, end in ends.items():
        assert candidate.find(epoch, ["a"], ["a", "b"]) == {"a": end}
    assert places.looked == 2
    assert candidate.find(LOOK_EPOCHS + 3, ["a"], ["a", "b"]) == {}


def test_a_source_that_is_behind_looks_once_before_it_claims_and_stops_where_nobody_was() -> None:
    places = Places("p", "q")
    view = places.fill(1, "p", "q")
    others, source = Claimer(places), Claimer(places, places.look)
    for claimer in (others, source):
        claimer.follow(view, Boundaries())
    for epoch in range(1, 100):
        others("b", epoch, Y)
    for epoch in range(1, 20):
        others("a", epoch, X)
    held = [source("a", epoch, Y).boundary for epoch in range(1, 50)]
    assert held == [X] * 19 + [Y] * 30
    assert places.looked == 2  # the second finds nothing: nobody is ahead in this split


def test_what_only_the_first_place_holds_is_not_taken() -> None:
    places = Places("p", "q")
    candidate = Claimer(places, places.look)
    candidate.follow(places.fill(1, "p", "q"), Boundaries())
    assert places.registers["p"].claim(1, "a", 1, X) == HeldBoundary(X, 1)
    assert candidate.find(1, ["a"]) == {}
    assert places.registers["q"].claim(1, "a", 1, X) == HeldBoundary(X, 1)
    assert candidate.find(1, ["a"]) == {"a": X}
