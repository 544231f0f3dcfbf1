"""The names of a job's actors, by which a controller that was restarted finds them again."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import ray

from raystream.actors.cluster import ray_internals as internals
from raystream.actors.cluster.head import UNREACHABLE

NAMESPACE = "raystream"
CONTROLLER = "controller"
HEAD_SECONDS = 60.0
"""How long the head of the cluster, which may be gone for a while, is asked again."""
AGAIN_SECONDS = 0.5

A = TypeVar("A")


def new_run(job: str) -> str:
    """A name that no other run of any job has."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', job)}-{uuid.uuid4().hex[:8]}"


def job_of(run: str) -> str:
    """The name of a run's job, with "-" for characters that names of actors may not have."""
    return run.rpartition("-")[0]


def patiently(ask: Callable[[], A]) -> A:
    """The answer of the head of the cluster, which is asked again while it does not answer.

    Raises:
        RayError, OSError, RuntimeError: it has not answered for long. Whatever else `ask` raises.
    """
    until = time.monotonic() + HEAD_SECONDS
    while True:
        try:
            return ask()
        except UNREACHABLE:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_SECONDS)


def _named() -> list[str]:
    """The names of all of our actors that are alive."""
    named: Any = ray.util.list_named_actors
    found = patiently(lambda: named(all_namespaces=True))
    return [n["name"] for n in found if n["namespace"] == NAMESPACE]


def running() -> list[str]:
    """The runs in the cluster whose controller is alive."""
    names = _named()
    end = actor_name("", CONTROLLER)
    return sorted(n.removesuffix(end) for n in names if n.endswith(end))


def actor_name(run: str, process: str) -> str:
    """The name of an actor of a run of a job."""
    return f"{run}:{process}"


def processes_of(run: str) -> list[str]:
    """The processes of a run that are alive, without the controller."""
    prefix = actor_name(run, "")
    found = [n.removeprefix(prefix) for n in _named() if n.startswith(prefix)]
    return [n for n in found if n != CONTROLLER]


def actor(run: str, process: str) -> Any:
    """The handle of a process; None when it is gone, or the head has not said for long."""
    find: Any = ray.get_actor
    try:
        return patiently(lambda: find(actor_name(run, process), NAMESPACE))
    except (ValueError, *UNREACHABLE):
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
