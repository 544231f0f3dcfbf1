"""Network namespaces for raylets, all at one bridge, whose links can be cut.

A thread enters a namespace, and the processes that it starts are there. What a link drops or slows
down is done by a token bucket (`tc`, tbf) at either end of it: the kernels of some machines have
nothing else. This needs root, `ip` and `tc`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from typing import Literal

from benchmarks.shared.namespaces import Namespaces, run

Cut = Literal["both", "out", "in", "slow"]
CUTS: tuple[Cut, ...] = ("both", "out", "in", "slow")
"""both: nothing comes through. out, in: nothing that the node sends, or that is sent to it. slow: 4
Mbit/s."""
NOTHING = "tbf rate 8bit burst 10 latency 1ms"
"""A bucket into which no packet goes."""
LITTLE = "tbf rate 4mbit burst 32kb latency 400ms"
NEW_NETWORK = 0x40000000
"""CLONE_NEWNET."""


class Spaces:
    """Namespaces of hosts.

    Args:
        hosts: how many there are.

    Raises:
        NoNamespacesError: they cannot be made.
    """

    def __init__(self, hosts: int) -> None:
        self._spaces = Namespaces("rsc", "10.78.0", [f"h{host}" for host in range(hosts)])
        self._spaces.make()

    def address(self, host: int) -> str:
        """The address of a host."""
        return self._spaces.address(f"h{host}")

    def enter(self, host: int) -> None:
        """Have the calling thread, and what it starts from now on, be at a host.

        Raises:
            OSError: the kernel does not allow it.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        file = os.open(f"/var/run/netns/{self._space(host)}", os.O_RDONLY)
        try:
            if libc.setns(file, NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(file)

    def cut(self, host: int, how: Cut) -> None:
        """Cut the link of a host, or slow it down."""
        bucket = LITTLE if how == "slow" else NOTHING
        if how != "in":
            run(f"tc -n {self._space(host)} qdisc replace dev eth0 root {bucket}")
        if how != "out":
            run(f"tc -n {self._spaces.bridge} qdisc replace dev h{host} root {bucket}")

    def mend(self, host: int) -> None:
        """Make the link of a host whole again."""
        for end in (
            f"{self._space(host)} qdisc del dev eth0",
            f"{self._spaces.bridge} qdisc del dev h{host}",
        ):
            subprocess.run(f"tc -n {end} root".split(), capture_output=True, check=False)

    def close(self) -> None:
        """Remove the namespaces."""
        self._spaces.remove()

    def _space(self, host: int) -> str:
        return self._spaces.of(f"h{host}")
