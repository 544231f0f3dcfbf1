"""A table of Iceberg as a source: what is there, then what snapshots append."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import raystream as rs
from raystream.errors import ConfigError, InputError, RaystreamError
from raystream.io.tables import iceberg_source
from raystream.io.tables.iceberg_source import SnapshotPlace
from raystream.testing import Collect
from tests.gates import LIMIT_SECONDS, until
from tests.io.tables.test_iceberg import settings

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyIceberg and what it imports


class Row(NamedTuple):
    time: int
    word: str


def rows(*times: int) -> list[Row]:
    return [Row(time, f"w{time % 3}") for time in times]


def table(path: Path) -> Any:
    catalog = load_catalog("tests", **settings(path))
    catalog.create_namespace_if_not_exists("shop")
    schema = pa.schema([("time", pa.int64()), ("word", pa.string()), ("other", pa.float64())])
    return catalog.create_table_if_not_exists("shop.rows", schema)


def append(path: Path, *times: int) -> None:
    """A snapshot with a file more."""
    columns = {
        "time": list(times),
        "word": [f"w{t % 3}" for t in times],
        "other": [0.5] * len(times),
    }
    table(path).append(pa.table(columns))


def source(path: Path, **options: Any) -> Any:
    return rs.io.iceberg("shop.rows", Row, catalog="tests", properties=settings(path), **options)


def read(given: Any, position: int | None = None) -> list[Row]:
    """What a source has, in order."""
    found: list[Row] = []
    for split in given.splits():
        begin = split.begin if position is None else position
        for _, batch in given.read(split, begin):
            found += batch.records()
    return found


def positions(given: Any) -> list[int]:
    (split,) = given.splits()
    return [position for position, _ in given.read(split, split.begin)]


def test_what_is_there_is_read_once(tmp_path: Path) -> None:
    assert read(source(tmp_path) if table(tmp_path) else None) == []
    append(tmp_path, 1, 2, 3)
    append(tmp_path, 4)
    assert sorted(read(source(tmp_path))) == rows(1, 2, 3, 4)
    assert sorted(read(source(tmp_path, splits=3))) == rows(1, 2, 3, 4)
    assert read(source(tmp_path, start="latest")) == []
    flow, sink = rs.Flow("rows"), Collect()
    flow.source(source(tmp_path)).to(sink)
    flow.run()
    assert sorted(sink.records()) == rows(1, 2, 3, 4)


def test_it_reads_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From each position the rest, in the same order: of the first snapshot and of later ones."""
    monkeypatch.setattr(iceberg_source, "BATCH_ROWS", 2)
    append(tmp_path, 1, 2, 3)
    append(tmp_path, 4, 5)
    given = source(tmp_path)
    begin = given.splits()[0].begin
    whole = read(given)
    append(tmp_path, 6, 7, 8)
    append(tmp_path, 9)
    later = source(tmp_path)
    later.splits()
    assert read(later, begin) == whole + rows(6, 7, 8, 9)
    (split,) = later.splits()
    batches = list(later.read(split, begin))
    for n, (position, _) in enumerate(batches):
        rest = [[*batch.records()] for _, batch in later.read(split, position)]
        assert rest == [[*batch.records()] for _, batch in batches[n + 1 :]]


def test_a_table_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 1, 2)
    found: list[int] = []

    def take(batch: Any) -> None:
        found.extend(r.time for r in batch.records())
        if 4 in found:
            raise EOFError

    flow = rs.Flow("followed")
    stream = flow.source(source(tmp_path, follow="10ms"), epochs=rs.by_arrival(seconds=0.01))
    stream.to(rs.io.callable(take))

    def job() -> None:
        with pytest.raises(RaystreamError, match="EOFError"):
            flow.run()

    thread = threading.Thread(target=job)
    thread.start()
    until(lambda: found == [1, 2])
    append(tmp_path, 3)
    append(tmp_path, 4)
    thread.join(LIMIT_SECONDS)
    assert found == [1, 2, 3, 4]


def test_nothing_is_skipped_silently(tmp_path: Path) -> None:
    append(tmp_path, 1)
    given = source(tmp_path)
    after = SnapshotPlace.of(positions(given)[-1])
    append(tmp_path, 2)
    append(tmp_path, 3)
    kept = table(tmp_path)
    gone = [s.snapshot_id for s in kept.snapshots()[:2]]
    for snapshot in gone:
        table(tmp_path).maintenance.expire_snapshots().by_id(snapshot).commit()
    later = source(tmp_path)
    with pytest.raises(InputError, match="are gone, and were not read"):
        read(later, after._replace(sequence=after.sequence + 1, whole=False, rows=0).position)
    assert sorted(read(source(tmp_path))) == rows(1, 2, 3)


def test_rows_that_are_changed_end_the_job(tmp_path: Path) -> None:
    append(tmp_path, 1, 2)
    given = source(tmp_path)
    last = SnapshotPlace.of(positions(given)[-1])
    table(tmp_path).delete("time = 1")
    later = source(tmp_path)
    with pytest.raises(InputError, match="has deleted or changed rows"):
        read(later, SnapshotPlace(last.sequence + 1, False, 0).position)
    assert read(source(tmp_path)) == rows(2)


def test_columns_have_to_fit(tmp_path: Path) -> None:
    class Other(NamedTuple):
        time: int
        missing: str

    append(tmp_path, 1)
    given = rs.io.iceberg("shop.rows", Other, catalog="tests", properties=settings(tmp_path))
    with pytest.raises(InputError, match="missing"):
        given.splits()
    renamed = source(tmp_path, columns={"word": "other"})
    with pytest.raises(InputError):
        read(renamed)
    with pytest.raises(ConfigError, match="is for a sink"):
        source(tmp_path, create=True)
    with pytest.raises(ConfigError, match="are of a source"):
        rs.io.iceberg("shop.rows", follow=True)  # type: ignore[call-overload]


def test_a_source_whose_processes_die_at_every_call(tmp_path: Path) -> None:
    for first in (0, 4, 8):
        append(tmp_path, *range(first, first + 4))
    rs.testing.check_source(lambda: source(tmp_path), examples=3)
