"""Simulated sinks: they compare all that they are given with what it has to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from raystream.api.connectors import Sink
from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.simulation.world import Wrong

Reference = dict[int, dict[tuple[int, KeyRange, str], list[Any]]]
"""By vertex and (epoch, range, type) the records that a sink is to be given."""


@dataclass
class WrittenParts:
    """What the sinks of a job were given."""

    parts: set[tuple[int, int, KeyRange, str]] = field(default_factory=set)
    """(vertex, epoch, range, type) of each part that was written."""
    closed: set[tuple[int, KeyRange]] = field(default_factory=set)
    """(vertex, range) of each sink that was closed."""

    def upto(self, checkpoint: int) -> WrittenParts:
        """The parts that stay when another run goes on from a checkpoint."""
        return WrittenParts({p for p in self.parts if p[1] <= checkpoint})


class Checked(Sink[Any]):
    """A sink that compares every part with what it is to be."""

    def __init__(self, place: Place, expected: dict[Any, list[Any]], written: WrittenParts) -> None:
        self.place = place
        self.expected = expected
        self.written = written

    def write(self, epoch: int, keys: KeyRange, batch: Any) -> None:
        part = (epoch, keys, batch.record.__name__)
        if self.expected.get(part) != (got := list(batch.records())):
            raise Wrong(f"{self.place.name} wrote {part}: {got}, not {self.expected.get(part)}")
        self.written.parts.add((self.place.vertex, *part))

    def prepare(self, epoch: int) -> None:
        self._whole(epoch)

    def commit(self, epoch: int) -> None:
        self._whole(epoch)

    def close(self) -> None:
        self.written.closed.add((self.place.vertex, self.place.keys))

    def _whole(self, epoch: int) -> None:
        """Check that no part up to an epoch is missing when the epoch is committed."""
        for part in self.expected:
            due = part[0] <= epoch and part[1] == self.place.keys
            if due and (self.place.vertex, *part) not in self.written.parts:
                raise Wrong(f"{self.place.name} was told to commit {epoch} before {part}")


class Deferred(Sink[Any]):
    """A sink whose parts can only be judged at the end. It notes all calls, for a `Checked`."""

    def __init__(self, place: Place, calls: list[tuple[Place, str, tuple[Any, ...]]]) -> None:
        self.place = place
        self.calls = calls

    def write(self, epoch: int, keys: KeyRange, batch: Any) -> None:
        self.calls.append((self.place, "write", (epoch, keys, batch)))

    def prepare(self, epoch: int) -> None:
        self.calls.append((self.place, "prepare", (epoch,)))

    def commit(self, epoch: int) -> None:
        self.calls.append((self.place, "commit", (epoch,)))

    def close(self) -> None:
        self.calls.append((self.place, "close", ()))
