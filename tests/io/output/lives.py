"""Runs of a sink to files, one after the other, for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import raystream as rs
from tests.dataflow.random_ranges import random_ranges
from tests.io.kinds import batch

GROUPS = 256
ALL = rs.KeyRange(0, GROUPS)
HALVES = [rs.KeyRange(0, 128), rs.KeyRange(128, 256)]


class Row(NamedTuple):
    group: int
    epoch: int
    run: str


def opened(
    sink: Any,
    keys: rs.KeyRange,
    run: str,
    committed: int = 0,
    resumed: str = "",
    generation: int = 0,
    number: int = 0,
) -> Any:
    mine = type(sink)(sink.folder, sink.form)
    context = rs.SinkContext(
        run, "rows", keys, None, 0.0, None, committed, resumed, False, generation, number
    )
    mine.open(context)
    return mine


def rows(epoch: int, keys: rs.KeyRange, run: str) -> list[Row]:
    """One row for every 16th key group; none in every third epoch."""
    return [Row(g, epoch, run) for g in range(0, GROUPS, 16) if g in range(*keys) and epoch % 3]


def files(folder: Path) -> set[Path]:
    return {p for p in folder.rglob("*") if p.is_file()}


def visible(folder: Path) -> list[Row]:
    return [r for b in rs.io.read_parts(folder, Row, partial=True) for r in b.records()]


class Life:
    """The sink's instances of one run, from a cut on to its death."""

    def __init__(
        self, sink: Any, rng: random.Random, name: str, checkpoint: int, before: str
    ) -> None:
        self.sink, self.rng, self.name, self.checkpoint, self.before = (
            sink,
            rng,
            name,
            checkpoint,
            before,
        )
        self.ranges = random_ranges(rng, GROUPS)
        self.instances: dict[rs.KeyRange, Any] = {}
        self.positions: dict[rs.KeyRange, int] = {}

    def open(self, number: int) -> None:
        """Open so many more instances, in any order."""
        closed = [keys for keys in self.ranges if keys not in self.instances]
        for keys in self.rng.sample(closed, min(number, len(closed))):
            self.instances[keys] = opened(self.sink, keys, self.name, self.checkpoint, self.before)
            self.positions[keys] = self.checkpoint

    def write(self, upto: int, ahead: int = 2) -> None:
        """All write up to an epoch at least, and prepare the cuts on the way."""
        for keys, one in self.instances.items():
            last = upto + self.rng.randint(0, ahead)
            for epoch in range(self.positions[keys] + 1, last + 1):
                found = rows(epoch, keys, self.name)
                if found:
                    one.write(epoch, keys, batch(Row, found))
                if epoch % 2 == 0:
                    one.prepare(epoch)
            self.positions[keys] = last

    def show(self, epoch: int) -> None:
        """A cut is saved."""
        for one in self.instances.values():
            one.commit(epoch)

    def restart(self, committed: int) -> None:
        """One instance dies and another takes its place."""
        keys = self.rng.choice(self.ranges)
        self.instances[keys] = opened(self.sink, keys, self.name, committed, self.before)
        self.positions[keys] = committed


def began(folder: Path, *, upto: int = 4) -> Any:
    """A sink and the output of a run "one" that was lost: a part of every second epoch."""
    sink = rs.io.parquet(folder)
    life = Life(sink, random.Random(1), "one", 0, "")
    life.ranges = list(HALVES)
    life.open(2)
    for epoch in range(1, upto + 1):
        for keys, one in life.instances.items():
            one.write(epoch, keys, batch(Row, [Row(keys.lo, epoch, "one")]))
            if epoch % 2 == 0:
                one.prepare(epoch)
    return sink
