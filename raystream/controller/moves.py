"""Moves: an operator is to be served by instances of other ranges, or elsewhere.

Scale out, scale in, uneven splits and moves to other nodes are one thing: places that are to be
taken, and owners that give up theirs once those who take them are level (DESIGN of recovery: the
same, with owners that are dead). These are the values, and what follows from them alone; see
`moving` for what is done.

One move per operator is under way at a time; another one for it is refused until that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from raystream.dataflow.plan import Plan, Vertex
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges

TRIES_MAX = 5
"""So often a move begins again after the death of somebody who takes part in it."""
LEVEL_SECONDS = 300.0
"""How long candidates may take until they are level. Who is slower than the input never is, and
holds the floor back meanwhile."""
STOP_SECONDS = 10.0
"""How long an instance of a sink may take to end when another one is to take its place."""
LEAVE_AGAIN_SECONDS = 30.0
"""How long after a move off a node that is to be left was given up another one begins; meanwhile
there are cuts, which the move held back."""
NEAR_TICKS = 4
"""So often in a row candidates may be an epoch behind the owners until that counts as level."""
PIN_SECONDS = 5.0
"""Moves begin to fetch state at one floor within so long; later ones wait until it has moved."""
PIN_AGAIN_SECONDS = 60.0
"""But not longer than this after the first: there may be no input, and so no cut."""
DELIVER_SECONDS = 60.0
"""How long owners may take to deliver what they know, where they do."""

Mode = Literal["replay", "handover"]
"""How a range is filled: with its state at the floor, and what came after that from the producers'
logs (as SEEP recovers, SIGMOD 2013, but with the old instance going on); or with what has changed
since from its owner, so that little is left to be replayed (Rhino, SIGMOD 2020)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of an operator.

    ranges: those that its instances are to have, exactly. leave: names of instances that are to be
    replaced even if their range stays; node: where others are to be put, "" for anywhere.
    """

    operator: str
    ranges: tuple[KeyRange, ...]
    because: str
    leave: tuple[str, ...] = ()
    node: str = ""
    mode: Mode = "replay"


@dataclass(frozen=True, slots=True)
class Move:
    """A move under way, as the journal has it.

    began: when it was asked for. tries: attempts that came to nothing, and `why` the last did.
    floor: from which the attempt at hand starts, -1 until there are processes for all its places.
    gone: the owners that are to give up their ranges; new: the candidates, once they are at work.
    placed, restored: when there were processes for all places, and when these had their state.
    base: the newest epoch with whose state a candidate began; the floor has to pass it before the
    owners may go. nbytes: of state that the new instances were given.
    """

    wanted: Wanted
    began: float
    tries: int = 0
    why: str = ""
    floor: int = -1
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    placed: float = 0.0
    restored: float = 0.0
    base: int = 0
    nbytes: int = 0

    @property
    def operator(self) -> str:
        return self.wanted.operator


def vertex_of(plan: Plan, operator: str) -> Vertex:
    """The vertex of an operator, source or sink.

    Raises:
        ConfigError: there is none that has instances of its own.
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
    """The ranges of so many instances of an operator that share its key groups evenly.

    Raises:
        ConfigError: there is no such operator, or it cannot have so many.
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
    mode: Mode = "replay",
) -> Wanted:
    """What is wanted when one instance is to be replaced by another with its range.

    Args:
        node: where that is to be, "" for anywhere. owned: by instance its operator and range.

    Raises:
        ConfigError: there is no such instance.
    """
    if instance not in owned:
        raise ConfigError(
            f"there is no instance {instance!r}", hint=f"There are {', '.join(owned)}."
        )
    operator = owned[instance][0]
    ranges = tuple(keys for o, keys in owned.values() if o == operator)
    return Wanted(operator, ranges, because, (instance,), node, mode)


def check(plan: Plan, wanted: Wanted, owned: Mapping[str, KeyRange], nodes: Sequence[str]) -> None:
    """Check that what is wanted can be had.

    Args:
        owned: by instance of the operator the range that it owns. nodes: all that live.

    Raises:
        ConfigError: it cannot; it says why.
    """
    vertex = vertex_of(plan, wanted.operator)
    if not tiles(wanted.ranges, plan.groups):
        raise ConfigError(
            f"{wanted.operator}: the ranges {', '.join(map(str, wanted.ranges))} do not tile the"
            f" {plan.groups} key groups"
        )
    if vertex.kind == "sink" and sorted(wanted.ranges) != sorted(owned.values()):
        raise ConfigError(
            f"{wanted.operator} is a sink: its instances can be moved, but its ranges stay",
            hint="What a sink has written is known by its ranges.",
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


def tiles(ranges: Iterable[KeyRange], groups: int) -> bool:
    """Whether ranges tile all key groups exactly."""
    at = 0
    for keys in sorted(ranges):
        if keys.lo != at or keys.hi <= keys.lo:
            return False
        at = keys.hi
    return at == groups


def changes(
    wanted: Wanted, owned: Mapping[str, KeyRange]
) -> tuple[tuple[KeyRange, ...], tuple[str, ...]]:
    """What has to change: the ranges of new instances, and who gives up what it owns.

    Args:
        owned: by instance of the operator the range that it owns.
    """
    stay = {n: keys for n, keys in owned.items() if keys in wanted.ranges and n not in wanted.leave}
    new = tuple(sorted(set(wanted.ranges) - set(stay.values())))
    return new, tuple(n for n in owned if n not in stay)
