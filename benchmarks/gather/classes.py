"""Classes of links, and which host holds which part of the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raystream.controller.protocol.gathering.links import Links, Pair
from raystream.controller.protocol.gathering.plan import Wanted
from raystream.schema.types import KeyRange

HOLDERS = tuple(f"h{i}" for i in range(8))
"""The hosts whose keepers hold the state."""
RECEIVERS = tuple(f"r{i}" for i in range(8))
"""The hosts on which new instances begin, in the place of those that failed."""
STORE = "store"
"""The host of the durable tier, which has one link."""
GROUPS = 256
GOODPUT = 0.94
"""The share of a link that carries data. The headers of Ethernet, IP and TCP take the rest."""


@dataclass(frozen=True, kw_only=True)
class LinkClass:
    """The links of all hosts. Speeds are in bits a second, headers included: `tc` shapes these."""

    title: str
    node: float
    """What a host can send, and receive, in all."""
    slow: dict[str, float] = field(default_factory=dict)
    """`node` of the hosts that are slower, by their names."""
    pair: Callable[[str, str], float | None] = lambda sender, receiver: None
    """What one host can send to another, where that is less than `node`; None where it is not."""
    delay: float = 0.0
    """Seconds that a byte is under way on each link."""

    def limit(self, host: str) -> float:
        """What a host can send, and receive, in all."""
        return self.slow.get(host, self.node)


def _gateway(sender: str, receiver: str) -> float | None:
    if receiver not in RECEIVERS or sender == STORE:
        return None
    return 400e6 if sender == HOLDERS[0] else 50e6


CLASSES = {
    "lan10": LinkClass(title="LAN, 10 Gbit/s", node=10e9),
    "lan1": LinkClass(title="LAN, 1 Gbit/s", node=1e9),
    "wan": LinkClass(title="WAN, 100 Mbit/s, 20 ms", node=100e6, delay=0.02),
    "gateway": LinkClass(
        title="one holder 400 Mbit/s to the receiver, others 50, between holders 1 Gbit/s",
        node=1e9,
        pair=_gateway,
    ),
    "slow": LinkClass(
        title="LAN, 1 Gbit/s, one holder with 100 Mbit/s", node=1e9, slow={HOLDERS[3]: 100e6}
    ),
}


def links_of(c: LinkClass, *, store: bool = False) -> Links:
    """The links of a class, in bytes of data a second.

    Args:
        store: whether the host of the durable tier is one of them.
    """
    hosts = (*HOLDERS, *RECEIVERS, *([STORE] if store else []))
    share = GOODPUT / 8
    whole = {host: c.limit(host) * share for host in hosts}
    pairs: dict[Pair, float] = {}
    for a in hosts:
        for b in hosts:
            if a != b:
                limit = c.pair(a, b) or min(c.limit(a), c.limit(b))
                pairs[a, b] = limit * share
    delays = dict.fromkeys(pairs, c.delay) if c.delay else {}
    return Links(pairs=pairs, up=whole, down=whole, delays=delays)


def wants(nbytes: int, failures: int, copies: int) -> list[Wanted]:
    """The states of the instances that failed at once. Each holder has an eighth of each state, and
    the eighths of its neighbours on the ring as further copies.

    Args:
        nbytes: the bytes of each state.
    """
    shards = [KeyRange(GROUPS * i // len(HOLDERS), GROUPS * (i + 1) // len(HOLDERS))
              for i in range(len(HOLDERS))]  # fmt: skip
    held = {
        host: tuple(shards[(i - copy) % len(HOLDERS)] for copy in range(copies))
        for i, host in enumerate(HOLDERS)
    }
    whole = KeyRange(0, GROUPS)
    return [
        Wanted(receiver=RECEIVERS[i], keys=whole, nbytes=nbytes, held=held) for i in range(failures)
    ]


def stored(nbytes: int, failures: int) -> list[Wanted]:
    """The same states, held by the durable tier alone."""
    whole = KeyRange(0, GROUPS)
    return [
        Wanted(receiver=RECEIVERS[i], keys=whole, nbytes=nbytes, held={STORE: (whole,)})
        for i in range(failures)
    ]


def sr3_form(nbytes: int) -> str:
    """The form that SR3 chooses, by size alone: a star below 16 MB, otherwise a tree. (SR3 takes a
    line where recovery need not be quick.)"""
    return "star" if nbytes < 16 << 20 else "tree"
