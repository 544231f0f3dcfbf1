"""How far a producer may be ahead of its subscribers.

Where epochs follow event time, their lengths are given, and records are as late wherever they wait
for a slow consumer. A producer may be some epochs ahead of what its subscribers were served. Many
more epochs may lie in the buffers of the connections.

Where epochs are cut by arrival, a source that waits makes one longer epoch, which costs less than
many short ones. So each subscriber says which epochs it has applied, and a producer is only a few
epochs ahead of them. The epochs of a job that cannot keep up become longer until it can.
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
    """Tells a producer which epochs its subscriber has applied. It writes to the connection of the
    subscription. Each byte is a number of further epochs, so no message is ever read in part.

    Args:
        applied: the last epoch that was applied before the first byte.
    """

    def __init__(self, connection: socket.socket, applied: int) -> None:
        self._connection = connection
        self._said = applied

    def say(self, applied: int) -> None:
        """Say which epoch was applied last, without a wait. What the connection does not take now
        is said with the next epoch."""
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
    """Hears which epochs a subscriber has applied.

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
