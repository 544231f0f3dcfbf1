"""The journal at a keeper: who may write it, and which entry is the newest."""

from __future__ import annotations

from raystream.controller.protocol.journal import Shelf, newest


def test_an_entry_replaces_older_ones_only() -> None:
    shelf: Shelf[str] = Shelf()
    assert shelf.write((1, 2), "second")
    assert shelf.write((1, 1), "first, late")
    assert (shelf.order, shelf.entry) == ((1, 2), "second")


def test_whoever_claims_it_ends_all_before() -> None:
    shelf: Shelf[str] = Shelf()
    shelf.write((1, 7), "seventh")
    assert shelf.claim(2) == (True, (1, 7), "seventh")
    assert not shelf.write((1, 8), "of a controller whose time is over")
    assert shelf.write((2, 1), "of the next")
    assert (shelf.order, shelf.entry) == ((2, 1), "of the next")


def test_a_number_is_claimed_once() -> None:
    shelf: Shelf[str] = Shelf()
    assert shelf.claim(3)[0]
    assert not shelf.claim(3)[0] and not shelf.claim(2)[0]


def test_the_newest_of_what_keepers_hold() -> None:
    assert newest([((0, 0), None), ((2, 1), "b"), ((1, 9), "a")]) == "b"
    assert newest([((0, 0), None)]) is None


def test_who_leaves_it_forgets_what_is_old_unless_a_newer_controller_has_begun() -> None:
    shelf: Shelf[str] = Shelf()
    shelf.write((1, 7), "seventh")
    assert shelf.leave((1, 8)) and shelf.entry is None
    shelf.write((1, 9), "ninth")
    shelf.claim(2)
    assert not shelf.leave((1, 10)) and shelf.entry == "ninth"
