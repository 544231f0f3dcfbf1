"""Faults for running jobs: what can be struck, who is chosen, and the signals.

Only processes that a job's own samples name are signalled, and nodes that were started here.
"""

from __future__ import annotations

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

from benchmarks.chaos.nodes import Nodes
from benchmarks.chaos.spaces import CUTS, cuts
from raystream.errors import JobError

FAMILIES = (
    "kill",
    "stop",
    "controller",
    "keeper",
    "pair",
    "triple",
    "backed",
    "node",
    "head",
    "cut",
)
"""kill: an instance. stop: a process sleeps (SIGSTOP) and wakes later. pair, triple: neighbours
along the flow, together. backed: an instance together with a keeper of its checkpoints. node: a
node that hosts at least two instances. head: Ray's server on the head, or the head with all that
runs there; it is begun again after a while. cut: the link of a node is cut, one way or both, is
slowed down or loses packets, and is mended later. All but stop and cut are SIGKILL."""
ASLEEP_SECONDS = (2.0, 15.0)
"""How long a stopped process sleeps: shorter and longer than an instance may be silent."""
CUT_SECONDS = (2.0, 20.0)
"""How long a link is cut: shorter and longer than it takes until Ray takes a node for dead."""
AWAY_SECONDS = 12.0
"""How long a head is away. Data flows meanwhile, and other faults are made."""
WARM_SECONDS = 4.0
"""Nothing is struck before. Spare processes come later."""
SEEN_SECONDS = 2.0
"""After so long samples tell of a keeper that was struck."""
CLASSES = ("Controller", "InstanceActor", "Keeper")
"""After these the processes of jobs call themselves, and after what they do just now: another may
have got the id of one that died."""
HEAD = "head"
"""The name of Ray's own processes on the head, beside those of the job."""

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
    without = [] if copies >= 2 and nodes >= 3 else ["backed", "head"]
    without += [] if nodes >= 2 else ["node"]
    without += [] if copies >= 2 and nodes >= 4 else ["cut"]
    return tuple(f for f in FAMILIES if f not in without)


def kinds_of(families: Iterable[str], chains: Chains) -> list[str]:
    """The kinds of faults to make: of `kill` and `stop` one for each kind of process, of `head`
    and `cut` one for each way."""
    vertices = list(dict.fromkeys(v for chain in chains for v in chain))
    kinds: list[str] = []
    for family in families:
        if family == "kill":
            kinds += [f"kill {v}" for v in vertices]
        elif family == "stop":
            kinds += [f"stop {v}" for v in (*vertices, "keeper", "controller")]
        elif family == "head":
            kinds += ["head server", "head node"]
        elif family == "cut":
            kinds += [f"cut {how}" for how in cuts()]
        else:
            kinds.append(family)
    return kinds


def choose(
    kind: str,
    there: Mapping[str, int],
    head: int,
    chains: Chains,
    rng: random.Random,
    home: int | None = None,
) -> tuple[str, ...]:
    """The names of those whom a fault strikes; empty while nobody fits.

    Args:
        there: by the name of each process the node it runs on. head, home: nodes that only faults
            of the head strike: the head, and the node of the submitter.
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
            spared = (head, home)
            nodes = sorted(n for n, names in hosted.items() if n not in spared and len(names) >= 2)
            node = rng.choice(nodes) if nodes else None
            return tuple(n for n in sorted(there) if there[n] == node)
        case ["cut", _]:
            nodes = sorted({*there.values()} - {head, home})
            node = rng.choice(nodes) if nodes else None
            return tuple(n for n in sorted(there) if there[n] == node)
        case ["head", what]:
            lost = [n for n in sorted(there) if there[n] == head] if what == "node" else []
            return (HEAD, *lost)
    raise ValueError(f"{kind!r} is no kind of fault")


def _serves(name: str) -> bool:
    """Whether a process is no instance."""
    return name.partition("/")[0] in ("keeper", "controller")


# ---------------------------------------------------------------- striking


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
        if not self.nodes.head_is_away:
            self.nodes.replace_cut()
        if sample.t < WARM_SECONDS or time.monotonic() < self._next:
            return
        if not self.due:
            self.due.extend(self.rng.sample(self.refill, len(self.refill)))
        processes = self._alive(sample.processes)
        there = {name: p.ppid() for name, p in processes.items()}
        others = self.rng.sample(self.refill, len(self.refill))  # what is due may be impossible
        for kind in (*self.due, *others):
            away = self.nodes.head_is_away or self.nodes.is_cut
            if away and kind.startswith(("node", "head", "cut")):
                continue  # one after the other: nodes can be replaced only while the head is there
            places = (there, self.nodes.head, self.chains, self.rng, self.nodes.home)
            victims = choose(kind, *places)
            if victims and self._survivable(victims, sample, len(there)):
                self._strike(kind, {v: processes[v] for v in victims if v != HEAD})
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
        if kind.startswith(HEAD):
            self.nodes.strike_head(AWAY_SECONDS, whole=kind == "head node")
            shown = f"for {AWAY_SECONDS:g} s {shown}"
        elif kind.startswith("cut"):
            seconds = self.rng.uniform(*CUT_SECONDS)
            shown = f"for {seconds:.1f} s {shown}"
            how = next(each for each in CUTS if kind.endswith(each))
            self.nodes.cut(next(iter(victims.values())).ppid(), how, seconds)
        elif kind == "node":
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
