"""Faults for running jobs: what can be struck, who is chosen, and the signals.

Only processes that a job's own samples name are signalled, and nodes that were started here.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

try:
    import psutil
except ModuleNotFoundError:
    sys.exit("this needs psutil, which is not installed: pip install 'raystream[bench]'")

from raystream.errors import JobError

FAMILIES = ("kill", "stop", "controller", "keeper", "pair", "triple", "backed", "node")
"""kill: an instance. stop: a process sleeps (SIGSTOP) and wakes later. pair, triple: neighbours
along the flow, together. backed: an instance together with a keeper of its checkpoints. node: a
node that hosts at least two instances. All but stop are SIGKILL."""
ASLEEP_SECONDS = (2.0, 15.0)
"""How long a stopped process sleeps: shorter and longer than an instance may be silent."""
WARM_SECONDS = 4.0
"""Nothing is struck before. Spare processes come later."""
SEEN_SECONDS = 2.0
"""After so long samples tell of a keeper that was struck."""
CLASSES = ("Controller", "InstanceActor", "Keeper")
"""After these the processes of jobs call themselves, and after what they do just now: another may
have got the id of one that died."""
HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}

Chains = Sequence[Sequence[str]]
"""Names of vertices, each of which feeds the next."""


class Strike(NamedTuple):
    """A fault that was made. victims: names of processes; at: Unix time."""

    kind: str
    victims: tuple[str, ...]
    at: float


# ---------------------------------------------------------------- choosing


def possible(copies: int, nodes: int) -> tuple[str, ...]:
    """The families of faults that a job has to survive with so many copies on so many nodes."""
    without = [] if copies >= 2 and nodes >= 3 else ["backed"]
    without += [] if nodes >= 2 else ["node"]
    return tuple(f for f in FAMILIES if f not in without)


def kinds_of(families: Iterable[str], chains: Chains) -> list[str]:
    """The kinds of faults to make: of `kill` and `stop` one for each kind of process."""
    vertices = list(dict.fromkeys(v for chain in chains for v in chain))
    kinds: list[str] = []
    for family in families:
        if family == "kill":
            kinds += [f"kill {v}" for v in vertices]
        elif family == "stop":
            kinds += [f"stop {v}" for v in (*vertices, "keeper", "controller")]
        else:
            kinds.append(family)
    return kinds


def choose(
    kind: str, there: Mapping[str, int], head: int, chains: Chains, rng: random.Random
) -> tuple[str, ...]:
    """The names of those whom a fault strikes; empty while nobody fits.

    Args:
        there: by the name of each process the node it runs on. head: the node that is not struck.
    """

    def of(vertex: str) -> list[str]:
        return [n for n in sorted(there) if n.partition("/")[0] == vertex]

    def any_of(names: list[str]) -> tuple[str, ...]:
        return (rng.choice(names),) if names else ()

    instances = [n for n in sorted(there) if not _serves(n)]
    match kind.split():
        case ["kill" | "stop", vertex] | [("controller" | "keeper") as vertex]:
            return any_of(of(vertex))
        case ["pair" | "triple"]:
            length = 2 if kind == "pair" else 3
            runs = [c[i : i + length] for c in chains for i in range(len(c) - length + 1)]
            victims = [v for vertex in rng.choice(runs) for v in any_of(of(vertex))] if runs else []
            return tuple(victims) if len(victims) == length else ()
        case ["backed"]:
            last = {chain[0] for chain in chains}  # where a source's copies are is another rule
            pairs = [
                (i, k)
                for i in instances
                for k in of("keeper")
                if there[i] != there[k] and i.partition("/")[0] not in last
            ]
            return rng.choice(pairs) if pairs else ()
        case ["node"]:
            hosted: dict[int, list[str]] = {}
            for name in instances:
                hosted.setdefault(there[name], []).append(name)
            nodes = sorted(n for n, names in hosted.items() if n != head and len(names) >= 2)
            node = rng.choice(nodes) if nodes else None
            return tuple(n for n in sorted(there) if there[n] == node)
    raise ValueError(f"{kind!r} is no kind of fault")


def _serves(name: str) -> bool:
    """Whether a process is no instance."""
    return name.partition("/")[0] in ("keeper", "controller")


# ---------------------------------------------------------------- striking


class Nodes:
    """Raylets on this machine; all but the first may be killed, each is replaced."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        from raystream.actors.cluster.environment import fixed, have

        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": HEALTH_CHECKS}
        os.environ.update(fixed())  # for those that are started later, too
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        have(self.address, fixed())
        self.head = _raylet(self._cluster.head_node)
        self._workers = {_raylet(n): n for n in (self._add() for _ in range(count - 1))}

    def _add(self) -> Any:
        return self._cluster.add_node(num_cpus=1)

    @property
    def logs(self) -> str:
        """The folder where Ray keeps what the processes logged."""
        return str(self._cluster.head_node.get_logs_dir_path())

    def kill(self, node: int) -> None:
        """Kill the node whose raylet has this process id, with all that runs on it; start another.

        Raises:
            KeyError: it is the head, or none of these.
        """
        self._cluster.remove_node(self._workers.pop(node), allow_graceful=False)
        new = self._add()
        self._workers[_raylet(new)] = new

    def close(self) -> None:
        """End all raylets."""
        self._cluster.shutdown()


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


