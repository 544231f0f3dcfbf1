"""Requests to move ranges, and to go over to other code, at random moments of a simulation."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import MoveMode, RescaleRequest, elsewhere
from raystream.dataflow.assignment import Serving
from raystream.dataflow.plan import Vertex
from raystream.schema.types import KeyRange
from raystream.simulation.job import SimulatedJob
from raystream.simulation.references import first_version, other_version
from raystream.state.keys import even_ranges

LINK = 0.03
PARTS_MAX = 4


class Mover:
    """Asks for moves, as the random numbers of its world decide.

    Args:
        at: for each request the number of events after which it is made, ascending.
        stop_at: the number of events after which the job is stopped with a saved checkpoint; None
            if it is not.
    """

    def __init__(self, job: SimulatedJob, at: list[int], stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.job = job
        self.world = job.world
        self.at = at
        self.asked: Counter[str] = Counter()
        """How many requests were made, by kind."""

    def strike(self) -> None:
        """Make the requests that are due."""
        while self.at and self.at[0] <= self.world.events:
            self.at.pop(0)
            self._ask()
        if self.stop_at is not None and self.stop_at <= self.world.events:
            self.stop_at = None
            self.asked["stop"] += 1
            self.world.tell("is to be stopped")
            self.world.send(LINK, self.job.controller, self.job.controller.hear, on.Save())

    def _ask(self) -> None:
        job, chance = self.job, self.world.rng
        vertex = chance.choice(job.plan.vertices)
        if chance.random() < 0.1:
            self._drain()
            return
        owners = [s for s in job.entry.assignment.of(vertex.id) if not s.candidate]
        if not owners:
            return
        fixed = vertex.kind == "sink" and not vertex.sink.scales
        kind = "move" if fixed else chance.choice(("even", "uneven", "move"))
        wanted = self._wanted(kind, vertex, owners)
        self.asked[kind] += 1
        self.world.tell("wanted:", wanted)
        request = on.Rescale(len(self.world.story or ()), (wanted,))
        self.world.send(LINK, job.controller, job.controller.hear, request)

    def _drain(self) -> None:
        """Ask to drain a node. That is refused if it is the last one."""
        self.asked["drain"] += 1
        request = on.Drain(0, self.world.rng.choice(self.job.nodes), "drained")
        self.world.tell("wanted:", request)
        self.world.send(LINK, self.job.controller, self.job.controller.hear, request)

    def _wanted(self, kind: str, vertex: Vertex, owners: list[Serving]) -> RescaleRequest:
        chance, groups = self.world.rng, self.job.plan.groups
        if kind == "move":
            leave = (chance.choice(owners).instance,)
            ranges = tuple(s.keys for s in owners)
            node = chance.choice(("", *self.job.nodes))
            return RescaleRequest(vertex.name, ranges, kind, leave, node, self._mode())
        parts = chance.randrange(1, PARTS_MAX + 1)
        if kind == "even":
            even = tuple(even_ranges(groups, parts))
            return RescaleRequest(vertex.name, even, kind, mode=self._mode())
        checkpoints = [0, *sorted(chance.sample(range(1, groups), parts - 1)), groups]
        found = (KeyRange(lo, hi) for lo, hi in pairwise(checkpoints))
        return RescaleRequest(vertex.name, tuple(found), kind, mode=self._mode())

    def _mode(self) -> MoveMode:
        return self.world.rng.choice(("replay", "handover"))


class Easer:
    """Asks for instances to leave the threads that they share, and to come back, as the random
    numbers of its own decide.

    Args:
        at: for each request the number of events after which it is made, ascending.
        chance: the random numbers.
    """

    def __init__(self, job: SimulatedJob, at: list[int], chance: random.Random) -> None:
        self.job, self.at, self._chance = job, at, chance

    def strike(self) -> None:
        """Make the requests that are due."""
        job = self.job
        while self.at and self.at[0] <= job.world.events:
            self.at.pop(0)
            machine, kinds = job.controller.machine, job.plan.vertices
            threads = machine.threads()
            apart = [m for t in threads for m in t.apart]
            here = [m for t in threads for m in t.here]
            here = [m for m in here if kinds[m.record.place.vertex].kind != "source"]
            if not (apart or here):
                continue
            m = self._chance.choice(apart or here)
            owned = {o.name: (o.record.place.operator, o.record.place.keys) for o in machine.owners}
            wanted = replace(
                elsewhere(m.name, "", owned, "eased", self._chance.choice(("replay", "handover"))),
                thread="together" if m.record.place.apart else "apart",
            )
            job.world.tell("wanted:", wanted)
            job.world.send(LINK, job.controller, job.controller.hear, on.Rescale(0, (wanted,)))


class Upgrader:
    """Asks a job to go over to the other version of its code, and back.

    Args:
        at: for each request the number of events after which it is made, ascending.
        flow: the name of the job's flow.
    """

    def __init__(self, job: SimulatedJob, at: list[int], flow: str) -> None:
        self.job = job
        self.at = at
        self.flow = flow

    def strike(self) -> None:
        """Make the request that is due."""
        job = self.job
        while self.at and self.at[0] <= job.world.events:
            self.at.pop(0)
            settled = job.entry.assignment.settled
            back = bool(settled) and settled[-1].name == "other"
            wanted = first_version(self.flow) if back else other_version(self.flow)
            base = settled[-1].number if settled else 0
            request = on.UpgradeTo(0, replace(wanted, base=base))
            job.world.tell("wanted:", "the first version" if back else "the other version")
            job.world.send(LINK, job.controller, job.controller.hear, request)
