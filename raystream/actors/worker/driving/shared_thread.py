"""One thread of a process that does the work of several instances in turn.

Each of them works until it pauses. The thread goes round among those that can go on. When none can,
it sleeps until the first pause is over, or until another thread puts something into an inbox. What
the instances send each other does not leave the thread (`local_subscription`).

So do the tasklets of a core in Hazelcast Jet, and the operators of a worker in Timely Dataflow.
"""

from __future__ import annotations

import gc
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from raystream.actors.network.inbox import Item
from raystream.actors.worker.driving.pauses import Pause, Work, go_on
from raystream.actors.worker.driving.tidy import Tidy
from raystream.native.thread_priority import be_prompt

if TYPE_CHECKING:
    from raystream.actors.network.server import LogServer

LOOK_SECONDS = 0.001
"""How often the thread looks for what ends a pause unseen."""
IDLE_SECONDS = 0.5
"""How long it sleeps at most."""


def quiet_thread() -> None:
    """Let this thread compute with as few interruptions as possible."""
    gc.disable()
    be_prompt()


class LocalReader(Protocol):
    """Reads the log of an instance on the same thread."""

    def ready(self) -> bool:
        """Whether there may be something."""
        ...

    def pull(self, items: list[Item]) -> None:
        """Add what there is."""
        ...


class SharedInbox:
    """The inbox of an instance on a shared thread: what other threads put in, and what it reads of
    instances on the same thread.

    Args:
        wake: lets the thread look, if it sleeps.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._items = deque[Item]()
        self._woken = False
        self._readers: tuple[LocalReader, ...] = ()

    def put(self, item: Item | None) -> None:
        """Put a piece in; None only wakes the thread."""
        if item is None:
            self._woken = True
        else:
            self._items.append(item)
        self._wake()

    def attach(self, reader: LocalReader) -> None:
        """Take pieces from this reader, too, until it is detached."""
        self._readers = (*self._readers, reader)
        self.put(None)

    def detach(self, reader: LocalReader) -> None:
        """Take nothing more from this reader."""
        self._readers = tuple(r for r in self._readers if r is not reader)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take, and the thread was not woken."""
        if self._items or self._woken:
            return False
        for reader in self._readers:  # noqa: SIM110  asked for all the time
            if reader.ready():
                return False
        return True

    def take(self, seconds: float) -> list[Item] | None:
        """The pieces that are there, at once. None if nothing came."""
        came, self._woken = self._woken, False
        items = list[Item]()
        while self._items:
            items.append(self._items.popleft())
        for reader in self._readers:
            reader.pull(items)
        return items if came or items else None

    def close(self) -> None:
        """Take nothing any more."""
        self._readers = ()


@dataclass(eq=False)
class SharedWork:
    """The work of an instance on a shared thread."""

    work: Work[None]
    inbox: SharedInbox
    pause: Pause | None = None
    """Where it is now; None before its beginning."""
    by_input: bool = False
    """Whether its inbox ends this pause."""
    until: float = 0.0
    """When its pause is over, at the latest, on the monotonic clock."""
    ended: bool = False

    def can_go_on(self, now: float) -> bool:
        """Whether its pause is over."""
        return now >= self.until or (self.by_input and not self.inbox.empty)

    def go_on(self) -> None:
        """Do the work until its next pause."""
        try:
            self.pause = pause = go_on(self.work, self.pause, 0.0)
        except StopIteration:
            self.ended, self.until = True, float("inf")
            return
        self.by_input = pause.ends == "by input"
        seconds = min(pause.seconds, LOOK_SECONDS) if pause.ends == "unseen" else pause.seconds
        self.until = time.monotonic() + seconds if seconds else 0.0


class SharedThread:
    """Does the work of instances that are added. It is started with the first of them."""

    def __init__(self) -> None:
        self.servers: dict[str, LogServer] = {}
        """The log servers of its instances, by address."""
        self._members: tuple[SharedWork, ...] = ()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._now: SharedWork | None = None
        self._sleeping = False
        self._rung, self._bell = socket.socketpair()
        for end in (self._rung, self._bell):
            end.setblocking(False)

    def inbox(self) -> SharedInbox:
        """An inbox for an instance that is to be added."""
        return SharedInbox(self.wake)

    def add(self, work: Work[None], inbox: SharedInbox) -> None:
        """Do this work, too, from now on."""
        with self._lock:
            self._members = (*self._members, SharedWork(work, inbox))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Let the thread look, if it sleeps."""
        if self._sleeping:
            with suppress(OSError):  # it rings already
                self._bell.send(b"!")

    @property
    def works(self) -> bool:
        """Whether there is work."""
        return bool(self._members)

    def close(self) -> None:
        """Free what it used, once there is no work any more."""
        self._bell.close()
        self._rung.close()

    def at_work(self) -> SharedInbox | None:
        """The inbox of the instance whose work is being done, if this is called there."""
        here = threading.current_thread() is self._thread
        return self._now.inbox if here and self._now is not None else None

    def _run(self) -> None:
        quiet_thread()
        tidy = Tidy()
        while self._goes_on():
            self._sleeping, went_on = True, False  # what comes from here on rings, and is seen
            now = time.monotonic()
            for member in self._members:
                if member.can_go_on(now):
                    self._sleeping, went_on, self._now = False, True, member
                    member.go_on()
                    if member.ended:
                        self._ended(member)
            tidy()
            if not went_on:
                self._sleep()
        self._sleeping = False

    def _goes_on(self) -> bool:
        """Whether there is work. Without any the thread ends, and the next work starts another."""
        if not self._members:
            with self._lock:
                if not self._members:
                    self._thread = None
                    return False
        return True

    def _ended(self, member: SharedWork) -> None:
        with self._lock:
            self._members = tuple(m for m in self._members if m is not member)

    def _sleep(self) -> None:
        """Sleep until some work can go on, or another thread has something for it. What came since
        `_sleeping` is set has rung."""
        until = min([m.until for m in self._members], default=0.0)
        seconds = min(max(0.0, until - time.monotonic()), IDLE_SECONDS)
        if select.select([self._rung], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                self._rung.recv(1 << 12)
