"""What the network between nodes can carry, as far as it is known."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

Pair = tuple[str, str]
"""The node that sends, and the one that receives."""

USUAL = 125e6
"""Bytes a second of a link of which nothing is known: 1 Gbit/s."""
LEAST_BYTES = 256 << 10
"""What was sent at once counts as a measurement of a link from so many bytes on: of less, most of
the time is not the link's."""
LOCAL = 2e9
"""Bytes a second between processes of one node."""
FALLS = 0.1
"""The share of the difference by which a slower measurement lowers what is known of a link."""


@dataclass(frozen=True)
class Links:
    """The links of nodes, in bytes and seconds."""

    pairs: Mapping[Pair, float] = field(default_factory=dict)
    """What was measured between two nodes, in bytes a second."""
    up: Mapping[str, float] = field(default_factory=dict)
    """What a node can send in all, where it is known."""
    down: Mapping[str, float] = field(default_factory=dict)
    """What a node can receive in all, where it is known."""
    delays: Mapping[Pair, float] = field(default_factory=dict)
    """Seconds that a byte is under way between two nodes, where that counts."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zones of nodes, where they are known."""

    def between(self, sender: str, receiver: str) -> float:
        """What a link can carry, in bytes a second: as measured, otherwise the median of the links
        between the same two zones, otherwise the median of all links."""
        if sender == receiver:
            return LOCAL
        known = self.pairs.get((sender, receiver))
        if known is not None:
            return known
        return self._medians.get(self._zones(sender, receiver), self._medians.get(None, USUAL))

    def sends(self, node: str) -> float:
        """What a node can send in all, in bytes a second: as known, otherwise as much as its
        fastest link; no limit for a node without links."""
        return self.up.get(node, self._fastest.get(node, float("inf")))

    def receives(self, node: str) -> float:
        """What a node can receive in all; see `sends`."""
        return self.down.get(node, self._fastest.get(node, float("inf")))

    def delay(self, sender: str, receiver: str) -> float:
        """Seconds that a byte is under way between two nodes."""
        return self.delays.get((sender, receiver), 0.0)

    def _zones(self, sender: str, receiver: str) -> Pair:
        return self.zones.get(sender, ""), self.zones.get(receiver, "")

    @cached_property
    def _medians(self) -> dict[Pair | None, float]:
        by_zones: dict[Pair | None, list[float]] = defaultdict(list)
        for pair, speed in self.pairs.items():
            by_zones[self._zones(*pair)].append(speed)
            by_zones[None].append(speed)
        return {zones: statistics.median(speeds) for zones, speeds in by_zones.items()}

    @cached_property
    def _fastest(self) -> dict[str, float]:
        """The fastest link of each node, in either direction: network cards send and receive at the
        same speed."""
        fastest: dict[str, float] = {}
        for pair, speed in self.pairs.items():
            for node in pair:
                fastest[node] = max(speed, fastest.get(node, 0.0))
        return fastest


def measured(known: float | None, speed: float) -> float:
    """What is known of a link after one more measurement. It rises at once and falls slowly:
    nothing makes a link seem faster than it is, but other traffic and a busy machine make it seem
    slower.

    Args:
        known: what was known before, in bytes a second.
        speed: what was measured.
    """
    if known is None or speed >= known:
        return speed
    return known + FALLS * (speed - known)


class Hop(NamedTuple):
    """Bytes that went from one node to another."""

    sender: str
    """The node."""
    receiver: str
    """The other one."""
    nbytes: int
    seconds: float
    """From when they were sent until their receiver had said that it has them."""


class Ways(NamedTuple):
    """What the receiver of a state needs to plan by what ways it comes."""

    links: Links
    """As they are known."""
    nodes: tuple[str, ...]
    """The nodes of the keepers that may have the state, in the order of these keepers."""


class LinkMeter:
    """What is known of links by what went over them."""

    def __init__(self) -> None:
        self.pairs: dict[Pair, float] = {}
        """Bytes a second, by sender and receiver."""

    def note(self, sent: Hop) -> None:
        """Learn from one measurement. Of what stays on a node, and of little, nothing is learnt."""
        pair = sent.sender, sent.receiver
        counts = all(pair) and pair[0] != pair[1] and sent.nbytes >= LEAST_BYTES
        if counts and sent.seconds > 0:
            self.pairs[pair] = measured(self.pairs.get(pair), sent.nbytes / sent.seconds)

    def learn(self, pairs: Iterable[tuple[Pair, float]], alive: Iterable[str] = ()) -> None:
        """Take what others know; and with `alive`, forget the links of all other nodes."""
        self.pairs.update(pairs)
        there = {*alive}
        if there:
            self.pairs = {p: v for p, v in self.pairs.items() if there.issuperset(p)}
