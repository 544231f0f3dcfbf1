"""Calls to actors that are not answered yet, and what their answers mean.

Nothing waits for an answer: each call is remembered with what its answer means, and
`OpenCalls.events` hands out what has come in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from raystream.actors.control.handles import ActorHandles
from raystream.actors.worker.seat import SeatHandle
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.parts.replication import KEEPER
from raystream.errors import JobError, RaystreamError

P = ParamSpec("P")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is not answered yet."""

    process: str
    """The process that was called."""
    doing: str
    """What it is to do, in words."""
    due: float
    """When it counts as not answered, on the monotonic clock."""
    answered: Callable[[Any], Event | None]
    """What an answer means."""
    late: Callable[[], None] | None = None
    """What is done, besides, when there is no answer in time."""
    attempt: do.Attempt | None = None
    """The attempt to give the process a place that it is for, if it is for one."""


class OpenCalls:
    """Calls the actors of one job."""

    def __init__(self, handles: ActorHandles) -> None:
        self._handles = handles
        self._open: dict[Any, Call] = {}
        self._owing: set[str] = set()

    def watch(
        self,
        process: str,
        answered: Callable[[A], Event | None],
        method: Callable[Concatenate[Any, P], A],
        *args: P.args,
        **options: P.kwargs,
    ) -> None:
        """Make a call that may take any time: the process does not count as dead for it."""
        self.call(process, "live", float("inf"), answered, method, *args, **options)

    def call(
        self,
        process: str,
        doing: str,
        seconds: float,
        answered: Callable[[A], Event | None],
        method: Callable[Concatenate[Any, P], A],
        *args: P.args,
        **options: P.kwargs,
    ) -> None:
        """Make a call. The process counts as dead if it does not answer in time.

        Args:
            doing: what it is to do, in words.
            seconds: how long it may take.
            answered: what its answer means.
            method: of `ProcessCalls` or `KeeperActorCalls`.
        """
        handle = self._handles[process]
        if handle is not None:
            call = asked(handle, method, *args, **options)
            self._open[call] = Call(process, doing, time.monotonic() + seconds, answered)

    def place(
        self,
        process: str,
        attempt: do.Attempt,
        seconds: float,
        answered: Callable[[A], Event | None],
        method: Callable[Concatenate[Any, P], A],
        *args: P.args,
        **options: P.kwargs,
    ) -> None:
        """Make a call that gives a process its place and its state.

        Args:
            attempt: identifies the request; for the others see `call`.
        """
        handle = self._handles[process]
        if handle is not None:
            due = time.monotonic() + seconds
            call = asked(handle, method, *args, **options)
            doing = "take its place"
            self._open[call] = Call(process, doing, due, answered, attempt=attempt)

    def end(
        self,
        process: str,
        seconds: float,
        ended: Callable[[Any], Event | None],
        late: Callable[[], None],
        method: Callable[[Any], object],
    ) -> None:
        """Make the last call to a process; `late` is done when it does not answer in time."""
        handle = self._handles[process]
        if handle is not None:
            call = asked(handle, method)
            self._open[call] = Call(process, "end", time.monotonic() + seconds, ended, late)

    def tell(
        self,
        process: str,
        method: Callable[Concatenate[Any, P], object],
        *args: P.args,
        **options: P.kwargs,
    ) -> None:
        """Make a call without an answer.

        It may be lost with its connection: the machine repeats what it sees was not heard.
        """
        handle = self._handles[process]
        if handle is not None:
            asked(handle, method, *args, **options)

    def poll(
        self,
        process: str,
        seconds: float,
        answered: Callable[[A], Event | None],
        method: Callable[[Any], A],
    ) -> None:
        """Ask a process, unless it still owes an answer to such a question."""
        if process in self._owing:
            return
        self._owing.add(process)

        def heard(answer: A) -> Event | None:
            self._owing.discard(process)
            return answered(answer)

        self.call(process, "answer", seconds, heard, method)

    def events(self, seconds: float) -> list[Event]:
        """What has come in; waits up to `seconds` for something."""
        refs = list(self._open)
        if refs:
            done, _ = ray.wait(refs, num_returns=1, timeout=seconds)
            if done:  # processes that died together are seen together
                done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        else:
            time.sleep(seconds)
            done = []
        answers = [self._event(self._open.pop(ref), ref) for ref in done]
        return [*(e for e in answers if e is not None), *self._overdue()]

    def drop(self) -> None:
        """Forget all calls."""
        self._open.clear()

    def _event(self, call: Call, ref: Any) -> Event | None:
        try:
            return call.answered(ray.get(ref))
        except RayTaskError as error:
            return failure(call, error)
        except RayActorError as error:
            self._owing.discard(call.process)
            why = f"its process died: {first_line(error)}"
            return on.Gone(call.process, why, no_memory=died_of_memory(error))
        except RayError as error:
            return on.Gone(call.process, f"it could not {call.doing}: {first_line(error)}")

    def _overdue(self) -> list[Event]:
        now = time.monotonic()
        late = [(ref, call) for ref, call in self._open.items() if call.due < now]
        for ref, call in late:
            del self._open[ref]
            self._owing.discard(call.process)
            if call.late is not None:
                call.late()
        return [on.Gone(c.process, f"it did not {c.doing} in time") for _, c in late]


def asked(
    handle: Any, method: Callable[Concatenate[Any, P], object], *args: P.args, **options: P.kwargs
) -> Any:
    """Call the method of an actor, or of a seat of one, that has the name of this one; the
    reference of its answer."""
    if isinstance(handle, SeatHandle):
        return handle.ask(method.__name__, *args, **options)
    return getattr(handle, method.__name__).remote(*args, **options)


def failure(call: Call, error: RayTaskError) -> Event | None:
    """What it means that an actor raised an exception."""
    if isinstance(error.cause, RayError):  # what it was given died with its keeper
        missed = call.attempt and on.Missing(call.process, call.attempt, again=True)
        return missed or None
    if call.process.startswith(KEEPER):
        return on.Gone(call.process, f"it could not {call.doing}: {cause_of(error)}")
    return on.Failed(call.process, cause_of(error))


def cause_of(error: Any) -> RaystreamError:
    """The error of ours inside one of Ray's."""
    inner = error.cause
    if isinstance(inner, RaystreamError):
        inner.where = inner.where and inner.where.read()  # others cannot read a notebook
        return inner
    found = JobError(f"{type(inner).__name__}: {inner}")
    found.add_note(error.traceback_str)  # nobody else has it
    return found


def first_line(error: BaseException) -> str:
    """The line of an error's text that says what happened.

    When an actor has died, that is the last line: the others list what the actor was. Guesses of
    Ray about the cause are left out.
    """
    text = str(error).strip()
    if isinstance(error, ActorDiedError):
        text = [line for line in text.split("\n") if not line.startswith("\t")][-1]
    return text.partition("\n")[0].partition(" Some common root causes")[0]


def died_of_memory(error: RayActorError) -> bool:
    """Whether Ray killed an actor because its node had no memory left."""
    return "running low on memory" in str(error)
