"""Priorities and time slices of threads, so that work in the background delays no epoch."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
import time
from contextlib import suppress

LONG_SLICE = 100_000_000
"""The longest slice that Linux grants, in nanoseconds. With half of it, some threads that were
woken still waited. Its price, before Linux 6.17: a thread that never sleeps may wait for all of it.
"""
SHORT_SLICE = 100_000
"""The shortest slice that Linux grants, in nanoseconds."""
USUAL_SLICE = 0
"""Asks Linux for the slice that it gives a thread by itself."""
SLACK = 1
"""By how much a timer may be late, in nanoseconds. Linux takes 50,000 unless asked."""
SET_SLACK = 29
"""The number of PR_SET_TIMERSLACK, of `prctl`."""
ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""The kernel's `sched_attr`: size, policy, flags, nice, priority, slice, deadline, period."""
CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""The numbers of sched_setattr and sched_getattr by machine; neither Python nor glibc before 2.41
has names for them."""

ASIDE_BYTES = 1 << 19
"""Less than this is soon copied: the thread does not step aside."""
ASIDE_SECONDS = 1e-6
"""How long a thread sleeps to step aside. Linux makes some 70 microseconds of it."""


def set_idle(thread: int, *, idle: bool) -> None:
    """Give a thread idle priority, or take it away.

    Gives nothing where this process may not take it away later (`may_return`).
    """
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
    """Take idle priority from this thread: others wait for it."""
    with suppress(OSError, AttributeError):
        if os.sched_getscheduler(0) == os.SCHED_IDLE:
            set_idle(0, idle=False)


def give_way() -> None:
    """From now on, a thread that wakes on this one's processor goes on at once.

    Linux lets a thread that computes use up its slice, some milliseconds, before one that was
    woken, unless that one asks for a shorter slice (EEVDF: Stoica and Abdel-Wahab, 1995). So this
    thread asks for a long slice; its share of the processor stays the same. Kernels before 6.12
    have no such request.
    """
    _ask_for(LONG_SLICE)


def be_prompt() -> None:
    """From now on, this thread goes on as soon as it is woken, and its timers are exact.

    It asks for a short slice, the counterpart of `give_way`: a thread that computes on the
    processor on which this one wakes is put off at once. Its share of the processor stays the same.
    Where Linux has no such request, the thread goes on as it is.
    """
    _ask_for(SHORT_SLICE)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SET_SLACK, ctypes.c_ulong(SLACK), 0, 0, 0)


def be_usual() -> None:
    """From now on, this thread computes for as long as any other before others have their turn."""
    _ask_for(USUAL_SLICE)


def _ask_for(slice_ns: int) -> None:
    """Ask for a slice, for this thread."""
    with suppress(OSError):
        size, policy, flags, nice, urgency, *_ = scheduling()
        if policy == os.SCHED_OTHER:
            asked = ATTRIBUTES.pack(size, policy, flags, nice, urgency, slice_ns, 0, 0)
            _call(0, ctypes.create_string_buffer(asked, ATTRIBUTES.size), 0)


def step_aside(nbytes: int) -> None:
    """Let a thread that waits for the interpreter's lock, or for another lock that this thread has
    released, go on now. Call this before about `nbytes` are copied or sorted without that lock.

    Linux may wake the waiting thread on this thread's processor, even while another one is idle. If
    it ran there a moment ago, it would wait for the next tick, up to 4 ms. `give_way` does not cure
    that: to find the lock taken is to run for a moment.
    """
    if nbytes >= ASIDE_BYTES:
        time.sleep(ASIDE_SECONDS)


def scheduling() -> tuple[int, ...]:
    """This thread's `sched_attr`.

    Raises:
        OSError: this system has no such call.
    """
    data = ctypes.create_string_buffer(ATTRIBUTES.size)
    _call(1, data, ATTRIBUTES.size, 0)
    return ATTRIBUTES.unpack(data.raw)


def _call(which: int, data: ctypes.Array[ctypes.c_char], *numbers: int) -> None:
    """Call `CALLS[machine][which]` for this thread."""
    calls = CALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    longs = [ctypes.c_long(number) for number in numbers]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(calls[which]), ctypes.c_long(0), data, *longs):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
