"""What the head of the cluster says of its nodes, asked by a thread of its own.

A head may be gone for a while, and come back (Ray's fault-tolerant GCS). Ray then waits in whatever
asks it, for as long as it is gone. So the loop of a controller asks only here, and takes what was
heard last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from raystream.actors.cluster import ray_internals as internals

UNREACHABLE = (RayError, OSError, RuntimeError)
"""What Ray raises while its cluster does not answer."""
ASK_SECONDS = 1.0
"""How often the head is asked."""
LATE_SECONDS = 1.5
"""A head that has owed an answer for so long counts as gone until it answers."""
FIRST_SECONDS = 60.0
"""How long the first answer is waited for."""


class ClusterNodes(NamedTuple):
    """What the head said last."""

    nodes: Sequence[Mapping[str, Any]] = ()
    """All nodes that are alive, as `ray.nodes` tells of them."""
    ending: Mapping[str, float] = {}
    """See `ending`."""


def ending() -> dict[str, float]:
    """The nodes that Ray drains, and when they end (Unix seconds; infinity if that is not known).

    Ray drains a node before its autoscaler ends it, after `ray drain-node`, and when EC2 takes it
    away (`raystream.actors.cluster.spot` tells Ray). A node that ends by itself is not
    among them once it is dead.
    """
    found = internals.draining_nodes().items()
    return {node: at / 1000 if at else float("inf") for node, at in found}


def ask() -> ClusterNodes:
    """Ask the head. It takes as long as the head is gone.

    Raises:
        RayError, OSError, RuntimeError: it has not answered for as long as Ray waits.
    """
    listed: Any = ray.nodes
    return ClusterNodes([n for n in listed() if n["Alive"]], ending())


class HeadWatch:
    """Asks the head every second, from the first look on."""

    def __init__(self, ask: Callable[[], ClusterNodes] = ask) -> None:
        self._ask = ask
        self._seen: ClusterNodes | None = None
        self._asked = float("inf")
        """When the question was asked that is not answered yet."""
        self._tried = threading.Event()
        self._soon = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def answers(self) -> bool:
        """Whether the head answers, as far as is known. Before the first look it is taken to."""
        return time.monotonic() - self._asked < LATE_SECONDS

    def seen(self) -> ClusterNodes | None:
        """What the head said last; None if it never has. Only the first call waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="head", daemon=True)
            self._thread.start()
            self._tried.wait(FIRST_SECONDS)
        return self._seen

    def soon(self) -> None:
        """Have it asked now."""
        self._soon.set()

    def _run(self) -> None:
        while True:
            if self._asked == float("inf"):
                self._asked = time.monotonic()
            with suppress(*UNREACHABLE):
                self._seen = self._ask()
                self._asked = float("inf")
            self._tried.set()
            self._soon.wait(ASK_SECONDS)
            self._soon.clear()
