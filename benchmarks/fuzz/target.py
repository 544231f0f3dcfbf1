"""Sends bytes to a target, and finds what must never happen."""

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
"""How much the memory of the process may grow, in bytes."""


class Wrong(Exception):
    """Something happened that must not. The message says what, and with which bytes."""


@dataclass
class Struck:
    """What was sent to a target so far, and what it answered."""

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
    """A port, or code that reads bytes."""

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Send some bytes that are wrong, once.

        Raises:
            Wrong: the answer is one that must not be given.
        """
        ...

    def lives(self) -> None:
        """Ask for what a client may have.

        Raises:
            Wrong: the target does not give it.
        """
        ...


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yields a list of the errors that end threads of this process while the block runs."""
    before, found = threading.excepthook, []

    def note(args: threading.ExceptHookArgs) -> None:
        found.append("".join(traceback.format_exception(args.exc_value)))

    threading.excepthook = note
    try:
        yield found
    finally:
        threading.excepthook = before


def memory() -> int:
    """The largest memory that this process has had, in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def strike(
    target: Target, seed: int, nbytes: int, strikes: int = 1 << 62, every: int = 200
) -> Struck:
    """Send bytes to a target.

    Args:
        nbytes: ends after so many bytes.
        strikes: ends after so many messages.
        every: asks the target for what a client may have after so many messages.

    Raises:
        Wrong: something happened that must not, or memory has grown too much.
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
