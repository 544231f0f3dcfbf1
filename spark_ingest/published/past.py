"""Prepares published toll history: rows `VID,Day,XWay,Toll`, as in `historical-tolls.out`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from raystream.errors import InputError
from spark_ingest import layout, store
from spark_ingest.progress import Progress
from spark_ingest.published.origins import Found
from spark_ingest.published.rules import HISTORY_RANGES, check_history
from spark_ingest.published.survey import Format, OnBadRow, survey
from spark_ingest.spark import jobs, shuffle
from spark_ingest.tables import history_table

FORMAT = Format(tuple(layout.HISTORY.names), check_history)
_VID_BITS = 14
"""Vehicles of one file: about 1.1 million rows at 69 days each."""
_TASKS = 16
_TOLL_MAX = next(rule.most for rule in HISTORY_RANGES if rule.name == "toll")


def write_history(
    spark: SparkSession, data: Path, path: Path, on_bad_row: OnBadRow, progress: Progress
) -> tuple[int, Found]:
    """Write the history of a published file; returns how many rows, and what was bad.

    Tolls of the same (VID, day, expressway) are added up. Raises `InputError` as `survey` does, and
    if such a sum does not fit 32 bits.
    """
    seen = survey(spark, [path], FORMAT, on_bad_row, progress)

    def read(piece: int) -> Iterator[pa.RecordBatch]:
        for columns in seen.good(piece, FORMAT):
            rows = pa.table({name: columns[name] for name in FORMAT.names})
            yield from shuffle.cells(rows, columns["vid"] >> _VID_BITS)

    def finish(part: int, rows: pa.Table) -> bytes:
        rows, most = _added_up(rows)
        store.write_history(data, part, rows)
        return f"{rows.num_rows} {most}".encode()

    frame = spark.range(0, len(seen.pieces), 1, len(seen.pieces))
    results = jobs.run(
        spark,
        "writing toll history",
        lambda: shuffle.gather(shuffle.spread(frame, read), _TASKS, finish),
        progress,
    )
    written = [tuple(map(int, result.split())) for result in results]
    if max(most for _, most in written) > _TOLL_MAX:
        raise InputError(f"{path}: tolls of one vehicle and day add up to more than {_TOLL_MAX}.")
    return sum(rows for rows, _ in written), seen.bad


def _added_up(rows: pa.Table) -> tuple[pa.Table, int]:
    """One row for each (vid, day, xway), in that order, and the largest toll."""
    vid, day, xway, toll = (rows[name].to_numpy() for name in layout.HISTORY.names)
    order = np.lexsort((xway, day, vid))
    keys = np.stack([vid, day, xway])[:, order]
    begins = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    sums = np.add.reduceat(toll[order], begins)
    return history_table(*keys[:, begins], np.minimum(sums, _TOLL_MAX)), int(sums.max())
