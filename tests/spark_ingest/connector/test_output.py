"""Spark reads what a sink has committed, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import raystream as rs
from tests.io.output.written import opened, rows, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    from spark_ingest.connector import register

    register(spark)
    return spark


class Query:
    """A query that copies the output of a sink, as far as it is committed, each time it runs."""

    def __init__(self, spark: SparkSession, folder: Path, state: Path) -> None:
        self.spark, self.folder, self.state = spark, folder, state

    def run(self) -> list[tuple[Any, ...]]:
        """All that it has copied by now."""
        frame = self.spark.readStream.format("raystream").schema("key long, n long")
        query = (
            frame.load(str(self.folder))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.state / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.state / "copied"))
        )
        query.awaitTermination()
        copied = self.spark.read.schema("key long, n long").parquet(str(self.state / "copied"))
        return sorted(map(tuple, copied.collect()))


def wanted(*epochs: int) -> list[tuple[Any, ...]]:
    return sorted((row.key, row.n) for epoch in epochs for row in rows(epoch))


def test_a_query_sees_what_is_committed_and_each_part_once(
    session: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    query = Query(session, folder, tmp_path)
    assert query.run() == []  # there is no sink yet
    one = opened(rs.io.parquet(folder))
    write(one, 1)
    write(one, 2)
    assert query.run() == []
    one.commit(2)
    write(one, 3)
    one.prepare(3)  # kept for a successor, and not committed
    assert query.run() == wanted(1, 2)
    assert query.run() == wanted(1, 2)
    one.commit(3)
    assert query.run() == wanted(1, 2, 3)
    one.close()
    table = session.read.format("raystream").load(str(folder))
    assert table.columns == ["key", "n"]
    assert sorted(map(tuple, table.collect())) == wanted(1, 2, 3)


def test_a_query_does_not_go_on_with_the_output_of_another_run(
    session: SparkSession, tmp_path: Path
) -> None:
    query = Query(session, tmp_path / "out", tmp_path)
    one = opened(rs.io.parquet(tmp_path / "out"))
    write(one, 1)
    one.commit(1)
    assert query.run() == wanted(1)
    other = opened(rs.io.parquet(tmp_path / "out"), run="other")
    write(other, 1)
    other.commit(1)
    with pytest.raises(Exception, match="does not hold the output that was read before"):
        query.run()


def test_what_is_asked_wrongly_is_refused_in_words(session: SparkSession, tmp_path: Path) -> None:
    for options, said in (
        ({"path": "/x", "speed": "1"}, "no option 'speed'"),
        ({}, "name the folder"),
        ({"path": str(tmp_path)}, "holds no output yet"),
    ):
        with pytest.raises(Exception, match=said):
            session.read.format("raystream").options(**options).load()
