"""Reads prepared folders back, and holds them against the layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_ingest import layout

SEED, SECONDS = 7, 600
"""Of the generated folder that tests share."""


def read_rows(data: Path) -> pa.Table:
    """All rows, split by split, in the order of the files."""
    files = [file for split in range(layout.SPLITS) for file in layout.row_files(data, split)]
    return pa.concat_tables([pq.read_table(file) for file in files])


def read_history(data: Path) -> pa.Table:
    """All rows of toll history."""
    return pa.concat_tables([pq.read_table(file) for file in layout.history_files(data)])


def published(rows: pa.Table) -> set[tuple[int, ...]]:
    """Rows as in the published files, without order."""
    columns = [rows[name].to_pylist() for name in layout.PUBLISHED]
    return set(zip(*columns, strict=True))


def assert_layout(data: Path) -> None:
    """Everything that `layout` promises of a folder."""
    meta = layout.read_meta(data)
    for split in range(layout.SPLITS):
        last = -1
        for file in layout.row_files(data, split):
            last = _assert_file(file, split, after=last)
    rows = read_rows(data)
    time = rows["time"].to_numpy()
    by_type = np.bincount(rows["type"].to_numpy(), minlength=5)
    assert meta.rows == {str(number): by_type[number] for number in layout.TYPES}
    assert meta.rows_total == rows.num_rows
    assert (meta.first, meta.last) == (time.min(), time.max())
    assert meta.per_second == np.bincount(time - meta.first).tolist()
    assert meta.vehicles == rows["vid"].to_numpy().max() + 1
    assert rows["xway"].to_numpy().max() < meta.xways
    history = layout.history_files(data)
    assert meta.history_rows == sum(pq.read_metadata(file).num_rows for file in history)
    assert all(pq.read_schema(file).equals(layout.HISTORY) for file in history)


def _assert_file(file: Path, split: int, *, after: int) -> int:
    """One file, which begins later than `after`; returns its last time."""
    found = pq.ParquetFile(file)
    assert found.schema_arrow.equals(layout.ROWS)
    groups = [found.metadata.row_group(index) for index in range(found.num_row_groups)]
    assert all(0 < group.num_rows <= layout.ROW_GROUP_ROWS_MAX for group in groups)
    rows = found.read()
    keys = [rows[name].to_numpy() for name in layout.ORDER]
    assert (np.lexsort(keys[::-1]) == np.arange(rows.num_rows)).all()
    vid = rows["vid"].to_numpy().astype(np.int64)
    assert (layout.split(vid) == split).all()
    assert (layout.slot(vid) == rows["slot"].to_numpy()).all()
    assert keys[0][0] > after
    return int(keys[0][-1])
