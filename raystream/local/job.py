"""A job in one process: the same instance machines, driven by a loop instead of actors.

`LocalJob` is the shell: it moves pieces from logs to inlets and steps the instances that are ready.
With a random generator it does so in random order, which must not change a bit of the result
(law L1).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raystream.api.arguments import check_flag, whole
from raystream.api.flow import Flow
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.run_options import check_by_operator, whole_number
from raystream.controller.protocol.shortage import holder_of, is_shortage, shortage
from raystream.controller.reporting.report import OperatorReport, totals
from raystream.dataflow.checkpoint_epochs import newest_regular
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.making import make_receiving
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.progress import Progress
from raystream.dataflow.snapshot import capture, check_state, settled
from raystream.dataflow.tenure import Tenure
from raystream.errors import (
    ConfigError,
    InternalError,
    OperatorError,
    StateError,
    caller,
    placed,
)
from raystream.local.asking import Askers
from raystream.local.recheck import Again
from raystream.local.several import can_step_together
from raystream.local.source import Ends, LocalSource, MakeFeed, end_of_step
from raystream.native.memory import memory_use
from raystream.renamed import renamed
from raystream.schema.types import NEVER, KeyRange
from raystream.state.images.image import Image
from raystream.state.images.partition import recut
from raystream.state.log.epoch_log import Bound

AHEAD = 4
"""Epochs that a producer may be ahead of its slowest consumer."""
BOUND = Bound(AHEAD, 0, AHEAD)


@dataclass(slots=True)
class LocalStream:
    """A subscription: what a consumer instance reads of one producer instance's log."""

    edge: int
    producer: Instance
    consumer: ReceivingInstance
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
        feed: MakeFeed | None = None,
        jumps: bool = False,
    ) -> None:
        """
        Args:
            rng: draws the order of steps; unless given, that is always the same.
            run: the name of the run. paced_from: the Unix time at which its first row is released.
            resume: what `checkpoint` of another job of this flow returned, whatever its ranges; or
                the same as chains of images. Sources that are not in it read again from the
                beginning.
            boundaries: where epochs end that were cut by arrival before. Those of this job are
                added, and all are kept.
            resumed: the run of that other job, if its sinks have to know.
            feed: begins to read a split that may be idle on a thread of its own. Unless given, this
                thread waits for such splits as for all others, and none is ever idle.
            jumps: whether a run of epochs without rows is one step. It changes no bit: without it
                a caller can look at every epoch.
        """
        self.plan = plan
        self.rng = rng
        clock = plan.clock
        self._jumps = jumps and clock is not None and clock.speed is None
        """A paced job waits for each epoch: what is due in it is not to come later."""
        resume = resume or {}
        checkpoint = max(
            (c[-1].header.checkpoint for chains in resume.values() for c in chains), default=0
        )
        self.boundaries: Ends = {} if boundaries is None else boundaries
        self._keeps = boundaries is not None
        self._feed = feed
        self.sources: list[LocalSource] = []
        self.instances: list[ReceivingInstance] = []
        self.tenures: list[Tenure[Any]] = []
        for vertex, keys in plan.instances():
            chains = recut(resume[vertex.name], keys) if vertex.name in resume else None
            if vertex.kind == "source":
                self._add_source(vertex, keys, chains or (), checkpoint)
            else:
                self._add_instance(vertex, keys, chains, checkpoint)
        self.askers = Askers(self.instances, self.boundaries, run)
        self.machines: list[Instance] = [tenure.machine for tenure in self.tenures]
        self.by_vertex: dict[int, list[Any]] = {v.id: [] for v in plan.vertices}
        for machine in self.machines:
            self.by_vertex[machine.vertex.id].append(machine)
        self.links = [
            LocalStream(e.id, p, c, checkpoint + 1)
            for e in plan.edges
            for p in self.by_vertex[e.producer]
            for c in self.by_vertex[e.consumer]
        ]
        self.out: dict[int, list[LocalStream]] = {id(m): [] for m in self.machines}
        for link in self.links:
            self.out[id(link.producer)].append(link)
        self._several = self._jumps and rng is None and can_step_together(plan, self.machines)
        self.committed = self._settled = checkpoint
        self.again = Again(self, checkpoint) if plan.check else None
        for tenure in self.tenures:
            context = tenure.sink_context(run, paced_from)
            tenure.machine.begin(context._replace(resumed=resumed or context.resumed))

    def _add_source(
        self, vertex: Vertex, keys: KeyRange, images: Sequence[Sequence[Image]], checkpoint: int
    ) -> None:
        index = self._index(vertex)
        at = checkpoint if images else 0
        source = LocalSource(
            self.plan, vertex, keys, self.boundaries, self.rng, images, index, self._feed,
            committed=at,
        )  # fmt: skip
        source.machine.checkpoints.together = self.rng is None or _has_one_source(self.plan)
        if not images:
            source.read_again(checkpoint)
        self.sources.append(source)
        self.tenures.append(source.tenure)

    def _add_instance(
        self,
        vertex: Vertex,
        keys: KeyRange,
        chains: Sequence[Sequence[Image]] | None,
        checkpoint: int,
    ) -> None:
        instance = self._made(vertex, keys)
        tenure: Tenure[Any] = Tenure(
            instance,
            index=self._index(vertex),
            committed=checkpoint,
            chains=chains,
            settles=False,
        )
        instance.open()
        self.instances.append(instance)
        self.tenures.append(tenure)

    def _made(self, vertex: Vertex, keys: KeyRange) -> ReceivingInstance:
        return make_receiving(self.plan, vertex, keys, copy.copy(vertex.sink))

    def _index(self, vertex: Vertex) -> int:
        """The index of the next instance of a vertex."""
        return sum(tenure.machine.vertex is vertex for tenure in self.tenures)

    @property
    def ended(self) -> bool:
        return all(m.ended for m in self.machines)

    def checkpoint(self, checkpoint: int) -> dict[str, list[list[Image]]]:
        """What all operators and sinks know at the end of an epoch that all have just applied: by
        name a full image per instance. That of an instance that ended before is of its end."""
        return {
            self.plan.vertices[v].name: [
                [capture(m, checkpoint=m.position if m.ended else checkpoint).image()]
                for m in machines
            ]
            for v, machines in self.by_vertex.items()
            if self.plan.vertices[v].kind != "source"
        }

    def stored(self, checkpoint: int) -> dict[int, list[Image]]:
        """The same by vertex, with the sources: all that is needed to go on."""
        found = {
            self.plan.vertex(name).id: [chain[0] for chain in chains]
            for name, chains in self.checkpoint(checkpoint).items()
        }
        for source in self.sources:
            image = capture(
                source.machine, checkpoint=checkpoint, splits=source.positions()
            ).image()
            found.setdefault(source.machine.vertex.id, []).append(image)
        return found

    def run(self) -> None:
        """Run to the end of the input."""
        try:
            while not self.ended:
                self.turn()
                self.settle()
        finally:
            self.askers.stop()
        self.finish()

    def turn(self) -> None:
        """One round: every source publishes an epoch, then every instance applies what it can. With
        jumps sources publish a run of epochs without rows at once, up to its last checkpoint."""
        while True:
            self.askers.turn()
            if self._round() if self.rng is None else self._random_step(self.rng):
                break
            if not self.askers.wait():
                raise InternalError(f"{self.plan.job}: no instance can go on, and some have to")
        self._commit()

    def _round(self) -> bool:
        moved, upto = False, self._upto(self.sources)
        for source in self.sources:
            machine = source.machine
            if not machine.ended and not self.askers.holds_back(machine.position):
                self._step(source, upto)
                self._deliver(source.machine)
                moved = True
        for instance in self.instances:
            while instance.ready():
                self._step(instance)
                self._deliver(instance)
                moved = True
        return moved

    def _upto(self, sources: Sequence[LocalSource]) -> int:
        """The epoch up to which sources that are at the same one may go in one step; 0 for the
        next."""
        going = [source for source in sources if not source.machine.ended] if self._jumps else []
        return end_of_step(going, several=self._several) if going else 0

    def _step(self, each: LocalSource | ReceivingInstance, upto: int = 0) -> None:
        try:
            if isinstance(each, LocalSource):
                each.step(upto)
            else:
                each.step()
        except (MemoryError, OSError, OperatorError) as error:
            if is_shortage(error):
                raise self.shortage() from error
            raise
        if self.again is not None:
            self.again.applied(each)

    def _deliver(self, machine: Instance) -> None:
        for link in self.out[id(machine)]:
            while link.next <= machine.position:
                self._pass(link)
        if self.again is None:
            machine.outlets.trim(machine.position)

    def _pass(self, link: LocalStream) -> None:
        piece = link.producer.outlets.piece(link.edge, link.next, link.consumer.takes(link.edge))
        link.consumer.receive(link.edge, piece)
        link.next = piece.header.epoch + 1

    def _random_step(self, rng: random.Random) -> bool:
        """Make one move that is possible: a source publishes, an instance steps, a piece arrives.
        Returns whether there was one."""
        moves: Sequence[LocalSource | ReceivingInstance | LocalStream] = (
            *self.sources,
            *self.instances,
            *self.links,
        )
        # Most often a few draws find a possible move. To shuffle all moves costs more than a move.
        drawn = (rng.choice(moves) for _ in moves)
        return any(map(self._move, drawn)) or any(map(self._move, rng.sample(moves, len(moves))))

    def _move(self, move: LocalSource | ReceivingInstance | LocalStream) -> bool:
        """Make a move, if it is possible."""
        if isinstance(move, LocalStream):
            producer, position = move.producer, move.consumer.position
            possible = move.next <= min(producer.position, position + AHEAD)
            if possible:
                self._pass(move)
        else:
            machine = move.machine if isinstance(move, LocalSource) else move
            possible = self._within(machine) and machine.ready()
            if possible:
                self._step(move, self._upto([move]) if isinstance(move, LocalSource) else 0)
        return possible

    def _within(self, machine: Instance) -> bool:
        """Whether all that read from an instance have taken all but the last epochs. A run of
        epochs counts as one."""
        return all(
            not machine.outlets.logs[link.edge].is_beyond(link.next, BOUND)
            for link in self.out[id(machine)]
        )

    def _commit(self) -> None:
        """Commit the newest checkpoint that every instance has applied; at the end, the last
        epoch."""
        machine, every = self.machines[-1], self.plan.checkpoint_every
        if not machine.ended and machine.position < (self.committed // every + 1) * every:
            return  # as most often; a resumed job may begin between two checkpoints
        checkpoint = max(m.position for m in self.machines)
        if not self.ended:
            reached = min(m.position for m in self.machines if not m.ended)
            skipped = [run for s in self.sources for run in s.machine.checkpoints.skipped]
            checkpoint = newest_regular(every, reached, self.committed, skipped)
        if checkpoint > self.committed:
            self._commit_to(checkpoint)

    def _commit_to(self, epoch: int) -> None:
        if self.again is not None:
            self.again.compare(epoch)
        for instance in self.instances:  # no checkpoint is taken that would find it
            check_state(instance, self.committed)
        self.committed = epoch
        for tenure in self.tenures:
            tenure.commit(epoch, epoch if self.plan.durable is None else 0)
            tenure.act()

    def publish(self, epoch: int) -> None:
        """Let sinks publish what they wrote up to an epoch, and close those that have ended by
        then. With a durable tier the caller does that when the checkpoint is saved."""
        for tenure in self.tenures:
            tenure.commit(self.committed, epoch)
            tenure.act()

    def settle(self) -> None:
        """Forget what is older than the newest checkpoint: where its epochs ended, and what only a
        delta on an older checkpoint needs. For callers that take no such deltas."""
        if self._settled == self.committed:
            return
        self._settled = self.committed
        for machine in self.machines:
            settled(machine, self.committed)
        if not self._keeps:
            for at in [at for at in [*self.boundaries] if at[1] <= self.committed]:
                del self.boundaries[at]

    def finish(self) -> None:
        """The input has ended: publish all that was written and close the sinks."""
        self.publish(self.committed)

    def shortage(self) -> StateError:
        """The error to raise when there is no memory left. It names the instance that keeps the
        most."""
        kept = [holder_of(t.machine, f"{t.machine.vertex.name}/{t.index}") for t in self.tenures]
        return shortage(max(kept, key=lambda h: (h.table_bytes, h.rows)), memory_use())

    def progress(self) -> list[Progress]:
        """What every instance has done so far."""
        return [tenure.progress() for tenure in self.tenures]


def _has_one_source(plan: Plan) -> bool:
    """Whether one instance reads all: whatever steps it takes, no other takes other ones."""
    return sum(vertex.kind == "source" for vertex, _ in plan.instances()) == 1


@renamed(cut_every="checkpoint_every")
@placed
def run_local(
    flow: Flow,
    *,
    instances: Mapping[str, int] | None = None,
    ranges: Mapping[str, list[KeyRange]] | None = None,
    seed: int | None = None,
    checkpoint_every: int | None = None,
    check: bool = False,
) -> tuple[OperatorReport, ...]:
    """Run a flow in this process, to the end of its input.

    Args:
        instances: instances per operator; `ranges` instead sets their key ranges by hand.
        seed: step and deliver in a random order, replayed by the seed.
        checkpoint_every: epochs between checkpoints.
        check: at every checkpoint, make all instances again from the one before it and compare
            what they emit.

    Returns the totals per operator.

    Raises:
        ConfigError: such ranges cannot be. JobError: with `check`, an operator or a source emits
        something else the second time.
    """
    if not isinstance(flow, Flow):
        raise ConfigError(f"run_local({flow!r:.80}): it is no rs.Flow", where=caller()[0])
    check_by_operator("instances", instances, whole_number, "a whole number for each operator")
    check_by_operator("ranges", ranges, _are_ranges, "a list of rs.KeyRange for each operator")
    if seed is not None:
        seed = whole("run_local", "seed", seed, -NEVER, NEVER, ConfigError)
    if checkpoint_every is not None:
        checkpoint_every = whole(
            "run_local", "checkpoint_every", checkpoint_every, 1, NEVER, ConfigError
        )
    check_flag("run_local", "check", check)
    plan = make_plan(flow, instances=instances, checkpoint_every=checkpoint_every, check=check)
    for name, own in (ranges or {}).items():
        _set_ranges(plan, name, list(own))
    job = LocalJob(plan, rng=None if seed is None else random.Random(seed), jumps=True)
    job.run()
    return totals(job.progress())


def _are_ranges(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(keys, KeyRange) for keys in given)


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
