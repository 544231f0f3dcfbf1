"""Network namespaces for raylets, all at one bridge, whose links can be cut.

A thread enters a namespace, and the processes that it starts are there. What a link drops or slows
down is done by a token bucket (`tc`, tbf) at either end of it: the kernels of some machines have no
other queue. What it loses by chance is dropped by a rule of the packet filter (`nft`). This needs
root, `ip` and `tc`; `nft` only for links that lose packets.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Literal

from benchmarks.shared.namespaces import Namespaces, run

Cut = Literal["both", "out", "in", "slow", "lossy"]
CUTS: tuple[Cut, ...] = ("both", "out", "in", "slow", "lossy")
"""both: nothing comes through. out, in: nothing that the node sends, or that is sent to it. slow: 4
Mbit/s. lossy: each packet is lost with a chance of `LOST_PERCENT`."""
LOST_PERCENT = 20
NOTHING = "tbf rate 8bit burst 10 latency 1ms"
"""A bucket into which no packet goes."""
LITTLE = "tbf rate 4mbit burst 32kb latency 400ms"
NEW_NETWORK = 0x40000000
"""CLONE_NEWNET."""
HOOK = "{ type filter hook ingress device %s priority 0 ; }"
"""Where a rule of the packet filter sees what comes in at an end of a link."""
LOSS = f"numgen random mod 100 < {LOST_PERCENT} drop"


def cuts() -> tuple[Cut, ...]:
    """The ways to cut a link that this machine has the commands for."""
    return tuple(c for c in CUTS if c != "lossy" or shutil.which("nft"))


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
        """Cut the link of a host, slow it down, or have it lose packets."""
        if how == "lossy":
            for space, end in self._ends(host):
                nft = f"ip netns exec {space} nft add"
                run(f"{nft} table netdev {end}")
                run(f"{nft} chain netdev {end} lossy {HOOK % end}")
                run(f"{nft} rule netdev {end} lossy {LOSS}")
            return
        bucket = LITTLE if how == "slow" else NOTHING
        if how != "in":
            run(f"tc -n {self._space(host)} qdisc replace dev eth0 root {bucket}")
        if how != "out":
            run(f"tc -n {self._spaces.bridge} qdisc replace dev h{host} root {bucket}")

    def mend(self, host: int) -> None:
        """Make the link of a host whole again."""
        for space, end in self._ends(host):
            _undo(f"tc -n {space} qdisc del dev {end} root")
            if "lossy" in cuts():
                _undo(f"ip netns exec {space} nft delete table netdev {end}")

    def close(self) -> None:
        """Remove the namespaces."""
        self._spaces.remove()

    def _ends(self, host: int) -> tuple[tuple[str, str], tuple[str, str]]:
        """Both ends of the link of a host, with their namespaces."""
        return (self._space(host), "eth0"), (self._spaces.bridge, f"h{host}")

    def _space(self, host: int) -> str:
        return self._spaces.of(f"h{host}")


def _undo(command: str) -> None:
    """Run a command that undoes what may not have been done."""
    subprocess.run(command.split(), capture_output=True, check=False)