@dataclass
class Monkey:
    """Strikes processes of a job while it is told of the job's progress.

    due: kinds of faults that are still to be made, next first. refill: what to go on with when
    there are none left; nothing ends it. every: seconds between faults, on average. copies: of
    checkpoints; none that a job cannot survive with so many is made, see `_survivable`. limit:
    seconds after which the job counts as hanging.
    """

    rng: random.Random
    nodes: Nodes
    chains: Chains
    every: float
    copies: int
    due: deque[str]
    refill: Sequence[str] = ()
    limit: float = float("inf")
    say: Callable[[str], None] = print
    strikes: list[Strike] = field(default_factory=list)
    _next: float = 0.0
    _committed: int = 0
    """The newest committed checkpoint when a keeper was struck last."""
    _asleep: dict[psutil.Process, threading.Timer] = field(default_factory=dict)

    def __call__(self, sample: Any) -> None:
        """Make a fault, if it is time.

        Raises:
            JobError: the job should have ended long ago.
        """
        if sample.t > self.limit:
            raise JobError(f"the job hangs: it has not ended after {sample.t:.0f} s")
        if sample.t < WARM_SECONDS or time.monotonic() < self._next:
            return
        if not self.due:
            self.due.extend(self.rng.sample(self.refill, len(self.refill)))
        processes = self._alive(sample.processes)
        there = {name: p.ppid() for name, p in processes.items()}
        others = self.rng.sample(self.refill, len(self.refill))  # what is due may be impossible
        for kind in (*self.due, *others):
            victims = choose(kind, there, self.nodes.head, self.chains, self.rng)
            if victims and self._survivable(victims, sample, len(there)):
                self._strike(kind, {v: processes[v] for v in victims})
                if kind in self.due:
                    self.due.remove(kind)
                if _holds(victims):
                    self._committed = sample.committed.epoch
                return

    def _survivable(self, victims: Iterable[str], sample: Any, alive: int) -> bool:
        """Whether enough copies are left. A keeper falls only when all copies are there again
        since one fell last; and where there is one copy, only while nobody needs it, and nobody
        else falls before."""
        committed = sample.committed
        whole = (
            committed is not None
            and committed.epoch > self._committed
            and not committed.under_replicated
        )
        if not _holds(victims):
            return whole or self.copies > 1
        return whole and (self.copies > 1 or alive == len(sample.processes))

    def _alive(self, processes: Mapping[str, int]) -> dict[str, psutil.Process]:
        """Those of the job's processes that live, are awake, and are what they are said to be."""
        found = {}
        for name, pid in processes.items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                title = " ".join(process.cmdline())
                ours = title.startswith("ray::") and any(c in title for c in CLASSES)
                if ours and process.status() != psutil.STATUS_STOPPED:
                    found[name] = process
        return found

    def _strike(self, kind: str, victims: Mapping[str, psutil.Process]) -> None:
        self.strikes.append(Strike(kind, tuple(victims), time.time()))
        wait = self.rng.uniform(0.5, 1.5) * self.every
        shown = ", ".join(victims)
        if kind == "node":
            self.nodes.kill(next(iter(victims.values())).ppid())
        elif kind.startswith("stop "):
            seconds = self.rng.uniform(*ASLEEP_SECONDS)
            shown += f" for {seconds:.1f} s"
            wait += seconds if _holds(victims) else 0.0
            self._stop(next(iter(victims.values())), seconds)
        else:
            for process in victims.values():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._next = time.monotonic() + max(wait, SEEN_SECONDS if _holds(victims) else 0.0)
        self.say(f"{kind}: {shown}")

    def _stop(self, process: psutil.Process, seconds: float) -> None:
        timer = threading.Timer(seconds, _wake, [process])
        timer.daemon = True
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            self._asleep[process] = timer
            timer.start()

    def close(self) -> None:
        """Wake all that sleep, and strike no more."""
        for process, timer in self._asleep.items():
            timer.cancel()
            _wake(process)
        self._asleep.clear()


def _holds(victims: Iterable[str]) -> bool:
    """Whether copies fall with them."""
    return any(v.startswith("keeper") for v in victims)


def _wake(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.resume()
