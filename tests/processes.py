"""Processes and ports of tests, on a machine where others come and go meanwhile."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Iterable
from contextlib import closing, suppress

import psutil

BELOW_EPHEMERAL = range(20_000, 32_000)
"""The system gives none of these to a socket that asks for any port, so nobody takes one between
its choice here and the start of its server. Ray gives its workers ports below them."""
_ports = random.Random(os.getpid()).sample(BELOW_EPHEMERAL, len(BELOW_EPHEMERAL))


def free_port() -> int:
    """A port of the loopback on which nobody listens; another one each time."""
    while True:
        port = _ports.pop()
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port


def kill_each(processes: Iterable[psutil.Process], how: signal.Signals = signal.SIGKILL) -> None:
    """Signal processes, some of which may end by themselves before their turn comes: when one of
    them is dead, or because their work is done."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(how)


def family_of(pid: int) -> list[psutil.Process]:
    """A process of ours that nobody has waited for, and all that it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]
