"""A job in one process: the same instance machines, driven by a loop instead of actors.

`LocalJob` is the shell: it moves pieces from logs to inlets and steps whatever is ready. Given a
random generator it does so in random order, which must not change a bit of the result (law L1).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raystream.api.flow import Flow
from raystream.controller.planning import make_plan
from raystream.controller.report import OperatorReport, Progress, progress_of, sink_context, totals
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary
from raystream.dataflow.snapshot import capture, check_state, install, settled
from raystream.dataflow.source import (
    Arrival,
    ArrivalSplit,
    Ended,
    Positions,
    Recorded,
    SplitReader,
)
from raystream.errors import ConfigError, InternalError
from raystream.schema.types import KeyRange
from raystream.state.image import Image
from raystream.state.partition import recut
from raystream.testing.again import Again

AHEAD = 4
"""Epochs that a producer may be ahead of the consumer that is furthest behind."""

Ends = dict[tuple[str, int], Boundary]
"""By split and epoch where it ends, for sources that are cut by arrival."""


class LocalSource:
    """A source instance and what reads for it. images: of parts of its range, from which it goes
    on."""

    def __init__(
        self,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        boundaries: Ends,
        rng: random.Random | None,
        images: Sequence[Sequence[Image]] = (),
    ) -> None:
        self.machine = SourceInstance(plan, vertex, keys)
        standing = install(self.machine, images) if images else None
        positions = None if standing is None else standing.splits
        self.boundaries = boundaries
        self.rng = rng
        self.recorded: Recorded | Ended | None = None
        self.arrival: Arrival | None = None
        self.readers: list[SplitReader] = []
        if standing is not None and standing.ended:
            self.recorded = Ended(vertex, keys, standing.splits)
        elif plan.clock is not None:
            taken = self.machine.position
            self.recorded = Recorded(plan, vertex, keys, taken=taken, positions=positions)
        else:
            self.arrival = Arrival(plan, vertex, keys, positions)
            schema, read = self.arrival.schema, vertex.source.read
            self.readers = [
                SplitReader(s.name, vertex.name, schema, read, s.position)
                for s in self.arrival.splits
            ]

    def again(self, image: Image | None) -> LocalSource:
        """Another of the same range that goes on from a checkpoint and cuts where this one did."""
        machine = self.machine
        images = () if image is None else [[image]]
        return LocalSource(
            machine.plan, machine.vertex, machine.keys, self.boundaries, None, images
        )

    def positions(self) -> Positions:
        """Where the splits are, after the last epoch."""
        reading = self.recorded or self.arrival
        assert reading is not None
        return reading.positions()

    def read_again(self, cut: int) -> None:
        """Read what was published up to a cut, as a successor that has nothing else would.

        A range that has ended by then says so once more: in other ranges nobody has heard of it.
        """
        while self.machine.position < cut:
            self.step()
        self.machine.ended = False
        self.machine.outlets.trim(cut)

    def step(self) -> None:
        """Publish the next epoch."""
        epoch = self.machine.position + 1
        if self.recorded is not None:
            self.machine.publish(self.recorded.take(epoch))
            return
        assert self.arrival is not None
        boundaries = []
        for split, reader in zip(self.arrival.splits, self.readers, strict=True):
            for _ in range(1 if self.rng is None else self.rng.randrange(3)):
                _read(split, reader)
            held = self.boundaries.setdefault((split.registered, epoch), split.wanted())
            while not split.reaches(held) and not split.done:
                _read(split, reader)
            boundaries.append(held)
        self.machine.publish(self.arrival.take(boundaries))


def _read(split: ArrivalSplit, reader: SplitReader) -> None:
    """Read a batch, if there is one."""
    rows = None if split.done else reader.next()
    if rows is None:
        split.done = True
    else:
        split.add(reader.position, rows)


@dataclass(slots=True)
class Link:
    """A subscription: what a consumer instance reads of one producer instance's log."""

    edge: int
    producer: SourceInstance | Instance
    consumer: Instance
    next: int


