"""The pool against Ray: which nodes there are, which of them end, and how many there are to be.

Only the controller uses it. Ray's autoscaler remembers one request, the last one that anybody made,
so a cluster can hold the pool of one job.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from raystream.controller.pool import (
    NOTHING,
    OPERATOR_NODE,
    Node,
    Pool,
    PoolOptions,
    Request,
    next_pool,
)

REPEAT_SECONDS = 30.0
"""How long a request stands before it is made again: another program may have made one."""
NODE_ID = "ray.io/node-id"
"""The label by which Ray knows a node."""


def ending() -> dict[str, float]:
    """The nodes that Ray drains, and when they end (Unix seconds; infinity if nobody said).

    Ray drains a node before its autoscaler ends it, when somebody says `ray drain-node`, and when
    EC2 takes it away (`raystream.actors.spot` tells Ray). A node that ends by itself is not among
    them once it is dead.
    """
    from ray._private.state import state

    found: dict[str, int] = state.get_draining_nodes()
    return {node: at / 1000 if at else float("inf") for node, at in found.items()}


def operator_nodes(used: Collection[str], ending: Collection[str]) -> list[Node]:
    """All nodes that are alive and where operators may run.

    Args:
        used: the nodes where instances have their places.
    """
    listed: Any = ray.nodes
    alive = [n for n in listed() if n["Alive"] and n["Resources"].get(OPERATOR_NODE)]
    return [Node(n["NodeID"], n["NodeID"] in used, n["NodeID"] in ending) for n in alive]


def ask(request: Request) -> None:
    """Have Ray's autoscaler see to a number of nodes, from now on until it is asked again.

    It counts whole nodes, busy or not, and ends none that it counts. Nodes that are not to be
    counted are excluded by their label; otherwise it would keep any, given back or not.
    """
    selector = {NODE_ID: f"!in({','.join(request.without)})"} if request.without else {}
    request_resources(
        bundles=[{OPERATOR_NODE: 1}] * request.nodes,
        bundle_label_selectors=[selector] * request.nodes,
    )


class NodePool:
    """The pool of a running job."""

    def __init__(self, options: PoolOptions) -> None:
        self.pool = Pool()
        self._options = options
        self._asked: Request | None = None
        self._asked_at = 0.0

    def look(self, used: Collection[str], left: Collection[str], wanted: int = 0) -> Pool:
        """Look at the nodes, and ask for what is to change.

        Whoever calls has to leave the nodes in `Pool.returned`: as long as an actor of ours is
        there, a keeper too, Ray does not end them.

        Args:
            used: the nodes where instances have their places. left: those that the job leaves.
            wanted: see `next_pool`.
        """
        now = time.monotonic()
        nodes = operator_nodes(used, {*ending(), *left})
        self.pool = next_pool(self.pool, nodes, self._options, now, wanted)
        if self.pool.request != self._asked or now - self._asked_at > REPEAT_SECONDS:
            ask(self.pool.request)
            self._asked, self._asked_at = self.pool.request, now
        return self.pool

    def close(self) -> None:
        """Ask for nothing any more: a request outlives whoever made it."""
        ask(NOTHING)
