"""Classes of links, and who holds what of the state that is gathered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raystream.controller.protocol.gathering.links import Links, Pair
from raystream.controller.protocol.gathering.plan import Wanted
from raystream.schema.types import KeyRange

HOLDERS = tuple(f"h{i}" for i in range(8))
"""The hosts whose keepers hold the state."""
RECEIVERS = tuple(f"r{i}" for i in range(8))
"""The hosts on which instances begin in the place of those that failed."""
STORE = "store"
"""The host of the durable tier, which has one link."""
GROUPS = 256
GOODPUT = 0.94
"""The share of a link that is left for data beside the headers of Ethernet, IP and TCP."""


@dataclass(frozen=True, kw_only=True)
class LinkClass:
    """What the links of all hosts are like, in bits a second as they are shaped."""

    title: str
    node: float
    """What a host can send, and receive, in all."""
    slow: dict[str, float] = field(default_factory=dict)
    """The same of hosts that are slower."""
    pair: Callable[[str, str], float | None] = lambda sender, receiver: None
    """What goes from a host to another, where that is less."""
    delay: float = 0.0
    """How many seconds a byte is under way."""

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
    """The links of a class, as a job would have measured them.

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
    """The states of instances that failed at once, each of so many bytes: every holder has an
    eighth of each state, and the eighths of its neighbours on the ring as further copies."""
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
    """The same states in the durable tier alone."""
    whole = KeyRange(0, GROUPS)
    return [
        Wanted(receiver=RECEIVERS[i], keys=whole, nbytes=nbytes, held={STORE: (whole,)})
        for i in range(failures)
    ]


def sr3_form(nbytes: int) -> str:
    """What SR3 chooses, by size alone: a star below 16 MB, else a tree, as recovery is to be soon
    (a line where it need not be)."""
    return "star" if nbytes < 16 << 20 else "tree"
