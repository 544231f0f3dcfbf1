"""Where machine code is kept, and that one process of many compiles it.

All instances of a job begin at once, and spare processes load every operator. With nothing on disk
yet each of them would spend the same seconds of a processor on the same machine code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from raystream.state.priority import be_urgent

CACHE = "RAYSTREAM_CACHE"
WAIT_SECONDS = 120.0
"""Whoever compiles may have been stopped: after this long a process does so itself."""


def cache_folder() -> Path:
    """Where machine code is kept: $RAYSTREAM_CACHE, or the user's cache folder."""
    given = os.environ.get(CACHE)
    if given:
        return Path(given).expanduser().absolute()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "raystream"
    try:
        return Path.home() / ".cache" / "raystream"
    except RuntimeError:  # a user whom the system does not know: no folder can be made there
        return Path(os.devnull) / "raystream"


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Of the processes that come with this folder one is inside, until one of them was through
    without an exception: the others only load what it left there, and do so together."""
    through = folder / "through"
    if through.exists():
        yield
        return
    with ExitStack() as held:
        held.enter_context(locked(folder / "lock"))
        if not through.exists():
            be_urgent()
        yield
        with suppress(OSError):
            through.touch()


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold a lock that the system gives back when its holder dies; go without where none can be
    had."""
    from filelock import FileLock, Timeout

    with ExitStack() as held:
        with suppress(Timeout, NotImplementedError, OSError):
            held.enter_context(FileLock(lock, timeout=WAIT_SECONDS, fallback_to_soft=False))
        yield
