"""Loading in the background what a process will need, without being in anybody's way."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from contextlib import suppress

IDLE_NICE = 19
"""The nice value of the thread where it could not come back from idle priority."""


class Loading:
    """Work in a thread of its own, at the least priority until somebody needs what it does.

    Whoever needs it may wait for a lock that it holds, that of an import for example; on a busy
    machine a thread that only gets what is left over would hold that for minutes.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._hurried = threading.Event()

    def begin(self, work: Callable[[], None]) -> None:
        """Have it done; returns at once."""
        self._thread = threading.Thread(target=self._run, args=(work,), name="warm", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """From now on it is as urgent as all else that this process does."""
        self._hurried.set()
        thread = self._thread
        if thread is not None and thread.is_alive() and thread.native_id is not None:
            with suppress(OSError, AttributeError):
                os.sched_setscheduler(thread.native_id, os.SCHED_OTHER, os.sched_param(0))

    def _run(self, work: Callable[[], None]) -> None:
        with suppress(OSError, AttributeError):  # of this thread alone, where the system has it
            if may_return():
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            else:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), IDLE_NICE)
        if self._hurried.is_set():
            self.hurry()
        work()


def may_return() -> bool:
    """Whether a thread of this process that went to idle priority may leave it again."""
    most, _ = resource.getrlimit(resource.RLIMIT_NICE)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return os.geteuid() == 0 or most == resource.RLIM_INFINITY or 20 - nice <= most
