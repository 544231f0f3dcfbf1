"""How simulated source instances read: recorded data at a pace, or what has arrived by chance."""

from __future__ import annotations

from collections.abc import Callable

from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary, Held
from raystream.dataflow.source import (
    Arrival,
    ArrivalSplit,
    Ended,
    Positions,
    Recorded,
    SplitReader,
    Taken,
)
from raystream.schema.types import KeyRange
from raystream.testing.simregister import Claimer, Ledger
from raystream.testing.simworld import Box, World

PACE = 0.12
"""Time between two epochs of a source."""
AT_ONCE = 0.02
"""The same while others have closed the next epoch already."""
ARRIVE_MAX = 2
"""Batches of a split that may arrive within an epoch."""


class RecordedReading:
    """Recorded data: every epoch is there when it is due.

    pause: how long it takes until an epoch is due. take: takes the next epoch; `then` is called
    with it, now or later. positions: where the splits are, after the epoch that was taken last.
    """

    def __init__(self, machine: Recorded | Ended) -> None:
        self._machine = machine

    def pause(self, epoch: int) -> float:
        return PACE

    def take(self, epoch: int, then: Callable[[Taken], None]) -> None:
        then(self._machine.take(epoch))

    def positions(self) -> Positions:
        return self._machine.positions()


class EndedReading(RecordedReading):
    """In the place of a source cut by arrival that had ended: it knows of the boundary register,
    and claims nothing."""

    def __init__(self, world: World, box: Box, machine: Ended) -> None:
        super().__init__(machine)
        self.claimer = Claimer(world, box)


class ArrivalReading:
    """Data that arrives: its epochs end where the boundary register says.

    claimer: its claims, made from `box`, the process that it runs in.
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
    ) -> None:
        self.claimer = Claimer(world, box)
        self._world = world
        self._ledger = ledger
        self._machine = Arrival(plan, vertex, keys, positions)
        self._readers = [
            SplitReader(s.name, vertex.name, self._machine.schema, vertex.source.read, s.position)
            for s in self._machine.splits
        ]
        self._newest = 0

    def pause(self, epoch: int) -> float:
        return PACE if self._newest < epoch else AT_ONCE

    def positions(self) -> Positions:
        return self._machine.positions()

    def take(self, epoch: int, then: Callable[[Taken], None]) -> None:
        for split, reader in zip(self._machine.splits, self._readers, strict=True):
            for _ in range(self._world.rng.randrange(ARRIVE_MAX + 1)):
                _read(split, reader)
        self._claim(epoch, [], then)

    def _claim(self, epoch: int, ends: list[Boundary], then: Callable[[Taken], None]) -> None:
        """Claim for one split after the other."""
        splits = self._machine.splits
        if len(ends) == len(splits):
            for split, end in zip(splits, ends, strict=True):
                self._ledger.publish(split.registered, epoch, end)
            then(self._machine.take(ends))
            return
        split, reader = splits[len(ends)], self._readers[len(ends)]

        def agreed(held: Held) -> None:
            self._newest = held.newest
            while not split.reaches(held.boundary) and not split.done:
                _read(split, reader)
            self._claim(epoch, [*ends, held.boundary], then)

        self.claimer.want(split.registered, epoch, split.wanted(), agreed)


def _read(split: ArrivalSplit, reader: SplitReader) -> None:
    """A batch arrives, or the end."""
    rows = None if split.done else reader.next()
    if rows is None:
        split.done = True
    else:
        split.add(reader.position, rows)
