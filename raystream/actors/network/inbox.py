"""What comes to the thread that computes: what other threads put in, and small frames that it reads
itself.

Each subscription has a thread that reads. In a paced job each piece would then pass through two
threads, and handing over the interpreter's lock in between takes longer than the work on the piece.
So while pieces are small a subscription lends its connection, and the compute thread reads it where
it waits. Large ones are left to the subscription's thread: they come while something is computed.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from raystream.dataflow.pieces import Piece

Item = tuple[int, Piece]
"""An edge, and the piece that came on it."""


class Lent(Protocol):
    """A connection that its subscription lends to the compute thread."""

    @property
    def next(self) -> int:
        """The epoch that comes next."""
        ...

    def pull(self, items: list[Item], upto: int) -> None:
        """Add the pieces of the frames that are there, up to an epoch. An error that it raises ends
        the loan."""
        ...

    def give_back(self, why: Exception) -> None:
        """Note that the compute thread does not read the connection any more."""
        ...


class Inbox:
    """For one thread that takes, and any number that put in or lend.

    Args:
        upto: the last epoch that may be taken, now; streams that are further ahead are not read.
    """

    def __init__(self, upto: Callable[[], int]) -> None:
        self._upto = upto
        self._items = deque[Item]()
        self._woken = False
        """Whether the waiting thread was woken since something was taken."""
        self._waiting = False
        self._lock = threading.Lock()
        """Held while a thread reads lent connections, or changes which ones are lent."""
        self._lent: dict[int, Lent] = {}
        self._resting: set[int] = set()
        """The lent connections that are too far ahead to be read."""
        self._fresh: set[int] = set()
        """The lent connections that may have frames in their buffers, unseen by the system."""
        self._poll = select.poll()
        self._rung, self._bell = socket.socketpair()
        for end in (self._rung, self._bell):
            end.setblocking(False)
        self._poll.register(self._rung, select.POLLIN)

    def put(self, item: Item | None) -> None:
        """Put a piece in; None only wakes the waiting thread."""
        if item is None:
            self._woken = True
        else:
            self._items.append(item)
        if self._waiting:
            self._ring()

    def lend(self, connection: socket.socket, lent: Lent) -> None:
        """Have a connection read, until it is given back or recalled."""
        with self._lock:
            file = connection.fileno()
            self._lent[file] = lent
            self._fresh.add(file)
            self._poll.register(file, select.POLLIN)
        self._ring()

    def recall(self, connection: socket.socket) -> None:
        """Take a lent connection back, if it is still lent."""
        with self._lock:
            self._forget(connection.fileno())

    def take(self, seconds: float) -> list[Item] | None:
        """The pieces that have come; waits up to `seconds` for one. None if nothing came."""
        items, some = list[Item](), self._put_in
        came = some(items)
        if not came or self._lent:
            for file in self._ready(0.0 if came else seconds):
                came = True
                self._read(file, items)
            came = some(items) or came
        return items if came or items else None  # whatever `came` says, what was taken is given

    @property
    def empty(self) -> bool:
        """Whether nothing was put in, and the waiting thread was not woken."""
        return not (self._items or self._woken)

    def close(self) -> None:
        """Close the inbox: nothing is taken any more."""
        self._bell.close()
        self._rung.close()

    def _put_in(self, items: list[Item]) -> bool:
        """Add what other threads put in. Returns whether there was something."""
        came = False
        if self._woken:
            self._woken, came = False, True
        while self._items:
            came = True  # not before: others put in meanwhile, and what does not count is dropped
            items.append(self._items.popleft())
        return came

    def _ready(self, seconds: float) -> list[int]:
        """The connections that have something to read; waits up to `seconds` for one of them."""
        if self._resting:
            self._wake()
        self._waiting = True
        if not self.empty or self._fresh:  # since before it was seen that somebody waits
            seconds = 0.0
        ready = [file for file, _ in self._poll.poll(1000 * seconds)]
        self._waiting = False
        if self._fresh:
            with self._lock:
                ready += self._fresh.difference(ready)
                self._fresh.clear()
        return ready

    def _read(self, file: int, items: list[Item]) -> None:
        if file == self._rung.fileno():
            with suppress(BlockingIOError):
                self._rung.recv(1 << 12)
            return
        with self._lock:
            lent = self._lent.get(file)
            if lent is None:  # recalled meanwhile
                return
            try:
                lent.pull(items, self._upto())
            except Exception as why:
                self._forget(file)
                lent.give_back(why)
                return
            if lent.next > self._upto():
                self._poll.unregister(file)
                self._resting.add(file)

    def _wake(self) -> None:
        """Read the connections again that are not too far ahead any more."""
        with self._lock:
            for file in [f for f in self._resting if self._lent[f].next <= self._upto()]:
                self._resting.discard(file)
                self._fresh.add(file)
                self._poll.register(file, select.POLLIN)

    def _forget(self, file: int) -> None:
        if self._lent.pop(file, None) is not None and file not in self._resting:
            self._poll.unregister(file)
        self._resting.discard(file)
        self._fresh.discard(file)

    def _ring(self) -> None:
        with suppress(OSError):  # it rings already; or nobody takes any more
            self._bell.send(b"!")
