"""A queueing model of Linear Road on many small nodes; the real detector and policy decide in it.

Time goes in ticks. The *position* of an instance is up to which second of the input it has come: it
goes on as fast as its share of a core and the cost of what comes allow, no further than its
producers have come, nor more epochs ahead of its consumers than the engine allows. As in the engine
an epoch is complete when all instances of a producer have sent it, so the slowest counts. A move is
that of the engine, in replay mode: processes from the pool of spare nodes, or from nodes that start
first; state; and, from the floor on, what came after it, while the old instances go on.

Sources and the sink are not part of it: as in SEEP's runs they have nodes that are large enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from raystream.controller.elastic.detector import Detector, Owner, interval_of
from raystream.controller.elastic.policy import Policy, Target
from raystream.controller.elastic.range_cuts import even
from raystream.dataflow.plan import Edge, Plan, Vertex
from raystream.dataflow.progress import Progress
from raystream.schema.records import record_schema
from raystream.schema.types import KeyRange

AHEAD = 8
"""Epochs that a producer may be ahead of its slowest consumer (`AHEAD` of the shell)."""
END = 10_784
RATE = (
    (0, 15), (30, 18), (90, 42), (150, 62), (210, 79), (270, 96), (330, 111), (390, 126),
    (510, 158), (2110, 600), (5280, 1232), (END, 1700),
)  # fmt: skip
"""Tuples a second of one expressway by second: the official input, as it was measured in slices
(the last point is the one that SEEP's paper gives)."""


class Operator(NamedTuple):
    """What an operator costs. per_record, per_epoch: seconds of a core. share: records that come in
    for each tuple of input; rows: of state, for each tuple of input so far."""

    name: str
    producers: tuple[str, ...]
    per_record: float
    per_epoch: float
    share: float
    rows: float


@dataclass(frozen=True, slots=True)
class World:
    """What is assumed.

    cores: what an instance is given, of a core like that on which costs were measured. epoch:
    seconds; message: seconds of CPU for each instance that it reads from or is read by, every
    epoch; cut: seconds between checkpoints. pool: spare nodes; start: seconds until a node that
    was asked for is there; idle: seconds after which one too many is given back. restore: seconds
    that a move needs besides its state, restore_rate: bytes a second; row_bytes: of a row of state.
    skew: how much the loads of key groups differ, relative to their mean; jitter: how much what an
    instance manages differs from tick to tick.
    """

    cores: float = 0.2
    epoch: float = 0.25
    message: float = 20e-6
    cut: float = 5.0
    pool: int = 10
    start: float = 90.0
    idle: float = 120.0
    restore: float = 1.0
    restore_rate: float = 50e6
    row_bytes: float = 100.0
    skew: float = 0.1
    jitter: float = 0.15
    groups: int = 1024
    tick: float = 1.0
    level: float = 300.0


class Outcome(NamedTuple):
    """What came of a run. instances: at each tick, those that are about to take over, too; latency:
    seconds, of what was then answered; weights: tuples that came then. moves: that were made;
    given_up: that were not."""

    instances: np.ndarray
    latency: np.ndarray
    weights: np.ndarray
    moves: int
    given_up: int

    def percentile(self, q: float) -> float:
        """Of the latencies, by tuples."""
        order = np.argsort(self.latency)
        sums = np.cumsum(self.weights[order])
        at = np.searchsorted(sums, sums[-1] * q / 100.0)
        return float(self.latency[order][min(int(at), len(order) - 1)])

    def late(self, seconds: float) -> float:
        """The share of tuples whose answer took longer."""
        return float(self.weights[self.latency > seconds].sum() / self.weights.sum())


@dataclass(eq=False)
class Crew:
    """Instances of one operator, by range: owners, or the candidates of a move."""

    ranges: tuple[KeyRange, ...]
    names: list[str]
    weight: np.ndarray
    position: np.ndarray
    began: np.ndarray
    cpu: np.ndarray
    blocked: np.ndarray
    records: np.ndarray

    @property
    def least(self) -> float:
        return float(self.position.min())


@dataclass(eq=False)
class Moving:
    """A move under way. kept: by new range the index of the owner that keeps it."""

    target: Target
    kept: Mapping[KeyRange, int]
    new: tuple[KeyRange, ...]
    due: float
    ready: float = -1.0
    crew: Crew | None = None


@dataclass(eq=False)
class Pool:
    """Spare nodes, one instance each."""

    world: World
    spare: int
    coming: list[float] = field(default_factory=list)
    over: float = -1.0

    def turn(self, now: float, wanted: int) -> None:
        """Nodes arrive, are asked for, and given back."""
        here = [t for t in self.coming if t <= now]
        self.spare += len(here)
        self.coming = [t for t in self.coming if t > now]
        lacking = self.world.pool + wanted - self.spare - len(self.coming)
        self.coming += [now + self.world.start] * max(0, lacking)
        if self.spare <= self.world.pool + wanted:
            self.over = -1.0
        elif self.over < 0:
            self.over = now
        elif now - self.over > self.world.idle:
            self.spare = self.world.pool + wanted


class Model:
    """Runs the three hours once.

    Args:
        xways: expressways. policy: None leaves the instances as they are. start: how many instances
            each operator has at first, 1 unless given.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        world: World,
        xways: float,
        policy: Policy | None,
        start: Mapping[str, int] | None = None,
    ) -> None:
        self.world = world
        self.operators = operators
        self.policy = policy
        seconds = np.arange(END + 2)
        self.rate = xways * np.interp(seconds, [t for t, _ in RATE], [r for _, r in RATE])
        self.total = np.cumsum(self.rate)
        self.chance = rng = np.random.default_rng(0)
        self.weights = {}
        for o in operators:
            own = np.maximum(rng.normal(1.0, world.skew, world.groups), 0.05)
            self.weights[o.name] = own / own.sum()
        self.consumers = {
            o.name: [c.name for c in operators if o.name in c.producers] for o in operators
        }
        self.named = 0
        self.now = 0.0
        everything = KeyRange(0, world.groups)
        self.crews = {
            o.name: self._crew(
                o.name, even(everything, self.weights[o.name], (start or {}).get(o.name, 1)), 0.0
            )
            for o in operators
        }
        self.detector = None if policy is None else Detector(plan_of(operators, world), policy)
        self.moving: dict[str, Moving] = {}
        self.pool = Pool(world, world.pool)
        self.moves = self.given_up = 0

    def _crew(self, name: str, ranges: Sequence[KeyRange], position: float) -> Crew:
        n = len(ranges)
        self.named += n
        return Crew(
            tuple(ranges),
            [f"{name}/{self.named - i}" for i in range(n)],
            np.array([self.weights[name][r.lo : r.hi].sum() for r in ranges]),
            np.full(n, position),
            np.full(n, self.now),
            np.zeros(n),
            np.zeros(n),
            np.zeros(n),
        )

    # ------------------------------------------------------------ time

    def run(self, seconds: float = END) -> Outcome:
        """The input up to a second."""
        ticks = int(seconds / self.world.tick)
        instances, latency, weights = np.zeros(ticks), np.zeros(ticks), np.zeros(ticks)
        interval = interval_of(self.policy) if self.policy is not None else END
        judged = 0.0
        for i in range(ticks):
            self.now = (i + 1) * self.world.tick
            hops = 0.0
            for o in self.operators:
                hops = max(hops, self._advance(o, self.crews[o.name]))
                move = self.moving.get(o.name)
                if move is not None and move.crew is not None:
                    self._advance(o, move.crew)
            behind = self.now - min(c.least for c in self.crews.values())
            latency[i] = behind + self.world.epoch * (0.5 + hops * self._depth())
            instances[i] = sum(len(c.ranges) for c in self.crews.values()) + sum(
                len(m.crew.ranges) for m in self.moving.values() if m.crew is not None
            )
            weights[i] = self.rate[int(self.now)]
            if self.detector is not None:
                self._move()
                if self.now - judged >= interval:
                    judged = self.now
                    self._judge(self.detector)
        return Outcome(instances, latency, weights, self.moves, self.given_up)

    def _depth(self) -> int:
        """How many operators an answer comes through at most."""
        depth: dict[str, int] = {}
        for o in self.operators:
            depth[o.name] = 1 + max((depth[p] for p in o.producers if p in depth), default=0)
        return max(depth.values())

    def _advance(self, o: Operator, crew: Crew) -> float:
        """Let instances work for a tick; which part of its CPU the busiest needs at this rate: an
        epoch takes so much of its length."""
        world, tick = self.world, self.world.tick
        fed = [self.crews[p].least for p in o.producers if p in self.crews]
        limit = min([self.now, *fed])
        peers = sum(len(self.crews[p].ranges) for p in (*o.producers, *self.consumers[o.name])
                    if p in self.crews)  # fmt: skip
        fixed = (o.per_epoch + world.message * max(1, peers)) / world.epoch
        rate = self.rate[crew.position.astype(int)] * o.share * crew.weight
        cost = o.per_record * rate + fixed
        cost *= np.maximum(self.chance.normal(1.0, world.jitter, len(cost)), 0.5)
        possible = np.maximum(0.0, np.minimum(tick * world.cores / cost, limit - crew.position))
        step = possible
        if crew is self.crews[o.name]:
            ahead = [self.crews[c].least for c in self.consumers[o.name]]
            if ahead:
                room = min(ahead) + AHEAD * world.epoch + tick - crew.position
                step = np.maximum(0.0, np.minimum(possible, room))
        crew.cpu += step * cost
        crew.blocked += np.where(step < possible, tick - step * cost / world.cores, 0.0)
        crew.records += step * rate
        crew.position += step
        return float(cost.max()) / world.cores

    # ------------------------------------------------------------ decisions

    def _judge(self, detector: Detector) -> None:
        """Report what instances have done, and begin the moves that are asked for."""
        for o in self.operators:
            crew = self.crews[o.name]
            each = np.repeat(crew.records / crew.weight, [len(k) for k in crew.ranges])
            counted = (self.weights[o.name] * each).astype(np.int64)
            for i, keys in enumerate(crew.ranges):
                detector.heard(self._progress(o.name, crew, i, counted), keys, self.now)
        owners = {
            name: [Owner(n, k) for n, k in zip(crew.names, crew.ranges, strict=True)]
            for name, crew in self.crews.items()
        }
        owners[SOURCE] = [Owner(SOURCE, KeyRange(0, self.world.groups))]
        found = detector.decide(owners, self.moving.keys(), self.now)
        for target in found.targets:
            crew = self.crews[target.operator]
            kept = {k: i for i, k in enumerate(crew.ranges) if k in target.ranges}
            new = tuple(k for k in target.ranges if k not in kept)
            self.moving[target.operator] = Moving(target, kept, new, self.now + self.world.level)

    def _progress(self, name: str, crew: Crew, i: int, counted: np.ndarray) -> Progress:
        keys = crew.ranges[i]
        records = int(crew.records[i])
        used = float(crew.cpu[i]) / self.world.cores  # as if what it is given were a core
        return Progress(
            vertex=name,
            instance=i,
            position=int(crew.position[i] / self.world.epoch),
            records_in=records,
            records_out=records,
            cpu=used,
            name=crew.names[i],
            seconds=self.now - float(crew.began[i]),
            busy=used,
            blocked=float(crew.blocked[i]),
            load=counted[keys.lo : keys.hi].tobytes(),
        )

    # ------------------------------------------------------------ moves

    def _move(self) -> None:
        """Go on with what is under way."""
        for name, move in list(self.moving.items()):
            if move.crew is None and move.ready < 0 and self.pool.spare >= len(move.new):
                self.pool.spare -= len(move.new)
                move.ready = self.now + self._restore(name, move.new)
                move.due = move.ready + self.world.level
            if move.crew is None and 0 <= move.ready <= self.now:
                floor = min(c.least for c in self.crews.values()) // self.world.cut * self.world.cut
                move.crew = self._crew(name, move.new, floor)
            crew = self.crews[name]
            if move.crew is not None:
                gone = [i for i, k in enumerate(crew.ranges) if k not in move.kept]
                if move.crew.least >= float(crew.position[gone].min()):
                    self._hand_over(name, move, len(gone))
                elif self.now > move.due:
                    self.pool.spare += len(move.new)
                    self.given_up += 1
                    del self.moving[name]
        waiting = sum(len(m.new) for m in self.moving.values() if m.ready < 0)
        self.pool.turn(self.now, waiting)

    def _restore(self, name: str, new: Sequence[KeyRange]) -> float:
        """Seconds until the largest of the new ranges has its state."""
        rows = next(o.rows for o in self.operators if o.name == name)
        rows *= float(self.total[int(self.now)])
        largest = max(float(self.weights[name][k.lo : k.hi].sum()) for k in new)
        return self.world.restore + largest * rows * self.world.row_bytes / self.world.restore_rate

    def _hand_over(self, name: str, move: Moving, gone: int) -> None:
        old, new = self.crews[name], move.crew
        assert new is not None
        at = {k: (old, i) for k, i in move.kept.items()}
        at |= {k: (new, i) for i, k in enumerate(new.ranges)}
        order = [at[k] for k in move.target.ranges]

        def of(what: str) -> np.ndarray:
            return np.array([getattr(crew, what)[i] for crew, i in order])

        names = [crew.names[i] for crew, i in order]
        self.crews[name] = Crew(
            move.target.ranges, names,
            *map(of, ("weight", "position", "began", "cpu", "blocked", "records")),
        )  # fmt: skip
        self.pool.spare += gone
        self.moves += 1
        del self.moving[name]


SOURCE = "rows"


class _Tuple(NamedTuple):
    time: int


def plan_of(operators: Sequence[Operator], world: World) -> Plan:
    """A plan with these operators behind a source, as far as a detector looks at it."""
    schema = record_schema(_Tuple)
    vertices = [Vertex(0, SOURCE, "source")]
    vertices += [Vertex(i + 1, o.name, "operator") for i, o in enumerate(operators)]
    ids = {v.name: v.id for v in vertices}
    edges: list[Edge] = []
    for o in operators:
        for p in o.producers:
            at = ids[o.name]
            edge = Edge(
                id=len(edges),
                producer=ids[p],
                port=0,
                consumer=at,
                type=0,
                schema=schema,
                key=("time",),
                ranked=False,
            )
            edges.append(edge)
            vertices[at].inputs.append(edge)
    ranges = {v.id: [KeyRange(0, world.groups)] for v in vertices}
    return Plan(
        job="linear-road",
        groups=world.groups,
        ticks=1,
        vertices=vertices,
        edges=edges,
        ranges=ranges,
        splits={0: ["all"]},
    )