class LocalJob:
    """All instances of a plan in this process."""

    def __init__(
        self,
        plan: Plan,
        *,
        rng: random.Random | None = None,
        run: str = "local",
        paced_from: float | None = None,
        resume: Mapping[str, Sequence[Sequence[Image]]] | None = None,
        boundaries: Ends | None = None,
        resumed: str = "",
    ) -> None:
        """resume: what `checkpoint` of another job of this flow returned, whatever its ranges; or
        the same as chains of images. Sources that are not in it read again from the beginning.
        boundaries: where epochs end that were cut by arrival before; those of this job are added,
            and all are kept.
        resumed: the run of that job, if its sinks have to know."""
        self.plan = plan
        self.rng = rng
        resume = resume or {}
        cut = max((c[-1].header.cut for chains in resume.values() for c in chains), default=0)
        self.boundaries: Ends = {} if boundaries is None else boundaries
        self._keeps = boundaries is not None
        self.sources: list[LocalSource] = []
        self.instances: list[Instance] = []
        by_vertex: dict[int, list[Any]] = {v.id: [] for v in plan.vertices}
        for vertex, keys in plan.instances():
            if vertex.kind == "source":
                images = recut(resume.get(vertex.name, ()), keys)
                source = LocalSource(plan, vertex, keys, self.boundaries, rng, images)
                if not images:
                    source.read_again(cut)
                self.sources.append(source)
                by_vertex[vertex.id].append(source.machine)
            else:
                instance = Instance(plan, vertex, keys, copy.copy(vertex.sink))
                if vertex.name in resume:
                    install(instance, recut(resume[vertex.name], keys))
                instance.open()
                self.instances.append(instance)
                by_vertex[vertex.id].append(instance)
        self.by_vertex = by_vertex
        self.links = [
            Link(e.id, p, c, cut + 1)
            for e in plan.edges
            for p in by_vertex[e.producer]
            for c in by_vertex[e.consumer]
        ]
        self.machines: list[SourceInstance | Instance] = [
            m for ms in by_vertex.values() for m in ms
        ]
        self.committed = self._settled = cut
        self.out: dict[int, list[Link]] = {id(m): [] for m in self.machines}
        for link in self.links:
            self.out[id(link.producer)].append(link)
        self.again = Again(self, cut) if plan.check else None
        for instance in self.instances:
            at = instance.goes_on_from(cut)
            context = sink_context(plan, instance.vertex, instance.keys, run, paced_from, at)
            instance.open_sink(context._replace(resumed=resumed or context.resumed))

    @property
    def ended(self) -> bool:
        return all(m.ended for m in self.machines)

    def checkpoint(self, cut: int) -> dict[str, list[list[Image]]]:
        """What all operators and sinks know at the end of an epoch that all have just applied: a
        full image per instance, of those that ended before as of their end."""
        return {
            self.plan.vertices[v].name: [
                [capture(m, cut=m.position if m.ended else cut).image()] for m in machines
            ]
            for v, machines in self.by_vertex.items()
            if self.plan.vertices[v].kind != "source"
        }

    def stored(self, cut: int) -> dict[int, list[Image]]:
        """The same with the sources, by vertex: all that is needed to go on."""
        found = {
            self.plan.vertex(name).id: [chain[0] for chain in chains]
            for name, chains in self.checkpoint(cut).items()
        }
        for source in self.sources:
            image = capture(source.machine, cut=cut, splits=source.positions()).image()
            found.setdefault(source.machine.vertex.id, []).append(image)
        return found

    def run(self) -> None:
        """Run to the end of the input."""
        while not self.ended:
            self.turn()
            self.settle()
        self.finish()

    def turn(self) -> None:
        """One round: every source publishes an epoch, then all that can be applied is."""
        if self.rng is not None:
            self._random_step(self.rng)
        elif not self._round():
            raise InternalError(f"{self.plan.job}: no instance can go on, and not all have ended")
        self._commit()

    def _round(self) -> bool:
        moved = False
        for source in self.sources:
            if not source.machine.ended:
                self._step(source)
                self._deliver(source.machine)
                moved = True
        for instance in self.instances:
            while instance.ready():
                self._step(instance)
                self._deliver(instance)
                moved = True
        return moved

    def _step(self, each: LocalSource | Instance) -> None:
        each.step()
        if self.again is not None:
            self.again.applied(each)

    def _deliver(self, machine: SourceInstance | Instance) -> None:
        for link in self.out[id(machine)]:
            while link.next <= machine.position:
                self._pass(link)
        if self.again is None:
            machine.outlets.trim(machine.position)

    def _pass(self, link: Link) -> None:
        link.consumer.receive(
            link.edge, link.producer.outlets.piece(link.edge, link.next, link.consumer.keys)
        )
        link.next += 1

    def _random_step(self, rng: random.Random) -> None:
        """One move that is possible: a source publishes, an instance steps, a piece arrives."""
        moves: list[LocalSource | Instance | Link] = [*self.sources, *self.instances, *self.links]
        if not any(self._move(m) for m in rng.sample(moves, len(moves))):
            raise InternalError(f"{self.plan.job}: no instance can go on, and not all have ended")

    def _move(self, move: LocalSource | Instance | Link) -> bool:
        """Make a move, if it is possible."""
        if isinstance(move, Link):
            possible = move.next <= min(move.producer.position, move.consumer.position + AHEAD)
            if possible:
                self._pass(move)
        elif isinstance(move, Instance):
            possible = self._within(move) and move.ready()
            if possible:
                self._step(move)
        else:
            possible = not move.machine.ended and self._within(move.machine)
            if possible:
                self._step(move)
        return possible

    def _within(self, machine: SourceInstance | Instance) -> bool:
        return all(link.next + AHEAD > machine.position for link in self.out[id(machine)])

    def _commit(self) -> None:
        """Commit the newest cut that every instance has applied; at the end, the last epoch."""
        cut = max(m.position for m in self.machines)
        if not self.ended:
            reached = min(m.position for m in self.machines if not m.ended)
            cut = reached // self.plan.cut_every * self.plan.cut_every
        if cut > self.committed:
            self._commit_to(cut)

    def _commit_to(self, epoch: int) -> None:
        if self.again is not None:
            self.again.compare(epoch)
        for instance in self.instances:  # no checkpoint is taken that would find it
            check_state(instance, self.committed)
        self.committed = epoch
        for instance in self.instances:
            if instance.sink is not None:
                instance.commit(epoch)
        if self.plan.durable is None:
            self.show(epoch)

    def show(self, epoch: int) -> None:
        """Let sinks show what they wrote up to an epoch. With a durable tier that is for whoever
        runs the job, when it is saved."""
        for instance in self.instances:
            instance.show(epoch)

    def settle(self) -> None:
        """Forget what only deltas would hold, up to the newest cut, and where the epochs before it
        ended: for whoever takes none."""
        if self._settled == self.committed:
            return
        self._settled = self.committed
        for machine in self.machines:
            settled(machine, self.committed)
        if not self._keeps:
            for at in [at for at in self.boundaries if at[1] <= self.committed]:
                del self.boundaries[at]

    def finish(self) -> None:
        """Show all that was written and close the sinks."""
        self.show(self.committed)
        for instance in self.instances:
            instance.close_sink()

    def progress(self) -> list[Progress]:
        """What every instance has done so far."""
        return [progress_of(m, i) for ms in self.by_vertex.values() for i, m in enumerate(ms)]


