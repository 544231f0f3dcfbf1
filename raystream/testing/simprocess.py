"""Simulated processes with an instance each, and their streams.

A stream is what `actors.subscription` and `actors.server` do: a consumer asks a producer's log for
all from an epoch on; pieces come in order within a stream, in any order between streams.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raystream.controller.journal import Seat
from raystream.controller.recovery import Place
from raystream.controller.report import Progress, progress_of, sink_context
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge, Vertex
from raystream.dataflow.routing import Served, catching_up, readers, reads
from raystream.dataflow.snapshot import (
    Captured,
    advance,
    capture,
    install,
    next_wanted,
    settled,
    sizes_of,
)
from raystream.dataflow.source import Ended, Recorded, Taken
from raystream.errors import JobError, RaystreamError
from raystream.state.assignment import Assignment
from raystream.state.chain import FULL, Wanted
from raystream.state.image import Image, Standing
from raystream.testing.simchecks import check_bounded, check_waits
from raystream.testing.simregister import Claimer
from raystream.testing.simshipping import LINK, RETRY, Keeper, Shipping
from raystream.testing.simsources import ArrivalReading, EndedReading, RecordedReading
from raystream.testing.simworld import Box

if TYPE_CHECKING:
    from raystream.testing.simjob import Job

COMPUTE = 0.02
WINDOW = 3
"""Pieces of a stream that may be under way."""


@dataclass(eq=False)
class Reading:
    """A subscription at its consumer. first: the first epoch that its producer has. connection: the
    number of the newest one."""

    edge: Edge
    address: str
    first: int = 1
    next: int = 0
    asked: int = 0
    connection: int = 0
    stopped: bool = False
    waiting: deque[tuple[Feeding, Piece]] = field(default_factory=deque)


@dataclass(eq=False)
class Feeding:
    """A connection at its producer. ends: when its producer died, what comes later is lost."""

    reading: Reading
    connection: int
    consumer: Instances
    next: int
    under_way: int = 0
    last: float = 0.0
    ends: float = 1e18


class Blank(Box):
    """A process without a place."""

    def __init__(self, process: str, node: str) -> None:
        super().__init__(f"process {process}")
        self.process = process
        self.node = node


class Instances(Box):
    """A process with one instance. node: where it runs; address: its own for ever."""

    def __init__(
        self,
        job: Job,
        process: str,
        place: Place,
        node: str,
        floor: int,
        images: list[list[Image]],
    ) -> None:
        super().__init__(place.name)
        self.job = job
        self.world = job.world
        self.process = process
        self.place = place
        self.node = node
        self.address = job.register(self)
        self.keepers: tuple[Keeper, ...] = ()
        self.kept = self.kept_at = self.end_kept = 0
        self.whole: set[str] = set()
        """The keepers that hold what it began with."""
        self._sizes = sizes_of(images)
        self.begun = self.floor = floor
        self.shown = 0
        self.vertex: Vertex = job.plan.vertices[place.vertex]
        self.source: RecordedReading | ArrivalReading | None = None
        self.machine: Instance | SourceInstance
        if self.vertex.kind == "source":
            self.machine = SourceInstance(job.plan, self.vertex, place.keys)
        else:
            self.machine = Instance(job.plan, self.vertex, place.keys, job.sink_of(place))
        for log in self.machine.outlets.logs.values():
            log.next = floor + 1
        standing = install(self.machine, images, floor) if images else None
        self._standing = standing
        self.served = Served()
        self.shipping = Shipping(self, floor, job.part_bytes, job.image_bytes)
        self.chain = self.shipping.chain
        self.version = 0
        self.over = False
        self.failed: RaystreamError | None = None
        self._readings: dict[tuple[int, str], Reading] = {}
        self._feedings: dict[tuple[int, str], Feeding] = {}
        self._started = self._busy = False

    def open(self) -> None:
        """Make ready to begin, with what it was given."""
        if self.vertex.kind == "source":
            self.source = self._reading(max(self.begun, self.machine.position), self._standing)
        self.machine.open()

    def advance(self, delta: Image) -> None:
        """Take from an owner what has changed since the floor."""
        advance(self.machine, delta)
        self._standing = delta.header.standing

    def _reading(self, taken: int, standing: Standing | None) -> RecordedReading | ArrivalReading:
        plan, vertex, keys = self.job.plan, self.vertex, self.place.keys
        positions = None if standing is None else standing.splits
        if standing is not None and standing.ended:
            ended = Ended(vertex, keys, standing.splits)
            arrives = plan.clock is None
            return EndedReading(self.world, self, ended) if arrives else RecordedReading(ended)
        if plan.clock is None:
            return ArrivalReading(self.world, self, plan, vertex, keys, self.job.ledger, positions)
        return RecordedReading(Recorded(plan, vertex, keys, taken=taken, positions=positions))

    @property
    def claimer(self) -> Claimer | None:
        """The claims of a source that is cut by arrival."""
        source = self.source
        return source.claimer if isinstance(source, ArrivalReading | EndedReading) else None

    # ------------------------------------------------------------ control

    def begin(self, seat: Seat, assignment: Assignment, started: float) -> None:
        """Begin to work; or, at work, say again that the work is done."""
        self.kept_by(seat.keepers, seat.kept)
        self.assign(assignment)
        if self.failed is not None or self.over:
            self.job.say_done(self, self.failed)
        elif not self._started:
            self._start()

    def _start(self) -> None:
        if isinstance(self.machine, Instance):
            plan, keys = self.job.plan, self.place.keys
            at = self.machine.goes_on_from(self.begun)
            self.machine.open_sink(
                sink_context(plan, self.vertex, keys, "sim", None, at, self.version)
            )
        self._started = True
        self._after_epoch()

    def assign(self, assignment: Assignment) -> None:
        """Follow the newest assignment; an older one is ignored."""
        if assignment.version <= self.version:
            return
        self.version = assignment.version
        self.machine.cuts.ask(assignment.cuts)
        self.served.expect(
            readers(self.vertex, assignment, self.begun), catching_up(self.vertex, assignment)
        )
        self._feedings = {w: f for w, f in self._feedings.items() if w in self.served.next}
        wanted = reads(self.vertex, assignment)
        for gone in [name for name in self._readings if name not in wanted]:
            self._readings.pop(gone).stopped = True
        for name, (edge, serving) in wanted.items():
            if name not in self._readings:
                self._readings[name] = Reading(edge, serving.address, serving.first)
                self._connect(self._readings[name])
        self._go_on()

    def commit(self, epoch: int, shown: int) -> None:
        """The cut at `epoch` is the new floor; sinks may show what they wrote up to `shown`."""
        try:
            if epoch > self.floor:
                self.floor = epoch
                if self.claimer is not None:
                    self.claimer.claims.trim(epoch)
                settled(self.machine, epoch)
                self.machine.commit(epoch)
                self.job.check_trimmed(self)
            if shown > self.shown:
                self.shown = shown
                self.job.check_shown(shown)
                if isinstance(self.machine, Instance):
                    self.machine.show(shown)
            self._close()
        except RaystreamError as error:
            self._fail(error)

    def _close(self) -> None:
        """Its work is done when its last epoch is committed; a sink's, when that may be shown."""
        machine = self.machine
        last = self.shown if self.vertex.kind == "sink" else self.floor
        if not self.over and machine.ended and last >= machine.position:
            if isinstance(machine, Instance):
                machine.close_sink()
            self.over = True
            self.job.say_done(self, None)

    def delivery(self, since: int) -> Image | None:
        """What has changed since a cut, up to where it is; None if nothing has."""
        return None if self.machine.position <= since else self._captured(Wanted(since)).image()

    def forget(self, epoch: int) -> None:
        """All have what it sent up to an epoch."""
        self.machine.outlets.trim(epoch)

    def kept_by(self, keepers: tuple[str, ...], kept: int) -> None:
        """These keepers hold its checkpoints from now on."""
        if kept > self.kept:
            whole = not self.kept and bool(keepers) and self.whole.issuperset(keepers)
            self.keepers, self.kept = tuple(self.job.keepers[k] for k in keepers), kept
            self.kept_at = self.machine.position
            if whole and not self.machine.ended:
                self.chain.continues(self._sizes)
                return
            self.chain.restart()
            if self.machine.ended:
                self.put_again()

    def progress(self) -> Progress:
        """What it says of itself."""
        view = 0 if self.claimer is None else self.claimer.claims.told.number
        at_end = self.machine.ended and self.end_kept == self.kept
        return progress_of(
            self.machine,
            self.place.index,
            name=self.name,
            stored=self.chain.stored if self.job.ships else None,
            version=self.version,
            floor=self.floor,
            shown=self.shown,
            closed=self.over or self.vertex.kind != "sink",
            kept=self.kept,
            view=view,
            kept_at=min(self.kept_at, self.machine.position - at_end),
        )

    def die(self) -> None:
        """Its process is gone; of what it sent last some still comes."""
        self.alive = False
        for feeding in self._feedings.values():
            feeding.ends = self.world.now + self.world.delay(LINK)
            self.world.after(LINK, feeding.consumer, feeding.consumer.broken, feeding.reading,
                             feeding.connection)  # fmt: skip

    def woke(self) -> None:
        """Its streams go on where they stopped."""
        for who in list(self._feedings):
            self.feed(who)

    def _fail(self, error: RaystreamError) -> None:
        self.failed = error
        self.job.say_done(self, error)

    # ------------------------------------------------------------ reading

    def _connect(self, reading: Reading) -> None:
        """Subscribe from what is next, or, as after a broken connection, from what was applied."""
        applied = max(reading.first, self.machine.position + 1)
        again = self.world.rng.random() < self.job.again
        reading.asked = applied if again else max(reading.next, applied)
        reading.connection += 1
        reading.waiting.clear()
        producer = self.job.at[reading.address]
        self.world.after(LINK, None, self._arrive, producer, reading, reading.connection)

    def _arrive(self, producer: Instances, reading: Reading, connection: int) -> None:
        if producer.alive:
            self.world.at(self.world.now, producer, producer.asked, self, reading, connection)
        else:
            self.world.after(LINK, self, self.broken, reading, connection)

    def broken(self, reading: Reading, connection: int) -> None:
        """A connection broke: try again soon."""
        if connection == reading.connection:
            reading.connection += 1
            reading.waiting.clear()
            self.world.after(RETRY, self, self._again, reading, reading.connection)

    def _again(self, reading: Reading, connection: int) -> None:
        if not reading.stopped and connection == reading.connection and self.failed is None:
            self._connect(reading)

    def refused(self, reading: Reading, connection: int, first: int) -> None:
        """The log begins later than what was asked for."""
        if connection != reading.connection or reading.stopped or self.machine.ended:
            return
        if self.machine.position < reading.asked:
            self.job.check_refused(self, reading, first)
            self._fail(JobError(f"{reading.address} refused epoch {reading.asked}"))
        else:
            self.broken(reading, connection)

    def readings(self) -> list[Reading]:
        """Its subscriptions."""
        return list(self._readings.values())

    def deliver(self, feeding: Feeding, piece: Piece) -> None:
        """A piece came. From a connection that was given up it may come or not."""
        reading = feeding.reading
        if self.world.now > feeding.ends:
            return
        if feeding.connection != reading.connection or reading.stopped:
            near = piece.header.epoch <= self.machine.position + self.job.ahead
            if self.world.rng.random() < 0.5 and near:
                self._receive(reading, piece)
            return
        reading.waiting.append((feeding, piece))
        self._drain(reading)

    def _receive(self, reading: Reading, piece: Piece) -> None:
        machine = self.machine
        assert isinstance(machine, Instance)
        machine.receive(reading.edge.id, piece)
        self._go_on()

    def _drain(self, reading: Reading) -> None:
        """Take what is not too far ahead of what was applied."""
        while reading.waiting:
            feeding, piece = reading.waiting[0]
            if piece.header.epoch > self.machine.position + self.job.ahead:
                return
            reading.waiting.popleft()
            reading.next = piece.header.epoch + 1
            self._receive(reading, piece)
            feeding.under_way -= 1
            producer = self.job.at[reading.address]
            if producer.alive and not producer.asleep:
                producer.feed((reading.edge.id, self.name))

    # ------------------------------------------------------------ serving

    def asked(self, consumer: Instances, reading: Reading, connection: int) -> None:
        """A subscription: all of an edge from an epoch on."""
        if reading.stopped or connection != reading.connection:
            return
        who = (reading.edge.id, consumer.name)
        if who not in self.served.next:
            self.world.after(LINK, consumer, consumer.broken, reading, connection)
            return
        first = self.machine.outlets.logs[reading.edge.id].first
        if reading.asked < first:
            self.world.after(LINK, consumer, consumer.refused, reading, connection, first)
            return
        self.served.next[who] = reading.asked
        self._feedings[who] = Feeding(reading, connection, consumer, reading.asked)
        self.feed(who)
        self._go_on()

    def feed(self, who: tuple[int, str]) -> None:
        """Send what a subscriber has room for. What was trimmed meanwhile it has applied."""
        feeding = self._feedings.get(who)
        if feeding is None:
            return
        outlets, edge = self.machine.outlets, who[0]
        log = outlets.logs[edge]
        full = feeding.under_way >= WINDOW or feeding.next >= log.next
        if full and feeding.next <= outlets.last:
            return  # as most often
        keys = feeding.consumer.place.keys
        began = feeding.next
        while feeding.under_way < WINDOW and max(feeding.next, log.first) < log.next:
            piece = outlets.piece(edge, max(feeding.next, log.first), keys)
            feeding.last = max(feeding.last, self.world.now + self.world.delay(LINK))
            feeding.under_way += 1
            feeding.next = piece.header.epoch + 1
            consumer = feeding.consumer
            self.world.at(feeding.last, consumer, consumer.deliver, feeding, piece)
            if piece.header.ended:
                del self._feedings[who]
                break
        silent = outlets.silent(edge, feeding.next)
        if silent is not None and who in self._feedings:
            del self._feedings[who]
            consumer, piece = feeding.consumer, Piece(silent.header, *silent.part(keys))
            feeding.last = max(feeding.last, self.world.now + self.world.delay(LINK))
            self.world.at(feeding.last, consumer, consumer.deliver, feeding, piece)
        if feeding.next > began and who in self.served.next:
            self.served.next[who] = feeding.next
            self._go_on()

    # ------------------------------------------------------------ computing

    def _go_on(self) -> None:
        if not self._busy and self._started and self._may():
            self._busy = True
            due = self.machine.position + 1
            pause = COMPUTE if self.source is None else self.source.pause(due)
            self.world.after(pause, self, self._compute)

    def _may(self) -> bool:
        machine = self.machine
        if machine.ended or self.failed is not None:
            return False
        if machine.position >= self.served.slowest() + self.job.ahead:
            check_waits(self.name, self.served, self.job.ahead, machine.position, self.job.entry)
            return False
        return isinstance(machine, SourceInstance) or machine.ready()

    def _compute(self) -> None:
        if not self._may():
            self._busy = False
        elif self.source is not None:
            self.source.take(self.machine.position + 1, self._step)
        else:
            self._step(None)

    def _step(self, taken: Taken | None) -> None:
        """Apply the next epoch; of a source it was taken."""
        self._busy = False
        machine = self.machine
        try:
            if isinstance(machine, SourceInstance):
                assert taken is not None
                header = machine.publish(taken)
            else:
                header = machine.step()
            self.world.tell(self.name, "applied", header.epoch)
            if header.cut or header.ended:
                self._checkpoint()
        except RaystreamError as error:
            self._fail(error)
            return
        self._after_epoch()

    def _after_epoch(self) -> None:
        for reading in self._readings.values():
            if reading.waiting:
                self._drain(reading)
        for who in list(self._feedings):
            self.feed(who)
        check_bounded(self.name, self.machine, self.floor, self.job.ahead, WINDOW)
        self._close()
        self._go_on()

    # ------------------------------------------------------------ checkpoints

    def _checkpoint(self) -> None:
        wanted = next_wanted(self.machine, self.chain)
        self._put(self._captured(wanted), wanted)

    def _captured(self, wanted: Wanted = FULL) -> Captured:
        splits = None if self.source is None else self.source.positions()
        table = f"{self.name}@{self.begun}"
        return capture(self.machine, wanted, splits=splits, table=table)

    def _put(self, captured: Captured, wanted: Wanted = FULL) -> None:
        if self.job.ships:
            self.shipping.put(captured, wanted)

    def put_again(self) -> None:
        """No cut comes after the last."""
        self._put(self._captured())
