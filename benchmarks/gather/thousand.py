"""Plans for 1,000 nodes in five zones, computed by the function whose plans `runs` carries out."""

from __future__ import annotations

import time
from typing import NamedTuple

from raystream.controller.protocol.gathering.links import Links
from raystream.controller.protocol.gathering.plan import Wanted
from raystream.controller.protocol.gathering.widest import FORMS, gather
from raystream.controller.protocol.parts.keeper_choice import by_weight, in_zones
from raystream.schema.types import KeyRange

NODES = 1000
ZONES = 5
HOLDERS = 8
"""The number of parts of each range. Each part has `COPIES` holders on the ring."""
COPIES = 2
NODE = 1.25e9 * 0.94
"""What a node can send, and receive: 10 Gbit/s."""
ACROSS = 62.5e6 * 0.94
"""What goes from a node to one of another zone: 0.5 Gbit/s."""


class Computed(NamedTuple):
    """A plan for so many failures at once."""

    failures: int
    form: str
    seconds: float
    """Until the last receiver has everything, as predicted."""
    planning: float
    """Seconds of CPU of the function."""


def cluster() -> Links:
    """The links of such a cluster: one measured link for each pair of zones, and what each node can
    send and receive in all."""
    names = [f"n{i}" for i in range(NODES)]
    zones = {name: f"z{i % ZONES}" for i, name in enumerate(names)}
    pairs = {}
    for a in range(ZONES):
        for b in range(ZONES):
            pairs[names[a], names[b + ZONES]] = NODE if a == b else ACROSS
    whole = dict.fromkeys(names, NODE)
    return Links(pairs=pairs, up=whole, down=whole, zones=zones)


def wanted(links: Links, failed: int, nbytes: float) -> Wanted:
    """The state of the range whose instance failed. Another node of the same zone receives it.

    Args:
        failed: the number of the node that the instance was on.
        nbytes: the bytes of the state.
    """
    held: dict[str, list[KeyRange]] = {}
    for part in range(HOLDERS):
        keys = KeyRange(part * 32, part * 32 + 32)
        ring = [n for n in by_weight(f"op/{failed}/{part}", links.zones) if n != f"n{failed}"]
        for node in in_zones(ring, links.zones, COPIES):
            held.setdefault(node, []).append(keys)
    receiver = f"n{(failed + ZONES) % NODES}"
    return Wanted(receiver=receiver, keys=KeyRange(0, 32 * HOLDERS), nbytes=nbytes, held=held)


def computed(nbytes: float, failures: int) -> list[Computed]:
    """The plans of each form. The nodes that fail at once have numbers in a row, so they lie in all
    zones.

    Args:
        nbytes: the bytes of each state.
    """
    links = cluster()
    wants = [wanted(links, 100 + i, nbytes) for i in range(failures)]
    found = []
    for form in FORMS:
        began = time.process_time()
        plans = gather(wants, links, form)
        spent = time.process_time() - began
        found.append(Computed(failures, form, max(p.seconds for p in plans), spent))
    return found
