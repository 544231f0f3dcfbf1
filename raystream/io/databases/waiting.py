"""How long a source or sink waits for a database that cannot be reached, and how often it asks.

This is the one module below the shells that looks at a clock: only a sink that waits for another
system needs it, and what the sink writes does not depend on it.
"""

from __future__ import annotations

import time

PAUSE = 0.05
"""Seconds before the first new attempt."""
PAUSE_MOST = 2.0
"""Seconds before later ones, at most."""


class Patience:
    """Attempts with growing pauses, up to a limit. seconds: of all attempts together."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = PAUSE

    def left(self) -> bool:
        """Whether there is time for another attempt."""
        return time.monotonic() < self._until

    def wait(self) -> None:
        """Wait before the next attempt."""
        time.sleep(max(0.0, min(self._pause, self._until - time.monotonic())))
        self._pause = min(2 * self._pause, PAUSE_MOST)


class Beat:
    """What is to be done now and then. seconds: how often."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def due(self) -> bool:
        """Whether it is time again; if so, the next time is that much later."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def pause(seconds: float) -> None:
    """Do nothing for so long."""
    time.sleep(seconds)
