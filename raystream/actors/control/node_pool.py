"""The pool of nodes of a job: asks Ray's autoscaler for them, and sees which of them end.

Only the controller uses it. Ray's autoscaler remembers one request, the last one that any program
has made. So a cluster can hold the pool of one job only. Whose it is stands in Ray's key-value
store: a claim is a key with the next number, and only one job can write it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from raystream.actors.cluster import ray_internals as internals
from raystream.actors.cluster.head import ending
from raystream.actors.control.actor_names import NAMESPACE, running
from raystream.controller.elastic.pool import (
    MARKET,
    NOTHING,
    OPERATOR_NODE,
    SPOT,
    Pool,
    PoolNode,
    PoolOptions,
    Request,
    next_pool,
)
from raystream.errors import ConfigError

REPEAT_SECONDS = 30.0
"""How long it is until a request is repeated: another program may have made one."""
NODE_ID = "ray.io/node-id"
"""The label by which Ray knows a node."""
CLAIM = "pool-"
"""How the keys of claims begin."""


class PoolClaim(NamedTuple):
    """A claim to the pool of the cluster."""

    number: int
    """The number of the claim; the highest counts."""
    run: str
    """The run that has the pool; "" if it was given back."""


def holder() -> PoolClaim:
    """The newest claim to the pool of the cluster."""
    keys = internals.kv_keys(CLAIM, NAMESPACE)
    number = max((int(key.removeprefix(CLAIM)) for key in keys), default=0)
    return PoolClaim(number, internals.kv_get(f"{CLAIM}{number}", NAMESPACE) if number else "")


def claim(run: str) -> None:
    """Claim the pool of the cluster for a run.

    Raises:
        ConfigError: another run has it, and its controller lives.
    """
    while (held := holder()).run != run:
        if held.run in running():
            raise ConfigError(
                f"this cluster holds the pool of {held.run}, and can hold that of one job",
                hint="Leave out the pool, or wait until that job has ended.",
            )
        key = f"{CLAIM}{held.number + 1}"
        internals.kv_put(key, run, NAMESPACE, overwrite=False)
    internals.kv_delete(f"{CLAIM}{held.number - 1}", NAMESPACE)


def release(run: str) -> None:
    """Take back the request for nodes, if this run has the pool: a request outlives its maker."""
    held = holder()
    if held.run == run:
        ask(NOTHING)
        internals.kv_put(f"{CLAIM}{held.number}", "", NAMESPACE)


def operator_nodes(used: Collection[str], ending: Collection[str]) -> list[PoolNode]:
    """All nodes that are alive and where operators may run.

    Args:
        used: the nodes where instances run.
    """
    listed: Any = ray.nodes
    alive = [n for n in listed() if n["Alive"] and n["Resources"].get(OPERATOR_NODE)]
    spot = {n["NodeID"] for n in alive if n["Labels"].get(MARKET) == SPOT}
    names = [n["NodeID"] for n in alive]
    return [PoolNode(n, n in used, n in ending, n in spot) for n in names]


def ask(request: Request) -> None:
    """Have Ray's autoscaler keep a number of nodes, from now on until it is asked again.

    It counts whole nodes, busy or not, and ends none of those that it counts. Nodes that the pool
    gives back are excluded by their label; otherwise the autoscaler might keep them.
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
        ConfigError: another job has the pool of the cluster.
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

        The caller has to leave the nodes in `Pool.returned`. Ray does not end a node as long as an
        actor of the job is there, also a keeper.

        Args:
            used: the nodes where instances run.
            left: the nodes that the job leaves.
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
        """Give the pool back."""
        release(self._run)
