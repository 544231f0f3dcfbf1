"""Loading in the background what a process will need, without disturbing others.

Loading goes step by step. A step waits until a processor has nothing to do, and is then done at
idle priority. If none becomes free, it is done at normal priority. Idle priority alone would be
wrong: on a machine that stays busy, such a thread holds the interpreter's lock or that of an import
for minutes, and every call to the process waits for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from raystream.actors.cluster.user_code import show_code
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.dataflow.warming import warm_vertex
from raystream.errors import what_was_raised
from raystream.native.thread_priority import set_idle

LOOK_SECONDS = 0.2
"""The time over which the idle time of the processors is measured."""
FREE = 0.5
"""If one processor is idle for this share of the time, a step disturbs no other process."""
PATIENCE_SECONDS = 3.0
"""How long a step waits at most: a machine that is always busy has to load the code, too."""
_STAT = Path("/proc/stat")


class Loading:
    """Work in a thread of its own, in steps, while no other process needs the processors."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._hurried = threading.Event()

    def begin(self, steps: Iterable[None]) -> None:
        """Start to do all steps. Returns at once."""
        self._thread = threading.Thread(target=self._run, args=(steps,), name="warm", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Let no step wait from now on, and give all the priority of the rest of this process."""
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
        """Wait for a free processor. Returns whether there is one."""
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
    """How long the processors of this machine have been idle, added up; None where the system does
    not tell."""
    try:
        first = _STAT.read_text().partition("\n")[0].split()
        return (int(first[4]) + int(first[5])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class CodeLoader:
    """Loads and compiles the code of one vertex, and then tells the instance of the versions.

    An instance that has begun goes on meanwhile. One that has not waits: it may need the code at
    its first step.

    Args:
        begun: whether the instance has begun.
        loaded: called when the instance was told.
        failed: called when a settled version cannot be had: the instance cannot go on.
    """

    def __init__(
        self,
        machine: Instance,
        begun: Callable[[], bool],
        loaded: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._machine, self._begun = machine, begun
        self._loaded, self._failed = loaded, failed
        self._vertex = machine.vertex
        self._lock = threading.Lock()
        self._wanted: Sequence[CodeVersion] | None = None
        self._busy = False

    def get(self, versions: Sequence[CodeVersion]) -> None:
        """These are the versions now."""
        if not self._begun():
            self._load(versions)
            return
        with self._lock:
            self._wanted = versions
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._run, name="code", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                versions, self._wanted = self._wanted, None
                if versions is None:
                    self._busy = False
                    return
            try:
                self._load(versions)
            except BaseException as error:
                self._failed(error)

    def _load(self, versions: Sequence[CodeVersion]) -> None:
        """Load what the instance does not run yet.

        Raises:
            Exception: what the user's code raised, if a version is settled.
        """
        switching = self._machine.switching
        for version in versions:
            if version.number <= switching.version:
                continue
            try:
                vertex = version.of(self._vertex)
                show_code([vertex])
                for _ in warm_vertex(self._machine.plan, vertex):
                    pass
            except Exception as error:
                if version.settled:
                    raise
                switching.fail(version.number, what_was_raised(error))
                versions = [v for v in versions if v.settled]
        switching.tell(versions)
        self._loaded()
