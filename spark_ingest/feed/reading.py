"""The rows of some seconds of a split of prepared data. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raystream.errors import InputError
from spark_ingest import layout


def rows_between(data: Path, split: int, begin: int, end: int) -> Iterator[pa.Table]:
    """The rows of a split from second `begin` on and before second `end`, in their order.

    Only those row groups are read that have some.

    Raises:
        InputError: a file cannot be read.
    """
    for path in layout.row_files(data, split):
        try:
            with pq.ParquetFile(path) as file:
                for group in _groups(file.metadata, begin, end):
                    rows = file.read_row_group(group, use_threads=False)
                    time = rows["time"]
                    within = pc.and_(pc.greater_equal(time, begin), pc.less(time, end))
                    yield rows.filter(within)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path} cannot be read: {error}") from error


def _groups(metadata: pq.FileMetaData, begin: int, end: int) -> Iterator[int]:
    """The row groups that may have rows of some seconds, by what the file says of them."""
    at = metadata.schema.to_arrow_schema().get_field_index("time")
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(at).statistics
        if known is None or not known.has_min_max or (known.min < end and known.max >= begin):
            yield group
