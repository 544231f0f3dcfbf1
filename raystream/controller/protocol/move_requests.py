"""Moves: an operator is to be served by instances of other ranges, or on other nodes.

Scaling out, scaling in, uneven splits and moves to other nodes are one thing: a placement of new
instances, whose ranges the old owners give up once the new instances are level with them. A
recovery is the same with owners that are dead. Here are the values, and what follows from them
alone; what is done is in `raystream.controller.protocol.parts.rebalancing`.

An operator has at most one move under way: another one is refused until that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from raystream.dataflow.plan import Plan, Vertex
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges, tiles

TRIES_MAX = 5
"""How many attempts a move has when processes die that take part in it."""
LEVEL_SECONDS = 300.0
"""How long candidates may take until they are level. A candidate that is slower than the input
never is, and keeps checkpoints from being committed meanwhile."""
STOP_SECONDS = 10.0
"""How long an instance of a sink may take to end when another one is to take its place."""
LEAVE_AGAIN_SECONDS = 30.0
"""When a move off a node that is being left was given up, the next attempt waits for this long:
meanwhile checkpoints are committed, which the move held back."""
NEAR_TICKS = 4
"""Candidates that are at most one epoch behind the owners for this many ticks in a row count as
level."""
PIN_SECONDS = 5.0
"""Moves that begin within this time fetch their state at the same committed checkpoint. Later ones
wait for the next commit."""
PIN_AGAIN_SECONDS = 60.0
"""But they wait no longer than this after the first: without input there is no checkpoint."""
DELIVER_SECONDS = 60.0
"""How long owners may take to deliver their changes, in a handover."""

MoveMode = Literal["replay", "handover"]
"""How new instances get to the owners' position. "replay": they start from the committed
checkpoint and replay the producers' logs since then (SEEP recovers like this, SIGMOD 2013, but here
the old instance goes on meanwhile). "handover": the owners also send what has changed since that
checkpoint, so that little is left to replay (Rhino, SIGMOD 2020)."""

ThreadUse = Literal["own", "apart", "together"]
"""Where a new instance is that has exactly the range of one before it. "own": in a process of its
own. "apart": the same, until the thread that the one before it shares has time again. "together":
on that thread."""


@dataclass(frozen=True, slots=True)
class RescaleRequest:
    """A request to serve an operator with other instances, or on other nodes."""

    operator: str
    """The name of the operator."""
    ranges: tuple[KeyRange, ...]
    """The ranges that its instances are to have, exactly."""
    because: str
    """Why, for people."""
    leave: tuple[str, ...] = ()
    """The names of instances that are to be replaced even if their range stays."""
    node: str = ""
    """The node where new instances are to be, "" for any."""
    mode: MoveMode = "replay"
    """How new instances get to the owners' position."""
    thread: ThreadUse = "own"
    """Where new instances are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move under way, as the journal has it. Times are in seconds, by the controller's clock."""

    wanted: RescaleRequest
    """The request."""
    began: float
    """When the request was taken up."""
    tries: int = 0
    """How many attempts have failed."""
    why: str = ""
    """Why the last of them failed."""
    committed: int = -1
    """The checkpoint from which the present attempt starts; -1 until there are processes for all
    its places."""
    gone: tuple[str, ...] = ()
    """The names of the owners that are to give up their ranges."""
    new: tuple[str, ...] = ()
    """The names of the candidates, once they are at work."""
    placed: float = 0.0
    """When there were processes for all its places."""
    restored: float = 0.0
    """When these processes had their state."""
    seat: str = ""
    """The name of its candidate in a process at work, from before this is given its place until the
    attempt is over; otherwise empty."""
    base: int = 0
    """The newest epoch with whose state a candidate began. The owners may go only once a checkpoint
    at this epoch or later is committed."""
    nbytes: int = 0
    """The size of the state that the new instances were given, in bytes."""

    @property
    def operator(self) -> str:
        return self.wanted.operator


