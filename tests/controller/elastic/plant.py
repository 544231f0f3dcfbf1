"""A job as its controller sees it: load by key group goes in, what instances say comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from raystream.controller.elastic.detector import Detector, Findings, Owner
from raystream.controller.elastic.policy import Policy
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.schema.types import KeyRange
from raystream.simulation.references import planned

RECORDS = 10_000
"""Records that take an instance one second of CPU."""


@dataclass
class Work:
    """What one instance has done so far."""

    name: str
    vertex: str
    keys: KeyRange
    began: float
    cpu: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    records: float = 0.0
    load: np.ndarray | None = None

    def progress(self, now: float) -> Progress:
        load = np.zeros(len(self.keys)) if self.load is None else self.load
        return Progress(
            vertex=self.vertex,
            instance=0,
            position=1,
            records_in=round(self.records),
            records_out=round(self.records),
            cpu=self.cpu,
            name=self.name,
            seconds=now - self.began,
            busy=self.busy,
            blocked=self.blocked,
            load=load.astype(np.int64).tobytes(),
        )


class Plant:
    """Runs a detector against instances that take what comes.

    demand: by operator the cores that its records cost, by key group; may be changed meanwhile.
    overhead: cores that each instance costs anyway. An instance has one core; what is beyond it is
    not worked off, and blocks the source.
    """

    def __init__(
        self,
        policy: Policy,
        demand: Mapping[str, np.ndarray],
        *,
        bounds: Mapping[str, tuple[int, int]] | None = None,
        overhead: float = 0.0,
        plan: Plan | None = None,
        delay: float = 1.0,
        poll: float = 0.25,
    ) -> None:
        self.plan = plan or words()
        self.demand = dict(demand)
        self.overhead = overhead
        self.delay = delay
        self.poll = poll
        self.detector = Detector(self.plan, policy, bounds)
        self.now = 0.0
        self.named = 0
        self.works = {v.name: [self._work(v.name, KeyRange(0, self.plan.groups))]
                      for v in self.plan.vertices}  # fmt: skip
        self.found: list[tuple[float, Findings]] = []
        self._due: list[tuple[float, str, tuple[KeyRange, ...]]] = []

    def _work(self, vertex: str, keys: KeyRange) -> Work:
        self.named += 1
        return Work(f"{vertex}/{self.named}", vertex, keys, self.now, load=np.zeros(len(keys)))

    def ranges(self, operator: str) -> list[KeyRange]:
        return [w.keys for w in self.works[operator]]

    def cpu(self, operator: str) -> list[float]:
        """What each instance of an operator would use."""
        return [self._wanted(w) for w in self.works[operator]]

    def _wanted(self, work: Work) -> float:
        none = np.zeros(self.plan.groups)
        return float(self.demand.get(work.vertex, none)[work.keys.lo : work.keys.hi].sum())

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> list[Findings]:
        """Let time pass; what was found meanwhile."""
        first = len(self.found)
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now += self.poll
            each()
            self._pass()
            for works in self.works.values():
                for w in works:
                    self.detector.heard(w.progress(self.now), w.keys, self.now)
            self._change()
            owners = {v: [Owner(w.name, w.keys) for w in ws] for v, ws in self.works.items()}
            changing = {v for _, v, _ in self._due}
            found = self.detector.decide(owners, changing, self.now)
            if found.targets or found.notes:
                self.found.append((self.now, found))
            self._due += [(self.now + self.delay, t.operator, t.ranges) for t in found.targets]
        return [f for _, f in self.found[first:]]

    def _pass(self) -> None:
        """Everybody works for a moment, as fast as the slowest lets the source send."""
        wanted = [self._wanted(w) for ws in self.works.values() for w in ws]
        room = 1.0 - self.overhead
        held = max(1.0, max(wanted) / room)
        for vertex, works in self.works.items():
            for w in works:
                share = self._wanted(w) / held
                w.cpu += self.poll * (share + self.overhead)
                w.busy += self.poll * (share + self.overhead)
                w.records += self.poll * share * RECORDS
                if vertex == self.plan.vertices[0].name:
                    w.blocked += self.poll * (1.0 - 1.0 / held)
                    w.records += self.poll * RECORDS / held / len(works)
                none = np.zeros(self.plan.groups)
                own = self.demand.get(vertex, none)[w.keys.lo : w.keys.hi]
                assert w.load is not None
                w.load = w.load + self.poll * RECORDS * own / held

    def _change(self) -> None:
        for due, vertex, ranges in [d for d in self._due if d[0] <= self.now]:
            self._due.remove((due, vertex, ranges))
            kept = {w.keys: w for w in self.works[vertex]}
            self.works[vertex] = [kept.get(r) or self._work(vertex, r) for r in ranges]


def words(groups: int = 256) -> Plan:
    """A source, an operator `count` and a sink."""
    plan = planned("words", (1, 1))[0]
    ranges = {v.id: [KeyRange(0, groups)] for v in plan.vertices}
    return replace(plan, groups=groups, ranges=ranges)
