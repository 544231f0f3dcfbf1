"""SQLite: each row once, whatever dies; what a table holds of records; what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.errors import ConfigError, GraphError, JobError, OutputError
from tests.io.databases.words import (
    CHANGES,
    EVERYTHING,
    LINES,
    ROWS,
    Counted,
    Line,
    count,
    counting,
    counts,
    flow_of,
    remove,
)


def rows(path: Path, query: str = "SELECT word, n FROM counts") -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(("key", "visible"), [(None, None), ("word", None), (None, "saved")])
def test_each_row_is_there_once_whatever_dies(
    key: str | None, visible: Any, tmp_path: Path
) -> None:
    path = tmp_path / "out.db"
    rs.testing.check_sink(
        lambda: rs.io.sqlite(path, table="counts", key=key, visible=visible, create=True),
        ROWS,
        read=lambda: [Counted(*row) for row in rows(path)],
        clear=lambda: remove(path),
        examples=3,
    )


def test_a_flow_counts_into_a_table(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    counting(rs.io.sqlite(path, table="counts", key="word", create=True)).run(
        instances={"count": 2, "counts": 3}
    )
    assert sorted(rows(path)) == counts()
    ends = rows(path, "SELECT lo, hi, ended FROM raystream_markers ORDER BY lo")
    assert ends == [(0, 5, 1), (5, 10, 1), (10, 16, 1)]


def test_all_rows_of_a_key_go_through_one_instance(tmp_path: Path) -> None:
    """The edge is partitioned by the key; without one rows go where their producer's keys are."""
    for key in (None, "n"):
        sink = rs.io.sqlite(tmp_path / "out.db", table="counts", key=key)
        plan = make_plan(counting(sink), checkpoint_every=1)
        (vertex,) = [v for v in plan.vertices if v.kind == "sink"]
        assert [edge.key for edge in vertex.inputs] == [None if key is None else (key,)]


