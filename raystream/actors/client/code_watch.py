"""Which versions of the code a job has gone over to: its submitter has to know them, because a job
that has lost its cluster goes on elsewhere with the code that it had.

The durable tier does not hold them: nothing that lies there is ever run.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from raystream.dataflow.plan import Plan

LOOK_SECONDS = 2.0
"""How often the controller is asked."""
LAST_SECONDS = 10.0
"""How long it may take to answer when the job is over."""


class CodeWatch:
    """Notes in a plan the versions of the code that its job has gone over to.

    Args:
        controller: the handle of the controller of the job.
        plan: what was submitted. Without a durable tier nothing is noted.
    """

    def __init__(self, controller: Any, plan: Plan) -> None:
        self._controller, self._plan = controller, plan
        self._asked: Any = None
        self._due = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        """Note what the controller has answered, and ask it again if that is due. It waits for
        nothing."""
        if self._plan.durable is None:
            return
        if self._asked is not None and ray.wait([self._asked], timeout=0)[0]:
            self._note(LAST_SECONDS)
        if self._asked is None and time.monotonic() >= self._due:
            self._ask()

    def last(self) -> None:
        """Ask once more, when the job is over. A controller that is gone says nothing."""
        if self._plan.durable is not None:
            self._ask()
            self._note(LAST_SECONDS)

    def _ask(self) -> None:
        durable = self._plan.durable
        assert durable is not None
        known = max((v.number for v in durable.versions), default=0)
        self._asked = self._controller.newer_code.remote(known)
        self._due = time.monotonic() + LOOK_SECONDS

    def _note(self, seconds: float) -> None:
        asked, self._asked, durable = self._asked, None, self._plan.durable
        with suppress(RayError, GetTimeoutError):
            if durable is not None and (versions := ray.get(asked, timeout=seconds)):
                self._plan.durable = replace(durable, versions=versions)
