"""Records and a flow of words that the tests of every database write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import raystream as rs


class Line(NamedTuple):
    time: int
    word: str


class Counted(NamedTuple):
    word: str
    n: int


class Change(NamedTuple):
    word: str
    n: int
    gone: bool


class Tally(rs.State):
    n: int = 0


class Everything(NamedTuple):
    """A field of every kind that a table holds."""

    id: UUID
    at: datetime
    day: date
    took: timedelta
    price: Annotated[Decimal, rs.decimal(12, 2)]
    ok: bool
    small: rs.Int16
    ratio: float
    raw: bytes
    tags: list[str]
    note: str | None = None


@rs.operator(key="word")
def count(line: Line, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(line.word, tally.n)


LINES = [Line(i, "abcdefg"[i * i % 7]) for i in range(60)]
ROWS = [Counted("abc"[i % 3], i) for i in range(12)]
CHANGES = [
    Change("a", 1, False), Change("b", 1, False), Change("a", 2, False),
    Change("b", 0, True), Change("c", 0, True), Change("c", 5, False), Change("d", 0, True),
]  # fmt: skip
"""What is left of them is ("a", 2) and ("c", 5)."""
EVERYTHING = Everything(
    UUID(int=5), datetime(2024, 2, 3, 4, 5, 6, 7, UTC), date(2024, 2, 3),
    timedelta(days=-1, microseconds=5), Decimal("-12.50"), True, -3, 0.5, b"\0\xff",
    ["x", "ü"], None,
)  # fmt: skip


def flow_of(rows: Sequence[Any], sink: Any) -> rs.Flow:
    """A flow that writes the records, which are of one type, as they are."""
    flow = rs.Flow("rows")
    flow.source(rs.io.iterable(rows, type(rows[0]))).to(sink)
    return flow


def counting(sink: Any) -> rs.Flow:
    """A flow that counts the words of LINES, in epochs of five, into the sink "counts"."""
    flow = rs.Flow("words", key_groups=16)
    lines = flow.source(rs.io.iterable(LINES, Line), epochs=rs.by_time("time", seconds=5))
    lines.through(count).to(sink, name="counts")
    return flow


def counts() -> list[tuple[str, int]]:
    """Each word of LINES and how often it is there, sorted."""
    words = [line.word for line in LINES]
    return sorted((w, words.count(w)) for w in set(words))


def remove(path: Path) -> None:
    """Remove a database that is a file, and the files beside it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
