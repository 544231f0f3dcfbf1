"""Asks the controller of a running job for a change, and waits until the change is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from raystream.actors.client.jobs import chosen
from raystream.actors.cluster.connecting import visited
from raystream.actors.control.actor_names import CONTROLLER, actor, running
from raystream.errors import ConfigError, JobError

ANSWER_SECONDS = 30.0
"""How long a controller may take to answer."""
LOOK_SECONDS = 0.2
"""How long to wait before the controller is asked again."""


class Changing(Protocol):
    """What a controller says of changes of one kind."""

    @property
    def over(self) -> bool:
        """Whether the job has ended."""


S = TypeVar("S", bound=Changing)
R = TypeVar("R")


class ChangedJob(Generic[S]):
    """A running job that is asked for a change.

    Args:
        run: the name of the run. controller: its handle.
        look: the method of the controller that says how far changes are; it returns None while the
            job or its controller begins.
    """

    def __init__(self, run: str, controller: Any, look: Any) -> None:
        self.run, self.controller, self._look = run, controller, look

    def now(self) -> S:
        """How far changes are.

        Raises:
            JobError: the job does not answer, or has not begun in time.
        """
        due = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < due:
            found: S | None = answered(self.run, self._look.remote())
            if found is not None:
                return found
            time.sleep(LOOK_SECONDS)
        raise JobError(f"{self.run} has not begun within {ANSWER_SECONDS:g} s")

    def ask(self, request: Any) -> None:
        """Wait until a request, a call of the controller, is taken up.

        Raises:
            ConfigError: the job refuses it, and says why. JobError: it does not answer.
        """
        if refusal := answered(self.run, request):
            raise ConfigError(f"{self.run}: {refusal}")

    def until(self, made: Callable[[S], R | None], doing: Callable[[S], str], seconds: float) -> R:
        """Wait until a change is made.

        Args:
            made: what the change came to; None while it is not made.
            doing: what the job was to do, as the words that follow "before it could".
            seconds: how long it may take.

        Raises:
            JobError: the job has ended before, does not answer, or took too long.
        """
        due = time.monotonic() + seconds
        while True:
            now = self.now()
            if (found := made(now)) is not None:
                return found
            if now.over:
                raise JobError(f"{self.run} has ended before it could {doing(now)}")
            if time.monotonic() > due:
                raise JobError(f"{self.run} could not {doing(now)} within {seconds:g} s")
            time.sleep(LOOK_SECONDS)


@contextmanager
def changed_job(job: str, address: str, look: str) -> Iterator[ChangedJob[Any]]:
    """A context in which this process is connected to a running job.

    Args:
        job: the name of the job, or of one of its runs. address: of the cluster.
        look: the name of the method of `Controller` that says how far changes are.

    Raises:
        ConfigError: there is no such job or cluster.
    """
    with visited(address):
        run = chosen(job, running())
        controller = actor(run, CONTROLLER)
        if controller is None:
            raise ConfigError(f"{run} has ended")
        yield ChangedJob(run, controller, getattr(controller, look))


def answered(run: str, call: Any) -> Any:
    """The answer to a call of the controller of a run.

    Raises:
        JobError: it does not answer.
    """
    try:
        return ray.get(call, timeout=ANSWER_SECONDS)
    except RayError as error:
        if isinstance(error, RayActorError) and actor(run, CONTROLLER) is None:
            raise JobError(
                f"{run} has ended meanwhile",
                hint="What was changed before is in the report that `raystream run` prints.",
            ) from None
        first = str(error).partition("\n")[0]
        raise JobError(f"the controller of {run} does not answer: {first}") from None
