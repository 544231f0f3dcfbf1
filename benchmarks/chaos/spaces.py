"""Network namespaces for raylets, all at one bridge, whose links can be cut.

A thread enters a namespace, and the processes that it starts are there. What a link drops or slows
down is done by a token bucket (`tc`, tbf) at either end of it: the kernels of some machines have
nothing else. This needs root, `ip` and `tc`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Literal

Cut = Literal["both", "out", "in", "slow"]
CUTS: tuple[Cut, ...] = ("both", "out", "in", "slow")
"""both: nothing comes through. out, in: nothing that the node sends, or that is sent to it. slow: 4
Mbit/s."""
NOTHING = "tbf rate 8bit burst 10 latency 1ms"
"""A bucket into which no packet goes."""
LITTLE = "tbf rate 4mbit burst 32kb latency 400ms"
NEW_NETWORK = 0x40000000
"""CLONE_NEWNET."""


class NoSpacesError(Exception):
    """This machine does not allow namespaces. The message says why."""


class Spaces:
    """Namespaces of hosts.

    Args:
        hosts: how many there are.

    Raises:
        NoSpacesError: they cannot be made.
    """

    def __init__(self, hosts: int) -> None:
        if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
            raise NoSpacesError("links can be cut only by root, with `ip` and `tc`")
        self._name = f"rsc{os.getpid()}"
        self._hosts = range(hosts)
        try:
            self._build()
        except NoSpacesError:
            self.close()
            raise

    def address(self, host: int) -> str:
        """The address of a host."""
        return f"10.78.0.{host + 1}"

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
            _run(f"tc -n {self._space(host)} qdisc replace dev eth0 root {bucket}")
        if how != "out":
            _run(f"tc -n {self._name} qdisc replace dev h{host} root {bucket}")

    def mend(self, host: int) -> None:
        """Make the link of a host whole again."""
        for end in (
            f"{self._space(host)} qdisc del dev eth0",
            f"{self._name} qdisc del dev h{host}",
        ):
            subprocess.run(f"tc -n {end} root".split(), capture_output=True, check=False)

    def close(self) -> None:
        """Remove the namespaces."""
        for name in [*map(self._space, self._hosts), self._name]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def _space(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _build(self) -> None:
        _run(f"ip netns add {self._name}")
        switch = f"ip -n {self._name}"
        _run(f"{switch} link add br0 type bridge")
        _run(f"{switch} link set br0 up")
        for host in self._hosts:
            space = self._space(host)
            _run(f"ip netns add {space}")
            _run(f"{switch} link add h{host} type veth peer name eth0 netns {space}")
            _run(f"{switch} link set h{host} master br0 up")
            inside = f"ip -n {space}"
            _run(f"{inside} link set lo up")
            _run(f"{inside} addr add {self.address(host)}/24 dev eth0")
            _run(f"{inside} link set eth0 up")


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSpacesError(f"`{command}` said: {done.stderr.strip()}")
