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
MARKET, SPOT = "market", "spot"
"""The label of a node that says how its machine was had, and what it says of one that EC2 may take
back at any time, and has not always got."""


class PoolOptions(NamedTuple):
    """How large a pool is.

    spare: how many nodes are kept beside those in use. idle_seconds: how long a node has to be one
    too many before it is given back. nodes_max: the most nodes that are ever asked for, at most the
    `max_workers` of the cluster: asked for more than it may start, Ray's autoscaler starts none.
    spot_seconds: how long is waited for another node while some are missing, before nodes are asked
    for that are no spot machines.
    """

    spare: int
    idle_seconds: float = 120.0
    nodes_max: int = 100
    spot_seconds: float = 300.0


class Node(NamedTuple):
    """A node where operators may run. used: whether an instance has its place there. ending:
    whether nothing new is to begin there: it is about to be taken away, or the job leaves it.
    spot: whether it is a spot machine."""

    name: str
    used: bool
    ending: bool = False
    spot: bool = False


class Request(NamedTuple):
    """What the autoscaler is to see to: that there are so many nodes, without counting these.
    no_spot: how many of them are not to be spot machines; the others may be."""

    nodes: int
    without: tuple[str, ...] = ()
    no_spot: int = 0


NOTHING = Request(0)


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of a job as they were looked at last.

    request: what to ask for. returned: nodes that the controller is to leave now. surplus: nodes
    that are too many, these included, and since when. missing: how many that are needed are not
    there, because they are starting or would be more than there may be; since: when that began,
    None while all are there. kept: the nodes that are there and stay. waits: since when there have
    been fewer than were asked for and no other one has come, None while all are there.
    """

    request: Request = NOTHING
    returned: frozenset[str] = frozenset()
    surplus: Mapping[str, float] = field(default_factory=dict)
    missing: int = 0
    since: float | None = None
    kept: frozenset[str] = frozenset()
    waits: float | None = None


def next_pool(
    pool: Pool, nodes: Iterable[Node], options: PoolOptions, now: float, wanted: int = 0
) -> Pool:
    """What becomes of a pool after a look at all nodes that are alive.

    A node that ends counts as one in use as long as somebody is there, who needs a place elsewhere.

    Ray's autoscaler prefers a type of machine that it is told to prefer also when EC2 has none of
    them: it asks again and again, and never for the next one. So when no node has come for a while,
    all beyond the spot machines that are there are asked for as others; when one has come, any will
    do again.

    Args:
        now: seconds that only grow. wanted: nodes that plans wait for, beyond those in use.
    """
    there = {n.name: n for n in nodes}
    used = {n.name for n in there.values() if n.used}
    ending = {n.name for n in there.values() if n.ending}
    needed = len(used) + wanted + options.spare
    target = min(needed, max(0, options.nodes_max - len(ending)))  # these are still among them
    kept = there.keys() - ending
    free = sorted(kept - used, key=lambda n: (pool.surplus.get(n, now), there[n].spot, n))
    surplus = {n: pool.surplus.get(n, now) for n in free[: max(0, len(kept) - target)]}
    due = frozenset(n for n, since in surplus.items() if now - since >= options.idle_seconds)
    missing = max(0, needed - len(kept))
    waits = None
    if len(kept) < target:
        waits = now if pool.waits is None or kept - pool.kept else pool.waits
    no_spot = 0
    if waits is not None and now - waits >= options.spot_seconds:
        no_spot = target - sum(there[n].spot for n in kept)
    return Pool(
        Request(target, tuple(sorted(due | ending)), no_spot),
        due,
        surplus,
        missing,
        (now if pool.since is None else pool.since) if missing else None,
        frozenset(kept),
        waits,
    )


def told(before: Pool, pool: Pool, options: PoolOptions) -> str:
    """What people are to be told when a pool has become another one; empty for nothing."""
    if not pool.request.no_spot or before.request.no_spot:
        return ""
    short = pool.request.nodes - len(pool.kept)
    return (
        f"{short} of {pool.request.nodes} nodes are missing, and none has come for"
        f" {options.spot_seconds:g} s (`ray status` says why): any but spot machines are asked for"
    )
