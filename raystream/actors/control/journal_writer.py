"""Writing a job's journal to the keepers that hold it: all that a controller waits for."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayError

from raystream.actors.control.actor_names import restarts
from raystream.actors.control.calls import asked, first_line
from raystream.actors.control.handles import ActorHandles
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.calls import KeeperActorCalls

WRITE_SECONDS = 30.0
"""How long a keeper, which may be starting, may take to write the journal, or to say that it is
there. Then it counts as dead."""


class Fenced(BaseException):
    """Another controller has written the journal: this one decides nothing any more."""


class JournalWriter:
    """Writes the journal of one job.

    Args:
        began: the `restarts` of the controller when it began; None if the cluster did not say.
    """

    def __init__(self, handles: ActorHandles, began: int | None) -> None:
        self._handles = handles
        self._began = began
        self._at: tuple[str, ...] = ()
        """The keepers that hold the journal."""

    def write(self, command: do.Write) -> bool:
        """Write an entry; whether any keeper has it now. A keeper that does not take it counts as
        dead.

        Raises:
            Fenced: another controller has taken over.
        """
        if command.at != self._at and not self._decides():
            return False
        calls = {
            asked(keeper, KeeperActorCalls.write, command.entry): process
            for process in command.at
            if (keeper := self._handles[process]) is not None
        }
        written = self._answers(calls, "it did not write")
        if written:
            self._at = command.at
            self._leave(command)
        return written

    def _decides(self) -> bool:
        """Whether this controller is the newest; False if that cannot be known now.

        Keepers that are all new do not know of other controllers, so the cluster is asked. A newer
        controller that begins after this call knows of these keepers.

        Raises:
            Fenced: it is not.
        """
        now = restarts()
        if now is not None and now != self._began:
            raise Fenced
        return now is not None

    def _leave(self, command: do.Write) -> None:
        """Have keepers forget a journal that others hold now. One that does not answer counts as
        dead.

        Raises:
            Fenced: another controller has taken over.
        """
        calls = {
            asked(keeper, KeeperActorCalls.leave_journal, command.entry.order): process
            for process in command.left
            if (keeper := self._handles[process]) is not None
        }
        self._answers(calls, "it did not answer")

    def _answers(self, calls: dict[Any, str], failed: str) -> bool:
        """Wait for answers; whether there was any.

        Raises:
            Fenced: a keeper says that another controller has taken over.
        """
        if calls:
            ray.wait(list(calls), num_returns=len(calls), timeout=WRITE_SECONDS)
        answered = False
        for call, process in calls.items():
            try:
                if not ray.get(call, timeout=0):
                    raise Fenced
                answered = True
            except RayError as error:
                gone = on.Gone(process, f"{failed}: {first_line(error)}")
                self._handles.noticed.append(gone)
        return answered
