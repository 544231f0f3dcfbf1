"""Hosts as network namespaces of this machine, all at one bridge.

What a host sends is shaped at the host (htb: in all, and for each receiver). What it receives is
shaped at the bridge (tbf). This needs root, `ip` and `tc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gather.classes import LinkClass
from benchmarks.shared.namespaces import Namespaces, NoNamespacesError, run

BURST = "256kb"


class Network:
    """The namespaces of hosts, with the links of a class; a context.

    Args:
        hosts: their names, which also name network devices: at most 15 letters.

    Raises:
        NoNamespacesError: on entry, where namespaces cannot be made.
    """

    def __init__(self, c: LinkClass, hosts: Sequence[str]) -> None:
        self._class = c
        self._spaces = Namespaces("rsg", "10.77.0", hosts)

    def __enter__(self) -> Network:
        self._spaces.make()
        try:
            for host in self._spaces.hosts:
                self._shape(host)
        except NoNamespacesError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._spaces.remove()

    def namespace(self, host: str) -> str:
        """The namespace of a host."""
        return self._spaces.of(host)

    def address(self, host: str) -> str:
        """The address of a host."""
        return self._spaces.address(host)

    def _shape(self, host: str) -> None:
        limit = self._class.limit(host)
        rate = f"{limit:.0f}bit"
        run(
            f"tc -n {self._spaces.bridge} qdisc add dev {host} root tbf rate {rate} burst"
            f" {max(262144, round(limit / 8 / 1000))} latency 100ms"
        )
        tc = f"tc -n {self.namespace(host)}"
        run(f"{tc} qdisc add dev eth0 root handle 1: htb default 2 r2q 1000")
        run(f"{tc} class add dev eth0 parent 1: classid 1:1 htb rate {rate} burst {BURST}")
        run(f"{tc} class add dev eth0 parent 1:1 classid 1:2 htb rate {rate} burst {BURST}")
        for i, other in enumerate(self._spaces.hosts):
            pair = None if other == host else self._class.pair(host, other)
            if pair is not None:
                run(
                    f"{tc} class add dev eth0 parent 1:1 classid 1:{i + 10} htb rate"
                    f" {pair:.0f}bit burst 64kb"
                )
                run(
                    f"{tc} filter add dev eth0 parent 1: protocol ip u32 match ip dst"
                    f" {self.address(other)}/32 flowid 1:{i + 10}"
                )
