"""DuckDB: each row once, whatever dies; what a table holds of records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import OutputError
from tests.gates import LIMIT_SECONDS
from tests.io.databases.words import (
    CHANGES,
    EVERYTHING,
    LINES,
    ROWS,
    Counted,
    Line,
    count,
    counts,
    flow_of,
    remove,
)

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")


def rows(path: Path, query: str = "SELECT word, n FROM counts") -> list[Any]:
    with duckdb.connect(str(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(("key", "visible"), [(None, None), ("word", None), (None, "saved")])
def test_each_row_is_there_once_whatever_dies(
    key: str | None, visible: Any, tmp_path: Path
) -> None:
    path = tmp_path / "out.duckdb"
    rs.testing.check_sink(
        lambda: rs.io.duckdb(path, table="counts", key=key, visible=visible, create=True, wait=1.0),
        ROWS,
        read=lambda: [Counted(*row) for row in rows(path)],
        clear=lambda: remove(path),
        every_call=False,
        examples=2,
    )


def test_a_flow_counts_into_a_table(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    flow = rs.Flow("words", key_groups=16)
    lines = flow.source(rs.io.iterable(LINES, Line), epochs=rs.by_time("time", seconds=5))
    counted = lines.through(count)
    counted.to(rs.io.duckdb(path, table="counts", key="word", create=True), name="counts")
    counted.to(rs.io.duckdb(path, table="main.history", create=True), name="history")
    flow.run(instances={"counts": 2})
    assert sorted(rows(path)) == counts()
    assert rows(path, "SELECT count(*) FROM history") == [(60,)]


def test_rows_are_deleted_by_their_key(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    sink = rs.io.duckdb(path, table="counts", key="word", delete="gone", create=True)
    flow_of(CHANGES, sink).run()
    assert sorted(rows(path)) == [("a", 2), ("c", 5)]


def test_what_a_table_holds_of_each_type(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    sink = rs.io.duckdb(path, table="counts", key="id", create=True)
    flow_of([EVERYTHING], sink).run()
    (found,) = rows(path, 'SELECT * REPLACE (epoch_us("at") AS "at") FROM counts')
    micros = int(EVERYTHING.at.timestamp()) * 1_000_000 + 7
    assert found == tuple(EVERYTHING._replace(at=micros, tags='["x", "ü"]'))  # type: ignore[arg-type]


MAKERS = """
import multiprocessing, sys, time
from raystream.io.databases.duckdb import driver, make_file

def insert(path, barrier):
    barrier.wait()
    make_file(path)
    while True:
        try:
            with driver().connect(path) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER)")
                connection.execute("INSERT INTO t VALUES (1)")
                return
        except driver().IOException as error:
            if "lock" not in str(error):
                raise
            time.sleep(0.005)

driver()
fork = multiprocessing.get_context("fork")
for i in range(25):
    path, barrier = f"{sys.argv[1]}/{i}.duckdb", fork.Barrier(3)
    makers = [fork.Process(target=insert, args=(path, barrier)) for _ in range(3)]
    [maker.start() for maker in makers]
    [maker.join() for maker in makers]
    with driver().connect(path) as connection:
        print(connection.execute("SELECT sum(n) FROM t").fetchone()[0], end=" ")
"""


def test_processes_that_make_the_same_file_at_once_all_have_it(tmp_path: Path) -> None:
    """Left to themselves they would cut it to nothing, one in ten times."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MAKERS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert (done.stdout.split(), done.stderr) == (["3"] * 25, "")


def test_a_file_that_another_process_has_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    holds = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('has it', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and b"has it" in other.stdout.readline()
        sink = rs.io.duckdb(path, table="counts", create=True, wait=0.3)
        flow = flow_of(ROWS, sink)
        with pytest.raises(OutputError, match="could not be written: IOException"):
            flow.run()
        other.communicate(b"\n")
    flow.run()
    assert len(rows(path)) == len(ROWS)
