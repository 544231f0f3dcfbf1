"""Cutting, sorting and counting rows, without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raystream.errors import ConfigError
from spark_ingest import layout, store
from spark_ingest.published.rules import repeated_rows
from spark_ingest.spark import shuffle
from spark_ingest.tables import rows_table

ROWS = st.lists(
    st.tuples(
        st.sampled_from(layout.TYPES),
        st.one_of(st.integers(0, 200), st.just(5_000)),
        st.one_of(st.integers(0, 30), st.integers(0, 2**31 - 2)),
        st.integers(-1, 3),
    ),
    min_size=1,
    max_size=60,
)


def table(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    kind, time, vid, qid = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return rows_table({"type": kind, "time": time, "vid": vid, "qid": qid})


@given(ROWS)
def test_rows_are_sorted_by_the_order_of_the_layout(rows: list[tuple[int, int, int, int]]) -> None:
    keys = [list(layout.ORDER), [(name, "ascending") for name in layout.ORDER]]
    assert store.sort(table(rows)).select(keys[0]) == table(rows).sort_by(keys[1]).select(keys[0])


@given(ROWS)
def test_equal_rows_are_sorted_by_line(rows: list[tuple[int, int, int, int]]) -> None:
    twice = table(rows + rows)
    twice = twice.append_column("line", pa.array(range(twice.num_rows)[::-1]))
    found = store.sort(twice)
    keys = found.select(list(layout.ORDER)).to_pylist()
    lines = found["line"].to_pylist()
    for index in range(1, len(keys)):
        if keys[index] == keys[index - 1]:
            assert lines[index] > lines[index - 1]


@given(ROWS, st.integers(1, 59))
def test_counts_of_parts_add_up(rows: list[tuple[int, int, int, int]], cut: int) -> None:
    whole = table(rows)
    pieces = [whole.slice(begin, cut) for begin in range(0, whole.num_rows, cut)]
    counted = [store.Tally.decode(store.tally(piece).encode()) for piece in pieces]
    assert store.merge(counted) == store.tally(whole)
    total = store.tally(whole)
    assert sum(total.per_second) == sum(total.rows) == len(rows)
    assert total.vehicles == max(row[2] for row in rows) + 1
    assert total.last == max(row[1] for row in rows)


@given(st.lists(st.integers(0, 100), max_size=50), st.integers(1, 8), st.integers(1, 50))
def test_parts_cover_time_and_keep_their_limit(
    per_minute: list[int], splits: int, rows_max: int
) -> None:
    parts = shuffle.Parts.cut(per_minute, splits, rows_max)
    assert parts.begins[0] == 0
    assert list(parts.begins) == sorted(set(parts.begins))
    ends = [*parts.begins[1:], 60 * max(len(per_minute), 1)]
    for begin, end in zip(parts.begins, ends, strict=True):
        assert begin % 60 == 0
        minutes = per_minute[begin // 60 : end // 60]
        occupied = [count for count in minutes if count]
        assert sum(minutes) <= rows_max * splits or len(occupied) == 1


@given(ROWS, st.lists(st.integers(1, 100), max_size=4), st.integers(1, 5))
@settings(deadline=None)
def test_cells_hold_every_row_once_and_where_it_belongs(
    rows: list[tuple[int, int, int, int]], begins: list[int], splits: int
) -> None:
    parts = shuffle.Parts((0, *sorted({60 * begin for begin in begins})), splits)
    whole = table(rows)
    time, vid = (whole[name].to_numpy().astype(np.int64) for name in ("time", "vid"))
    found = list(shuffle.cells(whole, parts.number(time, layout.split(vid, splits))))
    assert len(found) == len({cell["part"][0].as_py() for cell in found})
    back = []
    for cell in found:
        span, split = parts.span_and_split(cell["part"][0].as_py())
        rows_back = pa.ipc.open_stream(cell["rows"][0].as_buffer()).read_all()
        for row in rows_back.to_pylist():
            assert layout.split(row["vid"], splits) == split
            assert parts.begins[span] <= row["time"]
            assert span == len(parts.begins) - 1 or row["time"] < parts.begins[span + 1]
        back += rows_back.to_pylist()
    assert sorted(map(str, back)) == sorted(map(str, whole.to_pylist()))


def reports(*rows: tuple[int, int, int, int]) -> pa.Table:
    """Sorted reports from (time, vid, seg, pos); lines are numbered as they are given."""
    time, vid, seg, pos = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    zero = np.zeros(len(rows), dtype=np.int64)
    columns = {"type": zero, "time": time, "vid": vid, "seg": seg, "pos": pos, "xway": zero}
    made = rows_table(columns).append_column("line", pa.array(range(len(rows))))
    return store.sort(made)


def repeated(rows: pa.Table) -> dict[int, str]:
    """{line: reason} of the repeated rows."""
    found = repeated_rows(rows, lambda line: f"f:{line + 1}")
    return {rows["line"][index].as_py(): reason for index, reason in found.items()}


def test_a_row_that_was_there_before_is_bad() -> None:
    rows = reports((5, 1, 8, 100), (6, 1, 8, 200), (5, 1, 8, 100), (5, 2, 8, 100), (5, 1, 8, 100))
    assert repeated(rows) == {2: "the same row is at f:1", 4: "the same row is at f:1"}


def test_a_second_report_in_a_second_is_bad() -> None:
    rows = reports((5, 1, 8, 100), (5, 1, 9, 200), (35, 1, 9, 300))
    assert repeated(rows) == {1: "vehicle 1 reports twice in second 5, first at f:1"}


def test_a_third_report_from_a_segment_in_a_minute_is_bad() -> None:
    rows = reports((60, 1, 8, 1), (75, 1, 8, 2), (90, 1, 8, 3), (110, 1, 9, 4), (119, 1, 8, 5))
    reason = "vehicle 1 reports more than twice from segment 8 in minute 2"
    assert repeated(rows) == {2: reason, 4: reason}
    spread_out = reports(
        (60, 1, 8, 1), (75, 1, 8, 2), (90, 1, 9, 3), (119, 1, 9, 4), (120, 1, 9, 5)
    )
    assert repeated(spread_out) == {}


def test_a_fifth_segment_in_a_minute_is_bad() -> None:
    driven = [(60 + 10 * n, 1, seg, n) for n, seg in enumerate((5, 6, 7, 8, 9, 8))]
    reason = "vehicle 1 reports from more than 4 segments in minute 2"
    assert repeated(reports(*driven)) == {4: reason}
    assert repeated(reports(*driven[:4], (120, 1, 9, 4))) == {}


def test_requests_repeat_only_if_all_of_them_is_the_same() -> None:
    kind, time, vid = np.full(4, 3), np.full(4, 9), np.full(4, 1)
    qid, day = np.array([7, 7, 7, 8]), np.array([1, 2, 1, 1])
    columns = {"type": kind, "time": time, "vid": vid, "qid": qid, "day": day}
    rows = rows_table(columns).append_column("line", pa.array(range(4)))
    assert repeated(store.sort(rows)) == {2: "the same row is at f:1"}


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"thesis\.tex in it is not prepared data"):
        store.reserve(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("name", ["history/historical-tolls.out", "rows/split-00/notes.txt"])
def test_other_things_below_a_folder_of_our_name_are_left_alone(tmp_path: Path, name: str) -> None:
    store.write_rows(tmp_path, 0, 0, table([(0, 3, 4, -1)]))
    path = tmp_path / "history" / "00000.new-7"  # a killed task's
    path.parent.mkdir()
    path.touch()
    store.reserve(tmp_path)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(ConfigError, match=rf"{name} in it is not prepared data"):
        store.reserve(tmp_path)


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written to: Not a directory"):
        store.reserve(tmp_path / "file" / "data")


def test_what_was_prepared_before_is_replaced_and_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        store.reserve(tmp_path)
        with store.cleared(tmp_path) as data:
            assert not list(data.rglob("*.parquet"))
            store.write_rows(data, 0, 1, table([(0, 3, 4, -1)]))

    write()
    write()
    assert len(layout.row_files(tmp_path, 1)) == 1
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_at_once_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with store.cleared(tmp_path) as data:
        store.write_rows(data, 0, 1, table([(0, 3, 4, -1)]))
        with pytest.raises(ConfigError, match="Another process is writing to"):
            _write_and_fail(tmp_path)
    assert len(layout.row_files(tmp_path, 1)) == 1
    with store.cleared(tmp_path):
        assert not layout.row_files(tmp_path, 1)


def _write_and_fail(folder: Path) -> None:
    with store.cleared(folder) as data:
        store.write_rows(data, 0, 1, table([(0, 3, 4, -1)]))
        raise ZeroDivisionError
