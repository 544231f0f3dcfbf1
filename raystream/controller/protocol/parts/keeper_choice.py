"""Which nodes hold the checkpoints of an instance: they follow from the range and the list of
nodes.

Every pair of a range and a node has a weight, a hash of both, and the nodes with the highest
weights hold the range: highest random weight hashing (Thaler and Ravishankar, IEEE/ACM Transactions
on Networking 6:1, 1998). Every process with the same list of nodes computes the same holders. The
ranges spread evenly. When a node comes or goes, only the ranges that it gets or had move. SR3
(Middleware 2020) has a ring of nodes for the same reason.

The first copy goes to an upstream node if one of them has a keeper, as in SEEP (SIGMOD 2013).
Further copies go to other zones, as far as there are some, so that a zone may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raystream.controller.protocol.recovery import Place
from raystream.state.keys import key_hash


def keepers_of(
    place: Place,
    own: str,
    upstream: Iterable[str],
    zones: Mapping[str, str],
    copies: int,
    *,
    source: bool,
) -> tuple[str, ...]:
    """The nodes whose keepers hold the checkpoints of the instance in a place; see `holders`.

    The checkpoints of all sources are at the same keepers. A job that loses one of these
    checkpoints has to begin again, so fewer keepers that it depends on are safer.
    """
    if source:
        return in_zones(sorted(zones), zones, copies)
    return holders(f"{place.operator}/{place.keys.lo}", own, upstream, zones, copies)


def holders(
    part: str, own: str, upstream: Iterable[str], zones: Mapping[str, str], copies: int
) -> tuple[str, ...]:
    """The nodes that hold a range's checkpoints; fewer than `copies` if there are not enough.

    Args:
        part: names the range.
        own: the node of the range's instance. It holds a copy only if there are not enough other
            nodes, or not enough other zones.
        upstream: the nodes of the instances that it reads from.
        zones: all nodes that have a keeper, and their zones; "" where none is known.
    """
    ring = by_weight(part, zones)
    near = {*upstream} - {own}
    first = next((node for node in ring if node in near), "")
    order = sorted(ring, key=lambda node: (node != first, node == own))
    return in_zones(order, zones, copies)


def by_weight(part: str, nodes: Iterable[str]) -> list[str]:
    """The nodes in the order in which they are to hold a range: highest weight first.

    Args:
        part: names the range.
    """
    return sorted(nodes, key=lambda node: (-key_hash((part, node)), node))


def in_zones(order: Sequence[str], zones: Mapping[str, str], count: int) -> tuple[str, ...]:
    """The first nodes of an order that lie in as many zones as possible: a node in a zone without a
    copy goes before all others. The nodes whose zone is not known count as one zone."""
    left, chosen = list(order), list[str]()
    while left and len(chosen) < count:
        used = {zones[node] for node in chosen}
        node = next((n for n in left if zones[n] not in used), left[0])
        left.remove(node)
        chosen.append(node)
    return tuple(chosen)


def zones_short(nodes: Iterable[str], zones: Mapping[str, str], copies: int) -> bool:
    """Whether copies on these nodes lie in fewer zones than they could.

    Args:
        zones: see `holders`.
    """
    possible = min(copies, len({*zones.values()}))
    return len({zones[node] for node in nodes if node in zones}) < possible
