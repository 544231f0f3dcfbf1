"""Time, chance and messages of a simulation: one heap of (time, number, action), one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

POLL = 0.15
"""How often a controller asks all processes, and how soon it tries again to write."""
NOTICE = 0.05
"""How long it takes until the controller hears of a death."""

Action = Callable[..., Any]


class Wrong(BaseException):
    """A checker found that the job did what it must never do.

    No `Exception`: code under test must not catch it, as it does what a user's sink raises.
    """


@dataclass(eq=False)
class Box:
    """A simulated process: what is sent to it is done there, unless it is dead."""

    name: str
    alive: bool = True
    asleep: bool = False
    """Whether it is stopped, or separated from all others."""
    held: list[tuple[Action, tuple[Any, ...]]] = field(default_factory=list)
    """What was sent to it while it was asleep, which it does when it wakes."""


class World:
    """Runs actions in the order of time."""

    def __init__(self, seed: int, *, story: bool = False) -> None:
        self.rng = random.Random(seed)
        self._chance = self.rng.random
        self.now = 0.0
        self.events = 0
        self.loss = self.doubling = self.slow = 0.0
        """The shares of control messages that are lost or come twice, and of messages that are
        slow."""
        self.story: list[str] | None = [] if story else None
        """One line per event, if the story is kept."""
        self._heap: list[tuple[float, int, Box | None, Action, tuple[Any, ...]]] = []
        self._number = 0

    def tell(self, *what: object) -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.append(f"{self.now:9.4f}  {' '.join(map(str, what))}")

    def delay(self, mean: float) -> float:
        """A random time; now and then a long one."""
        long = self.slow and self._chance() < self.slow
        return mean * (0.2 + 1.6 * self._chance()) * (20.0 if long else 1.0)

    def at(self, time: float, to: Box | None, action: Action, *args: Any) -> None:
        """Do something at a time, in `to` if it is alive then."""
        self._number += 1
        heappush(self._heap, (time, self._number, to, action, args))

    def after(self, mean: float, to: Box | None, action: Action, *args: Any) -> None:
        """Do something after a random time."""
        self._number = number = self._number + 1
        heappush(self._heap, (self.now + self.delay(mean), number, to, action, args))

    def send(self, mean: float, to: Box, action: Action, *args: Any) -> None:
        """Send a control message, which may be lost, come twice, or overtake others."""
        chance = self._chance()
        if chance < self.loss:
            self.tell("lost:", action.__name__, "to", to.name)
            return
        self.after(mean, to, action, *args)
        if chance > 1 - self.doubling:
            self.tell("doubled:", action.__name__, "to", to.name)
            self.after(mean, to, action, *args)

    def wake(self, box: Box) -> None:
        """Let a process go on. What it was sent meanwhile is done now, in order."""
        box.asleep = False
        held, box.held = box.held, []
        for action, args in held:
            self.at(self.now, box, action, *args)

    def step(self) -> bool:
        """Do the next event. False: there is none."""
        if not self._heap:
            return False
        self.now, _, to, action, args = heappop(self._heap)
        self.events += 1
        if to is None:
            action(*args)
        elif to.asleep and to.alive:
            to.held.append((action, args))
        elif to.alive:
            action(*args)
        return True
