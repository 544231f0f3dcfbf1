"""Simulated clients that query the state of a job while it runs, and the check of what they read.

A client keeps the greatest moment that it was told and sends it with each query. Its messages are
lost, come late, and reach instances that were replaced. What it reads must be the state of an
undisturbed run at the epoch that the answer names.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from raystream.dataflow.asking.claiming import claiming
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.queries.looking import Looked, NotYet, look_up
from raystream.dataflow.queries.request import AskedKeys, Moment, StateRequest
from raystream.simulation.processes.keepers import LINK
from raystream.simulation.processes.states import Rows, StatesOfRun, states_of_flow
from raystream.simulation.world import Box, World, Wrong
from raystream.state.images.chain import FULL
from raystream.state.tables.backend import WHOLE

if TYPE_CHECKING:
    from raystream.simulation.job import SimulatedJob
    from raystream.simulation.processes.instances import SimulatedInstance

PAUSE = 0.15
"""From one request of a client to its next."""
AGAIN = 0.3
"""How long a client waits for answers before it asks again for what is open."""
LIMIT = 6.0
"""How long a client waits at most. Then it begins another request."""
KEYS = 4
"""How many keys a request is for, at most."""


class ReadRows(NamedTuple):
    """What a client was told of some keys."""

    run: int
    epoch: int
    vertex: int
    keys: Any
    """The Arrow batch of the keys."""
    rows: list[dict[str, Any]]
    """The rows that were found, in the order of the keys."""


class SimulatedReader(Box):
    """A client. It has a random generator of its own for what it asks.

    Args:
        known: the states of an undisturbed run, for keys to ask for.
        told: gets what it is told.
    """

    def __init__(
        self, world: World, name: str, seed: int, known: StatesOfRun, told: list[ReadRows]
    ) -> None:
        super().__init__(name)
        self.world, self._rng, self._known, self._told = world, random.Random(seed), known, told
        self.job: SimulatedJob
        self.seen = Moment(0, 0)
        """The greatest moment that it was told."""
        self.counts: Counter[str] = Counter()
        self._assignment = Assignment()
        self._request: StateRequest | None = None
        self._number = 0
        self._vertex = 0
        self._since = 0.0

    def begin(self, job: SimulatedJob) -> None:
        """Query a job from now on: the first, or one that goes on after it."""
        self.job = job
        self._assignment = Assignment()
        self._next()

    def _next(self) -> None:
        """Begin a request, soon after the one before."""
        self._number += 1
        self.world.after(PAUSE, self, self._ask, self._number)

    def _ask(self, number: int) -> None:
        if number != self._number or self.job.over:
            return
        known = self._known.keys or self._there()
        if not known:
            self._next()
            return
        self._vertex = self._rng.choice(sorted(known))
        every = known[self._vertex]
        some = [
            self._rng.randrange(every.num_rows) for _ in range(self._rng.randrange(1, KEYS + 1))
        ]
        run = self.job.number
        least = self.seen.epoch if self.seen.run == run else 0
        keys = every.take(pa.array(some))
        self._request = StateRequest(self._vertex, keys, self.job.plan.groups, least)
        self._since = self.world.now
        self._send(number)

    def _there(self) -> dict[int, Any]:
        """The keys that living instances have now, by vertex: of a flow that has no input when it
        runs undisturbed."""
        found = {}
        for process in self.job.at.values():
            table = process.machine.table
            if process.alive and table is not None and len(table):
                part = next(table.capture(FULL, process.machine.position).parts(WHOLE))
                found[process.vertex.id] = part.rows.select(table.shape.gone.names)
        return found

    def _send(self, number: int) -> None:
        """Ask for what is open, by the assignment that this client knows."""
        request, job = self._request, self.job
        if number != self._number or request is None or job.over:
            return
        if self.world.now - self._since > LIMIT:
            self.counts["query given up"] += 1
            self._next()
            return
        parts = request.queries(self._assignment)
        for part in parts:
            owner = job.at.get(part.serving.address)
            if owner is not None:
                self.world.send(LINK, owner, self._reach, owner, number, part)
        if not parts or self._rng.random() < 0.3:
            self._route()
        self.world.after(AGAIN, self, self._send, number)

    def _route(self) -> None:
        """Ask the controller for the newest assignment."""
        job = self.job
        self.world.send(LINK, job.controller, self._tell_route, job)

    def _tell_route(self, job: SimulatedJob) -> None:
        self.world.send(LINK, self, self._routed, job, job.entry.assignment)

    def _routed(self, job: SimulatedJob, assignment: Assignment) -> None:
        if job is self.job and assignment.version > self._assignment.version:
            self._assignment = assignment

    def _reach(self, owner: SimulatedInstance, number: int, part: AskedKeys) -> None:
        """At the instance: answer, between two steps."""
        answer = NotYet.ELSEWHERE if owner.failed else look_up(owner.tenure, part.query)
        rows = answer.found.batch() if isinstance(answer, Looked) else None
        self.world.send(LINK, self, self._answered, number, part, answer, rows)

    def _answered(self, number: int, part: AskedKeys, answer: Looked | NotYet, rows: Any) -> None:
        request = self._request
        if number != self._number or request is None or not request.open.issuperset(part.at):
            return
        if not isinstance(answer, Looked):
            self.counts[f"query {answer.value}"] += 1
            if answer is NotYet.ELSEWHERE:
                self._route()
            elif answer is NotYet.OVER:
                self._next()
            return
        if answer.epoch < part.query.least:
            raise Wrong(f"{self.name} went back from {part.query.least} to {answer.epoch}")
        request.answered(part, answer.epoch, answer.found.at.tolist(), rows)
        told = ReadRows(
            self.job.number, answer.epoch, self._vertex, part.query.keys, rows.to_pylist()
        )
        self._told.append(told)
        self.counts["query"] += 1
        self.seen = max(self.seen, Moment(self.job.number, answer.epoch))
        if not request.open:
            self._next()


class Readers:
    """The clients of a schedule, and all that they were told.

    Args:
        many: how many there are.
    """

    def __init__(self, world: World, seed: int, many: int, flow: str) -> None:
        self._flow, self._told = flow, list[ReadRows]()
        self._all = [
            SimulatedReader(world, f"reader {i}", seed * 100 + i, states_of_flow(flow), self._told)
            for i in range(many)
        ]

    @property
    def counts(self) -> Counter[str]:
        """What happened to queries, by kind."""
        return sum((reader.counts for reader in self._all), Counter[str]())

    def begin(self, job: SimulatedJob, upto: int | None = None) -> None:
        """Query a job from now on.

        Args:
            upto: the saved checkpoint with which the job begins, if its epochs may end elsewhere
                than those of the job before: what was told of later ones is gone.
        """
        if upto is not None:
            self._told[:] = [told for told in self._told if told.epoch <= upto]
        for reader in self._all:
            reader.begin(job)

    def judge(self, job: SimulatedJob) -> None:
        """Check what was told against an undisturbed run, which has the epochs of this job.

        Raises:
            Wrong: something else was told.
        """
        if not self._told:
            return
        arrives = job.plan.clock is None or claiming(job.plan)
        states = (
            StatesOfRun(job.plan, dict(job.ledger.published))
            if arrives
            else states_of_flow(self._flow)
        )
        for each in self._told:
            _check(each, states.at(each.vertex, each.epoch))


def _check(told: ReadRows, then: Rows) -> None:
    expected = [row for key in told.keys.to_pylist() if (row := then.get(tuple(key.values())))]
    if told.rows != expected:
        raise Wrong(
            f"at epoch {told.epoch} of run {told.run} a client was told {told.rows} of"
            f" {told.keys.to_pylist()}, and not {expected}"
        )
