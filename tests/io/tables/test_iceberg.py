"""A table of Iceberg: one snapshot for each checkpoint, whoever dies."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import raystream as rs
from raystream.errors import ConfigError, GraphError
from tests.io.kinds import batch
from tests.processes import free_port

ALL = rs.KeyRange(0, 256)
pytestmark = pytest.mark.filterwarnings("ignore")  # of PyIceberg and what it imports


class Lasted(NamedTuple):
    time: int
    lasted: timedelta


class Row(NamedTuple):
    time: int
    word: str


def settings(path: Path) -> dict[str, str]:
    """A catalog in SQLite, with its tables beside it."""
    path.mkdir(exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{path}/catalog.db",
        "warehouse": f"file://{path}/warehouse",
    }


def table(path: Path) -> Any:
    return load_catalog("tests", **settings(path)).load_table("shop.rows")


def made(path: Path, **options: Any) -> Any:
    options = {"create": True, **options}
    return rs.io.iceberg("shop.rows", catalog="tests", properties=settings(path), **options)


def opened(path: Path, committed: int = 0, generation: int = 1) -> Any:
    sink = made(path)
    sink.accept(Row)
    sink.open(
        rs.SinkContext("one", "rows", ALL, None, 0.0, None, committed, "", False, generation, 0)
    )
    return sink


def written(path: Path) -> list[Row]:
    try:
        return sorted(Row(**row) for row in table(path).scan().to_arrow().to_pylist())
    except NoSuchTableError:
        return []


def test_a_job_appends_to_a_table(tmp_path: Path) -> None:
    rows = [Row(n, f"w{n % 3}") for n in range(50)]
    for _ in range(2):
        flow = rs.Flow("iceberg")
        stream = flow.source(rs.io.iterable(rows, Row), epochs=rs.by_time())
        stream.to(made(tmp_path))
        flow.run()
    assert written(tmp_path) == sorted(rows * 2)
    assert len(table(tmp_path).snapshots()) == 2
    assert "raystream.epoch" in table(tmp_path).current_snapshot().summary.additional_properties


def test_two_that_commit_at_once_are_one(tmp_path: Path) -> None:
    """Both have looked at the table before either of them writes. Left to itself PyIceberg would
    try the append of the second one again, on top of the first."""
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
    assert written(tmp_path) == [Row(1, "a")] and len(table(tmp_path).snapshots()) == 1


def test_the_epoch_outlives_the_snapshots(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for epoch in (1, 2):
        sink.write(epoch, ALL, batch(Row, [Row(epoch, "a")]))
        sink.prepare(epoch)
        sink.commit(epoch)
    first = table(tmp_path).snapshots()[0].snapshot_id
    table(tmp_path).maintenance.expire_snapshots().by_id(first).commit()
    opened(tmp_path, committed=2, generation=2).commit(2)
    assert written(tmp_path) == [Row(1, "a"), Row(2, "a")]


def test_a_table_whose_processes_die_at_twelve_times(tmp_path: Path) -> None:
    rs.testing.check_sink(
        lambda: made(tmp_path / "t"),
        [Row(n, w) for n, w in enumerate("abacab")],
        read=lambda: written(tmp_path / "t"),
        clear=lambda: shutil.rmtree(tmp_path / "t", ignore_errors=True),
        every_call=False,
        examples=12,
    )


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot hold such records"):
        made(tmp_path).accept(Lasted)
    missing = made(tmp_path, create=False)
    missing.accept(Row)
    with pytest.raises(ConfigError, match=r"there is no table shop\.rows"):
        missing.open(rs.SinkContext("two", "rows", ALL, None, 0.0, None))
    with pytest.raises(ConfigError, match=r"namespace\.name"):
        rs.io.iceberg("rows")


def test_a_check_looks_and_makes_nothing(tmp_path: Path) -> None:
    def check(**options: Any) -> str:
        sink = made(tmp_path, **options)
        sink.accept(Row)
        return str(sink.check())

    with pytest.raises(ConfigError, match="there is no table"):
        check(create=False)
    assert check().endswith("is made when the job begins")
    with pytest.raises(NoSuchTableError):
        table(tmp_path)
    opened(tmp_path)
    assert check().endswith("has the columns")
    with pytest.raises(ConfigError, match="has the columns time, word, and the records have"):
        check(columns={"word": "text"})


def test_a_catalog_that_cannot_be_asked_is_said(tmp_path: Path) -> None:
    nobody = {"type": "rest", "uri": f"http://127.0.0.1:{free_port()}", "token": "hush"}
    for options in ({"catalog": "nowhere"}, {"properties": nobody}):
        for one in (
            rs.io.iceberg("shop.rows", create=True, **options),  # type: ignore[arg-type]
            rs.io.iceberg("shop.rows", Row, **options),  # type: ignore[call-overload]
        ):
            if hasattr(one, "accept"):
                one.accept(Row)
            with pytest.raises(ConfigError, match="cannot be asked") as failed:
                one.check()
            assert "hush" not in str(failed.value)
            assert "properties=" in failed.value.hint
    with pytest.raises(ConfigError, match="is the name of a catalog, and no dict") as failed:
        rs.io.iceberg("shop.rows", catalog=nobody)  # type: ignore[call-overload]
    assert "hush" not in str(failed.value)
