"""How far a producer may be ahead of its subscribers.

Where epochs follow event time, their lengths are given: what waits for a slow consumer is the same
in whatever place it waits. A producer counts what it has sent, and a connection may hold much of
it. Where epochs are cut by arrival, what waits at the source becomes one longer epoch, which costs
less than many short ones. So there each subscriber says what it has applied, and a producer is only
a few epochs ahead of that. A job that has more to do than it can then cuts longer epochs by itself,
in the place of a queue of short ones.
"""

from __future__ import annotations

import socket

from raystream.state.log.epoch_log import Bound

AHEAD = 8
"""Epochs of any size that a producer may be ahead of what its slowest subscriber was served, and
that a subscription may be ahead of what its instance has applied."""
SMALL_AHEAD = 256
AHEAD_BYTES = 64 << 10
"""A producer may be up to SMALL_AHEAD epochs ahead while their rows have at most AHEAD_BYTES:
AHEAD epochs of a millisecond each are only a few milliseconds."""
BOUND = Bound(AHEAD, AHEAD_BYTES, SMALL_AHEAD)
ARRIVED_AHEAD = 4
"""Epochs cut by arrival that a producer may be ahead of what its slowest subscriber has applied.
One is under way, one waits, and two are for a consumer that is slow for once."""
ARRIVED_BOUND = Bound(ARRIVED_AHEAD, 0, ARRIVED_AHEAD)
SAID_MOST = 1 << 12
"""Bytes that a subscriber says at once."""


class AppliedSender:
    """Tells a producer, on the connection of a subscription, how far the subscriber is. Each byte
    says that so many more epochs are applied. One byte is never sent in part, so nothing has to be
    put together.

    Args:
        applied: the last epoch of which the producer knows that it is applied.
    """

    def __init__(self, connection: socket.socket, applied: int) -> None:
        self._connection = connection
        self._said = applied

    def say(self, applied: int) -> None:
        """Say how far the subscriber is, without a wait. What the system does not take now is said
        with the next epoch."""
        more = applied - self._said
        if more <= 0:
            return
        whole, rest = divmod(more, 255)
        said = (b"\xff" * whole + bytes([rest]))[:SAID_MOST]
        try:
            sent = self._connection.send(said, socket.MSG_DONTWAIT)
        except OSError:  # it is full, or broken; then there will be another one
            return
        self._said += sum(said[:sent])


class AppliedReceiver:
    """What a subscriber says.

    Args:
        applied: the last epoch before those that the subscriber asked for.
    """

    def __init__(self, connection: socket.socket, applied: int) -> None:
        self._connection = connection
        self.applied = applied
        """The last epoch that it has applied."""
        self.gone = False
        """Whether the connection has ended."""

    def hear(self) -> None:
        """Take in what it has said by now."""
        try:
            while said := self._connection.recv(SAID_MOST, socket.MSG_DONTWAIT):
                self.applied += sum(said)
                if len(said) < SAID_MOST:
                    return
            self.gone = True
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True
