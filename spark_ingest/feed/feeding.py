"""Feeds a running job: a query of Spark, started again when it fails, until all rows are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from raystream.errors import ConfigError, JobError
from raystream.push import Client
from spark_ingest.connector import register
from spark_ingest.feed.rows import PUSHED
from spark_ingest.feed.source import FORMAT, LANE, LinearRoadRows
from spark_ingest.feed.state import Feeding, State
from spark_ingest.layout import Meta, read_meta
from spark_ingest.spark.session import spark_session

PATH = "/linear-road"
"""Of the URL to which `python -m lrb run --input push` listens."""
FAILURES = 10
"""So often in a row a query may fail without having committed anything."""
PAUSE_SECONDS = 1.0
LOOK_SECONDS = 0.2
TELL_SECONDS = 5.0
ATTEMPTS = 4
"""How often a task is tried."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job that is fed. addresses: with commas. give_up: seconds without an answer after which
    it is gone."""

    addresses: str
    token: str
    path: str = PATH
    give_up: float = 300.0

    def client(self) -> Client:
        """A client of it."""
        return Client(self.addresses.split(","), self.token, path=self.path, give_up=self.give_up)

    def refuse_other(self, meta: Meta) -> None:
        """Wait until the job answers.

        Raises:
            ConfigError: it is no job of Linear Road with a lane for each split. JobError: it does
                not answer.
        """
        with self.client() as client:
            said = client.request("")
        if said["fields"] != PUSHED.names or said["lanes"] != meta.splits:
            raise ConfigError(
                f"{self.addresses} takes {', '.join(said['fields'])} in {said['lanes']} lanes, not"
                f" the rows of Linear Road in {meta.splits}",
                hint="Start it with: python -m lrb run --input push --out answers/",
            )


def feed(
    job: Job,
    data: Path,
    state: State,
    *,
    speed: float | None,
    every: float = 0.5,
    cores: int | None = None,
    tasks: int | None = None,
    settings: Mapping[str, str] = {},
    say: Callable[[str], None] = print,
) -> None:
    """Feed all rows of a prepared folder to a job, and end its input.

    Args:
        data: the prepared folder. state: what a feed that was killed goes on from. speed: event
            seconds per second; None for as fast as the job takes them. every: seconds from one
            batch to the next, at least. cores: of Spark; all unless given. tasks: about how many
            read a batch; as many as Spark would, unless given. settings: of Spark, which go before
            those made here.

    Raises:
        ConfigError, InputError: what was asked or given cannot be. JobError: the job has ended, or
            does not answer, or Spark fails again and again.
    """
    meta = read_meta(data)
    pace = "max" if speed is None else f"{speed:g}"
    state.begin(Feeding(str(data.absolute()), pace))
    say(f"Waiting for the job at {job.addresses}")
    job.refuse_other(meta)
    options = {
        "spark.master": f"local[{cores or '*'},{ATTEMPTS}]",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.streaming.minBatchesToRetain": "10",
    }
    if tasks is not None:
        options["spark.default.parallelism"] = str(tasks)
    with spark_session("feed", options={**options, **settings}) as spark:
        register(spark)
        spark.dataSource.register(LinearRoadRows)
        say(f"Feeding {meta.rows_total:,} rows, {_pace(speed)}")

        def start() -> StreamingQuery:
            return _query(spark, job, data.absolute(), state, pace, every)

        until_fed(start, state, meta.last + 1, say, there=lambda: job.refuse_other(meta))
    with job.client() as client:
        client.end()
    say("All rows are taken")


def _pace(speed: float | None) -> str:
    return "as fast as the job takes them" if speed is None else f"{speed:g} times real time"


def _query(
    spark: SparkSession, job: Job, data: Path, state: State, pace: str, every: float
) -> StreamingQuery:
    rows = (
        spark.readStream.format(FORMAT)
        .option("data", str(data))
        .option("clock", str(state.clock))
        .option("speed", pace)
        .option("tasks", spark.sparkContext.defaultParallelism)
        .load()
    )
    return (
        rows.writeStream.format("raystream")
        .option("address", job.addresses)
        .option("token", job.token)
        .option("path", job.path)
        .option("give_up", job.give_up)
        .option("lane", LANE)
        .option("checkpointLocation", str(state.query))
        .trigger(processingTime=f"{round(every * 1000)} milliseconds")
        .start()
    )


def until_fed(
    start: Callable[[], StreamingQuery],
    state: State,
    end: int,
    say: Callable[[str], None],
    there: Callable[[], None] = lambda: None,
) -> None:
    """Start a query, and another one whenever it fails, until it has committed second `end`.

    Args:
        there: raises if the job is gone; called before another query is started.

    Raises:
        JobError: it has failed too often without having committed anything.
    """
    failures, before = 0, state.committed()
    while before != end:
        try:
            with _running(start) as query:
                _watch(query, state, end, say)
        except (PySparkException, Py4JJavaError) as error:
            # The latter is what Spark raises of a Python process that died as a query was planned.
            reached = state.committed()
            failures = 0 if reached != before else failures + 1
            before = reached
            why = _why(error)
            if failures >= FAILURES:
                raise JobError(f"the query has failed {failures} times in a row: {why}") from None
            say(f"The query has failed and is started again: {why}")
            time.sleep(PAUSE_SECONDS)
            there()
            continue
        before = state.committed()


@contextmanager
def _running(start: Callable[[], StreamingQuery]) -> Iterator[StreamingQuery]:
    query = start()
    try:
        yield query
    finally:
        query.stop()


def _watch(query: StreamingQuery, state: State, end: int, say: Callable[[str], None]) -> None:
    """Return when all is committed, or the query has ended."""
    told = time.monotonic()
    while (reached := state.committed()) != end:
        if not query.isActive:
            query.awaitTermination()  # raises what has ended it
            return
        time.sleep(LOOK_SECONDS)
        if reached is not None and time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            say(f"second {reached:,} of {end:,}")


def _why(error: Exception) -> str:
    """What happened, in a line: the last words of the Python process that failed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (python or lines or ["?"])[-1][:400]
