"""How many nodes a job has ready, and which it gives back: a pure function of what is seen.

A machine takes minutes to start, and a bottleneck cannot wait for it. SEEP (SIGMOD 2013) therefore
keeps a pool of virtual machines in addition to those in use: scaling out takes one of them at once,
and the pool is refilled afterwards. Here the pool consists of nodes of a Ray cluster, counted by
the resource `OPERATOR_NODE`. Ray's autoscaler starts and ends the machines: it is asked for a
number of nodes, used and spare ones together.

The autoscaler ends a node only when nothing of ours is on it, not even a keeper. So a node is given
back in two steps. A node that was too many for a while is named here, so that the controller leaves
it, as it leaves a node that is about to be taken away. Then the node is idle for Ray. A node that
was left is not used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from raystream.api.arguments import whole
from raystream.errors import ConfigError, placed_class
from raystream.schema.lengths import Seconds, seconds_of

NODES_MOST = 1 << 20
"""The most nodes that anybody may ask for."""
OPERATOR_NODE = "operator_node"
"""The resource of which a node offers one if operators may run there; the head node offers none."""
MARKET, SPOT = "market", "spot"
"""The label of a node that says how its machine was bought, and its value for spot machines: EC2
does not always have any, and may take one back at any time."""


@placed_class
@dataclass(frozen=True, init=False)
class PoolOptions:
    """How many nodes a job asks Ray's autoscaler for: the `pool` of `flow.run`."""

    spare: int
    """How many nodes are kept ready in addition to those in use."""
    idle_seconds: float
    """How long a node has to be one too many before it is given back."""
    nodes_max: int
    """The most nodes that are ever asked for. It may not exceed the `max_workers` of the cluster:
    asked for more nodes than it may start, Ray's autoscaler starts none."""
    spot_seconds: float
    """While nodes are missing: how long to wait for the next one before other machines than spot
    machines are asked for."""

    def __init__(
        self,
        spare: int,
        idle_seconds: Seconds = 120.0,
        nodes_max: int = 100,
        spot_seconds: Seconds = 300.0,
    ) -> None:
        """The arguments are the attributes; lengths of time may be given as `timedelta` or text.

        Raises:
            ConfigError: one of them is no number of nodes, or no length of time.
        """
        whole_number = partial(whole, "PoolOptions", most=NODES_MOST, error=ConfigError)
        length = partial(seconds_of, "PoolOptions", zero=True, endless=True, error=ConfigError)
        given = {
            "spare": whole_number("spare", spare, least=0),
            "idle_seconds": float(length("idle_seconds", idle_seconds)),
            "nodes_max": whole_number("nodes_max", nodes_max, least=1),
            "spot_seconds": float(length("spot_seconds", spot_seconds)),
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)  # it is frozen


class PoolNode(NamedTuple):
    """A node where operators may run."""

    name: str
    """Its id."""
    used: bool
    """Whether an instance has its place there."""
    ending: bool = False
    """Whether nothing new may begin there, because it is about to be taken away or the job leaves
    it."""
    spot: bool = False
    """Whether it is a spot machine."""


class Request(NamedTuple):
    """What the autoscaler is asked for."""

    nodes: int
    """How many nodes there should be, not counting those in `without`."""
    without: tuple[str, ...] = ()
    """The nodes that end."""
    no_spot: int = 0
    """How many of the nodes may not be spot machines; the others may."""


NOTHING = Request(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The nodes of a job when they were looked at last."""

    request: Request = NOTHING
    """What to ask the autoscaler for."""
    returned: frozenset[str] = frozenset()
    """The nodes that the controller has to leave now."""
    surplus: Mapping[str, float] = field(default_factory=dict)
    """By node that is one too many, the time since when it is; those in `returned` are included."""
    missing: int = 0
    """How many of the needed nodes are not there: they are starting, or there may not be so many
    nodes."""
    since: float | None = None
    """When the first of them began to be missing; None while none is."""
    kept: frozenset[str] = frozenset()
    """The nodes that are there and stay."""
    waits: float | None = None
    """Since when fewer nodes are there than were asked for and no further one has come; None while
    all are there."""


def next_pool(
    pool: Pool, nodes: Iterable[PoolNode], options: PoolOptions, now: float, wanted: int = 0
) -> Pool:
    """The pool after a look at all nodes that are alive.

    A node that ends counts as used as long as an instance is there, because that instance needs a
    place elsewhere.

    When Ray's autoscaler is told to prefer a type of machine, it asks for this type again and again
    even if EC2 has none, and never for the next type. So when no node has come for a while, all
    nodes beyond the spot machines that are there are asked for as other machines. Once one has
    come, any machine will do again.

    Args:
        now: seconds that only grow.
        wanted: how many nodes placements wait for, beyond those in use.
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
        request=Request(target, tuple(sorted(due | ending)), no_spot),
        returned=due,
        surplus=surplus,
        missing=missing,
        since=(now if pool.since is None else pool.since) if missing else None,
        kept=frozenset(kept),
        waits=waits,
    )


def told(before: Pool, pool: Pool, options: PoolOptions) -> str:
    """What people should be told about a change of the pool; empty for nothing."""
    if not pool.request.no_spot or before.request.no_spot:
        return ""
    missing = pool.request.nodes - len(pool.kept)
    return (
        f"{missing} of {pool.request.nodes} nodes are missing, and none has come for"
        f" {options.spot_seconds:g} s (`ray status` says why): any but spot machines are asked for"
    )
