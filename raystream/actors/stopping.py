"""Jobs that run in a cluster, and ending one of them from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from raystream.actors.controller import Standing
from raystream.actors.deploy import listens, visited
from raystream.actors.naming import CONTROLLER, actor, job_of, kill, new_run, running
from raystream.errors import ConfigError, JobError

ANSWER_SECONDS = 30.0
"""How long a controller may take to answer."""
STOP_SECONDS = 600.0
"""How long a job may take to end, once it was told to."""
LEAVE_SECONDS = 5.0
"""How long who submitted a job has to fetch its result, once it was stopped."""
LOOK_SECONDS = 0.2
STILL = (
    "it ends all the same, with the next cut that is saved; `raystream stop` without --save ends it"
    " at once"
)


def jobs(address: str) -> list[str]:
    """The runs of all jobs in a cluster.

    Raises:
        ConfigError: there is no cluster at the address.
    """
    with visited(address):
        return running()


def chosen(job: str, runs: Sequence[str]) -> str:
    """The run that is meant by its own name or by its job's; by "" the only one.

    Raises:
        ConfigError: there is none, or several.
    """
    found = [r for r in runs if job in ("", r)] or [r for r in runs if job_of(r) == job]
    if len(found) == 1:
        return found[0]
    there = f"Running: {', '.join(found or runs)}." if runs else "No job is running."
    ended = " What became of a job that has ended is in its report, which `raystream run` prints."
    what = f"{job} runs {len(found)} times" if found else f"no job {job} is running"
    if not job:
        what = f"{len(found)} jobs are running" if found else "no job is running"
    raise ConfigError(what, hint=there + (" Name one of them." if found else ended))


def refuse_running(job: str) -> None:
    """See to it that no run of a job is running in the cluster to which this process is connected:
    two would write to the same places.

    Raises:
        ConfigError: one is; or it does not answer.
    """
    name = job_of(new_run(job))
    for run in running():
        controller = actor(run, CONTROLLER) if job_of(run) == name else None
        standing = None if controller is None else asked(run, controller.standing)
        if standing is not None and not standing.ended:
            raise ConfigError(
                f"{job} is running in this cluster already, as {run}",
                hint=f"See it with `raystream status {name}`, end it with `raystream stop {name}`,"
                " or give this flow another name.",
            )


def stop(job: str, address: str, *, save: bool, tell: Callable[[str], None] = print) -> str:
    """End a job; what came of it.

    Args:
        job: its name, or that of one of its runs. save: take a cut first, and end the job once it
            is saved in the durable tier. tell: is told why it does not end yet.

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
    standing, told = Standing("", ""), ""
    while time.monotonic() < due:
        standing = asked(run, controller.standing)
        if standing is None:
            return "it has ended; who submitted it was told how"
        if standing.ended:
            _left(run)
            return standing.ended
        if standing.unsaved and not told:
            told = standing.unsaved
            tell(f"{run} runs on: {told}; with the next cut it is tried again")
        time.sleep(LOOK_SECONDS)
    raise JobError(
        f"{run} was told to stop, and runs on after {STOP_SECONDS:g} s",
        hint="; ".join(h for h in (standing.unsaved, STILL if save else "") if h),
    )


def _left(run: str) -> None:
    """Wait until who submitted a job has ended its controller; nobody else does when that died. It
    is not among those that run any more then. A Ray that was started for it ends, too: who asks
    that would wait for a minute, and be aborted."""
    began, killed, there = time.monotonic(), False, ray.get_runtime_context().gcs_address
    late = began + 2 * LEAVE_SECONDS
    while listens(there) and run in running() and time.monotonic() < late:
        if not killed and time.monotonic() > began + LEAVE_SECONDS:
            kill(run, CONTROLLER)
            killed = True
        time.sleep(LOOK_SECONDS)


def asked(run: str, method: Any) -> Any:
    """What a controller answers; None when it is gone."""
    try:
        return ray.get(method.remote(), timeout=ANSWER_SECONDS)
    except RayActorError:
        return None
    except RayError as error:
        raise JobError(f"the controller of {run} does not answer: {error}") from None
