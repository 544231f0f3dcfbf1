"""SIGTERM while this process is connected to Ray: it ends as with Ctrl-C, and so does its job.

Ray handles the signal once it is connected: it prints a traceback of its own code, and aborts. Then
the job would go on in a shared cluster although its submitter was told to stop.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

SIGNALLED = 128
"""The exit code of a process that a signal ended is the number of the signal plus this."""


@contextmanager
def sigterm_leaves(before: Any) -> Iterator[None]:
    """Handle SIGTERM as before Ray was connected, as long as it is connected.

    Unless the user has a handler, this process exits with 143, and ends its job on the way.

    Args:
        before: the handler before Ray was connected, from `signal.getsignal`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only that one choose
        return
    told: list[int] = []

    def leave(number: int, frame: object) -> NoReturn:
        told.append(number)
        sys.exit(SIGNALLED + number)

    before = signal.SIG_DFL if before is None else before
    signal.signal(signal.SIGTERM, leave if before == signal.SIG_DFL else before)
    try:
        yield
    except SystemExit:
        if told:  # where Ray waits, it makes an exit with another code of it
            sys.exit(SIGNALLED + told[0])
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
