"""The stream of prepared rows, released at their pace, as a data source of Spark.

An offset is a second of event time. The driver says up to which second rows are released; tasks
read them from the files. So a query that is started again reads the same rows in a batch that was
not committed, and goes on by the clock that it had.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_ingest.feed.pace import Pace, Part, parts
from spark_ingest.feed.reading import rows_between
from spark_ingest.feed.rows import PUSHED, mark, pushed
from spark_ingest.layout import read_meta

FORMAT = "raystream-linear-road"
LANE = "split"
"""The column that says the lane of a row. It is not pushed."""
WARMING = 2
"""Batches without rows that come first: when they are done, Spark and the job are at work, and the
clock starts."""
AHEAD_SECONDS = 0.5
"""How long after that the first second begins."""

_TYPES = {"int8": "byte", "int16": "short", "int32": "int", "int64": "long"}
SCHEMA = ", ".join(f"`{f.name}` {_TYPES[str(f.type)]}" for f in PUSHED) + f", {LANE} int"
_ARROW = pa.schema([*((f.name, f.type) for f in PUSHED), (LANE, pa.int32())])


class LinearRoadRows(DataSource):
    """Options: `data`, the prepared folder; `clock`, a file that keeps when the clock started;
    `speed`, `max` or a number; `tasks`, about how many tasks read a batch."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RowsReader(self.options)


class _Read(InputPartition):
    """A part of a batch, and when the second after it is due."""

    def __init__(self, part: Part, due: int) -> None:
        super().__init__(None)
        self.part, self.due = part, due


class RowsReader(DataSourceStreamReader):
    """Releases rows, and reads them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._data = Path(options["data"])
        meta = read_meta(self._data)
        speed = None if options["speed"] == "max" else float(options["speed"])
        self._pace = Pace(meta.first, meta.last + 1, tuple(meta.per_second), speed)
        self._splits, self._tasks = meta.splits, int(options["tasks"])
        self._clock = Path(options["clock"])

    def initialOffset(self) -> dict[str, int]:
        return {"second": self._pace.first - WARMING}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """As far as rows are released. The clock starts when all that comes before is done."""
        begin, now = start["second"], time.time()
        if begin >= self._pace.first:
            self._start(now)
        return {"second": self._pace.upto(begin, now)}

    def _start(self, now: float) -> None:
        if self._pace.speed is not None and self._pace.started is None:
            self._pace = replace(self._pace, started=_started(self._clock, now + AHEAD_SECONDS))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, until = start["second"], end["second"]
        if begin >= self._pace.first:  # a batch of before a restart
            self._start(time.time())
        due = self._pace.due(until)
        return [_Read(part, due) for part in parts(self._splits, begin, until, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a part, each split's in order of time; then a mark if it is the last."""
        assert isinstance(partition, _Read)
        part = partition.part
        for split in part.splits:
            for rows in rows_between(self._data, split, part.begin, part.end):
                yield from _in_lane(pushed(rows), split)
            if part.last:
                yield from _in_lane(mark(part.end, partition.due), split)


def _in_lane(rows: pa.Table, lane: int) -> list[pa.RecordBatch]:
    lanes = pa.array([lane] * rows.num_rows, pa.int32())
    columns = [*rows.combine_chunks().columns, lanes]
    return list(pa.table(columns, schema=_ARROW).to_batches())


def _started(clock: Path, proposed: float) -> float:
    """When the clock started: as the file says, which is made if there is none."""
    if not clock.exists():
        fresh = clock.with_suffix(f".new-{os.getpid()}")
        fresh.write_text(json.dumps({"started": proposed}), encoding="utf-8")
        os.replace(fresh, clock)
    return float(json.loads(clock.read_text(encoding="utf-8"))["started"])