def vertex_of(plan: Plan, operator: str) -> Vertex:
    """The vertex of an operator, source or sink.

    Raises:
        ConfigError: there is no such vertex, or it has no instances of its own.
    """
    for vertex in plan.vertices:
        if vertex.name == operator:
            return vertex
        if operator in [f.name for f in vertex.fused]:
            raise ConfigError(
                f"{operator!r} keeps no state, so it runs inside {vertex.name!r}",
                hint=f"Scale or move {vertex.name!r}.",
            )
    raise ConfigError(
        f"there is no operator {operator!r}",
        hint=f"There are {', '.join(v.name for v in plan.vertices)}.",
    )


def evenly(plan: Plan, operator: str, instances: int) -> tuple[KeyRange, ...]:
    """The ranges of an operator whose instances share its key groups evenly.

    Raises:
        ConfigError: there is no such operator, or it cannot have this many instances.
    """
    vertex_of(plan, operator)
    if not 1 <= instances <= plan.groups:
        raise ConfigError(
            f"{operator}={instances}: an operator has from 1 to {plan.groups} instances, the number"
            " of key groups"
        )
    return tuple(even_ranges(plan.groups, instances))


def elsewhere(
    instance: str,
    node: str,
    owned: Mapping[str, tuple[str, KeyRange]],
    because: str,
    mode: MoveMode = "replay",
) -> RescaleRequest:
    """The request to replace one instance by another one with the same range.

    Args:
        node: where the new instance is to be, "" for any node.
        owned: by instance, its operator and range.

    Raises:
        ConfigError: there is no such instance.
    """
    if instance not in owned:
        raise ConfigError(
            f"there is no instance {instance!r}", hint=f"There are {', '.join(owned)}."
        )
    operator = owned[instance][0]
    ranges = tuple(keys for o, keys in owned.values() if o == operator)
    return RescaleRequest(operator, ranges, because, (instance,), node, mode)


def check(
    plan: Plan, wanted: RescaleRequest, owned: Mapping[str, KeyRange], nodes: Sequence[str]
) -> None:
    """Check that a request can be met.

    Args:
        owned: by instance of the operator, the range that it owns.
        nodes: all nodes that are alive.

    Raises:
        ConfigError: it cannot, and why.
    """
    vertex = vertex_of(plan, wanted.operator)
    if not tiles(sorted(wanted.ranges), plan.groups):
        raise ConfigError(
            f"{wanted.operator}: the ranges {', '.join(map(str, wanted.ranges))} do not tile the"
            f" {plan.groups} key groups"
        )
    fixed = vertex.kind == "sink" and not vertex.sink.scales
    if fixed and sorted(wanted.ranges) != sorted(owned.values()):
        raise ConfigError(
            f"{wanted.operator} is a sink that does not scale: its instances can be moved, but its"
            " ranges stay",
            hint="What it has written is known by its ranges. Sinks to databases scale.",
        )
    for name in wanted.leave:
        if name not in owned:
            raise ConfigError(
                f"there is no instance {name!r}", hint=f"There are {', '.join(sorted(owned))}."
            )
    if wanted.node and wanted.node not in nodes:
        raise ConfigError(f"there is no node {wanted.node}", hint=f"There are {', '.join(nodes)}.")
    if not changes(wanted, owned)[0]:
        raise ConfigError(f"{wanted.operator} is served like that already")


def changes(
    wanted: RescaleRequest, owned: Mapping[str, KeyRange]
) -> tuple[tuple[KeyRange, ...], tuple[str, ...]]:
    """What has to change: the ranges of new instances, and the instances that give up theirs.

    Args:
        owned: by instance of the operator, the range that it owns.
    """
    stay = {n: keys for n, keys in owned.items() if keys in wanted.ranges and n not in wanted.leave}
    new = tuple(sorted(set(wanted.ranges) - set(stay.values())))
    return new, tuple(n for n in owned if n not in stay)
