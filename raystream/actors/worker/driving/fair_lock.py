"""A lock that is handed on in order of arrival, however soon its last holder wants it again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

PART_OF_WAIT = 1 / 8
"""A holder may use the lock for this part of the time that it waited for it."""


class Turns:
    """A lock in order of arrival. A thread that gives a `threading.Lock` back for microseconds only
    may take it again and again while another one waits.

    `with turns as may_go_on:` gives a function that says, after the least that has to be done in a
    turn, whether there is time for more. Otherwise a thread that copies a large table slice by
    slice would get to copy one slice per step of a thread that computes without a pause.

    A thread that has its turn may take it again inside: rows that go to disk within a step look up
    the text of their keys, which takes a turn where a checkpoint does it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._owner, self._depth = 0, 0
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> Callable[[], bool]:
        me = threading.get_ident()
        with self._lock:
            if not self._held or self._owner == me:
                self._held, self._owner = True, me
                self._depth += 1
                return _no_more
            turn, asked = threading.Lock(), monotonic()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()
        self._owner, self._depth = me, 1
        began = monotonic()
        until = began + (began - asked) * PART_OF_WAIT
        return lambda: monotonic() < until

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self._owner = 0
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


def _no_more() -> bool:
    """Answers for a holder that did not wait for the lock: there is no time for more."""
    return False
