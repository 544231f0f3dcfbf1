"""By what ways the state of a range comes to the process that restores it.

The process plans it, from what keepers have said that they hold and from the links as they are
known. Parts stay whole: a plan is cut where parts of images end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from raystream.controller.protocol.gathering.links import Links
from raystream.controller.protocol.gathering.plan import Route, UnheldError, Wanted
from raystream.controller.protocol.gathering.widest import gather
from raystream.schema.types import KeyRange
from raystream.state.keeping.kept_images import KeptPart

Chain = Sequence[Sequence[KeptPart[Any]]]
"""The parts of each image of a range, the oldest image first."""


class HeldCopy(NamedTuple):
    """The images of a range at one keeper."""

    keeper: Any
    node: str
    """Its node."""
    chain: Chain


class Slice(NamedTuple):
    """Key groups that come by one way."""

    keys: KeyRange
    keeper: Any
    """The keeper that holds them."""
    chain: Chain
    """What it has of the range."""
    via: tuple[Any, ...] = ()
    """The keepers that pass them on, the one next to the receiver first."""


class Planned(NamedTuple):
    """How the images of a range come."""

    slices: tuple[Slice, ...]
    form: str = ""
    """The form of the plan; empty for none."""
    seconds: float = 0.0
    """How long it takes, as predicted."""


def directly(copies: Sequence[HeldCopy], wanted: KeyRange) -> Planned:
    """All from the keeper that has answered first."""
    first = copies[0]
    return Planned((Slice(wanted, first.keeper, first.chain),))


def planned(
    copies: Sequence[HeldCopy],
    wanted: KeyRange,
    receiver: str,
    links: Links,
    keepers: Mapping[str, Any],
) -> Planned:
    """A plan for a part of a range, all of which each of some keepers has.

    Args:
        receiver: the node that restores it. keepers: those that can pass something on, by node.
    """
    first, direct = copies[0], directly(copies, wanted)
    if not links.pairs or not all(copy.node for copy in copies):
        return direct
    by_node = {copy.node: copy for copy in reversed(copies)}
    nbytes = sum(_common(part, wanted) for image in first.chain for part in image)
    want = Wanted(
        receiver=receiver,
        keys=wanted,
        nbytes=nbytes,
        held={node: [wanted] for node in by_node},
    )
    try:
        (plan,) = gather([want], links)
    except UnheldError:
        return direct
    cuts = sorted({p.keys.lo for image in first.chain for p in image} | {wanted.lo, wanted.hi})
    slices = []
    for route in _whole_parts(plan.routes, [c for c in cuts if wanted.lo <= c <= wanted.hi]):
        holder, *passing = route.path
        copy = by_node[holder]
        via = tuple(keepers.get(node) for node in reversed(passing) if node != receiver)
        there = via if all(keeper is not None for keeper in via) else ()
        slices.append(Slice(route.keys, copy.keeper, copy.chain, there))
    return Planned(tuple(slices), plan.form, plan.seconds)


def _common(part: KeptPart[Any], wanted: KeyRange) -> float:
    """About how many bytes of a part belong to a range."""
    common = part.keys.common(wanted)
    return 0.0 if common is None else part.size * len(common) / max(1, len(part.keys))


def _whole_parts(routes: Iterable[Route], cuts: Sequence[int]) -> Iterable[Route]:
    """The same routes, in order, each cut where a part ends that is near."""
    at = cuts[0]
    for route in sorted(routes):
        i = bisect_left(cuts, route.keys.hi)
        near = min(cuts[max(0, i - 1) : i + 1], key=lambda cut: abs(cut - route.keys.hi))
        if near > at:
            yield Route(KeyRange(at, near), route.path)
            at = near
