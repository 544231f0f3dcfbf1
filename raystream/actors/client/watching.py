"""Looking at a job that runs in a cluster, from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import ray

from raystream.actors.client.jobs import asked, chosen
from raystream.actors.cluster.connecting import visited
from raystream.actors.control.actor_names import CONTROLLER, actor, running
from raystream.controller.reporting.status import Status
from raystream.errors import JobError

BEGIN_SECONDS = 60.0
"""How long a job, or its controller after a restart, may take to have something to show."""
LOOK_SECONDS = 0.2
"""How long it is from one look to the next until then."""


def looks(job: str, address: str, seconds: float) -> Iterator[tuple[Status, dict[str, str]]]:
    """The status of a job and the names of its nodes, again and again until the job has ended.

    Args:
        job: its name, or that of one of its runs.
        seconds: how long it is from one look to the next.

    Raises:
        ConfigError: there is no such job, or no cluster. JobError: it does not answer.
    """
    with visited(address):
        run = chosen(job, running())
        controller = actor(run, CONTROLLER)
        begins = time.monotonic() + BEGIN_SECONDS
        while controller is not None:
            due = time.monotonic() + seconds
            status = asked(run, controller.status)
            if status is not None:
                yield status, node_names()
                begins = time.monotonic() + BEGIN_SECONDS
            elif _over(run, controller):
                return
            elif time.monotonic() > begins:
                raise JobError(f"{run} has not begun within {BEGIN_SECONDS:g} s")
            else:
                due = max(due, time.monotonic() + LOOK_SECONDS)
            time.sleep(max(0.0, due - time.monotonic()))


def _over(run: str, controller: Any) -> bool:
    """Whether a job without a status has ended. Otherwise it begins, or its controller does."""
    outcome = asked(run, controller.outcome)
    return outcome is None or bool(outcome.ended)


def addresses() -> list[str]:
    """The addresses of the nodes of the cluster to which this process is connected."""
    listed: Any = ray.nodes
    return sorted({n["NodeManagerAddress"] for n in listed() if n["Alive"]})


def node_names() -> dict[str, str]:
    """Names of the nodes for people, by id: the address. Where several nodes share an address, the
    beginning of the id is added."""
    listed: Any = ray.nodes
    found = {n["NodeID"]: n["NodeManagerAddress"] for n in listed() if n["Alive"]}
    shared = {a for a in found.values() if list(found.values()).count(a) > 1}
    return {n: f"{a} {n[:6]}" if a in shared else a for n, a in found.items()}
