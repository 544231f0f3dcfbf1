"""Parquet files as a source. A position is a row number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.conform import batch_of, check_columns
from raystream.io.files import BATCH_ROWS, changed, reading, splits_of
from raystream.schema.records import record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=tuple[Any, ...])


@dataclass(frozen=True)
class ParquetFiles(Generic[U]):
    """One split per file. Columns that the record does not declare are not read."""

    pattern: str
    record: type[U]

    @property
    def reads(self) -> str:
        """The path, pattern or folder, in which no sink of the flow may write."""
        return self.pattern

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name; their columns have been checked."""
        found = splits_of(self.pattern, (".parquet",))
        for split in found:
            _open(split.name, self.record).close()
        return found

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches end where a row group ends, or a multiple of `BATCH_ROWS` after its begin."""
        with _open(split.name, self.record) as file:
            begin = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if begin + rows > position:
                    yield from self._group(file, split.name, group, begin, position)
                begin += rows
        if begin < position:
            raise changed(split.name, position)

    def _group(
        self, file: Any, name: str, group: int, begin: int, position: int
    ) -> Iterator[tuple[int, Batch[U]]]:
        schema = record_schema(self.record)
        batches = file.iter_batches(
            BATCH_ROWS, row_groups=[group], columns=list(schema.names), use_threads=False
        )
        while True:
            with _parsing(name):
                rows = next(batches, None)
            if rows is None:
                return
            end = begin + rows.num_rows
            if end > position:
                first = max(begin, position)
                rest = rows.slice(first - begin)
                yield end, batch_of(schema, rest, partial(_place, name, first))
            begin = end


def _place(name: str, first: int, n: int) -> str:
    return f"{name}, row {first + n} (from 0)"


def _open(name: str, record: type) -> Any:
    import pyarrow.parquet as pq

    with _parsing(name):
        file = pq.ParquetFile(name)
    schema = record_schema(record)
    check_columns(schema, file.schema_arrow, name)
    return file


@contextmanager
def _parsing(name: str) -> Iterator[None]:
    try:
        with reading(name):
            yield
    except pa.ArrowException as error:
        raise InputError(f"{name} is damaged or no Parquet file: {error}") from error
