"""A page beside a run, in a process of its own: the run waits in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raystream.errors import ConfigError

BEGIN_SECONDS = 120.0
"""How long the page waits for the cluster of its run."""
RETRY_SECONDS = 0.5
LEAVE_SECONDS = 5.0
"""How long the process of the page may take to end."""
READY = "page: "
"""Its line of output begins so."""


@contextmanager
def page_beside(job: str, address: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Show a job on a page while the block runs.

    Args:
        address: of its cluster, or "auto". tell: called with the address of the page.
    """
    words = [sys.executable, "-m", "raystream.page.beside", job, address, str(os.getpid())]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    threading.Thread(target=_pass_on, args=(child, tell), daemon=True).start()
    try:
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _pass_on(child: subprocess.Popen[str], tell: Callable[[str], None]) -> None:
    for line in child.stdout or ():
        if line.startswith(READY):
            tell(line.strip())


def _show(job: str, address: str, parent: int) -> None:
    """Serve the page, once there is a cluster; leave with the run."""
    from raystream.actors.cluster.connecting import visited
    from raystream.page.serving import serve

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    due = time.monotonic() + BEGIN_SECONDS
    while True:
        try:
            with visited(address):
                serve(address, job, tell=lambda url, _: _say(f"{READY}{url}"))
            return
        except ConfigError:
            if time.monotonic() > due:
                raise
            time.sleep(RETRY_SECONDS)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(RETRY_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    _show(sys.argv[1], sys.argv[2], int(sys.argv[3]))
