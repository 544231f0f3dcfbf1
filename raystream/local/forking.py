"""A version of a flow beside a running job: it takes what the job's sources emit, so it has the
same epochs. It reads no source, but for those in which functions run (`rereading`).

    feed = EdgeFeed(...)                 what has come on the edges of the job
    fork = Fork(plan, images, feed ...)  the operators and sinks of a version, in this process
    fork.give(feed.next())               the pieces of the next epochs; then
    fork.turn()                          applies them

What an operator that asks the world was answered is taken from the job, too: from the edges that
leave it. So a fork asks nothing, unless it is to. What such an operator would ask is heard
(`Fork.asked`), because the answers say nothing of other questions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from raystream.api.flow import Flow
from raystream.dataflow.asking.claiming import asks
from raystream.dataflow.inlet import Inlet
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.logic.interpreted import in_order
from raystream.dataflow.order import assemble
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Clock, Plan, Vertex, vertices_of
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.local.comparing import bits_of
from raystream.local.hearing import Hearing, SinkOutput, show
from raystream.local.job import LocalJob
from raystream.local.rereading import ReadStep, ReadSteps
from raystream.local.run import name_here
from raystream.local.source import Ends, LocalSource
from raystream.schema.columns import Columns
from raystream.schema.types import NEVER, KeyRange
from raystream.state.images.image import Image

Images = Mapping[str, Sequence[Sequence[Image]]]
"""By vertex the chains of images from which it goes on."""


def fork_plan(flow: Flow, clock: Clock | None, checkpoint_every: int) -> Plan:
    """The plan of a version that is fed by a running job, with one instance of each vertex. No
    source is asked for anything.

    Args:
        clock: that of the job. checkpoint_every: as in the job.

    Raises:
        GraphError: the flow is wrong.
    """
    vertices, edges = vertices_of(flow)
    whole = [KeyRange(0, flow.key_groups)]
    return Plan(
        job=flow.name,
        groups=flow.key_groups,
        ticks=flow.ticks,
        vertices=vertices,
        edges=edges,
        ranges={v.id: whole for v in vertices},
        splits={},
        clock=clock,
        checkpoint_every=checkpoint_every,
    )


def taken_from_job(vertex: Vertex) -> bool:
    """Whether a fork takes from the job what this vertex emits."""
    return vertex.kind == "source" or asks(vertex)


def fed_edges(plan: Plan) -> list[int]:
    """The edges on which a fork is fed."""
    return [e.id for e in plan.edges if taken_from_job(plan.vertices[e.producer])]


class _Step(NamedTuple):
    """The pieces of an edge for an epoch, or for a run of them."""

    upto: int
    pieces: list[Piece]
    nbytes: int


class EdgeFeed:
    """What has come on edges of a running job, until it is complete and taken. Pieces may come
    twice, from owners and candidates. Not thread-safe.

    Args:
        committed: the checkpoint after which the edges are read.
        code: the number of the version of the code that the job runs.
    """

    def __init__(self, edges: Iterable[int], groups: int, committed: int, code: int) -> None:
        self._inlets = {edge: Inlet(groups, committed, code) for edge in edges}
        self._steps: dict[int, deque[_Step]] = {edge: deque() for edge in self._inlets}
        self._held = dict.fromkeys(self._inlets, 0)

    def begin(self, edge: int, ended: Iterable[Piece]) -> None:
        """These ranges of the edge's producer had ended by the checkpoint."""
        self._inlets[edge].ended += ended
        self._complete(edge)

    def receive(self, edge: int, piece: Piece) -> None:
        """Take a piece."""
        self._inlets[edge].receive(piece)
        self._complete(edge)

    def _complete(self, edge: int) -> None:
        inlet = self._inlets[edge]
        while not inlet.finished and inlet.ready(epoch := inlet.position + 1):
            upto = inlet.reach(epoch)
            pieces = inlet.apply(epoch, upto)
            nbytes = sum(piece.rows.nbytes() for piece in pieces)
            self._steps[edge].append(_Step(upto, pieces, nbytes))
            self._held[edge] += nbytes

    def reached(self, edge: int) -> int:
        """The last epoch up to which all pieces of an edge have come."""
        return self._inlets[edge].position

    def held(self, edge: int) -> int:
        """The bytes of the complete epochs of an edge that were not taken yet."""
        return self._held[edge]

    @property
    def finished(self) -> bool:
        """Whether the end of the input was taken."""
        return all(i.finished for i in self._inlets.values()) and not any(self._steps.values())

    def next(self) -> list[tuple[int, Piece]]:
        """The pieces of the next epochs that are complete on all edges, by edge; none if there are
        no such epochs yet."""
        going = [e for e, inlet in self._inlets.items() if self._steps[e] or not inlet.finished]
        if not going or not all(self._steps[edge] for edge in going):
            return []
        upto = min(self._steps[edge][0].upto for edge in going)
        found = []
        for edge in going:
            steps = self._steps[edge]
            while steps and steps[0].upto <= upto:
                step = steps.popleft()
                self._held[edge] -= step.nbytes
                found += [(edge, piece) for piece in step.pieces]
        return found


