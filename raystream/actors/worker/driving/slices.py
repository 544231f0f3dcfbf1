"""How long the thread of an instance computes before others have their turn."""

from __future__ import annotations

import time
from collections.abc import Callable

from raystream.native.thread_priority import be_prompt, be_usual

BUSY_SECONDS = 0.1
"""A thread that has not waited for this long has enough to do."""


class Slices:
    """Keeps a thread prompt as long as it waits for input now and then. It is prompt at first.

    A prompt thread goes on as soon as it is woken. It asks for a short slice to that end, and is
    also put off sooner when others want its processor. A thread that never waits gains nothing from
    that, and is put off for nothing. So it asks for the usual slice until it waits again.

    Args:
        rounds: says how many times the thread began to work after it had waited for input.
        ask: asks for a short slice or for the usual one.
    """

    def __init__(self, rounds: Callable[[], int], ask: Callable[[bool], None]) -> None:
        self._rounds, self._ask = rounds, ask
        self._seen, self._since = rounds(), time.monotonic()
        self._short = True

    def __call__(self) -> None:
        """Called by the thread itself between two epochs."""
        self.at(time.monotonic())

    def at(self, now: float) -> None:
        """Ask for another slice, if it is time to. now: by the monotonic clock."""
        rounds = self._rounds()
        if rounds != self._seen:
            self._seen, self._since = rounds, now
        short = now - self._since < BUSY_SECONDS
        if short != self._short:
            self._short = short
            self._ask(short)


def ask(short: bool) -> None:
    """Ask for a short slice for this thread, or for the usual one."""
    if short:
        be_prompt()
    else:
        be_usual()
