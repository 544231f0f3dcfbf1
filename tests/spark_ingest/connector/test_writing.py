"""Spark writes into a job: each row counts once, whoever is killed, repeated or started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.io.test_push import TOKEN
from tests.spark_ingest.connector.jobs import Job, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    from spark_ingest.connector import register

    register(spark)
    return spark


def numbers(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("id as n", "concat('t', id) as text")


def write(frame: DataFrame, to: Job, **options: Any) -> None:
    frame.write.format("raystream").options(**to.options(**options)).mode("append").save()


def test_a_frame_is_written_once_under_its_name(session: SparkSession) -> None:
    with job() as to:
        write(numbers(session, 1000, 4), to, name="a", key="n")
        write(numbers(session, 1000, 3), to, name="a", key="n")  # a second run changes nothing
        write(numbers(session, 10, 2).selectExpr("n + 2000 as n", "text"), to)
        found = to.end()
    assert sorted(found) == [*range(1000), *range(2000, 2010)]
    assert to.found[found.index(7)].text == "t7"


def test_rows_of_a_lane_are_in_order_whatever_partitions_hold_them(session: SparkSession) -> None:
    with job() as to:
        frame = numbers(session, 500, 5).orderBy("text").repartition(5)
        write(frame, to, order="n")
        found = to.end()
    assert found == [*range(500)]


def test_what_the_job_refuses_ends_the_query_with_its_words(session: SparkSession) -> None:
    with job() as to:
        with pytest.raises(Exception, match="n"):
            write(session.range(3).selectExpr("cast(id as string) as n"), to)
        writer = numbers(session, 1, 1).write.format("raystream").options(**to.options())
        with pytest.raises(Exception, match="append"):
            writer.mode("overwrite").save()
        assert to.end() == []


def run(folder: Path, to: Job, *arguments: str, expect: int = 0) -> str:
    """Run a query in a process of its own, whose Spark ends with it."""
    environment = os.environ | {
        "RAYSTREAM_PUSH_TOKEN": TOKEN,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, to.address, *arguments],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
def test_a_query_that_is_killed_goes_on_and_each_row_counts_once(tmp_path: Path) -> None:
    """The first process is killed between two lanes of a commit. The second one cuts the batch
    into other partitions, and some of its tasks fail at first; it runs tasks twice at once."""
    (tmp_path / "in").mkdir()
    for i in range(3):
        rows = [f'{{"n": {n}, "text": "t"}}' for n in range(i * 1000, i * 1000 + 1000)]
        (tmp_path / "in" / f"{i}.json").write_text("\n".join(rows))
    with job() as to:
        run(tmp_path, to, "2", "killed", expect=-9)
        run(tmp_path, to, "5", "failing")
        assert sorted(to.end()) == [*range(3000)]
