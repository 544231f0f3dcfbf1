"""The lock whose holders take turns."""

from __future__ import annotations

import threading

from raystream.actors.turns import Turns

LIMIT = 10.0


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
        assert arrived.wait(LIMIT)
        while not turns._waiting:
            pass
    with turns:
        order.append("again")
    other.join(LIMIT)
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
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert most == 1 and inside == 0
