"""Generates Linear Road input: one Spark task drives one direction of one expressway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from raystream.errors import ConfigError
from spark_ingest import layout, store
from spark_ingest.progress import Progress, silent
from spark_ingest.spark import jobs, shuffle
from spark_ingest.spark.session import spark_session
from spark_ingest.summary import Summary
from spark_ingest.traffic import calibration as cal
from spark_ingest.traffic.history import history
from spark_ingest.traffic.plan import Plan
from spark_ingest.traffic.rows import check_size, road_rows

_HISTORY_VIDS = 15_000
"""Vehicles in one file of history: about a million rows."""
_RATE = ((0, 510, 2_110, 5_280, 10_800), (0, 158, 600, 1_232, 1_700))
"""About how many rows a second an expressway gives: (times, rates). Only files are cut by it."""


def generate(
    out: Path,
    *,
    xways: int = 1,
    seconds: int = 10_800,
    seed: int = 0,
    spark: SparkSession | None = None,
    progress: Progress = silent,
) -> Summary:
    """Write the traffic of `seconds` on `xways` expressways, and its toll history, to `out`.

    The same seed gives the same rows whatever the number of cores. `spark` is a session to use; by
    default one is started and ended. Raises `ConfigError` for arguments that make no sense and for
    a folder that cannot be written to, `JobError` if Spark fails.
    """
    started = time.monotonic()
    _check(xways, seconds, seed)
    store.reserve(out)
    progress("starting Spark", 0, 0)
    with nullcontext(spark) if spark else spark_session("generate") as session:
        plan = Plan.make(seed, xways, seconds)
        with store.cleared(out) as data:
            counts = _write_rows(session, data, plan, progress)
            history_rows = _write_history(session, data, plan, progress)
            meta = store.finish(
                data, kind="generated", counts=counts, history_rows=history_rows,
                seed=seed, xways=xways, seconds=seconds,
            )  # fmt: skip
    return Summary(data, meta, quarantined=0, elapsed=time.monotonic() - started)


def _check(xways: int, seconds: int, seed: int) -> None:
    for name, value, least in (("xways", xways, 1), ("seconds", seconds, 60), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"--{name} {value} is too small: at least {least}.")
    check_size(xways, seconds)


def _write_rows(spark: SparkSession, data: Path, plan: Plan, progress: Progress) -> store.Tally:
    minutes = np.arange(0, plan.seconds, 60)
    expected = 60 * plan.roads / 2 * np.interp(minutes, *_RATE)
    parts = shuffle.Parts.cut(expected.tolist(), layout.SPLITS, store.PART_ROWS_MAX)

    def drive(road: int) -> Iterator[pa.RecordBatch]:
        for rows in road_rows(plan, road):
            time_, vid = (rows[name].to_numpy().astype(np.int64) for name in ("time", "vid"))
            yield from shuffle.cells(rows, parts.number(time_, layout.split(vid)))

    def finish(part: int, rows: pa.Table) -> bytes:
        rows = store.sort(rows)
        store.write_rows(data, *parts.span_and_split(part), rows)
        return store.tally(rows).encode()

    roads = spark.range(0, plan.roads, 1, plan.roads)
    results = jobs.run(
        spark,
        "simulating traffic",
        lambda: shuffle.gather(shuffle.spread(roads, drive), len(parts), finish),
        progress,
    )
    return store.merge(store.Tally.decode(result) for result in results)


def _write_history(spark: SparkSession, data: Path, plan: Plan, progress: Progress) -> int:
    first, end, seed, xways = cal.FIRST_VID, plan.vehicles, plan.seed, plan.roads // 2
    files = -(-(end - first) // _HISTORY_VIDS)

    def write(number: int) -> bytes:
        begin = first + number * _HISTORY_VIDS
        rows = history(seed, xways, begin, min(begin + _HISTORY_VIDS, end))
        store.write_history(data, number, rows)
        return str(rows.num_rows).encode()

    blocks = spark.range(0, files, 1, files)
    written = jobs.run(spark, "writing toll history", lambda: shuffle.each(blocks, write), progress)
    return sum(int(rows) for rows in written)
