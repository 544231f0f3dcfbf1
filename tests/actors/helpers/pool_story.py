"""The life of a pool, told line by line:
`python -m tests.actors.helpers.pool_story long|short ADDRESS`.

A program of its own, because a process can be in one cluster only, and the tests are in another.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raystream.actors.cluster.head import ending
from raystream.actors.control.node_pool import NodePool
from raystream.controller.elastic.pool import OPERATOR_NODE, PoolOptions
from tests.gates import LIMIT_SECONDS

IDLE_SECONDS = 1.0


class Keeper:
    """Takes no resources, as our keepers; all the same no node with it on is idle for Ray."""

    def here(self) -> None: ...


def tell(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, **more}), flush=True)


def until(look: Callable[[], Any], found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        look()
        if found():
            return
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)


def alive() -> set[str]:
    listed: Any = ray.nodes
    return {n["NodeID"] for n in listed() if n["Alive"] and n["Resources"].get(OPERATOR_NODE)}


def keep(node: str) -> Any:
    remote: Any = ray.remote
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    keeper = remote(num_cpus=0, scheduling_strategy=strategy)(Keeper).remote()
    ray.get(keeper.here.remote(), timeout=LIMIT_SECONDS)
    return keeper


def short() -> None:
    """A node comes, and is not wanted any more."""
    pool = NodePool("short", PoolOptions(spare=1))
    until(lambda: pool.look((), ()), lambda: len(alive()) == 1, "a spare node")
    tell("filled", nodes=[*alive()])
    pool.close()
    until(lambda: None, lambda: not alive(), "the end of that node")
    tell("emptied")


def long() -> None:
    """Nodes come and are given back. Then one ends: whoever listens has to bring that about."""
    pool = NodePool("long", PoolOptions(spare=1, idle_seconds=IDLE_SECONDS, nodes_max=3))
    used: set[str] = set()
    left: set[str] = set()

    def look() -> None:
        pool.look(used, left)

    until(look, lambda: len(alive()) == 1, "a spare node")
    (first,) = alive()
    tell("filled", nodes=[first])

    used = {first}
    until(look, lambda: len(alive()) == 2, "a spare node behind the one in use")
    (second,) = alive() - used
    keepers = {node: keep(node) for node in (first, second)}
    tell("refilled", nodes=[first, second])

    used = set()
    until(look, lambda: bool(pool.pool.returned), "a node that is given back")
    (back,) = pool.pool.returned
    (stays,) = {first, second} - {back}
    left = {back}
    ray.kill(keepers.pop(back))
    until(look, lambda: alive() == {stays}, "the end of the node that was given back")
    tell("shrunk", gone=back, nodes=[stays])

    used = {stays}  # and now EC2 takes that one
    until(look, lambda: len(alive()) == 2, "a spare node again")
    (spare,) = alive() - used
    tell("watched", nodes=[stays])
    until(look, lambda: stays in ending(), "word that a node ends")
    deadline = ending()[stays]

    def replaced() -> bool:
        return len(alive() - {stays}) == 2 and not pool.pool.missing

    until(look, replaced, "another node for the one that ends")
    assert spare in alive()
    tell("drained", node=stays, deadline=deadline, missing=pool.pool.missing)
    pool.close()


if __name__ == "__main__":
    ray.init(address=sys.argv[2], log_to_driver=False, logging_level="ERROR")
    {"short": short, "long": long}[sys.argv[1]]()
