"""Carries plans out, by a process in each namespace that sends real bytes over shaped links."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gather.classes import HOLDERS, RECEIVERS, STORE, LinkClass
from benchmarks.gather.network import Network
from raystream.controller.protocol.gathering.plan import Gathering, Subtree

HOST = Path(__file__).with_name("host.py")


class GatherError(RuntimeError):
    """A receiver did not get all bytes that it asked for."""


class Hosts:
    """The processes of all hosts of a class; a context.

    Raises:
        NoNamespacesError: on entry, where namespaces cannot be made.
    """

    def __init__(self, c: LinkClass) -> None:
        self._class = c
        self._network = Network(c, (*HOLDERS, *RECEIVERS, STORE))
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Hosts:
        self._network.__enter__()
        for host in (*HOLDERS, *RECEIVERS, STORE):
            inside = ["ip", "netns", "exec", self._network.namespace(host)]
            self._processes[host] = subprocess.Popen(
                [*inside, sys.executable, "-I", str(HOST), self._network.address(host)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        for process in self._processes.values():
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.communicate()
        self._network.__exit__()

    def gather(self, plans: Sequence[Gathering]) -> float:
        """Carry out all plans together.

        Returns:
            The seconds until the last receiver has everything.

        Raises:
            GatherError: a receiver did not get all bytes.
        """
        for plan in plans:
            request = tickets(plan, self._network.address, self._class.delay)
            stdin = self._processes[plan.wanted.receiver].stdin
            assert stdin is not None
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        seconds = 0.0
        for plan in plans:
            stdout = self._processes[plan.wanted.receiver].stdout
            assert stdout is not None
            said = json.loads(stdout.readline())
            if said["missing"] or said["wrong"]:
                raise GatherError(f"{plan.wanted.receiver}: {said['missing']} {said['wrong']}")
            seconds = max(seconds, said["seconds"])
        return seconds


def tickets(plan: Gathering, address: Callable[[str], str], delay: float) -> dict[str, Any]:
    """What a receiver is told: the branches that it opens, and the bytes of each slice.

    Args:
        address: gives the address of a host.
        delay: seconds that a byte is under way on each link.
    """
    wanted = plan.wanted
    one = wanted.nbytes / len(wanted.keys)
    sizes = {r.keys: round(one * r.keys.hi) - round(one * r.keys.lo) for r in plan.routes}
    numbers = {keys: i for i, keys in enumerate(sizes)}

    def ticket(branch: Subtree) -> dict[str, Any]:
        return {
            "address": address(branch.node),
            "delay": delay,
            "slices": [(numbers[keys], sizes[keys]) for keys in branch.slices],
            "children": [ticket(child) for child in branch.children],
        }

    roots = [ticket(branch) for branch in plan.tree]
    return {"roots": roots, "slices": {numbers[keys]: size for keys, size in sizes.items()}}
