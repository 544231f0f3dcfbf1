"""What is struck, and what may never happen."""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

MEMORY_BYTES = 1 << 30
"""By so much the memory of the process may grow, at most."""


class Wrong(Exception):
    """Something happened that may not. The message says what, and with which bytes."""


@dataclass
class Struck:
    """What has come of it so far."""

    nbytes: int = 0
    """The bytes that were sent."""
    strikes: int = 0
    """How often something was sent."""
    answers: Counter[str] = field(default_factory=Counter)
    """How often each answer was given."""

    def note(self, sent: int, answer: str) -> None:
        """Note an answer to some bytes."""
        self.nbytes += sent
        self.strikes += 1
        self.answers[answer] += 1


class Target(Protocol):
    """What is struck."""

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Send something, once.

        Raises:
            Wrong: what came of it may not be.
        """
        ...

    def lives(self) -> None:
        """Ask for something that is right.

        Raises:
            Wrong: it is not given.
        """
        ...


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yields the errors that nobody catches in threads of this process while the block runs."""
    before, found = threading.excepthook, []

    def note(args: threading.ExceptHookArgs) -> None:
        found.append("".join(traceback.format_exception(args.exc_value)))

    threading.excepthook = note
    try:
        yield found
    finally:
        threading.excepthook = before


def memory() -> int:
    """The most bytes of memory that this process has had."""
    with open("/proc/self/status", encoding="ascii") as lines:
        line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def strike(
    target: Target, seed: int, nbytes: int, strikes: int = 1 << 62, every: int = 200
) -> Struck:
    """Strike until so many bytes are sent, or so often.

    Args:
        every: after so many strikes the target is asked for what is right.

    Raises:
        Wrong: something happened that may not, or memory has grown too much.
    """
    struck, before = Struck(), memory()
    with watched() as errors:
        while struck.nbytes < nbytes and struck.strikes < strikes:
            draw = random.Random(f"{seed}-{struck.strikes}")
            try:
                target.strike(draw, struck)
            except Wrong as wrong:
                raise Wrong(f"seed {seed}, strike {struck.strikes}: {wrong}") from wrong
            if errors:
                raise Wrong(f"seed {seed}, strike {struck.strikes}: a thread ended: {errors[0]}")
            if struck.strikes % every == 0:
                target.lives()
            if (more := memory() - before) > MEMORY_BYTES:
                raise Wrong(f"seed {seed}, strike {struck.strikes}: {more:,} bytes more memory")
        target.lives()
    return struck
