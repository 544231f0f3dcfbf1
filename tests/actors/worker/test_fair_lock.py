"""The lock whose holders take turns."""

from __future__ import annotations

import threading

import pytest

from raystream.actors.worker.driving import fair_lock as module
from raystream.actors.worker.driving.fair_lock import Turns
from tests.gates import LIMIT_SECONDS, until


def test_who_waits_is_next() -> None:
    """Though the holder wants it again at once, and would have a plain lock."""
    turns, order, arrived = Turns(), [], threading.Event()

    def wait() -> None:
        arrived.set()
        with turns:
            order.append("waiting")

    other = threading.Thread(target=wait, daemon=True)
    with turns:
        other.start()
        assert arrived.wait(LIMIT_SECONDS)
        until(lambda: turns._waiting)
    with turns:
        order.append("again")
    other.join(LIMIT_SECONDS)
    assert order == ["waiting", "again"]


def test_one_at_a_time() -> None:
    turns, inside, most = Turns(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
    assert most == 1 and inside == 0


def test_a_turn_may_go_on_for_a_part_of_the_time_that_it_was_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So who computes without a pause loses a part of its time, and the other gets on."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    turns, said = Turns(), list[bool]()

    def wait() -> None:
        with turns as may_go_on:
            for then in (80.0, 89.0, 91.0):
                now[0] = then
                said.append(may_go_on())

    other = threading.Thread(target=wait, daemon=True)
    with turns as may_go_on:
        other.start()
        until(lambda: turns._waiting)
        now[0] = 80.0
        assert not may_go_on()  # there was no wait
    other.join(LIMIT_SECONDS)
    assert said == [True, True, False]


def test_a_thread_that_has_its_turn_may_take_it_again() -> None:
    """Others wait until it has given it back as often."""
    turns, order = Turns(), []

    def other() -> None:
        with turns:
            order.append("other")

    with turns:
        waits = threading.Thread(target=other)
        with turns:
            waits.start()
        waits.join(0.05)
        with turns:
            order.append("again")
    waits.join(5.0)
    assert order == ["again", "other"]
    with turns:
        order.append("last")
    assert order[-1] == "last"
