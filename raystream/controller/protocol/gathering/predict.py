"""How long gathering takes: the bytes on each link, divided by what the link can carry.

Keepers pass pieces on as they come. So a plan takes as long as its busiest link needs, and for each
keeper on the way as long as one piece needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from raystream.controller.protocol.gathering.links import Links
from raystream.controller.protocol.gathering.plan import Gathering

PIECE_BYTES = 256 << 10
"""Bytes of a piece. A keeper passes a piece on once it has all of it."""
Resource = tuple[str, str]
"""A link from one node to another; (node, "") for all that a node sends, ("", node) for all that it
receives."""


def capacity(links: Links, resource: Resource) -> float:
    """What a resource can carry, in bytes a second."""
    sender, receiver = resource
    if not receiver:
        return links.sends(sender)
    return links.between(sender, receiver) if sender else links.receives(receiver)


def crossed(path: Sequence[str], receiver: str) -> list[Resource]:
    """All resources that a path to a receiver uses."""
    found: list[Resource] = []
    for sender, to in zip(path, (*path[1:], receiver), strict=True):
        found.append((sender, to))
        if sender != to:
            found += [(sender, ""), ("", to)]
    return found


def loads(plans: Iterable[Gathering]) -> dict[Resource, float]:
    """The bytes on each resource, when all plans are carried out together."""
    found: dict[Resource, float] = defaultdict(float)
    for plan in plans:
        wanted = plan.wanted
        for route in plan.routes:
            nbytes = wanted.nbytes * len(route.keys) / len(wanted.keys)
            for resource in crossed(route.path, wanted.receiver):
                found[resource] += nbytes
    return found


def predicted(plans: Sequence[Gathering], links: Links) -> tuple[Gathering, ...]:
    """The same plans, each with the seconds that it takes while all are carried out together."""
    busy = {r: nbytes / capacity(links, r) for r, nbytes in loads(plans).items()}
    found = []
    for plan in plans:
        to = plan.wanted.receiver
        slowest = max((busy[r] for p in plan.routes for r in crossed(p.path, to)), default=0.0)
        way = max((_way(p.path, to, links) for p in plan.routes), default=0.0)
        found.append(replace(plan, seconds=slowest + way))
    return tuple(found)


def _way(path: Sequence[str], receiver: str, links: Links) -> float:
    """Seconds that a path adds to those of its links: each link but the first carries the first
    piece once more, and each link adds its delay in both directions, because the request goes
    along the path too."""
    hops = list(zip(path, (*path[1:], receiver), strict=True))
    passed_on = sum(PIECE_BYTES / links.between(*hop) for hop in hops[1:])
    return passed_on + sum(links.delay(a, b) + links.delay(b, a) for a, b in hops)
