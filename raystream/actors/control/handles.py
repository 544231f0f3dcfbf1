"""The actors of one job by the names of their processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray

from raystream.actors.control.actor_names import actor, actor_name
from raystream.actors.worker.seat import SeatHandle
from raystream.controller.protocol.members import process_of, seat_of
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.parts.replication import KEEPER


class ActorHandles:
    """Finds the handles of a job's actors.

    Args:
        run: the name of the run.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._found: dict[str, Any] = {}  # actors; of instances, by the name of their process
        self.noticed: list[Event] = []
        """Events that came of a command while it was done."""

    def __getitem__(self, process: str) -> Any:
        """The handle of a process; None if there is none, and then its death is an event."""
        name, seat = seat_of(process)
        if name not in self._found:
            found = actor(self._run, name)
            if found is None:
                self.noticed.append(on.Gone(process, "its process is gone"))
                return None
            self._found[name] = found
        found = self._found[name]
        return found if name.startswith(KEEPER) else SeatHandle(found, seat)

    def of(self, processes: Iterable[str]) -> tuple[Any, ...]:
        """The handles of these processes, in their order, without those that are gone."""
        return tuple(h for p in processes if (h := self[p]) is not None)

    def started(self, process: str, handle: Any) -> None:
        """Take the handle of a process that this controller has started."""
        self._found[process] = handle

    def known(self) -> frozenset[str]:
        """The processes whose handles were found so far."""
        return frozenset(self._found)

    def name(self, process: str) -> str:
        """The name of a process's actor."""
        return actor_name(self._run, process)

    def kill(self, process: str) -> None:
        """End a process at once, with all of its instances."""
        name = process_of(process)
        handle = self._found.pop(name, None) or actor(self._run, name)
        if handle is not None:
            ray.kill(handle)
