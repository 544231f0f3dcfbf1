"""Which nodes hold the checkpoints of an instance: a ring on which anybody finds the holders.

Every pair of a range and a node has a weight, a hash of both, and the nodes with the highest
weights hold the range: highest random weight hashing (Thaler and Ravishankar, IEEE/ACM Transactions
on Networking 6:1, 1998). Whoever has the list of nodes computes the same holders without asking.
The ranges spread evenly, and when a node comes or goes only the ranges move that it gets or had.
SR3 (Middleware 2020) has a ring for the same reason.

The first copy goes to an upstream node if one of them has a keeper, as in SEEP (SIGMOD 2013): its
network has the bytes of this stream anyway. Further copies go to other zones, as far as there are
some, so that a zone may be lost.
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

    The checkpoints of all sources are at the same keepers: a job that loses one of them, or the
    boundary register, has to begin again, and more places are more that may be lost.
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
        own: the node of its instance. It holds a copy only if there are not enough other nodes, or
            not enough other zones.
        upstream: the nodes of the instances that it reads from.
        zones: all nodes that have a keeper, and their zones; "" where none is known.
    """
    ring = by_weight(part, zones)
    near = {*upstream} - {own}
    first = next((node for node in ring if node in near), "")
    order = sorted(ring, key=lambda node: (node != first, node == own))
    return in_zones(order, zones, copies)


def by_weight(part: str, nodes: Iterable[str]) -> list[str]:
    """The nodes in the order in which they would hold a range."""
    return sorted(nodes, key=lambda node: (-key_hash((part, node)), node))


def in_zones(order: Sequence[str], zones: Mapping[str, str], count: int) -> tuple[str, ...]:
    """The first nodes of an order, so that they lie in as many zones as can be: one of a zone that
    has none yet goes before the others. Nodes of no known zone count as one zone."""
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
