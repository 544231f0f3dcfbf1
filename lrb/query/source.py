"""Reads prepared data as a source of rows.

A split of the source is a split of the layout. A position is a number of row groups: those of all
files of the split, one after the other. The files are looked up once, when the source is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import raystream as rs
from lrb.query.records import Row
from raystream.errors import InputError
from spark_ingest.layout import HISTORY, ROWS, SLOTS, Meta, history_files, read_meta, row_files

COLUMNS = [*(name for name in Row._fields if name != "release"), "slot"]
_REMEDY = "Prepare or generate the folder again."


@dataclass(frozen=True)
class PartFile:
    """A file of rows: its bytes, and where its row groups begin among those of its split."""

    path: Path
    size: int
    first: int
    groups: int

    def check(self) -> None:
        """Rows that can no longer be read could not be read again after a failure either.

        Raises InputError if the file is not what it was when the run began.
        """
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            raise InputError(f"{self.path} is gone: it was there when the run began") from None
        if size != self.size:
            raise InputError(f"{self.path} has changed since the run began")


@dataclass(frozen=True)
class PreparedRows(rs.Source[Row]):
    """The rows of a prepared folder. parts: per split its files, in order of time."""

    parts: tuple[tuple[PartFile, ...], ...]

    def splits(self) -> Sequence[rs.Split]:
        """One for each split of the layout."""
        return [rs.Split(f"split-{number:02d}") for number in range(len(self.parts))]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Row]]]:
        """The row groups from `position` on.

        Raises InputError if a file is gone, changed, damaged, or not in order of time.
        """
        number = int(split.name.removeprefix("split-"))
        latest = 0
        for part in self.parts[number]:
            if part.first + part.groups <= position:
                continue
            for rows in _row_groups(part, max(0, position - part.first)):
                position += 1
                batch = _batch(rows)
                latest = _in_order(part.path, batch, latest)
                yield position, batch


def _row_groups(part: PartFile, first: int) -> Iterator[pa.Table]:
    part.check()
    try:
        with pq.ParquetFile(part.path) as file:
            for group in range(first, part.groups):
                yield file.read_row_group(group, columns=COLUMNS, use_threads=False)
                part.check()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{part.path} cannot be read: {error}", hint=_REMEDY) from error


def _batch(rows: pa.Table) -> rs.Batch[Row]:
    columns = {name: rows[name].to_numpy() for name in COLUMNS}
    slot = columns.pop("slot")
    return rs.Batch(Row, {"release": columns["time"] * np.int32(SLOTS) + slot, **columns})


def _in_order(path: Path, batch: rs.Batch[Row], latest: int) -> int:
    """The last release of a batch, which must not fall: epochs are cut by it."""
    release = batch["release"]
    if not len(release):
        return latest
    if release[0] < latest or (np.diff(release) < 0).any():
        raise InputError(f"{path} is not in order of time and slot", hint=_REMEDY)
    return int(release[-1])


@dataclass(frozen=True)
class Prepared:
    """A prepared folder, looked through: its description and its files."""

    folder: Path
    meta: Meta
    rows: PreparedRows
    history: tuple[Path, ...]


def look_through(folder: Path) -> Prepared:
    """Check that a folder holds what its description says; reads the ends of its files only.

    Raises InputError if it does not.
    """
    meta = read_meta(folder)
    if meta.rows_total == 0 or meta.first < 0:
        what = "has no rows" if meta.rows_total == 0 else f"begins at second {meta.first}"
        raise InputError(f"{folder} {what}", hint=_REMEDY)
    splits = [row_files(folder, split) for split in range(meta.splits)]
    footers = [[_footer(path, ROWS) for path in paths] for paths in splits]
    history = tuple(history_files(folder))
    _same(folder, "rows", meta.rows_total, [f for split in footers for f in split])
    _same(folder, "history", meta.history_rows, [_footer(path, HISTORY) for path in history])
    parts = tuple(map(_parts, splits, footers))
    return Prepared(folder, meta, PreparedRows(parts), history)


def _parts(paths: list[Path], footers: list[pq.FileMetaData]) -> tuple[PartFile, ...]:
    groups = [footer.num_row_groups for footer in footers]
    firsts = np.cumsum([0, *groups[:-1]]).tolist()
    sizes = [path.stat().st_size for path in paths]
    return tuple(map(PartFile, paths, sizes, firsts, groups))


def _footer(path: Path, schema: pa.Schema) -> pq.FileMetaData:
    try:
        footer = pq.read_metadata(path)
        found = footer.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}", hint=_REMEDY) from error
    for field in schema:
        actual = found.field(field.name).type if field.name in found.names else "missing"
        if actual != field.type:
            raise InputError(f"{path}: column {field.name} is {actual}, not {field.type}")
    return footer


def _same(folder: Path, what: str, said: int, footers: list[pq.FileMetaData]) -> None:
    found = sum(footer.num_rows for footer in footers)
    if found != said:
        raise InputError(
            f"{folder} is damaged: it holds {found:,} {what}, and its meta.json says {said:,}",
            hint=_REMEDY,
        )
