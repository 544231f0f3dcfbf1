"""How long a sink waits for a database that cannot be reached.

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
