"""Hosts as network namespaces of this machine, all at one bridge; for root, with `ip` and `tc`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence


class NoNamespacesError(Exception):
    """This machine does not allow namespaces, or cannot shape links. The message says why."""


class Namespaces:
    """A namespace for each host, and one with the bridge.

    Args:
        prefix: of the names of the namespaces, which also have the id of this process.
        subnet: the first three numbers of all addresses, as in "10.77.0".
        hosts: their names, which also name the ends of their links at the bridge: at most 15
            letters.
    """

    def __init__(self, prefix: str, subnet: str, hosts: Sequence[str]) -> None:
        self.bridge = f"{prefix}{os.getpid()}"
        """The namespace of the bridge."""
        self.hosts = tuple(hosts)
        self._subnet = subnet

    def of(self, host: str) -> str:
        """The namespace of a host; its link is there `eth0`."""
        return f"{self.bridge}{host}"

    def address(self, host: str) -> str:
        """The address of a host."""
        return f"{self._subnet}.{self.hosts.index(host) + 1}"

    def make(self) -> None:
        """Make all of them.

        Raises:
            NoNamespacesError: they cannot be made. None is left.
        """
        if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
            raise NoNamespacesError("network namespaces need root, `ip` and `tc`")
        try:
            self._make()
        except NoNamespacesError:
            self.remove()
            raise

    def _make(self) -> None:
        run(f"ip netns add {self.bridge}")
        bridge = f"ip -n {self.bridge}"
        run(f"{bridge} link add br0 type bridge")
        run(f"{bridge} link set br0 up")
        for host in self.hosts:
            run(f"ip netns add {self.of(host)}")
            run(f"{bridge} link add {host} type veth peer name eth0 netns {self.of(host)}")
            run(f"{bridge} link set {host} master br0 up")
            inside = f"ip -n {self.of(host)}"
            run(f"{inside} link set lo up")
            run(f"{inside} addr add {self.address(host)}/24 dev eth0")
            run(f"{inside} link set eth0 up")

    def remove(self) -> None:
        """Remove those that are there."""
        for name in [*map(self.of, self.hosts), self.bridge]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def run(command: str) -> None:
    """Run a command of `ip` or `tc`.

    Raises:
        NoNamespacesError: it failed.
    """
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNamespacesError(f"`{command}` said: {done.stderr.strip()}")
