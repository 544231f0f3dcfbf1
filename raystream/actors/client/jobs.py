"""The jobs of a cluster, and questions to their controllers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from raystream.actors.cluster.connecting import visited
from raystream.actors.control.actor_names import CONTROLLER, actor, job_of, new_run, running
from raystream.errors import ConfigError, JobError

ANSWER_SECONDS = 30.0
"""How long a controller may take to answer."""


def jobs(address: str) -> list[str]:
    """The runs of all jobs in a cluster.

    Raises:
        ConfigError: there is no cluster at the address.
    """
    with visited(address):
        return running()


def chosen(job: str, runs: Sequence[str]) -> str:
    """The run that a name means: the name of the run, or of its job. "" means the only run.

    Raises:
        ConfigError: there is none, or several.
    """
    found = [r for r in runs if job in ("", r)] or [r for r in runs if job_of(r) == job]
    if len(found) == 1:
        return found[0]
    there = f"Running: {', '.join(found or runs)}." if runs else ""
    ended = "What became of a job that has ended is in its report, which `raystream run` prints."
    what = f"{job} runs {len(found)} times" if found else f"no job {job} is running"
    if not job:
        what = f"{len(found)} jobs are running" if found else "no job is running"
    raise ConfigError(what, hint=f"{there} {'Name one of them.' if found else ended}".strip())


def refuse_running(job: str, where: str) -> None:
    """Refuse to begin a job that is running in the cluster to which this process is connected: both
    would write to the same places.

    Args:
        where: where that cluster is, in words.

    Raises:
        ConfigError: it is running. JobError: its controller does not answer.
    """
    name = job_of(new_run(job))
    for run in running():
        controller = actor(run, CONTROLLER) if job_of(run) == name else None
        outcome = None if controller is None else asked(run, controller.outcome)
        if outcome is not None and not outcome.ended:
            raise ConfigError(
                f"{job} is running already, as {run} {where}",
                hint=f"See it with `raystream status {name}`, end it with `raystream stop {name}`,"
                " or give this flow another name.",
            )


def asked(run: str, method: Any) -> Any:
    """The answer of a controller; None when the controller is gone.

    Raises:
        JobError: it does not answer.
    """
    try:
        return ray.get(method.remote(), timeout=ANSWER_SECONDS)
    except RayActorError:
        return None
    except RayError as error:
        raise JobError(f"the controller of {run} does not answer: {error}") from None
