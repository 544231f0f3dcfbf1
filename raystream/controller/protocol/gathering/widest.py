"""Gathering over the widest paths, and `auto`, which takes the fastest form.

A path is as wide as what is left of its narrowest link. Receivers are given bandwidth bit by bit:
next is the receiver that has the smallest share of what it needs, so that all are served alike, and
it is given a bit of the widest path from a holder. Each path then carries slices in proportion to
the bandwidth that it was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raystream.controller.protocol.gathering.forms import line, star, tree
from raystream.controller.protocol.gathering.links import Links
from raystream.controller.protocol.gathering.plan import (
    Gathering,
    Parcel,
    Route,
    Wanted,
    parcels,
    shared,
)
from raystream.controller.protocol.gathering.predict import (
    Resource,
    capacity,
    crossed,
    predicted,
)

WORTH = 1.5
"""A path over other nodes is taken only if it is this many times wider than a direct link."""
STEPS = 16
"""The number of bits in which a receiver is given what a star would give it. Beyond that, bits
are larger."""
RELAYS = 4
"""How many nodes that hold nothing are tried as relays, at most."""
LESS = 0.95
"""A plan is taken only if it needs less than this share of the time of the best one before it; the
first is a star."""

FORMS = ("auto", "star", "line", "tree", "widest")
"""The forms that may be asked for."""


def gather(wants: Sequence[Wanted], links: Links, form: str = "auto") -> tuple[Gathering, ...]:
    """One plan for all receivers.

    Args:
        form: one of `FORMS`; `auto` for the form by which the last receiver is predicted to have
            everything first.

    Raises:
        UnheldError: no node holds some part of a wanted range.
    """
    if form == "auto":
        return _fastest([gather(wants, links, each) for each in FORMS[1:]])
    if form == "widest":
        return predicted(widest(wants, links), links)
    made = {"star": star, "line": line, "tree": tree}[form]
    return predicted([made(wanted, links) for wanted in wants], links)


def _fastest(plans: Sequence[tuple[Gathering, ...]]) -> tuple[Gathering, ...]:
    """The fastest of plans, the first of which is a star."""
    best = plans[0]
    for plan in plans[1:]:
        if _seconds(plan) < LESS * _seconds(best):
            best = plan
    return best


def _seconds(plan: tuple[Gathering, ...]) -> float:
    return max((each.seconds for each in plan), default=0.0)


@dataclass(eq=False)
class _Demand:
    """A parcel that a receiver needs, and the paths by which it comes."""

    wanted: Wanted
    parcel: Parcel
    relays: tuple[str, ...]
    given: dict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))
    """Bytes a second, by path."""

    @property
    def part(self) -> float:
        """The share of the parcel that arrives each second, by all paths together."""
        return sum(self.given.values()) / max(self.parcel.nbytes, 1.0)


class _Path(NamedTuple):
    width: float
    nodes: tuple[str, ...]


class _Left:
    """What is left of all links."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._left: dict[Resource, float] = {}

    def of(self, resource: Resource) -> float:
        """What is left of a resource."""
        left = self._left.get(resource)
        if left is None:
            left = self._left[resource] = capacity(self._links, resource)
        return left

    def width(self, sender: str, receiver: str) -> float:
        """What one node can still send to another."""
        width = self.of((sender, receiver))
        if sender == receiver:
            return width
        return min(width, self.of((sender, "")), self.of(("", receiver)))

    def take(self, path: Sequence[str], receiver: str, speed: float) -> None:
        """Take bandwidth from all resources of a path."""
        for resource in crossed(path, receiver):
            self._left[resource] = self.of(resource) - speed


def widest(wants: Sequence[Wanted], links: Links) -> list[Gathering]:
    """Plans over the widest paths, one for each receiver, made together."""
    demands = [
        _Demand(wanted, parcel, _relays(wanted, parcel, links))
        for wanted in wants
        for parcel in parcels(wanted)
    ]
    stars = predicted([star(wanted, links) for wanted in wants], links)
    step = 1 / (STEPS * max(_seconds(stars), 1e-9))
    left, open_ = _Left(links), list(demands)
    while open_:
        demand = min(open_, key=lambda d: d.part)
        bit = max(step, demand.part / STEPS) * max(demand.parcel.nbytes, 1.0)
        path = _widest(demand, left, bit)
        if path.width < bit / 4:
            open_.remove(demand)
            continue
        speed = min(path.width, bit)
        demand.given[path.nodes] += speed
        left.take(path.nodes, demand.wanted.receiver, speed)
    return [
        Gathering(wanted=wanted, routes=_routes(wanted, demands, links), form="widest")
        for wanted in wants
    ]


def _routes(wanted: Wanted, demands: Sequence[_Demand], links: Links) -> tuple[Route, ...]:
    found: list[Route] = []
    for demand in (d for d in demands if d.wanted is wanted):
        given = demand.given or {(_nearest(demand, links),): 1.0}
        found += shared(demand.parcel.keys, given)
    return tuple(found)


def _nearest(demand: _Demand, links: Links) -> str:
    to = demand.wanted.receiver
    return max(demand.parcel.holders, key=lambda holder: links.between(holder, to))


def _relays(wanted: Wanted, parcel: Parcel, links: Links) -> tuple[str, ...]:
    """The nodes that may pass a parcel on: holders of other parcels, and up to `RELAYS` nodes whose
    links to the receiver are much wider than those of all holders."""
    to, holders = wanted.receiver, {*parcel.holders}
    direct = max(links.between(holder, to) for holder in holders)
    wide = [
        (speed, sender)
        for (sender, receiver), speed in links.pairs.items()
        if receiver == to and sender not in wanted.held and speed > WORTH * direct
    ]
    wider = [sender for _, sender in sorted(wide, reverse=True)[:RELAYS]]
    return (*sorted({*wanted.held} - holders - {to}), *wider)


def _widest(demand: _Demand, left: _Left, bit: float) -> _Path:
    """The widest path from a holder. A direct link is preferred while it has room for a bit, and
    unless another path is `WORTH` times as wide."""
    to, holders = demand.wanted.receiver, demand.parcel.holders
    direct = max(_Path(left.width(holder, to), (holder,)) for holder in holders)
    if direct.width >= bit:
        return direct
    over = _search(demand, left, max(direct.width * WORTH, bit / 4))
    return over if over.width > WORTH * direct.width else direct


def _search(demand: _Demand, left: _Left, least: float) -> _Path:
    """The widest path of all, if it is wider than `least`; otherwise an empty path of width 0. This
    is Dijkstra's algorithm with widths in the place of distances."""
    to, holders = demand.wanted.receiver, {*demand.parcel.holders}
    known = {to: _Path(float("inf"), ())}
    waiting = {*holders, *demand.relays} - {to}
    last = to
    while waiting:
        for node in waiting:
            width = min(left.width(node, last), known[last].width)
            if width > known[node].width if node in known else width > least:
                known[node] = _Path(width, (node, *known[last].nodes))
        reached = [node for node in waiting if node in known]
        if not reached:
            break
        last = max(reached, key=lambda node: known[node])
        if last in holders:
            return known[last]
        waiting.remove(last)
    return _Path(0.0, ())
