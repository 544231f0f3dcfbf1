"""Reading prepared data: positions, order, and what is wrong with a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import raystream as rs
from lrb.query.records import Row
from lrb.query.source import PreparedRows, look_through
from raystream.errors import InputError
from spark_ingest.layout import SLOTS, row_files, rows_folder, slot, split
from tests.lrb.rows import balance, report
from tests.lrb.running import answer, prepare

VID = 17
SPLIT = rs.Split(f"split-{split(VID):02d}")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One car, whose rows are in one split: two files, the first of four row groups."""
    rows = [report(t, VID, 2, feet=t, spd=t % 100) for t in range(0, 210, 30)]
    folder = prepare(tmp_path, [*rows, balance(200, VID, 5)])
    file = row_files(folder, split(VID))[0]
    table = pq.read_table(file)
    pq.write_table(table.slice(0, 5), file, row_group_size=2)
    pq.write_table(table.slice(5), file.with_name("00001.parquet"), row_group_size=2)
    return folder


def read(source: PreparedRows, position: int) -> list[tuple[int, list[Row]]]:
    return [(at, list(batch.records())) for at, batch in source.read(SPLIT, position)]


def test_rows_come_in_order_with_their_release(data: Path) -> None:
    batches = read(look_through(data).rows, 0)
    rows = [row for _, found in batches for row in found]
    assert [row.time for row in rows] == [0, 30, 60, 90, 120, 150, 180, 200]
    assert all(row.release == row.time * SLOTS + slot(VID) for row in rows)
    assert rows[-1].qid == 5
    assert rows[3].pos == 2 * 5280 + 90


def test_reading_from_a_position_gives_what_follows_it(data: Path) -> None:
    source = look_through(data).rows
    batches = read(source, 0)
    assert [at for at, _ in batches] == [1, 2, 3, 4, 5]
    for number in range(len(batches) + 1):
        assert read(source, number) == batches[number:]


def test_other_splits_have_nothing(data: Path) -> None:
    source = look_through(data).rows
    rows = {
        part.name: sum(len(rows) for _, rows in source.read(part, 0)) for part in source.splits()
    }
    assert rows == {f"split-{n:02d}": 8 * (n == split(VID)) for n in range(4)}


def test_a_file_that_vanishes_during_the_run_is_named(data: Path) -> None:
    source = look_through(data).rows
    batches = source.read(SPLIT, 0)
    next(batches)
    gone = row_files(data, split(VID))[1]
    gone.unlink()
    with pytest.raises(InputError, match=f"{gone} is gone"):
        list(batches)


@pytest.mark.parametrize("number", [0, 1])
def test_the_file_that_is_being_read_must_stay_as_it_is(number: int, data: Path) -> None:
    """It is open, so it could be read on; but not again, which a restart would have to do."""
    source = look_through(data).rows
    batches = source.read(SPLIT, 0)
    for _ in range((1, 5)[number]):  # within the first file, and after the last rows of the second
        next(batches)
    file = row_files(data, split(VID))[number]
    file.unlink()
    with pytest.raises(InputError, match=f"{file} is gone"):
        next(batches)
    file.write_bytes(b"other")
    with pytest.raises(InputError, match=f"{file} has changed"):
        list(source.read(SPLIT, 0))


def test_files_in_a_wrong_order_are_noticed(data: Path) -> None:
    first, second = row_files(data, split(VID))
    swap = first.with_name("swap")
    first.rename(swap)
    second.rename(first)
    swap.rename(second)
    with pytest.raises(InputError, match=r"00001.parquet is not in order of time and slot"):
        answer(data)


def break_column(file: Path, change: str) -> None:
    table = pq.read_table(file)
    if change == "missing":
        table = table.drop_columns("seg")
    else:
        at = table.schema.get_field_index("seg")
        table = table.set_column(at, "seg", table["seg"].cast("string"))
    pq.write_table(table, file)


@pytest.mark.parametrize(
    ("change", "said"),
    [("missing", "column seg is missing, not int16"), ("type", "column seg is string, not int16")],
)
def test_columns_that_are_not_as_declared_are_named(change: str, said: str, data: Path) -> None:
    break_column(row_files(data, split(VID))[1], change)
    with pytest.raises(InputError, match=f"00001.parquet: {said}"):
        look_through(data)


def test_missing_rows_are_noticed(data: Path) -> None:
    row_files(data, split(VID))[1].unlink()
    with pytest.raises(InputError, match=r"holds 5 rows, and its meta.json says 8"):
        look_through(data)


def test_a_file_that_is_no_parquet_is_named(data: Path) -> None:
    (rows_folder(data, split(VID)) / "00002.parquet").write_text("time,vid")
    with pytest.raises(InputError, match=r"00002.parquet cannot be read"):
        look_through(data)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"rows": {"0": 0, "2": 0, "3": 0, "4": 0}}, "has no rows"), ({"first": -1}, "at second -1")],
)
def test_no_rows_and_negative_times_are_refused(
    change: dict[str, Any], said: str, data: Path
) -> None:
    meta = data / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | change))
    with pytest.raises(InputError, match=said):
        look_through(data)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        look_through(tmp_path / "nowhere")


def test_the_order_of_files_is_that_of_their_names(data: Path) -> None:
    names = [part.path.name for part in look_through(data).rows.parts[split(VID)]]
    assert names == sorted(os.listdir(rows_folder(data, split(VID))))
