"""The Ray actor in which an instance runs: one, or several that share a thread.

A synchronous actor. What gives instances their places, what watches them and what controls them
have concurrency groups of their own, so that a parked call shows the death of the process at once,
and control is answered while data flows. An actor is made without a role: a spare one waits, with
the job's code loaded, until it is told what to be.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pyarrow as pa
import ray

from raystream.actors.cluster.environment import SWITCH_SECONDS, node_id
from raystream.actors.cluster.log_lines import LineWriter, name_lines
from raystream.actors.cluster.user_code import show_code
from raystream.actors.worker.driving.shared_thread import SharedThread
from raystream.actors.worker.seat import Seat
from raystream.actors.worker.warmup import Loading
from raystream.controller.protocol.messages.calls import Hello
from raystream.dataflow.plan import Plan
from raystream.native.lazy_pandas import put_off_pandas
from raystream.security.credentials import Credentials


def versions() -> dict[str, str]:
    """Versions that must be equal on all nodes, so that a replay gives the same bits."""
    packages = {name: metadata.version(name) for name in ("numpy", "numba", "pyarrow")}
    return {"python": platform.python_version(), **packages}


class InstanceActor:
    """The process of an instance, or of as many as there are `seats`. Methods are called by the
    controller, and by actors like this one."""

    def __init__(self, credentials: Credentials, seats: int = 1) -> None:
        pa.set_cpu_count(1)
        put_off_pandas()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._plan: Plan
        self._shared = SharedThread() if seats > 1 else None
        self._credentials = credentials
        self._seats: dict[int, Seat] = {}
        self._making = threading.Lock()
        self._loading = Loading()
        name_lines(self._writer)

    def hello(self, plan: Plan) -> Hello:
        """Take the plan, and report what process this is. It is not done by the constructor,
        because Ray hides what a constructor raises."""
        self._plan = plan
        show_code(plan.vertices)
        placed = any(s.placed for s in [*self._seats.values()])
        return Hello(versions(), node_id(), os.getpid(), placed)

    def warm(self) -> None:
        """Begin to load what any instance may need, while no other process needs the processor."""
        self._loading.begin(self._warm())

    def _warm(self) -> Iterator[None]:
        """Load compiled functions and kernels."""
        from raystream.dataflow.warming import warm

        yield
        yield from warm(self._plan)

    def _writer(self) -> LineWriter:
        """Who writes a line of log: on the shared thread the instance that works just now,
        elsewhere any of those that are here."""
        seats = [s for s in [*self._seats.values()] if s.writer is not None]
        if self._shared is not None and (mine := self._shared.at_work()) is not None:
            seats = [s for s in seats if s.inbox is mine] or seats
        writers = [s.writer for s in seats if s.writer is not None]
        if len(writers) < 2:
            return writers[0] if writers else LineWriter("", "", "")
        _, operators, instances = zip(*writers, strict=True)
        return LineWriter(writers[0].job, "+".join(operators), "+".join(instances))

    # ------------------------------------------------------------ calls of seats

    def place(self, seat: int, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of a seat that gives it its place."""
        self._loading.hurry()
        return getattr(self._seat(seat), method)(*args)

    @ray.method(concurrency_group="park")
    def watch(self, seat: int, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of a seat that returns when its work is done."""
        return getattr(self._seat(seat), method)(*args)

    @ray.method(concurrency_group="control")
    def control(self, seat: int, method: str, args: tuple[Any, ...]) -> Any:
        """Call any other method of a seat."""
        return getattr(self._seat(seat), method)(*args)

    def _seat(self, number: int) -> Seat:
        """A seat, which is made when it is called first."""
        with self._making:
            if number not in self._seats:
                made = Seat(self._credentials, number, self._shared, self._goes_on)
                made.plan = self._plan
                self._seats[number] = made
            return self._seats[number]

    def _goes_on(self) -> bool:
        return any(s.at_work for s in [*self._seats.values()])
