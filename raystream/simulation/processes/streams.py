"""Streams between simulated instances: what subscriptions and servers do on a cluster.

A consumer asks a producer's log for all epochs from one on. Pieces come in order within a stream,
and in any order between streams.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge
from raystream.dataflow.routing import Served
from raystream.dataflow.tenure import AfterRefusal, Routes
from raystream.errors import JobError
from raystream.simulation.processes.keepers import LINK, RETRY

if TYPE_CHECKING:
    from raystream.simulation.processes.instances import SimulatedInstance

WINDOW = 3
"""Pieces of a stream that may be under way."""


@dataclass(eq=False)
class Reading:
    """A subscription at its consumer."""

    edge: Edge
    address: str
    """The address of the producer."""
    first: int = 1
    """The first epoch that the producer has."""
    next: int = 0
    """The epoch after the last one that came."""
    asked: int = 0
    """The epoch from which the newest connection asked."""
    connection: int = 0
    """The number of the newest connection."""
    stopped: bool = False
    waiting: deque[tuple[Feeding, Piece]] = field(default_factory=deque)
    """Pieces that came and are too far ahead to be taken."""


@dataclass(eq=False)
class Feeding:
    """A connection at its producer."""

    reading: Reading
    connection: int
    consumer: SimulatedInstance
    next: int
    """The epoch to be sent next."""
    under_way: int = 0
    """How many pieces were sent and not taken."""
    last: float = 0.0
    """When the last of them arrives."""
    ends: float = 1e18
    """When the producer died: what would come later is lost."""


class Readings:
    """The subscriptions of an instance."""

    def __init__(self, instance: SimulatedInstance) -> None:
        self._instance = instance
        self._world, self._job = instance.world, instance.job
        self._open: dict[tuple[int, str], Reading] = {}

    def follow(self, routes: Routes) -> None:
        """Subscribe to these logs, and to no others."""
        for gone in [name for name in self._open if name not in routes.reads]:
            self._open.pop(gone).stopped = True
        for name, (edge, serving) in routes.reads.items():
            if name not in self._open:
                self._open[name] = Reading(edge, serving.address, serving.first)
                self._connect(self._open[name])

    def drain_all(self) -> None:
        """Take the pieces that are not too far ahead any more."""
        for reading in self._open.values():
            if reading.waiting:
                self.drain(reading)

    def _connect(self, reading: Reading) -> None:
        """Subscribe from what is next, or, as after a broken connection, from what was applied."""
        applied = max(reading.first, self._instance.machine.position + 1)
        again = self._world.rng.random() < self._job.again
        reading.asked = applied if again else max(reading.next, applied)
        reading.connection += 1
        reading.waiting.clear()
        producer = self._job.at[reading.address]
        self._world.after(LINK, None, self._arrive, producer, reading, reading.connection)

    def _arrive(self, producer: SimulatedInstance, reading: Reading, connection: int) -> None:
        if producer.alive:
            self._world.at(
                self._world.now,
                producer,
                producer.serving.asked,
                self._instance,
                reading,
                connection,
            )
        else:
            self._world.after(LINK, self._instance, self.broken, reading, connection)

    def broken(self, reading: Reading, connection: int) -> None:
        """Try again soon: the connection broke."""
        if connection == reading.connection:
            reading.connection += 1
            reading.waiting.clear()
            self._world.after(RETRY, self._instance, self._again, reading, reading.connection)

    def _again(self, reading: Reading, connection: int) -> None:
        if (
            not reading.stopped
            and connection == reading.connection
            and self._instance.failed is None
        ):
            self._connect(reading)

    def refused(self, reading: Reading, connection: int, first: int) -> None:
        """Take a refusal: the log begins later than the epoch that was asked for."""
        if connection != reading.connection or reading.stopped:
            return
        match self._instance.tenure.refused(reading.asked):
            case AfterRefusal.LEAVE:
                pass
            case AfterRefusal.ASK_AGAIN:
                self.broken(reading, connection)
            case AfterRefusal.FAIL:
                self._job.check_refused(self._instance, reading, first)
                self._instance.fail(JobError(f"{reading.address} refused epoch {reading.asked}"))

    def all(self) -> list[Reading]:
        """All subscriptions."""
        return list(self._open.values())

    def deliver(self, feeding: Feeding, piece: Piece) -> None:
        """Take a piece that came. A piece of a connection that was given up may come or not."""
        reading = feeding.reading
        if self._world.now > feeding.ends:
            return
        if feeding.connection != reading.connection or reading.stopped:
            near = piece.header.first <= self._instance.machine.position + self._job.ahead
            if self._world.rng.random() < 0.5 and near:
                self._receive(reading, piece)
            return
        reading.waiting.append((feeding, piece))
        self.drain(reading)

    def _receive(self, reading: Reading, piece: Piece) -> None:
        self._instance.machine.receive(reading.edge.id, piece)
        self._instance.go_on()

    def drain(self, reading: Reading) -> None:
        """Take the pieces that are not too far ahead of the last epoch applied."""
        while reading.waiting:
            feeding, piece = reading.waiting[0]
            if piece.header.first > self._instance.machine.position + self._job.ahead:
                return
            reading.waiting.popleft()
            reading.next = piece.header.epoch + 1
            self._receive(reading, piece)
            feeding.under_way -= 1
            producer = self._job.at[reading.address]
            if producer.alive and not producer.asleep:
                producer.serving.feed((reading.edge.id, self._instance.name))


class SimulatedServer:
    """The logs of an instance, as others read them."""

    def __init__(self, instance: SimulatedInstance) -> None:
        self.served = Served()
        self._instance = instance
        self._world = instance.world
        self._open: dict[tuple[int, str], Feeding] = {}

    def expect(self, routes: Routes) -> None:
        """Serve these readers, and no others."""
        self.served.expect(routes.readers, routes.candidates)
        self._open = {w: f for w, f in self._open.items() if w in self.served.next}

    def die(self) -> None:
        """Kill the process. Some of what it sent last still arrives."""
        for feeding in self._open.values():
            feeding.ends = self._world.now + self._world.delay(LINK)
            readings = feeding.consumer.readings
            broken = (readings.broken, feeding.reading, feeding.connection)
            self._world.after(LINK, feeding.consumer, *broken)

    def feed_all(self) -> None:
        """Send to all subscribers what they have room for."""
        for subscriber in list(self._open):
            self.feed(subscriber)

    def asked(self, consumer: SimulatedInstance, reading: Reading, connection: int) -> None:
        """Take a subscription: all of an edge from an epoch on."""
        if reading.stopped or connection != reading.connection:
            return
        subscriber = (reading.edge.id, consumer.name)
        if subscriber not in self.served.next:
            self._world.after(LINK, consumer, consumer.readings.broken, reading, connection)
            return
        first = self._instance.machine.outlets.logs[reading.edge.id].first
        if reading.asked < first:
            self._world.after(LINK, consumer, consumer.readings.refused, reading, connection, first)
            return
        self.served.next[subscriber] = reading.asked
        self._open[subscriber] = Feeding(reading, connection, consumer, reading.asked)
        self.feed(subscriber)
        self._instance.go_on()

    def feed(self, subscriber: tuple[int, str]) -> None:
        """Send what a subscriber has room for. It has applied what was trimmed meanwhile."""
        feeding = self._open.get(subscriber)
        if feeding is None:
            return
        outlets, edge = self._instance.machine.outlets, subscriber[0]
        log = outlets.logs[edge]
        full = feeding.under_way >= WINDOW or feeding.next >= log.next
        if full and feeding.next <= outlets.last:
            return  # as most often
        keys = feeding.consumer.machine.takes(edge)
        began = feeding.next
        while feeding.under_way < WINDOW and max(feeding.next, log.first) < log.next:
            piece = outlets.piece(edge, max(feeding.next, log.first), keys)
            feeding.last = max(feeding.last, self._world.now + self._world.delay(LINK))
            feeding.under_way += 1
            feeding.next = piece.header.epoch + 1
            consumer = feeding.consumer
            self._world.at(feeding.last, consumer, consumer.readings.deliver, feeding, piece)
            if piece.header.ended:
                del self._open[subscriber]
                break
        silent = outlets.silent(edge, feeding.next)
        if silent is not None and subscriber in self._open:
            del self._open[subscriber]
            consumer, piece = feeding.consumer, Piece(silent.header, *silent.part(keys))
            feeding.last = max(feeding.last, self._world.now + self._world.delay(LINK))
            self._world.at(feeding.last, consumer, consumer.readings.deliver, feeding, piece)
        if feeding.next > began and subscriber in self.served.next:
            self.served.next[subscriber] = feeding.next
            self._instance.go_on()
