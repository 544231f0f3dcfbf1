"""Star, line and tree: the forms of SR3 (Middleware 2020) over any links."""

from __future__ import annotations

from collections.abc import Sequence

from raystream.controller.protocol.gathering.links import Links
from raystream.controller.protocol.gathering.plan import Gathering, Wanted, parcels, shared

FAN_OUT = 2
"""The number of keepers that send to one keeper, or to the receiver, in a tree."""


def star(wanted: Wanted, links: Links) -> Gathering:
    """Every holder sends to the receiver. Where several hold a parcel, they share it in proportion
    to their links to the receiver."""
    to, routes = wanted.receiver, []
    for parcel in parcels(wanted):
        speeds: dict[tuple[str, ...], float] = {
            (h,): min(links.between(h, to), links.sends(h)) for h in parcel.holders
        }
        routes += shared(parcel.keys, speeds)
    return Gathering(wanted=wanted, routes=tuple(routes), form="star")


def line(wanted: Wanted, links: Links) -> Gathering:
    """Every holder sends to the next one, which adds its own slices; the last one sends to the
    receiver. The line is built from its end: the holder with the fastest link to the receiver, then
    of those that are left the one with the fastest link to that holder, and so on."""
    left, order, to = set(wanted.held), list[str](), wanted.receiver
    while left:
        to = max(sorted(left), key=lambda node: links.between(node, to))
        order.append(to)
        left.remove(to)
    return _evenly(wanted, {node: order[: i + 1][::-1] for i, node in enumerate(order)}, "line")


def tree(wanted: Wanted, links: Links) -> Gathering:
    """Two holders send to the receiver, and two to each of these, until all holders have a place.
    The faster the link of a holder to the receiver, the nearer its place."""
    to = wanted.receiver
    order = sorted(wanted.held, key=lambda node: (-links.between(node, to), node))
    paths: dict[str, Sequence[str]] = {}
    for i, node in enumerate(order):
        above = () if i < FAN_OUT else paths[order[(i - FAN_OUT) // FAN_OUT]]
        paths[node] = (node, *above)
    return _evenly(wanted, paths, "tree")


def _evenly(wanted: Wanted, paths: dict[str, Sequence[str]], form: str) -> Gathering:
    """The plan in which the holders of a parcel share it evenly, whatever their links."""
    routes = [
        route
        for parcel in parcels(wanted)
        for route in shared(parcel.keys, {tuple(paths[h]): 1.0 for h in parcel.holders})
    ]
    return Gathering(wanted=wanted, routes=tuple(routes), form=form)
