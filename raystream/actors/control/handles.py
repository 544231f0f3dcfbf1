"""The actors of one job by the names of their processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray

from raystream.actors.control.actor_names import actor, actor_name
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.events import Event


class ActorHandles:
    """Finds the handles of a job's actors.

    Args:
        run: the name of the run.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._found: dict[str, Any] = {}
        self.noticed: list[Event] = []
        """Events that came of a command while it was done."""

    def __getitem__(self, process: str) -> Any:
        """The handle of a process; None if there is none, and then its death is an event."""
        if process not in self._found:
            found = actor(self._run, process)
            if found is None:
                self.noticed.append(on.Gone(process, "its process is gone"))
                return None
            self._found[process] = found
        return self._found[process]

    def of(self, processes: Iterable[str]) -> tuple[Any, ...]:
        """The handles of those that are there, in order."""
        return tuple(h for p in processes if (h := self[p]) is not None)

    def started(self, process: str, handle: Any) -> None:
        """Take the handle of a process that this controller has started."""
        self._found[process] = handle

    def known(self) -> dict[str, Any]:
        """The handles that were found so far, by process."""
        return dict(self._found)

    def name(self, process: str) -> str:
        """The name of a process's actor."""
        return actor_name(self._run, process)

    def kill(self, process: str) -> None:
        """End a process at once."""
        handle = self._found.pop(process, None) or actor(self._run, process)
        if handle is not None:
            ray.kill(handle)
