"""Threads that only get what processors have left over."""

from __future__ import annotations

import os
import resource
from contextlib import suppress


def set_idle(thread: int, *, idle: bool) -> None:
    """Give a thread idle priority, or take it away; nothing where it could not be taken away."""
    if not idle or may_return():
        with suppress(OSError, AttributeError):  # Linux has it
            policy = os.SCHED_IDLE if idle else os.SCHED_OTHER
            os.sched_setscheduler(thread, policy, os.sched_param(0))


def may_return() -> bool:
    """Whether a thread of this process that went to idle priority may leave it again."""
    most, _ = resource.getrlimit(resource.RLIMIT_NICE)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return os.geteuid() == 0 or most == resource.RLIM_INFINITY or 20 - nice <= most


def be_urgent() -> None:
    """This thread has no idle priority any more: others wait for it."""
    with suppress(OSError, AttributeError):
        if os.sched_getscheduler(0) == os.SCHED_IDLE:
            set_idle(0, idle=False)
