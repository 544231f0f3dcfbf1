"""The names of a job's actors, by which a controller that was restarted finds them again."""

from __future__ import annotations

import re
import uuid
from typing import Any

import ray
from ray.exceptions import RayError

NAMESPACE = "raystream"
CONTROLLER = "controller"


def new_run(job: str) -> str:
    """A name that no other run of any job has."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', job)}-{uuid.uuid4().hex[:8]}"


def job_of(run: str) -> str:
    """The name of a run's job, as far as it can be part of a name."""
    return run.rpartition("-")[0]


def running() -> list[str]:
    """All runs in the cluster whose controller is there."""
    named: Any = ray.util.list_named_actors
    names = [n["name"] for n in named(all_namespaces=True) if n["namespace"] == NAMESPACE]
    end = actor_name("", CONTROLLER)
    return sorted(n.removesuffix(end) for n in names if n.endswith(end))


def actor_name(run: str, process: str) -> str:
    """The name of an actor of a run of a job."""
    return f"{run}:{process}"


def processes_of(run: str) -> list[str]:
    """All processes of a run that are alive, the controller left out."""
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
    """How often Ray has started the actor that asks anew, as the cluster knows it now; -1 if it is
    not to live any more. None: there is no answer.

    One that was cut off may live beside the one that was started in its place, and only the cluster
    knows of both.
    """
    from ray._private.state import state  # Ray has no public call for what an actor may ask

    me: Any = ray.get_runtime_context()
    try:
        known = state.actor_table(me.get_actor_id())
    except Exception:  # whatever keeps the cluster from answering
        return None
    if not known:
        return None
    return -1 if known["State"] == "DEAD" else int(known["NumRestarts"])


def kill(run: str, process: str) -> None:
    """End a process at once, if it is there."""
    handle = actor(run, process)
    if handle is not None:
        ray.kill(handle)
