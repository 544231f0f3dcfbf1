"""The first pass over published files: checks every row by itself, and counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from raystream.errors import InputError
from spark_ingest.progress import Progress
from spark_ingest.published.origins import QUARANTINE_ROWS_MAX, Found, Origins, refuse
from spark_ingest.published.pieces import Piece, blocks, pieces
from spark_ingest.published.rules import Bad, Mask
from spark_ingest.spark import jobs, shuffle
from spark_ingest.tables import Columns

OnBadRow = Literal["fail", "quarantine"]
Lines = npt.NDArray[np.int64]
Check = Callable[[Columns, Lines], tuple[Mask, list[Bad]]]


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of published file."""

    names: tuple[str, ...]
    check: Check
    """Which rows are good, and what is wrong with the others."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the first pass found in some files."""

    pieces: tuple[Piece, ...]
    firsts: tuple[int, ...]
    """Number of each piece's first line, counted over all files."""
    bad: Found
    rows: int
    """Good ones."""
    per_minute: tuple[int, ...]
    """Good rows of minutes 0, 1, ...; empty if the format has no time."""

    def good(self, piece: int, format: Format) -> Iterator[Columns]:
        """The good rows of a piece, a block at a time, with a column `line` over all files."""
        for block in blocks(self.pieces[piece], format.names):
            mask, _ = format.check(block.columns, block.line)
            columns = {name: values[mask] for name, values in block.columns.items()}
            yield {**columns, "line": block.line[mask] + self.firsts[piece]}


def survey(
    spark: SparkSession,
    paths: Sequence[Path],
    format: Format,
    on_bad_row: OnBadRow,
    progress: Progress,
) -> Survey:
    """Check all rows of some files.

    Raises `InputError` for a file that cannot be read, if no row is good, and for the first bad row
    unless bad rows are to be put aside.
    """
    found = pieces(paths)
    bad_max = 0 if on_bad_row == "fail" else QUARANTINE_ROWS_MAX
    frame = spark.range(0, len(found), 1, len(found))
    results = jobs.run(
        spark,
        "checking " + ", ".join(path.name for path in paths),
        lambda: shuffle.each(
            frame, lambda number: _count(number, found[number], format, bad_max).encode()
        ),
        progress,
    )
    counts = sorted((_Count.decode(result) for result in results), key=lambda count: count.piece)
    return _merge(found, counts, on_bad_row)


@dataclass(slots=True)
class _Count:
    """What one task found in its piece."""

    piece: int
    lines: int
    rows: int
    per_minute: list[int]
    bad: list[Bad]
    failure: str
    """Why the piece could not be read; empty if it could."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Count:
        fields = json.loads(data)
        return cls(**{**fields, "bad": [Bad(**row) for row in fields["bad"]]})


def _count(number: int, piece: Piece, format: Format, bad_max: int) -> _Count:
    count = _Count(number, 0, 0, [], [], "")
    per_minute = np.zeros(0, dtype=np.int64)
    try:
        for block in blocks(piece, format.names):
            mask, bad = format.check(block.columns, block.line)
            count.lines += block.lines
            count.rows += int(mask.sum())
            count.bad += sorted(block.bad + bad, key=lambda row: row.line)
            if "time" in block.columns:
                per_minute = _add(per_minute, np.bincount(block.columns["time"][mask] // 60))
            if len(count.bad) > bad_max:
                break  # the answer is known
    except InputError as error:
        count.failure = str(error)
    count.per_minute = per_minute.tolist()
    return count


def _merge(found: Sequence[Piece], counts: Sequence[_Count], on_bad_row: OnBadRow) -> Survey:
    for count in counts:
        if count.failure:
            raise InputError(count.failure)
    lines = [count.lines for count in counts]
    firsts = (0, *accumulate(lines))[:-1]
    paths = [piece.path for piece in found]
    bad = [
        replace(row, line=row.line + first)
        for first, count in zip(firsts, counts, strict=True)
        for row in count.bad
    ]
    at = Found(Origins.of(list(zip(paths, lines, strict=True))), bad)
    if on_bad_row == "fail":
        refuse(at)
    rows = sum(count.rows for count in counts)
    if not rows:
        names = ", ".join(str(path) for path in dict.fromkeys(paths))
        first = f" The first bad one: {at.first_reason()}" if bad else ""
        raise InputError(f"There are no good rows in {names}.{first}")
    per_minute = np.zeros(0, dtype=np.int64)
    for count in counts:
        per_minute = _add(per_minute, np.array(count.per_minute, dtype=np.int64))
    return Survey(tuple(found), firsts, at, rows, tuple(per_minute.tolist()))


def _add(left: Lines, right: Lines) -> Lines:
    """Element by element; the shorter one counts as zero beyond its end."""
    total = np.zeros(max(len(left), len(right)), dtype=np.int64)
    total[: len(left)] += left
    total[: len(right)] += right
    return total
