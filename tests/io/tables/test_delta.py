"""A table of Delta Lake: one snapshot for each checkpoint, whoever dies."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable

import raystream as rs
from raystream.errors import ConfigError, GraphError, OutputError
from raystream.schema.types import KeyRange
from tests.io.kinds import batch

ALL = rs.KeyRange(0, 256)


class Lasted(NamedTuple):
    time: int
    lasted: timedelta


class Row(NamedTuple):
    time: int
    word: str


def opened(path: Path, committed: int = 0, generation: int = 1, keys: KeyRange = ALL) -> Any:
    sink = rs.io.delta(path, create=True)
    sink.accept(Row)
    sink.open(
        rs.SinkContext("one", "rows", keys, None, 0.0, None, committed, "", False, generation, 0)
    )
    return sink


def written(path: Path) -> list[Row]:
    if not DeltaTable.is_deltatable(str(path)):
        return []
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(Row(**row) for row in rows)


def test_a_job_appends_to_a_table(tmp_path: Path) -> None:
    rows = [Row(n, f"w{n % 3}") for n in range(50)]
    for _ in range(2):  # a second run appends its rows to those of the first
        flow = rs.Flow("delta")
        made = flow.source(rs.io.iterable(rows, Row), epochs=rs.by_time())
        made.to(rs.io.delta(tmp_path / "t", create=True))
        flow.run()
    assert written(tmp_path / "t") == sorted(rows * 2)


def test_a_checkpoint_of_several_instances_is_one_snapshot(tmp_path: Path) -> None:
    halves = [KeyRange(0, 100), KeyRange(100, 256)]
    first, second = (opened(tmp_path, keys=keys) for keys in halves)
    versions = []
    for epoch in range(1, 5):
        first.write(epoch, halves[0], batch(Row, [Row(epoch, "a")]))
        if epoch != 2:
            second.write(epoch, halves[1], batch(Row, [Row(epoch, "b")]))
        for one in (first, second):
            one.prepare(epoch)
        for one in (second, first):
            one.commit(epoch)
        versions.append(DeltaTable(str(tmp_path)).version())
    assert versions == [1, 2, 3, 4] and len(written(tmp_path)) == 7
    assert not list((tmp_path / "_raystream" / "rows").glob("staged-*"))


def test_epochs_without_rows_make_no_snapshots(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for epoch in range(1, 30):
        sink.prepare(epoch)
        sink.commit(epoch)
    assert DeltaTable(str(tmp_path)).version() == 0
    assert len(list((tmp_path / "_raystream" / "rows").glob("staged-*"))) == 1
    sink.write(30, ALL, batch(Row, [Row(30, "a")]))
    sink.prepare(30)
    sink.commit(30)
    assert written(tmp_path) == [Row(30, "a")]


def test_one_that_was_thought_dead_commits_nothing_twice(tmp_path: Path) -> None:
    zombie = opened(tmp_path)
    zombie.write(1, ALL, batch(Row, [Row(1, "a")]))
    zombie.prepare(1)
    zombie.write(2, ALL, batch(Row, [Row(2, "b")]))
    zombie.prepare(2)
    successor = opened(tmp_path, committed=1, generation=2)
    successor.commit(1)
    zombie.commit(1)
    successor.write(2, ALL, batch(Row, [Row(2, "b")]))
    successor.write(3, ALL, batch(Row, [Row(3, "c")]))
    successor.prepare(3)
    successor.commit(3)
    zombie.commit(2)
    assert written(tmp_path) == [Row(1, "a"), Row(2, "b"), Row(3, "c")]


def test_two_that_commit_at_once_are_one(tmp_path: Path) -> None:
    """Both have looked at the table before either of them writes: Delta takes one."""
    one = opened(tmp_path)
    one.write(1, ALL, batch(Row, [Row(1, "a")]))
    one.prepare(1)
    two = opened(tmp_path, committed=1, generation=2)
    appended = two.table.append

    def between(*args: Any) -> bool:
        two.table.append = appended
        one.commit(1)
        return bool(appended(*args))

    two.table.append = between
    two.commit(1)
    assert written(tmp_path) == [Row(1, "a")] and DeltaTable(str(tmp_path)).version() == 1


def test_a_table_whose_processes_die_at_every_call(tmp_path: Path) -> None:
    rs.testing.check_sink(
        lambda: rs.io.delta(tmp_path / "t", create=True),
        [Row(n, w) for n, w in enumerate("abacab")],
        read=lambda: written(tmp_path / "t"),
        clear=lambda: shutil.rmtree(tmp_path / "t", ignore_errors=True),
        examples=10,
    )


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    class Other(NamedTuple):
        time: int
        shop: str

    with pytest.raises(GraphError, match="cannot hold such records"):
        rs.io.delta(tmp_path).accept(Lasted)
    opened(tmp_path)
    sink = rs.io.delta(tmp_path, create=True)
    sink.accept(Other)
    context = rs.SinkContext("two", "rows", ALL, None, 0.0, None)
    with pytest.raises(ConfigError, match="has the columns time, word"):
        sink.open(context)
    missing = rs.io.delta(tmp_path / "none")
    missing.accept(Row)
    with pytest.raises(ConfigError, match="there is no table of Delta Lake"):
        missing.open(context)


def test_a_check_looks_and_makes_nothing(tmp_path: Path) -> None:
    def check(path: Path, **options: Any) -> str:
        sink = rs.io.delta(path, **options)
        sink.accept(Row)
        return sink.check()

    with pytest.raises(ConfigError, match="there is no table"):
        check(tmp_path / "t")
    assert check(tmp_path / "t", create=True).endswith("is made when the job begins")
    assert not (tmp_path / "t").exists()
    opened(tmp_path / "t")
    assert check(tmp_path / "t").endswith("has the columns")
    with pytest.raises(ConfigError, match="has the columns time, word, and the records have"):
        check(tmp_path / "t", columns={"word": "text"})
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError, match=r"cannot be written: .*Not a directory \(os error 20\)"):
        check(tmp_path / "file", create=True)
