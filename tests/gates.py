"""Sources that go on until a test has seen what it waits for, however fast the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import raystream as rs
from tests.flows import Line, Rows

LIMIT_SECONDS = 300.0
"""How long a test waits for something that must come. Only a test that fails takes that long."""


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.005)


@dataclass(frozen=True)
class Gate:
    """Splits of sources end when it is opened, and at the same row when they are read again.

    Files in the folder say whether it is open, how many rows of a split were read at least, and
    where a split ends. A split must not have two readers at the moment when the gate is opened.
    """

    folder: Path

    def open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "open").touch()

    def ends(self, split: str, at: int, least: int = 0) -> bool:
        """Whether a split ends before its row `at`; asked for every row, in order. It has at least
        `least` rows."""
        end = self.end(split)
        if end is None:
            read = self.folder / f"{split}-read"
            if not (self.folder / "open").exists():
                with read.open("ab") as rows:  # a byte a row: nothing is lost if we are killed
                    rows.write(b".")
                return False
            end = max(at, least, read.stat().st_size if read.exists() else 0)
            note = self.folder / f"{split}-end-{os.getpid()}"
            note.write_text(str(end))
            note.replace(self.folder / f"{split}-end")
        return at >= end

    def end(self, split: str) -> int | None:
        """How many rows a split has; None if that is not known yet."""
        note = self.folder / f"{split}-end"
        return int(note.read_text()) if note.exists() else None


@dataclass(frozen=True)
class Cycle:
    """The rows of other splits again and again, each time `seconds` later, until a gate is open.

    Rows have a field `time`. A position is a row number.
    """

    rows: Rows
    seconds: int
    gate: Gate
    name: str = "cycle"

    @property
    def record(self) -> type:
        return self.rows.record

    def splits(self) -> Sequence[rs.Split]:
        self.gate.folder.mkdir(parents=True, exist_ok=True)
        return self.rows.splits()

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        rows = self.rows.parts[int(split.name.split("-")[1])]
        while not self.gate.ends(f"{self.name}-{split.name}", position):
            cycle, at = divmod(position, len(rows))
            row = rows[at]._replace(time=rows[at].time + cycle * self.seconds)
            columns = {field: [value] for field, value in row._asdict().items()}
            position += 1
            yield position, rs.Batch(self.record, columns)


@dataclass(frozen=True)
class Slow:
    """Two splits of lines, each of which takes its time.

    They have `lines` rows. With a gate they have more while it is closed.
    """

    lines: int
    gate: Gate | None = None
    record: type = Line
    row_seconds: float = 0.005
    """How long a row takes."""

    def splits(self) -> list[rs.Split]:
        if self.gate is not None:
            self.gate.folder.mkdir(parents=True, exist_ok=True)
        return [rs.Split("a"), rs.Split("b")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        i = position
        while not self._ends(split.name, i):
            time.sleep(self.row_seconds)
            yield i + 1, rs.Batch(Line, {"time": [i], "text": [f"{split.name}{i % 7} w{i % 5}"]})
            i += 1

    def _ends(self, split: str, at: int) -> bool:
        return at >= self.lines if self.gate is None else self.gate.ends(split, at, self.lines)

    def words(self) -> list[str]:
        """Of all lines, once it has been read to the end."""
        ends = {s: self.lines if self.gate is None else self.gate.end(s) or 0 for s in "ab"}
        lines = [f"{s}{i % 7} w{i % 5}" for s, end in ends.items() for i in range(end)]
        return [word for line in lines for word in line.split()]
