# mypy: warn-return-any
# pyright: strict
"""Every form in which users write sources, sinks and policies of their own.

mypy --strict and pyright strict are silent on this file. `forms.py` makes a flow of the sources and
sinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import raystream as rs
from tests.typing.operators import Counted, Line

# ---------------------------------------------------------------- sources and sinks


@dataclass(frozen=True)
class Files:
    pattern: str

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split(str(p)) for p in sorted(Path().glob(self.pattern))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        with open(split.name, "rb") as file:
            file.seek(position)
            while lines := file.readlines(1 << 20):
                text = [line.decode() for line in lines]
                yield file.tell(), rs.Batch(Line, {"time": [0] * len(text), "text": text})


@dataclass(frozen=True)
class Folder:
    path: Path

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        part = self.path / f"{epoch:012d}-{keys.lo:03d}-{keys.hi:03d}.txt"
        part.write_text("".join(f"{c.word} {c.n}\n" for c in batch.records()))

    def commit(self, epoch: int) -> None: ...


@dataclass(frozen=True)
class Repeated(rs.Source[Line]):
    """Derived; its fields have the names of what a source may define."""

    record: type[Line]
    reads: str
    times: int

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for n in range(position, self.times):
            yield n + 1, rs.Batch(Line, {"time": [n], "text": ["again"]})


class Least(rs.Sink[Counted]):
    """Derived, with nothing but what a sink must have."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        print(epoch, len(batch))


@dataclass
class Whole(rs.Sink[Counted]):
    """Derived, with all that a sink may have."""

    owns: Path

    def accept(self, record: type) -> None:
        assert record is Counted

    def open(self, context: rs.SinkContext) -> None:
        self.owns.mkdir(exist_ok=True)

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None: ...
    def prepare(self, epoch: int) -> None: ...
    def commit(self, epoch: int) -> None: ...
    def close(self) -> None: ...


def print_counted(counted: Counted) -> None:
    print(counted)


# ---------------------------------------------------------------- policies


class Halves:
    """A policy of a user's own."""

    interval = 10.0

    def decide(self, loads: Sequence[rs.Load]) -> list[rs.Target]:
        halves = (rs.KeyRange(0, 128), rs.KeyRange(128, 256))
        hot = [x for x in loads for mine in x.reports if mine and mine[-1].cpu > 0.5]
        return [rs.Target(x.operator, halves, "half of it is hot") for x in hot]


def policies() -> list[rs.Policy]:
    return [rs.CpuThreshold(threshold=0.5), rs.RateBased(use=0.5), Halves()]
