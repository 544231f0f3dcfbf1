"""A lock whose holders take turns: who waits gets it next, however soon another wants it again."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class Turns:
    """A lock in order of arrival. `threading.Lock` may be taken again and again by a thread that
    gives it back for microseconds only, while another one waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
