"""Rows of a table of Iceberg, as a source: what is there, then what snapshots append.

A snapshot never changes, so its files can be read again as long as it is kept. A position names a
snapshot by its sequence number, which only rises, and how many rows of it were read, in the order
of the names of its files. The first snapshot that is read is read whole; of later ones only the
files that they have added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar
from zlib import crc32

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.errors import ConfigError, InputError
from raystream.io.databases.waiting import Beat, pause
from raystream.io.files.columns import columns_of, mapping_of
from raystream.io.files.declared import batch_of
from raystream.io.files.listing import BATCH_ROWS
from raystream.io.files.parquet import as_usual, usual_kind
from raystream.io.tables.iceberg import IcebergTable
from raystream.schema.columns import empty
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)
Start = Literal["earliest", "latest"]

LOOK_SECONDS = 0.2
"""Seconds between two batches without records while a reader waits for a snapshot."""
ROW_BITS = 36


class SnapshotPlace(NamedTuple):
    """How far a split was read."""

    sequence: int
    """The sequence number of the snapshot that is read next, or of one before it."""
    whole: bool
    """Whether all of that snapshot is read, and not only what it has added."""
    rows: int
    """How many of its rows were read."""

    @property
    def position(self) -> int:
        return (self.sequence << 1 | self.whole) << ROW_BITS | self.rows

    @staticmethod
    def of(position: int) -> SnapshotPlace:
        """The place of a position."""
        number, rows = position >> ROW_BITS, position & ((1 << ROW_BITS) - 1)
        return SnapshotPlace(number >> 1, bool(number & 1), rows)


class IcebergRows(Source[U]):
    """The rows of a table. The attributes are the arguments of `rs.io.iceberg`."""

    read_ahead: ClassVar[int] = 2

    def __init__(
        self,
        table: IcebergTable,
        record: type[U],
        columns: Any,
        *,
        start: Start,
        follow: float | None,
        number: int,
    ) -> None:
        self.table, self.record, self.number = table, record, number
        self.mapping = mapping_of(record, columns)
        self.start, self.follow = start, follow
        self.waits = follow is not None
        self._upto = 0
        """Unless the table is followed: the sequence number of the last snapshot."""

    def __repr__(self) -> str:
        return f"iceberg({self.table.name}, {self.record.__name__})"

    def splits(self) -> Sequence[Split]:
        """As many parts of the table as were asked for; each has files of its own.

        Raises:
            InputError: the table does not fit the records.
        """
        table = self.table.load()
        if table.format_version < 2:
            raise ConfigError(
                f"the table {self.table.name} has version 1 of Iceberg's format, in which snapshots"
                " have no sequence numbers",
                hint="Upgrade it to version 2; all engines can read that.",
            )
        self._columns(table)
        current = table.current_snapshot()
        self._upto = 0 if current is None else current.sequence_number
        begin = SnapshotPlace(self._upto, current is not None, 0)
        if self.start == "latest" and current is not None:
            begin = SnapshotPlace(self._upto + 1, False, 0)
        return [Split(f"{n}/{self.number}", begin.position) for n in range(self.number)]

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """What is there; then, if the table is followed, what is appended, and batches without
        records while nothing is.

        Raises:
            InputError: snapshots that are to be read are gone, or have changed rows.
        """
        number = int(split.name.partition("/")[0])
        place, last = SnapshotPlace.of(position), position
        nothing: Batch[U] = Batch._of(empty(record_schema(self.record)))
        beat = Beat(0.0)
        while True:
            if beat.due():
                table = self.table.load()
                for snapshot in self._since(table, place.sequence):
                    sequence = snapshot.sequence_number
                    at = place if sequence == place.sequence else SnapshotPlace(sequence, False, 0)
                    for last, batch in self._rows(table, snapshot, at, number):
                        yield last, batch
                    place = SnapshotPlace(sequence + 1, False, 0)
                beat = Beat(self.follow or 0.0)
            if self.follow is None:
                return
            yield last, nothing
            pause(LOOK_SECONDS)

    def _since(self, table: Any, sequence: int) -> list[Any]:
        """The snapshots of the table from a sequence number on, the oldest first."""
        found: list[Any] = []
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.sequence_number >= sequence:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        # A snapshot whose parent is gone looks like the first one, which has the number 1.
        if snapshot is None and found and found[-1].sequence_number > max(sequence, 1):
            raise InputError(
                f"{self.table.named}: snapshots from number {sequence} to before"
                f" {found[-1].sequence_number} are gone, and were not read.",
                hint="Nothing is skipped silently. Begin the job again (--fresh, resume=False), and"
                " keep snapshots for longer than the job may stand still.",
            )
        if self.follow is None:
            found = [each for each in found if each.sequence_number <= self._upto]
        return found[::-1]

    def _rows(
        self, table: Any, snapshot: Any, at: SnapshotPlace, number: int
    ) -> Iterator[tuple[int, Batch[U]]]:
        """The rows of a snapshot from a place on."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        tasks = self._whole(table, snapshot) if at.whole else self._added(table, snapshot)
        columns, kinds = self._columns(table)
        names = list(dict.fromkeys(kinds.field(i).name for i in columns.taken.values()))
        scan = ArrowScan(table.metadata, table.io, table.schema().select(*names), AlwaysTrue())
        schema, done = record_schema(self.record), 0
        for task in sorted(tasks, key=lambda task: str(task.file.file_path)):
            path = str(task.file.file_path)
            if crc32(path.encode()) % self.number != number:
                continue
            if not task.delete_files and done + task.file.record_count <= at.rows:
                done += task.file.record_count
                continue
            try:
                rows = scan.to_table([task])
            except (OSError, ValueError, pa.ArrowException) as error:
                raise InputError(f"{path} of {self.table.named} cannot be read: {error}") from None
            for first in range(0, rows.num_rows, BATCH_ROWS):
                some = rows.slice(first, BATCH_ROWS).combine_chunks()
                before, done = done, done + some.num_rows
                if done <= at.rows:
                    continue
                some = some.slice(max(at.rows - before, 0))
                arrays = {
                    field: as_usual(_array(some.column(kinds.field(i).name)), kinds.field(i).type)
                    for field, i in columns.taken.items()
                }
                part = columns.rows(arrays, some.num_rows)
                batch = batch_of(schema, part, partial(_place, path, first))
                yield at._replace(rows=done).position, batch

    def _whole(self, table: Any, snapshot: Any) -> Sequence[Any]:
        """The files of a snapshot, with what says which of their rows are deleted."""
        return list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())

    def _added(self, table: Any, snapshot: Any) -> Sequence[Any]:
        """The files that a snapshot has added.

        Raises:
            InputError: it has deleted or changed rows.
        """
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask
        from pyiceberg.table.snapshots import Operation

        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation == Operation.REPLACE:
            return []  # files were written again, with the same rows
        if operation != Operation.APPEND:
            raise InputError(
                f"{self.table.named}: snapshot {snapshot.snapshot_id} has deleted or changed rows"
                f" ({operation and operation.value}), and a source of appended rows cannot say so.",
                hint="Follow a table to which rows are only appended.",
            )
        return [
            FileScanTask(entry.data_file)
            for manifest in snapshot.manifests(table.io)
            if manifest.content == ManifestContent.DATA
            and manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status == ManifestEntryStatus.ADDED
        ]

    def _columns(self, table: Any) -> tuple[Any, Any]:
        """Which columns are read, and the columns of the table as they are taken."""
        held = table.schema().as_arrow()
        kinds = pa.schema([(f.name, usual_kind(f.type)) for f in held])
        return columns_of(record_schema(self.record), kinds, self.table.name, self.mapping), kinds


def _place(path: str, first: int, n: int) -> str:
    return f"{path}, row {first + n} (from 0)"


def _array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
