"""What many processes of a machine need compiled at the same moment is compiled by one of them.

All instances of a job begin at once, and spare processes load every operator. With nothing on disk
yet each of them would spend the same seconds of a processor on the same machine code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from raystream.compiled.priority import be_urgent

WAIT_SECONDS = 120.0
"""Whoever compiles may have been stopped: after this long a process does so itself."""


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Of the processes that come with this folder one is inside, until one of them was through
    without an exception: the others only load what it left there, and do so together."""
    through = folder / "through"
    if through.exists():
        yield
        return
    with ExitStack() as held:
        _take(folder / "lock", held)
        if not through.exists():
            be_urgent()
        yield
        with suppress(OSError):
            through.touch()


def _take(lock: Path, held: ExitStack) -> None:
    """Take a lock that the system gives back when its holder dies; go without where none can be
    had."""
    from filelock import FileLock, Timeout

    try:
        held.enter_context(FileLock(lock, timeout=WAIT_SECONDS, fallback_to_soft=False))
    except (Timeout, NotImplementedError, OSError):
        return
