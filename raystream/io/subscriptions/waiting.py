"""A connection that breaks is made again, after a pause that grows, and for a limited time."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from raystream.io.subscriptions.base import (
    LOOK_SECONDS,
    Incoming,
    MissingError,
    SubscribedSource,
    unreachable,
)

TAKEN = 1000
"""How many messages are taken at once."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
GIVE_UP_SECONDS = 300.0
"""How long a connection is tried to be made before the job ends."""


def again_and_again(
    attempt: Callable[[], Iterator[Sequence[Incoming]]],
    errors: tuple[type[BaseException], ...],
    of: SubscribedSource[Any],
) -> Iterator[Sequence[Incoming]]:
    """What connections give, one after the other. An attempt that ends without an error ends all.

    Where the server does not have what is to be read, that is an error at once, unless it had it
    before: a server that was started again may answer before it knows all that it has.

    Args:
        attempt: makes a connection and reads it; what it yields first shows that there is one.
        errors: what it raises where the connection breaks, or cannot be made.
        of: what is read. Its `give_up` says after how many seconds without a connection it is an
            error; 0: at once.

    Raises:
        InputError: there was no connection for so long, or it is not there.
    """
    lost, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            for messages in attempt():
                lost, pause, of.was_there = time.monotonic(), FIRST_PAUSE, True
                yield messages
            return
        except MissingError:
            if not of.was_there or time.monotonic() - lost >= of.give_up:
                raise
        except errors as error:
            if time.monotonic() - lost >= of.give_up:
                raise unreachable(of, error) from None
        until = time.monotonic() + pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, LONGEST_PAUSE)
        while (left := until - time.monotonic()) > 0:
            yield ()
            time.sleep(min(left, LOOK_SECONDS))


def taken(came: queue.Queue[Any]) -> list[Incoming]:
    """What a thread has put into a queue; nothing where nothing comes for a while.

    Raises:
        BaseException: what the thread has put there in place of a message, after those before it.
    """
    found: list[Incoming] = []
    with suppress(queue.Empty):
        one = came.get(timeout=LOOK_SECONDS)
        while True:
            if isinstance(one, BaseException):
                if found:
                    came.put(one)
                    break
                raise one
            if one is not None:
                found.append(one)
            if len(found) == TAKEN:
                break
            one = came.get_nowait()
    return found
