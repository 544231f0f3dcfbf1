"""Parquet files as a source. A position is a row number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.api.connectors import Source, changed
from raystream.errors import InputError
from raystream.io.buckets.objects import open_object
from raystream.io.buckets.urls import is_bucket
from raystream.io.files.columns import FileColumns, columns_of
from raystream.io.files.declared import batch_of
from raystream.io.files.handles import Handles
from raystream.io.files.listing import BATCH_ROWS, splits_of
from raystream.io.files.reading import reading
from raystream.schema.fields import AnyRecord
from raystream.schema.records import RecordSchema, record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True)
class ParquetFiles(Source[U]):
    """One split per file. Columns that the record does not declare are not read."""

    paths: tuple[str, ...]
    record: type[U]
    mapping: tuple[tuple[str, str], ...] = ()
    unit: str = ""
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def in_unit(self, unit: str, /) -> ParquetFiles[U]:
        """Times in the files are given in this unit where the record declares an int."""
        return replace(self, unit=unit)

    @property
    def reads(self) -> tuple[str, ...]:
        """The paths, patterns or folders, in which no sink of the flow may write."""
        return self.paths

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name; their columns have been checked."""
        found = splits_of(self.paths, self.suffixes)
        for split in found:
            self._open(split.name).close()
        return found

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches end where a row group ends, or a multiple of `BATCH_ROWS` after its begin."""
        name, done = split.name, position
        schema = record_schema(self.record)
        with Handles(name, lambda: self._open(name)) as handle:
            file = handle.open()
            if file.rows < position:
                raise changed(name, position)
            batches = file.batches(done)
            while (found := next(batches, None)) is not None:
                first, rows = found
                done = first + rows.num_rows
                batch = batch_of(schema, rows, partial(_place, name, first))
                if done == file.rows:
                    handle.close()
                else:
                    handle.rest()
                yield done, batch
                if done < file.rows and (again := handle.again()) is not None:
                    file, batches = again, again.batches(done)

    def _open(self, name: str) -> _File:
        return _File(name, self.record, self.mapping, self.unit)


class _File:
    """An open file whose columns were checked.

    Raises:
        InputError: it is no Parquet file, or does not have the columns.
    """

    def __init__(
        self, name: str, record: type, mapping: tuple[tuple[str, str], ...], unit: str = ""
    ) -> None:
        import pyarrow.parquet as pq

        self._name = name
        with _parsing(name):
            self._object = open_object(name) if is_bucket(name) else None
            whole = name if self._object is None else self._object
            # INT96, in which Impala, Hive and older Spark write times, has nanoseconds, but goes
            # beyond the years 1677 to 2262, and PyArrow would wrap such times around.
            self._file = pq.ParquetFile(whole, coerce_int96_timestamp_unit="us")
            self._fine: Any = None  # the same file with nanoseconds, where the flow counts in these
            if unit == "ns" and _has_int96(self._file):
                self._fine = pq.ParquetFile(whole, coerce_int96_timestamp_unit="ns")
        try:
            found = self._file.schema_arrow
            self._kinds = [usual_kind(f.type) for f in found]
            self._unit = unit
            for at in _counted(record_schema(record), found, dict(mapping)) if unit else ():
                self._kinds[at] = pa.int64()
            usual = pa.schema([(f.name, t) for f, t in zip(found, self._kinds, strict=True)])
            self._columns: FileColumns = columns_of(record_schema(record), usual, name, mapping)
            self._names = found.names
            self.rows: int = self._file.metadata.num_rows
        except BaseException:
            self.close()
            raise

    def batches(self, position: int) -> Iterator[tuple[int, Any]]:
        """The rows from a position on, with all fields, and where each batch of them begins."""
        begin = 0
        for group in range(self._file.num_row_groups):
            end = begin + self._file.metadata.row_group(group).num_rows
            if end > position:
                for rows in self._group(group):
                    if begin + rows.num_rows > position:
                        first = max(begin, position)
                        yield first, rows.slice(first - begin)
                    begin += rows.num_rows
            begin = end

    def _group(self, group: int) -> Iterator[Any]:
        taken = self._columns.taken
        names = list(dict.fromkeys(self._names[at] for at in taken.values()))
        batches = _batches(self._file, group, names)
        fine = None if self._fine is None else _batches(self._fine, group, names)
        while True:
            with _parsing(self._name):
                rows = next(batches, None)
                if rows is None:
                    return
                finer = rows if fine is None else next(fine)
                arrays = {
                    field: as_usual(rows.column(self._names[at]), self._kinds[at])
                    if not _temporal(rows.schema.field(self._names[at]).type, self._kinds[at])
                    else self._count(self._names[at], rows, finer)
                    for field, at in taken.items()
                }
            yield self._columns.rows(arrays, rows.num_rows)

    def _count(self, column: str, rows: Any, finer: Any) -> Any:
        """Times as numbers in the unit of the flow, and dates as days. finer: the same rows, with
        nanoseconds where there are some.

        Raises:
            InputError: one is no whole number of them, or too far off for the unit.
        """
        times = rows.column(column)
        if pa.types.is_date(times.type):
            return times.cast(pa.date32()).view(pa.int32())
        kind = pa.timestamp(self._unit, times.type.tz)
        try:
            times.cast(kind)  # refuses what the finer ones would hold as another time
            return finer.column(column).cast(kind).view(pa.int64())
        except pa.ArrowInvalid as error:
            far = "out of bounds" in str(error)
            why = "too far from 1970 to be counted in" if far else "no whole numbers of"
            hint = f'Write rs.Flow(..., time_unit="{times.type.unit}"), or declare datetime.'
            raise InputError(
                f"{self._name}: the column {column!r} holds {times.type}, of which some are {why}"
                f" {self._unit}, the unit of the flow",
                hint=hint,
            ) from None

    def close(self) -> None:
        self._file.close()
        if self._fine is not None:
            self._fine.close()
        if self._object is not None:
            self._object.close()


def _counted(schema: RecordSchema, found: Any, called: dict[str, str]) -> list[int]:
    """The columns of times or dates of which the record declares an int."""
    wanted = [called.get(f.name, f.name) for f in schema.fields if f.integer and f.value is None]
    places = [found.get_field_index(column) for column in wanted]
    return [at for at in places if at >= 0 and _temporal(found.field(at).type, pa.int64())]


def _batches(file: Any, group: int, names: list[str]) -> Iterator[Any]:
    found: Iterator[Any] = file.iter_batches(BATCH_ROWS, [group], columns=names, use_threads=False)
    return found


def _has_int96(file: Any) -> bool:
    return any(file.schema.column(i).physical_type == "INT96" for i in range(len(file.schema)))


def _temporal(held: Any, wanted: Any) -> bool:
    """Whether a column holds times or dates where numbers are wanted."""
    return pa.types.is_integer(wanted) and (pa.types.is_timestamp(held) or pa.types.is_date(held))


def usual_kind(kind: Any) -> Any:
    """The type of which a column is one of several layouts: lists of one size, views."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(usual_kind(kind.value_type))
    if pa.types.is_nested(kind):
        made = _of_usual(kind)
        return kind if made == kind else made
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _of_usual(kind: Any) -> Any:
    if pa.types.is_map(kind):
        return pa.map_(usual_kind(kind.key_type), usual_kind(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(usual_kind(part.type)) for part in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return of(kind.value_field.with_type(usual_kind(kind.value_type)))
    return kind


def as_usual(array: Any, kind: Any) -> Any:
    return array if array.type == kind or isinstance(array, pa.ExtensionArray) else array.cast(kind)


def _place(name: str, first: int, n: int) -> str:
    return f"{name}, row {first + n} (from 0)"


@contextmanager
def _parsing(name: str) -> Iterator[None]:
    try:
        with reading(name):
            yield
    except pa.ArrowException as error:
        raise InputError(f"{name} is damaged or no Parquet file: {error}") from error
