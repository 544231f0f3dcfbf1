"""Spark Structured Streaming on this machine, in micro-batches of Parquet files.

A micro-batch is its checkpoint; there is one answer for each key in it. Answers are added up in the
JVM, as no row has to go to Python.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.programs.protocol import MASK, Task, asked, tell

KEYS_FILES = 20
LINES_FILES = 4
"""Files in a micro-batch."""


def session() -> SparkSession:
    cores = os.cpu_count() or 1
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "4g")
        .config("spark.sql.ansi.enabled", False)  # the checksum is modulo 2**64
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def counts_of(spark: SparkSession, task: Task) -> tuple[DataFrame, Any, str]:
    """The answers, the column that a checksum sums up, and which answers are wanted."""
    read = spark.readStream
    if task.work == "w1":
        keys = read.schema("key int").option("maxFilesPerTrigger", KEYS_FILES).parquet(task.path)
        n = F.col("count")
        return keys.groupBy("key").count(), n * F.col("key"), "update"
    lines = read.schema("time long, text string").option("maxFilesPerTrigger", LINES_FILES)
    words = lines.parquet(task.path).select(
        F.timestamp_seconds("time").alias("at"), F.explode(F.split("text", " ")).alias("word")
    )
    window = F.window("at", f"{task.window_seconds} seconds")
    counts = words.withWatermark("at", "0 seconds").groupBy(window.alias("w"), "word").count()
    start = F.col("w.start").cast("long")
    return counts, F.crc32(F.col("word").cast("binary")) * (start + 1) * F.col("count"), "append"


def main() -> None:
    task = asked()
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    counts, product, mode = counts_of(spark, task)
    totals: list[int] = [0, 0, 0]
    ended = [0.0]

    def take(answers: DataFrame, batch: int) -> None:
        found = answers.agg(F.count("*"), F.sum("count"), F.sum(product)).first()
        if found is not None:
            totals[:] = [t + int(f or 0) for t, f in zip(totals, found, strict=True)]
        ended[0] = time.time()

    query = (
        counts.writeStream.outputMode(mode)
        .option("checkpointLocation", str(Path(task.scratch, "checkpoint")))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    query.awaitTermination()
    began = datetime.fromisoformat(query.recentProgress[0]["timestamp"]).timestamp()
    ends = list(accumulate(p["numInputRows"] for p in query.recentProgress if p["numInputRows"]))
    answers = dict(zip(("rows", "sum_n", "checksum"), totals, strict=True))
    answers["checksum"] &= MASK
    more = {"ends": ends} if task.work == "w1" else {}
    tell(ended[0] - began, answers, latency_ms=None, **more)


if __name__ == "__main__":
    main()
