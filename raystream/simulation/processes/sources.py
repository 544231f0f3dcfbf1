"""How simulated source instances read: recorded data at a pace, or what has arrived by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary, HeldBoundary
from raystream.dataflow.sources.arrival import Arrival, reader_of
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.epochs import EndedSource, EpochRows, Positions
from raystream.dataflow.sources.live import LiveSplit, Sent
from raystream.dataflow.sources.recorded import Recorded
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.schema.columns import Columns
from raystream.schema.types import KeyRange
from raystream.simulation.processes.register import Ledger, SimulatedClaimer
from raystream.simulation.world import Box, World

Stop = Callable[[int, int], int]
"""Where a step ends that begins after an epoch and could go on to another one, because all epochs
between them are empty."""
PACE = 0.12
"""Time between two epochs of a source."""
AT_ONCE = 0.02
"""The same, while other sources have closed the next epoch already."""
ARRIVE_MAX = 2
"""Batches of a split that may arrive within an epoch."""


class RecordedReading:
    """Recorded data: every epoch is there when it is due.

    pause: how long it takes until an epoch is due. take: takes the next epoch; `then` is called
    with it, now or later. positions: where the splits are, after the epoch that was taken last.
    """

    def __init__(self, machine: Recorded | EndedSource) -> None:
        self._machine = machine

    def pause(self, epoch: int) -> float:
        return PACE

    def take(self, epoch: int, then: Callable[[EpochRows], None], stop: Stop) -> None:
        if isinstance(self._machine, Recorded):
            then(self._machine.take(epoch, stop(epoch - 1, self._machine.quiet_until(epoch))))
        else:
            then(self._machine.take(epoch))

    def positions(self) -> Positions:
        return self._machine.positions()


class EndedReading(RecordedReading):
    """Takes the place of a source by arrival that had ended: it knows of the boundary register, and
    claims nothing."""

    def __init__(self, world: World, box: Box, machine: EndedSource) -> None:
        super().__init__(machine)
        self.claimer = SimulatedClaimer(world, box)


class ArrivalReading:
    """Data that arrives: its epochs end where the boundary register says.

    claimer: its claims, made from `box`, the process that it runs in. owns: see `SourceReader`.
    """

    def __init__(
        self,
        world: World,
        box: Box,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        ledger: Ledger,
        positions: Positions | None,
        owns: Callable[[], bool],
    ) -> None:
        self.claimer = SimulatedClaimer(world, box)
        self._world = world
        self._ledger = ledger
        self._owns = owns
        self._machine = Arrival(plan, vertex, keys, positions, box.name)
        self._readers: list[SplitReader | LiveReader] = [
            LiveReader(world, ledger, s, vertex.source)
            if isinstance(s, LiveSplit)
            else reader_of(vertex, s)
            for s in self._machine.splits
        ]
        self._newest = 0
        self._came = [world.now] * len(self._readers)

    def pause(self, epoch: int) -> float:
        return PACE if self._newest < epoch else AT_ONCE

    def positions(self) -> Positions:
        return self._machine.positions()

    def take(self, epoch: int, then: Callable[[EpochRows], None], stop: Stop) -> None:
        self._claim(epoch, [], then)

    def _arrive(self, i: int) -> None:
        """Let batches of a split arrive, or none."""
        for _ in range(self._world.rng.randrange(ARRIVE_MAX + 1)):
            self._came[i] = self._world.now
            _read(self._machine.splits[i], self._readers[i])

    def _claim(self, epoch: int, ends: list[Boundary], then: Callable[[EpochRows], None]) -> None:
        """Claim for one split after the other."""
        splits = self._machine.splits
        if len(ends) == len(splits):
            self._publish(epoch, ends, then)
            return
        at = len(ends)
        split, reader = splits[at], self._readers[at]

        def agreed(held: HeldBoundary) -> None:
            self._newest = held.newest
            while not split.reaches(held.boundary) and not split.done:
                _read(split, reader)
            self._claim(epoch, [*ends, held.boundary], then)

        def seen(found: dict[str, Boundary]) -> None:
            if split.registered in found:
                self.claimer.want(split.registered, epoch, found[split.registered], agreed)
            else:  # try again: it may be the owner by now
                self._world.after(PACE, self.claimer.box, self._claim, epoch, ends, then)

        ended = split.done and not split.read
        if self._machine.live and not ended and not self._owns():
            self.claimer.look(epoch, [split.registered], seen)
            return

        def claim(_found: dict[str, Boundary]) -> None:
            self._arrive(at)
            wanted = split.wanted(self._world.now - self._came[at])
            self.claimer.want(split.registered, epoch, wanted, agreed)

        if self._newest > epoch:  # others are ahead, perhaps in this split
            self.claimer.look(epoch, [each.registered for each in splits], claim)
        else:
            claim({})

    def _publish(self, epoch: int, ends: list[Boundary], then: Callable[[EpochRows], None]) -> None:
        for split, end in zip(self._machine.splits, ends, strict=True):
            self._ledger.publish(split.registered, epoch, end)
        rows = self._machine.take(ends)
        for split in self._machine.live:
            if split.acknowledged is not None:
                self._ledger.acknowledge(split.registered, split.writer, split.acknowledged)
        then(rows)


PUSHERS = ("", "a", "b")
"""Where a batch comes from: nobody that says so, or one of two clients."""


class LiveReader:
    """Reads what cannot be read again: every batch is another one, whoever reads, or comes again
    because its client has had no answer."""

    def __init__(self, world: World, ledger: Ledger, split: LiveSplit, source: Any) -> None:
        self._world, self._ledger, self._split, self._source = world, ledger, split, source
        self.position = 0
        self.sent: Sent | None = None

    def next(self) -> Columns | None:
        """A batch, or None once enough is recorded."""
        if self._split.position >= self._source.enough:
            return None
        self.position += 1
        split, self.sent = self._split, None
        if name := self._world.rng.choice(PUSHERS):
            pusher = self._ledger.pusher(split.registered, name)
            if pusher.batch is None:
                pusher.send(self._new())
            assert pusher.batch is not None
            batch, self.sent = pusher.batch, Sent(name, pusher.sequence, 0)
        else:
            batch = self._new()
        self._ledger.received(split.registered, split.writer, self.position, batch)
        return batch

    def _new(self) -> Columns:
        batch: Columns = self._source.arriving(self._world.rng, self._ledger.next_number())
        return batch


def _read(split: ArrivalSplit, reader: SplitReader | LiveReader) -> None:
    """Let a batch arrive, or the end of the split."""
    rows = None if split.done else reader.next()
    if rows is None:
        split.done = True
    elif isinstance(split, LiveSplit) and isinstance(reader, LiveReader):
        split.add(reader.position, rows, reader.sent)
    else:
        split.add(reader.position, rows, *(() if isinstance(reader, LiveReader) else reader.more))
