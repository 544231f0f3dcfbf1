"""A source and a sink of one's own: numbers in, one small file per epoch and key range out.

It prints:

    000000000001-000-256: 4 numbers, sum 6
    000000000002-000-256: 4 numbers, sum 22
    000000000003-000-256: 2 numbers, sum 17

Run it:

    python examples/own_source_and_sink.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import raystream as rs


class Number(NamedTuple):
    time: int
    n: int


@dataclass(frozen=True)
class Numbers(rs.Source[Number]):
    """Numbers from 0 on, one a second, in batches of three.

    Reading again from a position must yield the same records: a position is all that is kept.
    """

    end: int

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Number]]]:
        for first in range(position, self.end, 3):
            ns = list(range(first, min(first + 3, self.end)))
            yield first + len(ns), rs.Batch(Number, {"time": ns, "n": ns})


@dataclass(frozen=True)
class Folder(rs.Sink[Number]):
    """The same (epoch, keys) may be written again and then replaces the first: one file each."""

    path: Path

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Number]) -> None:
        part = self.path / f"{epoch:012d}-{keys.lo:03d}-{keys.hi:03d}"
        part.write_text(f"{len(batch)} numbers, sum {batch['n'].sum()}")

    def commit(self, epoch: int) -> None:
        """Nothing up to `epoch` will come again: a file would be moved to its place here."""


def build(folder: Path) -> rs.Flow:
    flow = rs.Flow("numbers")
    flow.source(Numbers(10), epochs=rs.by_time(seconds=4)).to(Folder(folder))
    return flow


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder)).run()
        for part in sorted(Path(folder).iterdir()):
            print(f"{part.name}: {part.read_text()}")
