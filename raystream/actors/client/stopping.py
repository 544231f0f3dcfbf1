"""Having a job take a checkpoint, and ending it, from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray

from raystream.actors.client.changing import changed_job
from raystream.actors.client.jobs import asked, chosen
from raystream.actors.cluster.connecting import listens, visited
from raystream.actors.control.actor_names import CONTROLLER, actor, kill, running
from raystream.actors.control.answers import JobOutcome
from raystream.errors import ConfigError, JobError

CHECKPOINT_SECONDS = 600.0
"""How long a checkpoint that is asked for may take."""
STOP_SECONDS = 600.0
"""How long a job may take to end after it was asked to."""
LEAVE_SECONDS = 5.0
"""How long the submitter of a job that was stopped has to fetch its result."""
LOOK_SECONDS = 0.2
STILL = (
    "it ends all the same, with the next checkpoint that is saved; `raystream stop` without --save"
    " ends it at once"
)


def checkpoint(job: str, address: str) -> str:
    """Have a job take a checkpoint now, and wait until it is committed and, where there is a
    durable tier, saved. Returns which one it is, in words.

    Raises:
        ConfigError: there is no such job or cluster, or the job refuses. JobError: it does not
        answer, has ended before, or took too long.
    """
    with changed_job(job, address, "outcome") as asked:
        before = asked.now().committed
        asked.ask(asked.controller.checkpoint.remote())

        def made(now: JobOutcome) -> str | None:
            if now.saved is None:
                return f"checkpoint {now.committed:,} is stored" if now.committed > before else None
            return f"checkpoint {now.saved:,} is saved" if now.saved > before else None

        def doing(now: JobOutcome) -> str:
            return f"take a checkpoint{now.unsaved and f' ({now.unsaved})'}"

        return f"{asked.run}: {asked.until(made, doing, CHECKPOINT_SECONDS)}"


def stop(job: str, address: str, *, save: bool, tell: Callable[[str], None] = print) -> str:
    """End a job.

    Returns how it ended, in words.

    Args:
        job: its name, or that of one of its runs.
        save: take a checkpoint first, and end the job once it is saved in the durable tier.
        tell: called with the reason why the job does not end yet.

    Raises:
        ConfigError: there is no such job, or no cluster; or it has no durable tier. JobError: it
        does not answer, or did not end in time.
    """
    with visited(address):
        run = chosen(job, running())
        controller = actor(run, CONTROLLER)
        if controller is None:
            return f"{run} has ended"
        refused = asked(run, controller.stop_saved if save else controller.cancel)
        if refused:
            raise ConfigError(f"{run} cannot be stopped with --save: {refused}")
        try:
            return f"{run}: {_ended(run, controller, save, tell)}"
        except KeyboardInterrupt:
            tell(STILL if save else f"{run} was told to stop, and ends all the same")
            raise


def _ended(run: str, controller: Any, save: bool, tell: Callable[[str], None]) -> str:
    """Wait until a job has ended, and say how."""
    due = time.monotonic() + STOP_SECONDS
    outcome, told = JobOutcome("", ""), ""
    while time.monotonic() < due:
        outcome = asked(run, controller.outcome)
        if outcome is None:
            return "it has ended; its submitter was told how"
        if outcome.ended:
            _left(run)
            return outcome.ended
        if outcome.unsaved and not told:
            told = outcome.unsaved
            tell(f"{run} runs on: {told}; with the next checkpoint it is tried again")
        time.sleep(LOOK_SECONDS)
    raise JobError(
        f"{run} was told to stop, and runs on after {STOP_SECONDS:g} s",
        hint="; ".join(h for h in (outcome.unsaved, STILL if save else "") if h),
    )


def _left(run: str) -> None:
    """Wait until the submitter of a job has ended the controller: then the job is not listed as
    running any more. If the submitter has died, end the controller here.

    A Ray that was started for the job ends, too. It is not asked anything then: Ray would wait for
    a minute, and abort this process.
    """
    began, killed, there = time.monotonic(), False, ray.get_runtime_context().gcs_address
    late = began + 2 * LEAVE_SECONDS
    while listens(there) and run in running() and time.monotonic() < late:
        if not killed and time.monotonic() > began + LEAVE_SECONDS:
            kill(run, CONTROLLER)
            killed = True
        time.sleep(LOOK_SECONDS)
