"""The folder where machine code is kept, and locks so that one process of many compiles it.

All instances of a job begin at once, and spare processes load every operator. Without locks, and
with nothing on disk yet, each of them would spend the same seconds of a processor on the same code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from raystream.native.thread_priority import be_urgent

CACHE = "RAYSTREAM_CACHE"
WAIT_SECONDS = 120.0
"""The process that compiles may have been stopped: after this long another one compiles, too."""


def cache_folder() -> Path:
    """The folder of machine code: $RAYSTREAM_CACHE, or one in the user's cache folder."""
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
    """Of the processes that enter this block with the same folder one at a time is inside, until
    one has left it without an exception. From then on they are inside together: they only load what
    that one has left in the folder."""
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
    """Hold a lock that the system releases when its holder dies. Where the file system has none, go
    on without."""
    from filelock import FileLock, Timeout

    with ExitStack() as held:
        with suppress(Timeout, NotImplementedError, OSError):
            held.enter_context(FileLock(lock, timeout=WAIT_SECONDS, fallback_to_soft=False))
        yield
