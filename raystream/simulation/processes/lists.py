"""The sources of the flows of the simulator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import raystream as rs
from raystream.schema.columns import Columns


@dataclass(frozen=True)
class ListSource:
    """A source over lists of records, one per split; a position is a row number."""

    record: type
    parts: tuple[tuple[Any, ...], ...]
    batch: int = 5

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split(f"split-{i}") for i in range(len(self.parts))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        rows = self.parts[int(split.name.split("-")[1])]
        for at in range(position, len(rows), self.batch):
            part = rows[at : at + self.batch]
            yield at + len(part), _batch(self.record, part)


@cache
def _batch(record: type, rows: tuple[Any, ...]) -> rs.Batch[Any]:
    """The same for every schedule."""
    names: tuple[str, ...] = record._fields  # type: ignore[attr-defined]
    return rs.Batch(record, dict(zip(names, zip(*rows, strict=True), strict=True)))


class Numbered(NamedTuple):
    time: rs.Int64
    number: int
    text: str


@dataclass(frozen=True)
class LiveSource(rs.Source[Numbered]):
    """A source that cannot be read again. In a simulation `arriving` makes its batches; for any
    other reader there is nothing."""

    record: type = Numbered
    enough: int = 14
    """A split ends when this many of its records are recorded."""
    recorded: ClassVar[bool] = True

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split(f"lane-{i}") for i in range(3)]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        yield from ()

    def arriving(self, rng: random.Random, number: int) -> Columns:
        """A batch with one record, which nobody else receives."""
        row = Numbered(number, number, " ".join(rng.choices("abcdefgh", k=rng.randrange(4))))
        columns = dict(zip(Numbered._fields, ([value] for value in row), strict=True))
        return rs.Batch(Numbered, columns)._columns