def test_without_a_key_rows_are_added(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    for times in (1, 2):  # the first run has ended, so another one adds to it
        counting(rs.io.sqlite(path, table="counts", create=True)).run()
        assert len(rows(path)) == times * len(LINES)
    counting(rs.io.sqlite(path, table="counts", existing="replace")).run()
    assert len(rows(path)) == len(LINES)


def test_rows_are_deleted_by_their_key(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = rs.io.sqlite(path, table="counts", key="word", delete="gone", create=True)
    flow_of(CHANGES, sink).run()
    assert sorted(rows(path)) == [("a", 2), ("c", 5)]
    assert rows(path, "SELECT name FROM pragma_table_info('counts')") == [("word",), ("n",)]


def test_what_a_table_holds_of_each_type(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = rs.io.sqlite(path, table="all", key="id", create=True, columns={"ok": "is ok"})
    flow_of([EVERYTHING], sink).run()
    assert rows(path, 'SELECT * FROM "all"') == [
        (
            "00000000-0000-0000-0000-000000000005", "2024-02-03T04:05:06.000007+00:00",
            "2024-02-03", -86_399_999_995, "-12.50", 1, -3, 0.5, b"\0\xff", '["x", "ü"]', None,
        )
    ]  # fmt: skip
    columns = rows(path, "SELECT name, type, \"notnull\", pk FROM pragma_table_info('all')")
    assert columns[0] == ("id", "TEXT", 1, 1) and columns[-1] == ("note", "TEXT", 0, 0)
    assert columns[5] == ("is ok", "INTEGER", 1, 0)


def test_a_run_that_broke_off_is_not_written_a_second_time(tmp_path: Path) -> None:
    path = tmp_path / "out.db"

    @rs.operator()
    def breaks(line: Line) -> Iterator[Counted]:
        if line.time == 33:
            raise ValueError("a day without luck")
        yield Counted(line.word, line.time)

    flow = rs.Flow("words", key_groups=16)
    lines = flow.source(rs.io.iterable(LINES, Line), epochs=rs.by_time("time", seconds=5))
    lines.through(breaks).to(rs.io.sqlite(path, table="counts", create=True), name="counts")
    with pytest.raises(Exception, match="without luck"):
        flow.run()
    assert len(rows(path)) == 30  # of the epochs before, visible at once
    with pytest.raises(OutputError, match=r"did not end: it holds rows up to epoch 6") as refused:
        counting(rs.io.sqlite(path, table="counts")).run()
    assert 'existing="replace"' in refused.value.hint
    counting(rs.io.sqlite(path, table="counts", existing="keep")).run()
    assert len(rows(path)) == 30 + len(LINES)


def test_a_run_that_is_resumed_skips_what_is_there(tmp_path: Path) -> None:
    path, durable = tmp_path / "out.db", tmp_path / "saves"
    seen: list[int] = []

    class Breaks(rs.Sink[Counted]):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
            seen.append(epoch)
            if seen.count(8) == 1 and epoch == 8:
                raise ValueError("a day without luck")

    def flow() -> rs.Flow:
        made = rs.Flow("words", key_groups=16)
        lines = made.source(rs.io.iterable(LINES, Line), epochs=rs.by_time("time", seconds=5))
        counted = lines.through(count)
        counted.to(rs.io.sqlite(path, table="counts", create=True), name="counts")
        counted.to(Breaks(), name="breaks")
        return made

    with pytest.raises(JobError, match="without luck"):
        flow().run(durable=str(durable), checkpoint_every=5)
    assert rows(path, "SELECT max(epoch) FROM raystream_markers") == [(8,)]  # 5 is saved
    flow().run(durable=str(durable), checkpoint_every=5, resume=True)
    expected = [Counted(line.word, [x.word for x in LINES[: i + 1]].count(line.word))
                for i, line in enumerate(LINES)]  # fmt: skip
    assert sorted(rows(path)) == sorted(expected)


@pytest.mark.parametrize("visible", ["epoch", "saved"])
def test_what_marks_the_rows_of_a_sink_goes_along_when_it_is_renamed(
    tmp_path: Path, visible: Any
) -> None:
    """The rows that are ahead of the checkpoint are found under the new name, too."""
    path, durable = tmp_path / "out.db", str(tmp_path / "saves")

    def flow(breaks: int, name: str) -> rs.Flow:
        @rs.operator()
        def breaking(line: Line) -> Iterator[Counted]:
            if line.time == breaks:
                raise ValueError("a day without luck")
            yield Counted(line.word, line.time)

        made = rs.Flow("words", key_groups=16)
        lines = made.source(rs.io.iterable(LINES, Line), epochs=rs.by_time("time", seconds=5))
        sink = rs.io.sqlite(path, table="counts", create=True, visible=visible)
        lines.through(breaking).to(sink, name=name)
        return made

    with pytest.raises(Exception, match="without luck"):
        flow(43, "counts").run(durable=durable, checkpoint_every=5)
    after, wishes = flow(-1, "tallies"), {"counts": "tallies"}
    if visible == "epoch":
        with pytest.raises(OutputError, match=r"holds output up to epoch 8 .*program has changed"):
            after.run(durable=durable, resume=True, rename=wishes)
        return
    after.run(durable=durable, resume=True, rename=wishes)
    assert sorted(rows(path)) == sorted((line.word, line.time) for line in LINES)


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with pytest.raises(OutputError, match="does not exist") as missing:
        counting(rs.io.sqlite(path, table="counts")).run()
    assert "create=True" in missing.value.hint and '"n" INTEGER NOT NULL' in missing.value.hint
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE counts (word TEXT)")
        connection.execute("CREATE TABLE plain (word TEXT, n INTEGER)")
    with pytest.raises(OutputError, match="has no column 'n'"):
        counting(rs.io.sqlite(path, table="counts")).run()
    unkeyed = rs.io.sqlite(path, table="plain", key="word")
    with pytest.raises(OutputError, match="could not be written") as unindexed:
        counting(unkeyed).run()
    assert "CREATE UNIQUE INDEX" in unindexed.value.hint and "(word)" in unindexed.value.hint
    with pytest.raises(OutputError, match="cannot be written") as unindexed:
        unkeyed.check()
    assert "CREATE UNIQUE INDEX" in unindexed.value.hint
    with pytest.raises(GraphError, match="no field 'wort'"):
        counting(rs.io.sqlite(path, table="counts", key="wort"))
    with pytest.raises(ConfigError, match="sink that has a key"):
        rs.io.sqlite(path, table="counts", delete="gone")
    with pytest.raises(ConfigError, match='"epoch" or "saved"'):
        rs.io.sqlite(path, table="counts", visible="now")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match='"keep" or "replace"'):
        rs.io.sqlite(path, table="counts", existing="drop")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="cannot say that a row is to be deleted"):
        counting(rs.io.sqlite(path, table="counts", key="word", delete="n"))
    flow = rs.Flow("two")
    lines = flow.source(rs.io.iterable(LINES, Line))
    with pytest.raises(GraphError, match="has rows of"):
        (lines | lines.through(count)).to(rs.io.sqlite(path, table="counts"))


def test_a_file_that_others_write_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE counts (word TEXT, n INTEGER)")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            OutputError, match="could not be written: OperationalError: database is"
        ):
            counting(rs.io.sqlite(path, table="counts", wait=0.2)).run()


def test_what_users_can_do_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, and long enough to be looked at as one" * 20)
    with closing(sqlite3.connect(tmp_path / "out.db")) as made:
        made.execute("CREATE TABLE counts (word TEXT, n INTEGER)")
        made.execute("CREATE TABLE must (word TEXT, n INTEGER, must TEXT NOT NULL)")
    for path, options, hint in [
        (tmp_path / "text", {"create": True}, "Name a file"),
        (tmp_path, {"create": True}, "Name a file"),
        (tmp_path / "out.db", {"key": "word"}, "unique index"),
        (tmp_path / "out.db", {"table": "must"}, "a default"),
    ]:
        sink = rs.io.sqlite(path, **{"table": "counts", "wait": 0.1} | options)  # type: ignore[arg-type]
        with pytest.raises(OutputError) as failed:
            counting(sink).run()
        assert hint in failed.value.hint
