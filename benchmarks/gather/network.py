"""Hosts as network namespaces of this machine, all at one bridge.

What a host sends is shaped at the host (htb: in all, and for each receiver). What it receives is
shaped at the bridge (tbf). This needs root, `ip` and `tc`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from benchmarks.gather.classes import LinkClass

BURST = "256kb"


class NoNamespacesError(Exception):
    """This machine does not allow namespaces, or cannot shape links. The message says why."""


class Network:
    """The namespaces of hosts, with the links of a class; a context.

    Args:
        hosts: their names, which also name network devices: at most 15 letters.

    Raises:
        NoNamespacesError: on entry, where namespaces cannot be made.
    """

    def __init__(self, c: LinkClass, hosts: Sequence[str]) -> None:
        self._class = c
        self._hosts = list(hosts)
        self._switch = f"rsg{os.getpid()}sw"

    def __enter__(self) -> Network:
        if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
            raise NoNamespacesError("hosts as network namespaces need root, `ip` and `tc`")
        try:
            self._build()
        except NoNamespacesError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*map(self.namespace, self._hosts), self._switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def namespace(self, host: str) -> str:
        """The namespace of a host."""
        return f"rsg{os.getpid()}{host}"

    def address(self, host: str) -> str:
        """The address of a host."""
        return f"10.77.0.{self._hosts.index(host) + 1}"

    def _build(self) -> None:
        _run(f"ip netns add {self._switch}")
        switch = f"ip -n {self._switch}"
        _run(f"{switch} link add br0 type bridge")
        _run(f"{switch} link set br0 up")
        for host in self._hosts:
            space = self.namespace(host)
            _run(f"ip netns add {space}")
            _run(f"{switch} link add {host} type veth peer name eth0 netns {space}")
            _run(f"{switch} link set {host} master br0 up")
            inside = f"ip -n {space}"
            _run(f"{inside} link set lo up")
            _run(f"{inside} addr add {self.address(host)}/24 dev eth0")
            _run(f"{inside} link set eth0 up")
        for host in self._hosts:
            self._shape(host)

    def _shape(self, host: str) -> None:
        limit = self._class.limit(host)
        rate = f"{limit:.0f}bit"
        _run(
            f"tc -n {self._switch} qdisc add dev {host} root tbf rate {rate} burst"
            f" {max(262144, round(limit / 8 / 1000))} latency 100ms"
        )
        tc = f"tc -n {self.namespace(host)}"
        _run(f"{tc} qdisc add dev eth0 root handle 1: htb default 2 r2q 1000")
        _run(f"{tc} class add dev eth0 parent 1: classid 1:1 htb rate {rate} burst {BURST}")
        _run(f"{tc} class add dev eth0 parent 1:1 classid 1:2 htb rate {rate} burst {BURST}")
        for i, other in enumerate(self._hosts):
            pair = None if other == host else self._class.pair(host, other)
            if pair is not None:
                _run(
                    f"{tc} class add dev eth0 parent 1:1 classid 1:{i + 10} htb rate"
                    f" {pair:.0f}bit burst 64kb"
                )
                _run(
                    f"{tc} filter add dev eth0 parent 1: protocol ip u32 match ip dst"
                    f" {self.address(other)}/32 flowid 1:{i + 10}"
                )


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNamespacesError(f"`{command}` said: {done.stderr.strip()}")
