"""Which nodes hold the checkpoints of an instance: SEEP's rule, extended to several copies.

SEEP (SIGMOD 2013) keeps the checkpoint of an operator with one of its upstream operators, chosen by
hash, which spreads the copies of many partitions. Further copies go to the ring successors of that
node, in the order of the nodes' names.
"""

from __future__ import annotations

from collections.abc import Iterable

from raystream.controller.protocol.recovery import Place
from raystream.state.keys import key_hash


def keepers_of(
    place: Place,
    own: str,
    upstream: Iterable[str],
    nodes: Iterable[str],
    copies: int,
    *,
    source: bool,
) -> tuple[str, ...]:
    """The nodes whose keepers hold the checkpoints of the instance in a place; see `holders`.

    The checkpoints of a source are at the first of all keepers, as the boundary register is.
    """
    if source:
        return tuple(sorted(nodes))[:copies]
    return holders(f"{place.operator}/{place.keys.lo}", own, upstream, nodes, copies)


def holders(
    instance: str, own: str, upstream: Iterable[str], nodes: Iterable[str], copies: int
) -> tuple[str, ...]:
    """The nodes that hold an instance's checkpoints; fewer than `copies` if there are not enough.

    Args:
        own: the node of the instance. It holds a copy only if there are not enough other nodes.
        upstream: the nodes of the instances that it reads from.
        nodes: all nodes that have a keeper.
    """
    ring = sorted(set(nodes))
    others = [n for n in ring if n != own] or ring
    near = sorted(set(upstream) & set(others)) or others
    if not others:
        return ()
    first = others.index(near[key_hash(instance) % len(near)])
    last = [n for n in ring if n not in others]
    return tuple([*others[first:], *others[:first], *last][:copies])
