"""The pool against Ray: which nodes there are, which of them end, and how many there are to be.

Only the controller uses it. Ray's autoscaler remembers one request, the last one that anybody made,
so a cluster can hold the pool of one job: who has it is kept in Ray's key-value store, where a
claim is a key with the next number, which only one can write.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.experimental import internal_kv

from raystream.actors.naming import NAMESPACE, running
from raystream.controller.pool import (
    MARKET,
    NOTHING,
    OPERATOR_NODE,
    SPOT,
    Node,
    Pool,
    PoolOptions,
    Request,
    next_pool,
)
from raystream.errors import ConfigError

REPEAT_SECONDS = 30.0
"""How long a request stands before it is made again: another program may have made one."""
NODE_ID = "ray.io/node-id"
"""The label by which Ray knows a node."""
CLAIM = "pool-"
"""How the keys of claims begin."""


class Held(NamedTuple):
    """Whose the pool of the cluster is, "" for nobody's; number: of that claim."""

    number: int
    run: str


def holder() -> Held:
    """The newest claim to the pool of the cluster."""
    keys = internal_kv._internal_kv_list(CLAIM, namespace=NAMESPACE)
    number = max((int(key.decode().removeprefix(CLAIM)) for key in keys), default=0)
    run = internal_kv._internal_kv_get(f"{CLAIM}{number}", namespace=NAMESPACE) if number else b""
    return Held(number, (run or b"").decode())


def claim(run: str) -> None:
    """Have the pool of the cluster be that of a run.

    Raises:
        ConfigError: it is that of another one, whose controller lives.
    """
    while (held := holder()).run != run:
        if held.run in running():
            raise ConfigError(
                f"this cluster holds the pool of {held.run}, and can hold that of one job",
                hint="Leave the pool away, or wait until that job has ended.",
            )
        key = f"{CLAIM}{held.number + 1}"
        internal_kv._internal_kv_put(key, run, overwrite=False, namespace=NAMESPACE)
    internal_kv._internal_kv_del(f"{CLAIM}{held.number - 1}", namespace=NAMESPACE)


def release(run: str) -> None:
    """Ask for nothing any more, if the pool is that of this run: a request outlives who made it."""
    held = holder()
    if held.run == run:
        ask(NOTHING)
        internal_kv._internal_kv_put(f"{CLAIM}{held.number}", "", namespace=NAMESPACE)


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
    spot = {n["NodeID"] for n in alive if n["Labels"].get(MARKET) == SPOT}
    names = [n["NodeID"] for n in alive]
    return [Node(n, n in used, n in ending, n in spot) for n in names]


def ask(request: Request) -> None:
    """Have Ray's autoscaler see to a number of nodes, from now on until it is asked again.

    It counts whole nodes, busy or not, and ends none that it counts. Nodes that are not to be
    counted are excluded by their label; otherwise it would keep any, given back or not.
    """
    from ray.autoscaler.sdk import request_resources  # takes a while, and few jobs need it

    anyone = {NODE_ID: f"!in({','.join(request.without)})"} if request.without else {}
    others = {**anyone, MARKET: f"!in({SPOT})"}
    may_be_spot = request.nodes - request.no_spot
    request_resources(
        bundles=[{OPERATOR_NODE: 1}] * request.nodes,
        bundle_label_selectors=[others] * request.no_spot + [anyone] * may_be_spot,
    )


class NodePool:
    """The pool of a running job.

    Raises:
        ConfigError: the cluster holds the pool of another one.
    """

    def __init__(self, run: str, options: PoolOptions) -> None:
        claim(run)
        self.pool = Pool()
        self._run = run
        self.options = options
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
        self.pool = next_pool(self.pool, nodes, self.options, now, wanted)
        if self.pool.request != self._asked or now - self._asked_at > REPEAT_SECONDS:
            with suppress(RayError, RuntimeError):  # it did not answer in time: at the next look
                ask(self.pool.request)
                self._asked, self._asked_at = self.pool.request, now
        return self.pool

    def close(self) -> None:
        """Give it up."""
        release(self._run)
