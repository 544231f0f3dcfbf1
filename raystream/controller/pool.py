"""How many nodes a job has at hand, and which it gives back: a pure function of what is seen.

A machine takes minutes to start, and a bottleneck cannot wait for it. SEEP (SIGMOD 2013) therefore
keeps a pool of virtual machines beside those in use: scaling out takes one at once, and the pool is
filled up behind it. Here it is nodes of a Ray cluster, counted by the resource `OPERATOR_NODE`, and
Ray's autoscaler starts and ends the machines. It is asked for a number of nodes, used and spare
ones together.

The autoscaler ends a node only when nothing of ours is on it, a keeper included. So what is not
wanted any more is given back in two steps: a node that was too many for a while is named here, so
that the controller leaves it, as it leaves a node that is about to be taken away; then it is idle
for Ray. What was left is not used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OPERATOR_NODE = "operator_node"
"""The resource that a node offers once if operators may run there; the head node does not."""


class PoolOptions(NamedTuple):
    """How large a pool is.

    spare: how many nodes are kept beside those in use. idle_seconds: how long a node has to be one
    too many before it is given back. nodes_max: the most nodes that are ever asked for, at most the
    `max_workers` of the cluster: asked for more than it may start, Ray's autoscaler starts none.
    """

    spare: int
    idle_seconds: float = 120.0
    nodes_max: int = 100


class Node(NamedTuple):
    """A node where operators may run. used: whether an instance has its place there. ending:
    whether nothing new is to begin there: it is about to be taken away, or the job leaves it."""

    name: str
    used: bool
    ending: bool = False


class Request(NamedTuple):
    """What the autoscaler is to see to: that there are so many nodes, without counting these."""

    nodes: int
    without: tuple[str, ...] = ()


NOTHING = Request(0)


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of a job as they were looked at last.

    request: what to ask for. returned: nodes that the controller is to leave now. surplus: nodes
    that are too many, these included, and since when. missing: how many that are needed are not
    there, because they are starting or would be more than there may be; since: when that began,
    None while all are there.
    """

    request: Request = NOTHING
    returned: frozenset[str] = frozenset()
    surplus: Mapping[str, float] = field(default_factory=dict)
    missing: int = 0
    since: float | None = None


def next_pool(
    pool: Pool, nodes: Iterable[Node], options: PoolOptions, now: float, wanted: int = 0
) -> Pool:
    """What becomes of a pool after a look at all nodes that are alive.

    A node that ends counts as one in use as long as somebody is there, who needs a place elsewhere.

    Args:
        now: seconds that only grow. wanted: nodes that plans wait for, beyond those in use.
    """
    there = {n.name: n for n in nodes}
    used = {n.name for n in there.values() if n.used}
    ending = {n.name for n in there.values() if n.ending}
    needed = len(used) + wanted + options.spare
    target = min(needed, max(0, options.nodes_max - len(ending)))  # these are still among them
    kept = there.keys() - ending
    free = sorted(kept - used, key=lambda n: (pool.surplus.get(n, now), n))
    surplus = {n: pool.surplus.get(n, now) for n in free[: max(0, len(kept) - target)]}
    due = frozenset(n for n, since in surplus.items() if now - since >= options.idle_seconds)
    missing = max(0, needed - len(kept))
    return Pool(
        Request(target, tuple(sorted(due | ending))),
        due,
        surplus,
        missing,
        (now if pool.since is None else pool.since) if missing else None,
    )
