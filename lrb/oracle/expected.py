"""What the answers to some prepared input must be, computed in one batch by Spark SQL.

The computation is another kind of thing than the engine it judges: no streams, no epochs, no state
by key, only the views of `lrb.oracle.sql` over all rows at once. Its result comes back to this
process as Arrow tables (about 25 bytes an answer, 15 MB for an expressway and an hour of traffic).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lrb.oracle import sql as sql
from lrb.oracle.answers import ALERT, BALANCE, EXPENDITURE, TOLL, Answers
from raystream.errors import InputError
from spark_ingest.layout import HISTORY, ROWS, history_files, read_meta, row_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows that one task sorts: small enough for memory, large enough to be worth a task.
ROWS_PER_TASK = 1_000_000

#: Decimals must stop at an overflow, and grouping must use the partitioning that caching kept.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}

#: Parquet files and their columns.
Table = tuple[list[Path], pa.Schema]

ANSWER_VIEWS = {
    TOLL: sql.TOLLS,
    ALERT: sql.ALERTS,
    BALANCE: sql.BALANCES,
    EXPENDITURE: sql.EXPENDITURES,
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answers, and how many cars made more than one journey."""

    answers: Answers
    re_entries: int


def expected(
    spark: SparkSession,
    data: Path,
    *,
    progress: Callable[[str], None] = lambda stage: None,
) -> Expected:
    """Compute the right answers to a folder of prepared input.

    `progress` is told the stage that begins. Raises InputError where the folder is not prepared
    input, or holds what lies outside of the bounds in which the oracle is exact.
    """
    meta = read_meta(data)
    splits = [file for split in range(meta.splits) for file in row_files(data, split)]
    files = _checked(data, splits, ROWS, meta.rows_total)
    history = _checked(data, history_files(data), HISTORY, meta.history_rows)
    with _settings(spark, tasks=_tasks(spark, meta.rows_total)), _spark_errors(data):
        progress("reading the input")
        with _views(spark, {"input": (files, ROWS), "history": (history, HISTORY)}):
            answers = {}
            for kind, view in ANSWER_VIEWS.items():
                progress(f"answers: {kind.name}")
                answers[kind] = _collect(spark, view, kind.columns)
            re_entries = _collect(spark, sql.RE_ENTRIES, ("cars",))["cars"][0].as_py()
            return Expected(answers, re_entries)


def _collect(spark: SparkSession, view: sql.View, columns: tuple[str, ...]) -> pa.Table:
    """The rows of a view; every column comes as int64, and nullable as in tables from files."""
    wide = ", ".join(f"CAST({name} AS BIGINT) AS {name}" for name in columns)
    rows = spark.sql(f"SELECT {wide} FROM {view.name}").toArrow()
    return pa.table({name: rows[name] for name in columns})


def _tasks(spark: SparkSession, rows: int) -> int:
    """As many tasks as rows ask for, in whole rounds of the cores."""
    cores = spark.sparkContext.defaultParallelism
    rounds = -(-rows // (ROWS_PER_TASK * cores))
    return max(1, rounds) * cores


def _checked(data: Path, files: list[Path], schema: pa.Schema, rows: int) -> list[Path]:
    """The files, if they hold what was declared: an oracle that missed rows would be a liar."""
    found = sum(_rows_in(file, schema) for file in files)
    if found != rows:
        raise InputError(
            f"{data} is damaged: {len(files)} files have {found:,} rows in all, and its meta.json "
            f"says {rows:,}",
            hint="Prepare or generate the folder again.",
        )
    return files


def _rows_in(file: Path, schema: pa.Schema) -> int:
    """How many rows a Parquet file has. Raises InputError unless its columns are as declared."""
    try:
        footer = pq.read_metadata(file)
        found = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    for field in schema:
        actual = found.field(field.name).type if field.name in found.names else "missing"
        if actual != field.type:
            raise InputError(f"{file}: column {field.name} is {actual}, not {field.type}")
    return int(footer.num_rows)


def _name_files(spark: SparkSession, name: str, files: list[Path], schema: pa.Schema) -> None:
    """Make a view of the rows of some Parquet files; without files, of no rows."""
    frame = spark.createDataFrame(schema.empty_table())
    if files:
        frame = spark.read.schema(frame.schema).parquet(*map(_literally, files))
    frame.createOrReplaceTempView(name)


def _literally(file: Path) -> str:
    """A path as Spark reads it: it takes some characters for patterns, and decodes none."""
    return "file:" + re.sub(r"([\\{}\[\]*?])", r"\\\1", str(file.absolute()))


@contextmanager
def _views(spark: SparkSession, tables: Mapping[str, Table]) -> Iterator[None]:
    """The tables and the rules under their names, for the length of the block."""
    kept: list[DataFrame] = []
    try:
        for name, (files, schema) in tables.items():
            _name_files(spark, name, files, schema)
        for view in sql.VIEWS:
            frame = spark.sql(view.sql)
            if view.keep:
                frame = frame.persist()
                kept.append(frame)
            frame.createOrReplaceTempView(view.name)
        yield
    finally:
        for frame in kept:
            frame.unpersist()
        for name in (*tables, *(view.name for view in sql.VIEWS)):
            spark.catalog.dropTempView(name)


@contextmanager
def _settings(spark: SparkSession, tasks: int) -> Iterator[None]:
    """Set what the computation needs, and put back what was there: the session may be shared."""
    wanted = SETTINGS | {"spark.sql.shuffle.partitions": str(tasks)}
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@contextmanager
def _spark_errors(data: Path) -> Iterator[None]:
    """Say in our words what Spark found wrong with the input."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"the oracle cannot judge {data}: {reason}") from error
