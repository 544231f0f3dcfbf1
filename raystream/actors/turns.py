"""A lock whose holders take turns: who waits gets it next, however soon another wants it again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

PART_OF_WAIT = 1 / 8
"""Of the time that a turn was waited for, so much may be used for more than the least."""


class Turns:
    """A lock in order of arrival. `threading.Lock` may be taken again and again by a thread that
    gives it back for microseconds only, while another one waits.

    `with turns as may_go_on:` has a function that says, after the least that is to be done in a
    turn, whether there is time for more. Who copies a large table slice by slice would else come
    to one slice in each step of somebody who computes without a pause.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> Callable[[], bool]:
        with self._lock:
            if not self._held:
                self._held = True
                return _no_more
            turn, asked = threading.Lock(), monotonic()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()
        began = monotonic()
        until = began + (began - asked) * PART_OF_WAIT
        return lambda: monotonic() < until

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


def _no_more() -> bool:
    """There was no wait."""
    return False
