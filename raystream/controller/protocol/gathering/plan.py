"""Gathering plans as values: which keeper adds which slices, and the way that they take.

The plan of a receiver is a tree of keepers. Each keeper sends the slices that it adds, and passes
on what its children send. Star, line and tree (SR3, Middleware 2020) are shapes of this tree: all
keepers below the receiver, each keeper below the one before, two keepers below each. The same plan
as a list has a *route* for each slice: the path from the keeper that holds it to the receiver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from raystream.schema.types import KeyRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The state that one node has to receive."""

    receiver: str
    """The node."""
    keys: KeyRange
    """The range."""
    nbytes: float
    """About how many bytes its state has. Each key group counts for the same share."""
    held: Mapping[str, Sequence[KeyRange]]
    """The ranges whose state a node's keeper has, by node."""


class Parcel(NamedTuple):
    """A part of the wanted range, all of which the same nodes hold."""

    keys: KeyRange
    holders: tuple[str, ...]
    nbytes: float


class Route(NamedTuple):
    """How a slice comes to its receiver."""

    keys: KeyRange
    """The slice."""
    path: tuple[str, ...]
    """The node that holds it, then the nodes that pass it on. The receiver is left out."""


@dataclass(frozen=True, slots=True)
class Subtree:
    """A keeper in a tree."""

    node: str
    """Its node."""
    slices: tuple[KeyRange, ...] = ()
    """What it adds; nothing if it only passes on."""
    children: tuple[Subtree, ...] = ()
    """The keepers whose bytes it passes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """The plan of one receiver."""

    wanted: Wanted
    routes: tuple[Route, ...]
    """How each slice comes. The slices tile the wanted range."""
    form: str
    """Its form: star, line, tree or widest."""
    seconds: float = 0.0
    """Seconds until the receiver has everything, as predicted."""

    @property
    def tree(self) -> tuple[Subtree, ...]:
        """The keepers that send to the receiver, with those below them."""
        return tree_of(self.routes)


class UnheldError(ValueError):
    """No node holds some part of the wanted range."""


def parcels(wanted: Wanted) -> list[Parcel]:
    """Cut the wanted range into parcels.

    Raises:
        UnheldError: no node holds some part.
    """
    keys = wanted.keys
    bounds = {keys.lo, keys.hi}
    for ranges in wanted.held.values():
        bounds |= {min(max(at, keys.lo), keys.hi) for held in ranges for at in held}
    cuts = sorted(bounds)
    found: list[Parcel] = []
    for lo, hi in pairwise(cuts):
        part = KeyRange(lo, hi)
        there = [n for n, ranges in wanted.held.items() if any(map(part.within, ranges))]
        holders = tuple(sorted(there))
        if not holders:
            raise UnheldError(f"nobody holds key groups {part}")
        if found and found[-1].holders == holders:
            part = KeyRange(found.pop().keys.lo, hi)
        found.append(Parcel(part, holders, wanted.nbytes * len(part) / len(keys)))
    return found


def holds(held: Iterable[KeyRange], keys: KeyRange) -> bool:
    """Whether ranges together have all key groups of another one."""
    return len({g for r in held for g in range(*r) if keys.holds(g)}) == len(keys)


def shared(keys: KeyRange, weights: Mapping[tuple[str, ...], float]) -> list[Route]:
    """Share key groups among paths, in proportion to their weights."""
    total, at, done = sum(weights.values()), keys.lo, 0.0
    routes = []
    for path, weight in weights.items():
        done += weight
        upto = keys.lo + round(len(keys) * done / total)
        if upto > at:
            routes.append(Route(KeyRange(at, upto), path))
        at = upto
    return routes


def tree_of(routes: Iterable[Route]) -> tuple[Subtree, ...]:
    """The keepers that send to the receiver, as trees."""
    below: dict[str, list[Route]] = defaultdict(list)
    for route in routes:
        below[route.path[-1]].append(route)
    return tuple(
        Subtree(
            node,
            tuple(r.keys for r in there if len(r.path) == 1),
            tree_of(Route(r.keys, r.path[:-1]) for r in there if len(r.path) > 1),
        )
        for node, there in below.items()
    )


def routes_of(tree: Iterable[Subtree]) -> tuple[Route, ...]:
    """The routes of trees, sorted by range. The opposite of `tree_of`."""
    found: list[Route] = []
    for branch in tree:
        found += [Route(keys, (branch.node,)) for keys in branch.slices]
        found += [Route(r.keys, (*r.path, branch.node)) for r in routes_of(branch.children)]
    return tuple(sorted(found))


def replaced(
    routes: Iterable[Route], failed: Collection[str], held: Mapping[str, Sequence[KeyRange]]
) -> tuple[Route, ...]:
    """The routes after nodes have failed. A slice that would come through one of these nodes is
    asked for directly, from the holder that has to send the fewest key groups so far.

    Raises:
        UnheldError: only nodes that failed hold some slice.
    """
    found = list(routes)
    asked = {node: 0 for node in held if node not in failed}
    for route in found:
        if route.path[0] in asked:
            asked[route.path[0]] += len(route.keys)
    for i, route in enumerate(found):
        if not {*failed} & {*route.path}:
            continue
        there = [n for n in asked if holds(held[n], route.keys)]
        if not there:
            raise UnheldError(f"nobody holds key groups {route.keys} any more")
        node = min(there, key=lambda n: (asked[n], n))
        asked[node] += len(route.keys)
        found[i] = Route(route.keys, (node,))
    return tuple(found)
