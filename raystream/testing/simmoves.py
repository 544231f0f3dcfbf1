"""Requests to move ranges, at random moments of a simulation."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from raystream.controller import commands as do
from raystream.controller.moves import Mode, Wanted
from raystream.dataflow.plan import Vertex
from raystream.schema.types import KeyRange
from raystream.state.assignment import Serving
from raystream.state.keys import even_ranges
from raystream.testing.simjob import Job

LINK = 0.03
PARTS_MAX = 4


class Mover:
    """Asks for moves by the chance of its world.

    at: after so many events each, ascending. asked: how often, by kind.
    """

    def __init__(self, job: Job, at: list[int]) -> None:
        self.job = job
        self.world = job.world
        self.at = at
        self.asked: Counter[str] = Counter()

    def strike(self) -> None:
        """Ask for what is due."""
        while self.at and self.at[0] <= self.world.events:
            self.at.pop(0)
            self._ask()

    def _ask(self) -> None:
        job, chance = self.job, self.world.rng
        vertex = chance.choice(job.plan.vertices)
        if chance.random() < 0.1:
            self._drain()
            return
        owners = [s for s in job.entry.assignment.of(vertex.id) if not s.candidate]
        if not owners:
            return
        kind = "move" if vertex.kind == "sink" else chance.choice(("even", "uneven", "move"))
        wanted = self._wanted(kind, vertex, owners)
        self.asked[kind] += 1
        self.world.tell("wanted:", wanted)
        request = do.Rescale(len(self.world.story or ()), (wanted,))
        self.world.send(LINK, job.controller, job.controller.hear, request)

    def _drain(self) -> None:
        """A node is to be left; when it is the last, that is refused."""
        self.asked["drain"] += 1
        request = do.Drain(0, self.world.rng.choice(self.job.nodes), "drained")
        self.world.tell("wanted:", request)
        self.world.send(LINK, self.job.controller, self.job.controller.hear, request)

    def _wanted(self, kind: str, vertex: Vertex, owners: list[Serving]) -> Wanted:
        chance, groups = self.world.rng, self.job.plan.groups
        if kind == "move":
            leave = (chance.choice(owners).instance,)
            ranges = tuple(s.keys for s in owners)
            node = chance.choice(("", *self.job.nodes))
            return Wanted(vertex.name, ranges, kind, leave, node, self._mode())
        parts = chance.randrange(1, PARTS_MAX + 1)
        if kind == "even":
            even = tuple(even_ranges(groups, parts))
            return Wanted(vertex.name, even, kind, mode=self._mode())
        cuts = [0, *sorted(chance.sample(range(1, groups), parts - 1)), groups]
        found = (KeyRange(lo, hi) for lo, hi in pairwise(cuts))
        return Wanted(vertex.name, tuple(found), kind, mode=self._mode())

    def _mode(self) -> Mode:
        return self.world.rng.choice(("replay", "handover"))
