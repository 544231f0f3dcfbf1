"""The names of a job's actors, by which a controller that was restarted finds them again."""

from __future__ import annotations

import re
import uuid
from typing import Any

import ray
from ray.exceptions import RayError

from raystream.actors.cluster import ray_internals as internals

NAMESPACE = "raystream"
CONTROLLER = "controller"


def new_run(job: str) -> str:
    """A name that no other run of any job has."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', job)}-{uuid.uuid4().hex[:8]}"


def job_of(run: str) -> str:
    """The name of a run's job, with "-" for characters that names of actors may not have."""
    return run.rpartition("-")[0]


def running() -> list[str]:
    """The runs in the cluster whose controller is alive."""
    named: Any = ray.util.list_named_actors
    names = [n["name"] for n in named(all_namespaces=True) if n["namespace"] == NAMESPACE]
    end = actor_name("", CONTROLLER)
    return sorted(n.removesuffix(end) for n in names if n.endswith(end))


def actor_name(run: str, process: str) -> str:
    """The name of an actor of a run of a job."""
    return f"{run}:{process}"


def processes_of(run: str) -> list[str]:
    """The processes of a run that are alive, without the controller."""
    named: Any = ray.util.list_named_actors
    prefix = actor_name(run, "")
    names = [n["name"] for n in named(all_namespaces=True) if n["namespace"] == NAMESPACE]
    found = [n.removeprefix(prefix) for n in names if n.startswith(prefix)]
    return [n for n in found if n != CONTROLLER]


def actor(run: str, process: str) -> Any:
    """The handle of a process; None when it is gone."""
    find: Any = ray.get_actor
    try:
        return find(actor_name(run, process), NAMESPACE)
    except (ValueError, RayError):
        return None


def restarts() -> int | None:
    """How often Ray has restarted the actor that calls this, as the cluster knows it now.

    An actor that was cut off from the cluster may live beside the one that replaced it; only the
    cluster knows of both.

    Returns:
        -1 if the actor is not to live any more. None if the cluster does not answer.
    """
    me: Any = ray.get_runtime_context()
    return internals.restarts_of(me.get_actor_id())


def kill(run: str, process: str) -> None:
    """End a process at once, if it is there."""
    handle = actor(run, process)
    if handle is not None:
        ray.kill(handle)
