"""Scaling, moving and draining from outside: requests to the controller of a running job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ray

from raystream.actors.client.changing import changed_job
from raystream.actors.control.answers import Moves
from raystream.controller.protocol.history import MoveRecord
from raystream.controller.protocol.move_requests import MoveMode
from raystream.errors import ConfigError

MOVE_SECONDS = 3600.0
"""How long moves may take to end: they may have to wait for nodes that are started."""


def scale(job: str, address: str, instances: Mapping[str, int], mode: MoveMode) -> list[MoveRecord]:
    """Have operators of a job served by other numbers of instances. Returns what was done.

    Args:
        instances: by operator, how many. mode: how new instances get the state of their ranges.

    Raises:
        ConfigError: there is no such job or cluster, no operator is named, or the job refused; it
        says why. JobError: it does not answer, or the moves did not end in time.
    """
    if not instances:
        raise ConfigError("no operator is named", hint="For example count=2,join=3.")
    return _asked(job, address, lambda c: c.scale.remote({**instances}, "asked for", mode))


def move(job: str, address: str, instance: str, node: str, mode: MoveMode) -> list[MoveRecord]:
    """Replace an instance of a job by one on another node. Returns what was done.

    Args:
        node: the beginning of its id, or its address; "" for any.
        mode: how the new instance gets the state of its range.

    Raises:
        ConfigError, JobError: as of `scale`; or there is no such node.
    """
    return _asked(
        job, address, lambda c: c.move.remote(instance, node and node_id(node), "asked for", mode)
    )


def drain(job: str, address: str, node: str) -> list[MoveRecord]:
    """Have all instances of a job leave a node. Returns what was done.

    Raises:
        ConfigError, JobError: as of `move`.
    """
    return _asked(job, address, lambda c: c.drain.remote(node_id(node), "its node is to be left"))


def node_id(named: str) -> str:
    """The id of the node that is named by the beginning of its id, or by its address.

    Raises:
        ConfigError: there is none, or several.
    """
    listed: Any = ray.nodes
    alive = {n["NodeID"]: n["NodeManagerAddress"] for n in listed() if n["Alive"]}
    found = [n for n, address in alive.items() if n.startswith(named) or address == named]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{n[:12]} ({address})" for n, address in sorted(alive.items()))
    raise ConfigError(
        f"there {'are several nodes' if found else 'is no node'} {named}",
        hint=f"There are {there}.",
    )


def _asked(job: str, address: str, request: Callable[[Any], Any]) -> list[MoveRecord]:
    """Ask a job for moves, and wait until they have ended."""
    with changed_job(job, address, "moves") as asked:
        before = asked.now().ended
        asked.ask(request(asked.controller))

        def made(moves: Moves) -> list[MoveRecord] | None:
            done = [m for m in moves.ended if m not in before]
            return done if not moves.under_way and (done or not moves.over) else None

        return asked.until(made, _doing, MOVE_SECONDS)


def _doing(moves: Moves) -> str:
    waiting = ", ".join(f"{m.operator} ({m.why or 'no process yet'})" for m in moves.under_way)
    return f"move {waiting or 'anything'}"
