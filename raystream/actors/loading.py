"""Loading in the background what a process will need, without being in anybody's way.

Step by step. A step waits until a processor has nothing to do, and is then done at idle priority;
when none becomes free it is done all the same, as all else. Idle priority alone would be wrong: on
a machine that stays busy a thread that only gets what is left over stays for minutes where it holds
the interpreter's lock or that of an import, and then whoever needs the process waits for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

from raystream.state.priority import set_idle

LOOK_SECONDS = 0.2
"""Over which the processors are looked at."""
FREE = 0.5
"""So much of one processor has nothing to do: a step is in nobody's way."""
PATIENCE_SECONDS = 3.0
"""A step waits no longer than this: a machine that is always busy has to load it too."""
_STAT = Path("/proc/stat")


class Loading:
    """Work in a thread of its own, in steps, while nobody else needs the processors."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._hurried = threading.Event()

    def begin(self, steps: Iterable[None]) -> None:
        """Have all steps done; returns at once."""
        self._thread = threading.Thread(target=self._run, args=(steps,), name="warm", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """From now on no step waits, and each is as urgent as all else that this process does."""
        self._hurried.set()
        if self._thread is not None and self._thread.is_alive():
            set_idle(self._thread.native_id or 0, idle=False)

    def _run(self, steps: Iterable[None]) -> None:
        me = threading.get_native_id()
        self._before_step(me)
        for _ in steps:
            self._before_step(me)

    def _before_step(self, thread: int) -> None:
        set_idle(thread, idle=self._wait())
        if self._hurried.is_set():  # perhaps just before that
            set_idle(thread, idle=False)

    def _wait(self) -> bool:
        """Wait for a free processor; whether there is one."""
        before, waited = idle_seconds(), 0.0
        while before is not None and waited < PATIENCE_SECONDS and not self._hurried.is_set():
            self._hurried.wait(LOOK_SECONDS)
            waited += LOOK_SECONDS
            after = idle_seconds()
            if after is None or after - before >= FREE * LOOK_SECONDS:
                return after is not None
            before = after
        return False


def idle_seconds() -> float | None:
    """How long the processors of this machine have had nothing to do, in sum; None where the
    system does not say."""
    try:
        first = _STAT.read_text().partition("\n")[0].split()
        return (int(first[4]) + int(first[5])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
