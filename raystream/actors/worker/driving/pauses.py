"""What the work of an instance waits for.

The work of an instance is a generator. It yields a `Pause` where it would have to wait, and is sent
what came of it. A thread of its own waits there and then; one that is shared by several instances
goes on with another one meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, TypeVar

T = TypeVar("T")


class Pause(NamedTuple):
    """The work waits."""

    seconds: float
    """How long it waits at most."""
    wait: Callable[[float], Any]
    """Waits, up to so many seconds, and returns what is sent to the work."""
    ends: Literal["in time", "by input", "unseen"] = "in time"
    """What ends it sooner: nothing, something in the inbox of the instance, or something else, for
    which a thread with other work has to look now and then."""


Work = Generator[Pause, Any, T]
"""Work that pauses, and what comes of it."""


def _slept(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def pause_for(seconds: float) -> Pause:
    """The work waits for a time."""
    return Pause(seconds, _slept)


TURN = pause_for(0.0)
"""The work could go on, and lets others have their turn."""


def go_on(work: Work[Any], pause: Pause | None, seconds: float) -> Pause:
    """Do the work until its next pause.

    Args:
        pause: where it is; None before its beginning.
        seconds: how long it may still wait there.

    Raises:
        StopIteration: the work is done; its value is what comes of it.
    """
    try:
        answer = None if pause is None else pause.wait(seconds)
    except BaseException as error:
        return work.throw(error)
    return work.send(answer)


def work_alone(work: Work[T]) -> T:
    """Do all of the work on this thread, which waits where the work does. Returns what comes of
    it."""
    pause: Pause | None = None
    while True:
        try:
            pause = go_on(work, pause, pause.seconds if pause else 0.0)
        except StopIteration as done:
            found: T = done.value
            return found