def run_local(
    flow: Flow,
    *,
    instances: Mapping[str, int] | None = None,
    ranges: Mapping[str, list[KeyRange]] | None = None,
    seed: int | None = None,
    cut_every: int | None = None,
    check: bool = False,
) -> tuple[OperatorReport, ...]:
    """Run a flow in this process, to the end of its input.

    Args:
        instances: instances per operator; `ranges` instead sets their key ranges by hand.
        seed: step and deliver in a random order, replayed by the seed.
        cut_every: epochs between cuts.
        check: at every cut, make all instances again from the cut before and compare what they
            emit.

    Returns the totals per operator.

    Raises:
        ConfigError: such ranges cannot be. JobError: with `check`, an operator or a source emits
        something else the second time.
    """
    plan = make_plan(flow, instances=instances, cut_every=cut_every, check=check)
    for name, own in (ranges or {}).items():
        _set_ranges(plan, name, list(own))
    job = LocalJob(plan, rng=None if seed is None else random.Random(seed))
    job.run()
    return totals(job.progress())


def _set_ranges(plan: Plan, name: str, own: list[KeyRange]) -> None:
    names = [v.name for v in plan.vertices]
    if name not in names:
        raise ConfigError(
            f"ranges: there is no operator {name!r} with instances of its own",
            hint=f"There are {', '.join(names)}.",
        )
    bounds = [at for keys in own for at in keys]
    whole = bounds[:1] == [0] and bounds[-1:] == [plan.groups]
    if not whole or bounds[1:-1:2] != bounds[2::2] or any(k.hi <= k.lo for k in own):
        raise ConfigError(
            f"ranges: {name} has {' '.join(map(str, own)) or 'none'}",
            hint=f"One after another they are all key groups, 0 to {plan.groups}.",
        )
    plan.ranges[plan.vertex(name).id] = own
