"""Sinks to files for tests: opened as an instance does, written to, and read again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import raystream as rs
from tests.io.kinds import Counted, batch

ALL = rs.KeyRange(0, 256)
HALVES = [rs.KeyRange(0, 128), rs.KeyRange(128, 256)]


class Other(NamedTuple):
    key: int


def opened(sink: Any, keys: rs.KeyRange = ALL, run: str = "run", committed: int = 0) -> Any:
    mine = copy.copy(sink)  # as every instance of a job does
    mine.open(rs.SinkContext(run, "counts", keys, None, 0.0, None, committed))
    return mine


def rows(epoch: int, keys: rs.KeyRange = ALL, number: int = 3) -> list[Counted]:
    return [Counted(keys.lo * 1000 + i, epoch) for i in range(number)]


def write(sink: Any, epoch: int, keys: rs.KeyRange = ALL, number: int = 3) -> None:
    sink.write(epoch, keys, batch(Counted, rows(epoch, keys, number)))


def read(folder: Path, record: type = Counted, **options: Any) -> list[Any]:
    return [r for b in rs.io.read_parts(folder, record, **options) for r in b.records()]


def visible(folder: Path) -> list[Any]:
    return read(folder, partial=True)
