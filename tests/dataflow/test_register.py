"""The boundary register at one place, and what a source knows of it."""

from __future__ import annotations

import pytest

from raystream.dataflow.register import (
    LOOK_BYTES,
    LOOK_EPOCHS,
    Ask,
    Boundaries,
    Boundary,
    Claims,
    HeldBoundary,
    PlaceSet,
    Register,
    claim,
    merged,
)
from raystream.errors import InternalError

X, Y, Z = Boundary(3, 10, False), Boundary(5, 12, False), Boundary(9, 20, True)


def register(view: int = 1, content: Boundaries | None = None) -> Register:
    made = Register()
    assert made.fill(view, content or Boundaries())
    return made


def test_the_first_writer_wins() -> None:
    place = register()
    assert place.claim(1, "a", 1, X) == HeldBoundary(X, 1)
    assert place.claim(1, "a", 1, Y) == HeldBoundary(X, 1)
    assert place.claim(1, "b", 4, Y) == HeldBoundary(Y, 4)
    assert place.claim(1, "a", 2, Y) == HeldBoundary(Y, 4)


def test_epochs_up_to_the_floor_are_forgotten_and_refused() -> None:
    place = register()
    for epoch in (1, 2, 3):
        place.claim(1, "a", epoch, X)
    place.trim(2)
    place.trim(1)
    assert place.claim(1, "a", 2, Y) is None
    assert place.hand(2) == Boundaries(2, {("a", 3): X})
    assert place.fill(3, Boundaries(0, {("a", 1): X, ("a", 4): Y}))
    assert place.hand(3) == Boundaries(2, {("a", 4): Y})


def test_older_views_are_refused_from_the_hand_over_on() -> None:
    place = register(2)
    assert place.claim(1, "a", 1, X) is None
    assert place.claim(3, "a", 1, X) is None
    assert place.claim(2, "a", 1, X) == HeldBoundary(X, 1)
    assert place.hand(4) == place.hand(4) == Boundaries(0, {("a", 1): X})
    assert place.claim(2, "a", 1, X) is None
    assert place.hand(3) is None
    assert not place.fill(3, Boundaries())
    assert place.claim(4, "a", 1, X) is None


def test_filling_replaces_what_was_held_and_is_done_once() -> None:
    place = register()
    place.claim(1, "a", 1, X)
    assert place.fill(2, Boundaries(0, {("b", 7): Y}))
    assert place.claim(2, "a", 1, Z) == HeldBoundary(Z, 7)
    assert place.fill(2, Boundaries(0, {("b", 7): Y}))
    assert place.claim(2, "a", 1, X) == HeldBoundary(Z, 7)


def test_parts_are_merged_after_their_newest_floor() -> None:
    parts = [Boundaries(1, {("a", 2): X, ("a", 3): Y}), Boundaries(2, {("b", 3): Z})]
    assert merged(parts) == Boundaries(2, {("a", 3): Y, ("b", 3): Z})
    assert merged([]) == Boundaries()
    with pytest.raises(InternalError, match="epoch 3 of a ends both at"):
        merged([*parts, Boundaries(0, {("a", 3): X})])


def test_a_round_takes_what_the_first_place_holds_to_the_others() -> None:
    asking = claim(PlaceSet(4, ("p", "q")), "a", 1, X)
    assert next(asking) == Ask("p", 4, X)
    assert asking.send(HeldBoundary(Y, 3)) == Ask("q", 4, Y)
    with pytest.raises(StopIteration) as end:
        asking.send(HeldBoundary(Y, 5))
    assert end.value.value == HeldBoundary(Y, 5)


def test_a_round_ends_where_it_is_refused() -> None:
    asking = claim(PlaceSet(4, ("p", "q")), "a", 1, X)
    next(asking)
    with pytest.raises(StopIteration) as end:
        asking.send(None)
    assert end.value.value is None


def test_places_that_differ_are_a_bug() -> None:
    asking = claim(PlaceSet(4, ("p", "q")), "a", 1, X)
    next(asking)
    asking.send(HeldBoundary(X, 1))
    with pytest.raises(InternalError, match="ends both at"):
        asking.send(HeldBoundary(Y, 1))


def test_what_a_source_knows_counts_for_its_successors() -> None:
    claims: Claims[str] = Claims()
    assert claims.view is None
    assert claims.boundaries(1) is None  # it does not know what came before it
    claims.follow(PlaceSet(2, ("p",)), Boundaries(3, {("a", 4): X}))
    assert claims.view == PlaceSet(2, ("p",))
    assert claims.known("a", 4) == HeldBoundary(X, 4)
    assert claims.settle(2, "a", 5, Y)
    assert not claims.settle(1, "a", 6, Y)
    claims.follow(PlaceSet(1, ("q",)), Boundaries())
    assert claims.told == PlaceSet(2, ("p",))
    with pytest.raises(InternalError):
        claims.settle(2, "a", 5, X)
    claims.trim(4)
    assert claims.boundaries(3) == claims.boundaries(3) == Boundaries(4, {("a", 5): Y})


def test_who_was_asked_settles_nothing_under_older_views() -> None:
    claims: Claims[str] = Claims()
    claims.follow(PlaceSet(1, ("p",)), Boundaries())
    assert claims.boundaries(3) == Boundaries()
    assert claims.boundaries(2) is None
    assert claims.view is None
    assert not claims.settle(1, "a", 1, X)
    claims.follow(PlaceSet(2, ("q",)), Boundaries())
    assert claims.view is None
    claims.follow(PlaceSet(3, ("q",)), Boundaries())
    assert claims.settle(3, "a", 1, X)


def test_a_look_answers_many_epochs_within_its_limits() -> None:
    place = register()
    for epoch in range(1, 100):
        assert place.claim(1, "a", epoch, X)
    assert place.claim(1, "b", 3, Y)
    found = place.look(1, 2, ["a", "b", "c"])
    assert found == {("a", e): X for e in range(2, 2 + LOOK_EPOCHS)} | {("b", 3): Y}
    assert place.look(1, 100, ["a"]) == {}
    assert place.look(2, 2, ["a"]) is None
    assert place.hand(2) is not None
    assert place.look(1, 2, ["a"]) is None  # it takes no claims under this view any more


def test_a_look_ends_after_so_many_bytes_of_rows() -> None:
    place = register()
    half = Boundary(1, 1, False, rows=bytes(LOOK_BYTES // 2))
    for epoch in (1, 2, 3):
        assert place.claim(1, "a", epoch, half)
    assert place.look(1, 1, ["a"]) == {("a", 1): half, ("a", 2): half}
