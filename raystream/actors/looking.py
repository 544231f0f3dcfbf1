"""Looking at jobs that run in a cluster, from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import ray

from raystream.actors.deploy import cluster
from raystream.actors.naming import CONTROLLER, actor, running
from raystream.actors.stopping import asked, chosen
from raystream.controller.status import Status


def looks(job: str, address: str, seconds: float) -> Iterator[tuple[Status, dict[str, str]]]:
    """How a job stands, again and again until it has ended, and what people call its nodes.

    Args:
        job: its name, or that of one of its runs. seconds: from one look to the next.

    Raises:
        ConfigError: there is no such job, or no cluster. JobError: it does not answer.
    """
    with cluster(address, start=False):
        run = chosen(job, running())
        controller = actor(run, CONTROLLER)
        while controller is not None:
            due = time.monotonic() + seconds
            status = asked(run, controller.status)
            if status is None:
                return
            yield status, node_names()
            time.sleep(max(0.0, due - time.monotonic()))


def node_names() -> dict[str, str]:
    """What people call the nodes, by their ids: the address, and where several share one, how their
    ids begin."""
    listed: Any = ray.nodes
    found = {n["NodeID"]: n["NodeManagerAddress"] for n in listed() if n["Alive"]}
    shared = {a for a in found.values() if list(found.values()).count(a) > 1}
    return {n: f"{a} {n[:6]}" if a in shared else a for n, a in found.items()}