class AskedRecords(NamedTuple):
    """What an operator that asks the world would ask in an epoch."""

    operator: str
    epoch: int
    records: tuple[Any, ...]


class _Questions(KeyedInstance):
    """In the place of an operator that asks: hears what it would ask, and emits nothing."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        super().__init__(plan, vertex, keys)
        self.heard: list[AskedRecords] = []

    def _apply(self, pieces: dict[int, list[Piece]], header: Header, before: int) -> None:
        spec = self.spec
        given = assemble(self.feeds, pieces, spec.inputs, self.keys, spec.sorted_by)
        records = tuple(in_order(given)) if len(given) else ()
        if records:
            self.heard.append(AskedRecords(self.vertex.name, header.epoch, records))


class _ForkedJob(LocalJob):
    """The operators and sinks of a job.

    Args:
        code: the number of the version of the code that made what it is given.
        ask: whether it asks the world.
        again: the sources of which it is given what they read, and not what they emit.
    """

    def __init__(
        self, plan: Plan, images: Images, code: int, *, ask: bool, again: Collection[int]
    ) -> None:
        self._code = CodeVersion(number=code, after=0, code=b"", settled=True)
        self._asks, self._again = ask, again
        self.read: dict[int, SourceInstance] = {}
        super().__init__(plan, run=name_here(), resume=images)
        for machine in self.machines:
            if self.is_taken(machine.vertex):
                self.out[id(machine)] = []

    def is_taken(self, vertex: Vertex) -> bool:
        """Whether what a vertex emits comes from the running job."""
        return taken_from_job(vertex) and not (self._asks and asks(vertex))

    def _add_source(
        self, vertex: Vertex, keys: KeyRange, images: Sequence[Sequence[Image]], checkpoint: int
    ) -> None:
        """A fork has none. What is read again goes through the functions inside the source."""
        if vertex.id in self._again:
            at = checkpoint if images else 0
            made = LocalSource(self.plan, vertex, keys, {}, None, images, committed=at).machine
            made.outlets.open()
            made.runs(self._code)
            self.read[vertex.id] = made

    def _made(self, vertex: Vertex, keys: KeyRange) -> ReceivingInstance:
        taken = self.is_taken(vertex)
        made = _Questions(self.plan, vertex, keys) if taken else super()._made(vertex, keys)
        made.runs(self._code)
        return made

    def go_on(self) -> bool:
        """Apply what can be applied by now. Returns whether there was something."""
        moved = False
        while True:
            self.askers.turn()
            if self._round():
                moved = True
            elif not self.askers.wait():
                break
        going = [m.checkpoints.newest for m in self.machines if not m.ended]
        newest = min(going, default=max(m.position for m in self.machines))
        if newest > self.committed:
            self._commit_to(newest)
        return moved


class Fork:
    """One version of a flow, which is fed by a running job. It is a context: what was written is
    published at its end, unless an error ended it.

    Args:
        images: with which it begins. code: see `EdgeFeed`.
        write_to: see `Hearing`.
        ask: whether its operators ask the world, and are not given what the job was answered.
        again: the sources that are read again, see `ReadAgain`.
    """

    def __init__(
        self,
        plan: Plan,
        images: Images,
        code: int,
        *,
        write_to: str | None = None,
        ask: bool = False,
        again: Collection[int] = (),
    ) -> None:
        self.plan = plan
        self.boundaries: Ends = {}
        """None: pieces say where epochs end."""
        self.beside: Fork | None = None
        """The version with which this one is compared: output of epochs that the other one has not
        applied waits."""
        self._hearing, self._waiting = Hearing(plan, write_to), list[SinkOutput]()
        self.job = _ForkedJob(plan, images, code, ask=ask, again=again)
        self._came, self._made = Counter[int](), Counter[int]()
        """By edge of a source that is read again a digest of the rows that came from the job, and
        of those that this version makes."""

    def __enter__(self) -> Fork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: object, trace: TracebackType | None
    ) -> None:
        self.job.askers.stop()
        if kind is None:
            show(self.job.instances)

    @property
    def at(self) -> int:
        """The last epoch that all instances have applied."""
        positions = [m.position for m in self.job.machines]
        return min([m.position for m in self.job.machines if not m.ended], default=max(positions))

    @property
    def _upto(self) -> int:
        """The last epoch of which everything may be told."""
        return self.at if self.beside is None else min(self.at, self.beside.at)

    @property
    def ended(self) -> bool:
        """Whether the input has ended."""
        return self.job.ended

    def taken(self) -> list[SinkOutput]:
        """The output since the last call, of epochs that all instances have applied."""
        found, upto = [*self._waiting, *self._hearing.taken()], self._upto
        self._waiting = [output for output in found if output.epoch > upto]
        return [output for output in found if output.epoch <= upto]

    def ended_at_first(self, edge: int) -> list[Piece]:
        """Which ranges of the producer of an edge had ended by the checkpoint; see
        `EdgeFeed.begin`."""
        consumer = self.plan.edges[edge].consumer
        return [p for m in self.job.by_vertex[consumer] for p in m.inlets[edge].ended]

    def give(self, pieces: Iterable[tuple[int, Piece]], read: ReadSteps | None = None) -> None:
        """Take pieces of edges of the running job.

        Args:
            read: what the sources that are read again have read of the same epochs.
        """
        for edge, piece in pieces:
            producer = self.plan.edges[edge].producer
            if producer in self.job.read:
                self._came[edge] += digest(piece.rows)
            elif self.job.is_taken(self.plan.vertices[producer]):
                self._receive(edge, piece)
        for vertex, steps in (read or {}).items():
            for step in steps:
                self._emit(self.job.read[vertex], step)

    def _receive(self, edge: int, piece: Piece) -> None:
        for machine in self.job.by_vertex[self.plan.edges[edge].consumer]:
            machine.receive(edge, piece)

    def _emit(self, source: SourceInstance, step: ReadStep) -> None:
        """Send what this version makes of what a source has read."""
        epoch = source.step(step.rows).epoch
        for edge in source.vertex.outputs:
            made = source.outlets.piece(edge.id, epoch, KeyRange(0, self.plan.groups))
            header = made.header._replace(checkpoint=step.checkpoint)
            self._made[edge.id] += digest(made.rows)
            self._receive(edge.id, made._replace(header=header))
        source.outlets.trim(epoch)

    def made_otherwise(self) -> str:
        """A source of which this version makes other rows than came from the job; empty if there
        is none. It is to be asked when the pieces of all its edges have come."""
        for edge, made in self._made.items():
            if made != self._came[edge]:
                return self.plan.vertices[self.plan.edges[edge].producer].name
        return ""

    def turn(self, to: int = NEVER) -> bool:
        """Apply what was given. Returns whether there was something.

        Raises:
            RaystreamError: the code of the flow has failed.
        """
        moved = self.job.go_on()
        self.job.settle()
        return moved

    def advance(self, to: int) -> None:
        """As `turn`."""
        self.turn(to)

    def asked(self) -> list[AskedRecords]:
        """What operators would ask the world since the last call, by operator and epoch."""
        found: list[AskedRecords] = []
        for machine in self.job.instances:
            if isinstance(machine, _Questions):
                found += [a for a in machine.heard if a.epoch <= self._upto]
                machine.heard = [a for a in machine.heard if a.epoch > self._upto]
        return sorted(found, key=lambda a: (a.epoch, a.operator))


def digest(rows: Columns) -> int:
    """A number of rows in any order, to the bit; it is added up over pieces. Only for this process:
    Python hashes text otherwise in each. Rows that differ have the same one by chance in 2^64."""
    return sum(hash(bits_of(record)) for record in rows.records())


def asked_otherwise(
    one: Sequence[AskedRecords], two: Sequence[AskedRecords]
) -> AskedRecords | None:
    """The first epoch of an operator in which two versions ask otherwise, with what only the second
    asks in it; None if they ask the same."""
    first = {(a.epoch, a.operator): a.records for a in one}
    second = {(a.epoch, a.operator): a.records for a in two}
    for epoch, operator in sorted({*first, *second}):
        asked = second.get((epoch, operator), ())
        known = [bits_of(record) for record in first.get((epoch, operator), ())]
        if known != [bits_of(record) for record in asked]:
            new = tuple(record for record in asked if bits_of(record) not in known)
            return AskedRecords(operator, epoch, new)
    return None
