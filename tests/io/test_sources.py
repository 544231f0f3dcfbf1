"""What sources read, from every position; and that reading again reads the same."""

from __future__ import annotations

import gzip
import os
import pickle
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import ConfigError, InputError
from raystream.io.files import lines
from raystream.io.files.listing import InputWarning
from tests.io.kinds import PLAIN, RICH, Counted, Plain, Point, Rich, batch, records


class Word(NamedTuple):
    time: rs.Int64
    word: str


def ends(source: Any, position: int = 0) -> list[int]:
    return [end for end, _ in source.read(source.splits()[0], position)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("files.parquet", "files.csv", "memory"):
        monkeypatch.setattr(f"raystream.io.{module}.BATCH_ROWS", 7)
    monkeypatch.setattr("raystream.io.files.lines.CHUNK_BYTES", 40)


def numbers(rows: int) -> Any:
    return pa.table(
        {"n": pa.array(range(rows), pa.int32()), "key": range(rows), "more": ["x"] * rows}
    )


def parquet_file(folder: Path, rows: int) -> Any:
    pq.write_table(numbers(rows), folder / "rows.parquet", row_group_size=17)
    return rs.io.parquet(folder / "rows.parquet", Counted)


def csv_file(folder: Path, rows: int) -> Any:
    pyarrow.csv.write_csv(numbers(rows), folder / "rows.csv")
    return rs.io.csv(folder / "rows.csv", Counted)


def text_file(folder: Path, rows: int) -> Any:
    (folder / "rows.txt").write_text("".join(f"{i} {i}\n" for i in range(rows)))
    return rs.io.text(folder / "rows.txt", Counted, lambda line: Counted(*map(int, line.split())))


def json_file(folder: Path, rows: int) -> Any:
    lines = "".join(f'{{"key": {i}, "more": "x", "n": {i}}}\n' for i in range(rows))
    (folder / "rows.jsonl").write_text(lines)
    return rs.io.json(folder, Counted)


def collection(folder: Path, rows: int) -> Any:
    return rs.io.iterable([Counted(i, i) for i in range(rows)], Counted)


SOURCES = [parquet_file, csv_file, text_file, json_file, collection]


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_from_every_batch_end_the_rest_is_the_same(make: Any, rows: int, tmp_path: Path) -> None:
    source = make(tmp_path, rows)
    expected = [Counted(i, i) for i in range(rows)]
    assert records(source) == expected
    found = ends(source)
    assert len(found) > (rows > 7)
    for i, end in enumerate(found):
        rest = records(source, end)
        assert rest == expected[len(expected) - len(rest) :]
        assert ends(source, end) == found[i + 1 :]


@pytest.mark.parametrize("make", [parquet_file, csv_file, collection])
def test_a_position_is_a_row_number(make: Any, tmp_path: Path) -> None:
    source = make(tmp_path, 40)
    for position in range(41):
        assert records(source, position) == [Counted(i, i) for i in range(position, 40)]
    with pytest.raises(InputError, match="is not what it was"):
        records(source, 41)


@pytest.mark.parametrize("make", SOURCES)
def test_sources_say_what_they_read(make: Any, tmp_path: Path) -> None:
    source = make(tmp_path, 1)
    assert source.record is Counted
    with pytest.raises(AttributeError):
        source.record = Word  # frozen: it is shared between processes


def test_a_function_that_returns_one_iterator_is_refused() -> None:
    """Whoever planned the job had read it, and the job found nothing, without a word."""
    once = iter([Counted(1, 1)])
    with pytest.raises(ConfigError, match=r"read only once(.|\n)*returns a new iterator"):
        rs.io.iterable(lambda: once, Counted).splits()
    with pytest.raises(InputError, match=r"lambda> returned a NoneType(.|\n)*is a generator"):
        rs.io.iterable(lambda: None, Counted).splits()  # type: ignore[arg-type, return-value]
    rows = [Counted(1, 1)]
    assert records(rs.io.iterable(lambda: rows, Counted)) == rows
    assert records(rs.io.iterable(lambda: iter(rows), Counted)) == rows


def test_lines_are_no_records_by_themselves(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"how a line becomes a Counted(.|\n)*parse takes a line"):
        rs.io.text(tmp_path, Counted)  # type: ignore[call-overload]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_ends_lines_as_any_system_does(end: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f"key,n{end}1,2{end}3,4{end}".encode())
    assert records(rs.io.csv(tmp_path, Counted)) == [Counted(1, 2), Counted(3, 4)]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_a_header_alone_is_no_rows(end: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f"key,n{end}".encode())
    assert records(rs.io.csv(tmp_path, Counted)) == []
    (tmp_path / "a.csv").write_bytes(f"1,2{end}".encode())
    assert records(rs.io.csv(tmp_path / "a.csv", Counted, header=False)) == [Counted(1, 2)]


def test_files_are_splits_sorted_by_name(tmp_path: Path) -> None:
    for i in (2, 10, 1):
        pq.write_table(numbers(i), tmp_path / f"{i:02d}.parquet")
    for name in ("_SUCCESS.parquet", ".tmp.parquet"):
        (tmp_path / name).write_bytes(b"no data")
    names = [str(tmp_path / f"{i:02d}.parquet") for i in (1, 2, 10)]
    assert [s.name for s in rs.io.parquet(tmp_path / "[0-9]*.parquet", Counted).splits()] == names
    assert [s.name for s in rs.io.parquet(tmp_path, Counted).splits()] == names
    assert len(records(rs.io.parquet(tmp_path, Counted), split=2)) == 10


def test_a_name_that_reads_like_a_pattern_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("one\n")
    assert records(rs.io.text(tmp_path / "a[1].txt")) == [rs.io.Line(0, "one")]


def test_paths_mean_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = parquet_file(Path(), 3)
    monkeypatch.chdir(os.sep)
    assert records(pickle.loads(pickle.dumps(source))) == [Counted(i, i) for i in range(3)]


@given(st.lists(PLAIN, max_size=20))
def test_csv_holds_what_it_was_given(rows: list[Plain]) -> None:
    assert through_file("csv", Plain, rows) == rows


@given(st.lists(PLAIN, max_size=20))
def test_parquet_holds_what_it_was_given(rows: list[Plain]) -> None:
    assert through_file("parquet", Plain, rows) == rows


@given(st.lists(PLAIN, max_size=20))
def test_json_holds_what_it_was_given(rows: list[Plain]) -> None:
    assert through_file("json", Plain, rows) == rows


@pytest.mark.parametrize("kind", ["parquet", "json"])
@given(rows=st.lists(RICH, max_size=10))
def test_parquet_and_json_hold_nested_values(kind: str, rows: list[Rich]) -> None:
    found = through_file(kind, Rich, rows)
    assert found == rows
    assert [list(map(type, r)) for r in found] == [list(map(type, r)) for r in rows]


def through_file(kind: str, record: type, rows: list[Any]) -> list[Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        sink = getattr(rs.io, kind)(folder)
        sink.open(rs.SinkContext("run", "sink", rs.KeyRange(0, 256), None, 0.0, None))
        sink.write(1, rs.KeyRange(0, 256), batch(record, rows))
        sink.commit(1)
        sink.close()
        return [r for b in rs.io.read_parts(folder, record) for r in b.records()]


def test_csv_may_be_packed_and_without_header(tmp_path: Path) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"1,2\n3,4\n"))
    assert records(rs.io.csv(tmp_path / "rows.csv.gz", Counted, header=False)) == [(1, 2), (3, 4)]


def test_csv_finds_columns_by_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b'\xef\xbb\xbfn,x,key\r\n1,"a\nb",2\r\n\r\n3,,4\r\n')
    assert records(rs.io.csv(tmp_path, Counted)) == [Counted(2, 1), Counted(4, 3)]


def test_an_empty_cell_is_empty_text_where_none_is_not_declared(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('time,word\n1,\n2,""\n')
    assert records(rs.io.csv(tmp_path, Word)) == [Word(1, ""), Word(2, "")]


def test_parquet_reads_text_in_every_encoding_of_arrow(tmp_path: Path) -> None:
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    for i, kind in enumerate(kinds):
        pq.write_table(
            pa.table({"time": [1, 2], "word": pa.array(["a", "b"], kind)}),
            tmp_path / f"{i}.parquet",
        )
        assert records(rs.io.parquet(tmp_path, Word), split=i) == [Word(1, "a"), Word(2, "b")]


class Ride(NamedTuple):
    time: rs.Int64
    stops: dict[int, list[Point]]
    fare: float
    note: str | None
    seats: int = 1
    tips: list[float] | None = None


def test_json_of_others(tmp_path: Path) -> None:
    """Names in any order, some too many and some missing, numbers as other programs write them."""
    (tmp_path / "a.ndjson.gz").write_bytes(
        gzip.compress(
            b'\xef\xbb\xbf{"stops": {"7": [{"x": 1, "label": "a"}, {"x": 2.0}]}, "time": 3.0,'
            b' "fare": 4}\r\n\n  \n{"time": 5, "fare": 1e3, "stops": {}, "note": "n", "seats": 2,'
            b' "tips": [1], "who": {}}'
        )
    )
    found = records(rs.io.json(tmp_path, Ride))
    assert found == [
        Ride(3, {7: [Point(1, "a"), Point(2, None)]}, 4.0, None, 1),
        Ride(5, {}, 1000.0, "n", 2, [1.0]),
    ]
    assert type(found[1].tips[0]) is float


def test_text_may_have_no_lines(tmp_path: Path) -> None:
    """A log in which nothing has been written yet."""
    (tmp_path / "a.log").write_text("")
    assert records(rs.io.text(tmp_path)) == []
    (tmp_path / "b.log").write_text("one\n")
    assert records(rs.io.text(tmp_path), split=1) == [rs.io.Line(0, "one")]


def test_text_ends_lines_as_any_system_does(tmp_path: Path) -> None:
    data = "eins\r\nzwei\n\nvierß".encode()
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(data))
    source = rs.io.text(tmp_path / "*.txt*")
    for split in (0, 1):
        assert [r.text for r in records(source, split=split)] == ["eins", "zwei", "", "vierß"]


def test_lines_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions count their bytes, and places their lines, all the same."""
    monkeypatch.setattr(lines, "CHUNK_BYTES", 4)
    (tmp_path / "rows.txt").write_text("1 1\n\n\n\n\n\n2 4\n\nx\n")

    def parsed(line: str) -> Counted | None:
        return Counted(*map(int, line.split())) if line else None

    source = rs.io.text(tmp_path / "rows.txt", Counted, parsed)
    (split,) = source.splits()
    found = []
    with pytest.raises(InputError, match=r"rows\.txt, line 9: ValueError"):
        found.extend((at, list(b.records())) for at, b in source.read(split, 0))
    assert [r for _, rows in found for r in rows] == [Counted(1, 1), Counted(2, 4)]
    for n, (at, _) in enumerate(found[:-1]):
        assert next(source.read(split, at))[0] == found[n + 1][0]


def test_iterables_are_dealt_out_over_splits() -> None:
    rows = [Counted(i, 0) for i in range(20)]
    for given_rows in (rows, lambda: iter(rows)):
        source = rs.io.iterable(given_rows, Counted, splits=3)
        parts = [records(source, split=i) for i in range(3)]
        assert sorted(r for part in parts for r in part) == rows
        assert parts[1] == rows[1::3]
        assert records(source, 2, 1) == parts[1][2:]


def test_what_can_be_read_once_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"only once(.|\n)*returns a new iterator"):
        rs.io.iterable((Counted(i, i) for i in range(3)), Counted)
    with pytest.raises(ConfigError, match="at least 1"):
        rs.io.iterable([], Counted, splits=0)


def test_a_set_has_no_order_to_be_read_again_in() -> None:
    with pytest.raises(ConfigError, match=r"a set(.|\n)*sorted"):
        rs.io.iterable({Word(0, "a"), Word(1, "b")}, Word)


def test_markers_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "part.jsonl").write_text('{"key": 1, "n": 2}\n')
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "_manifest-1-00000-00256.json").write_text('{"run": "1"}\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records(rs.io.json(tmp_path / "*", Counted)) == [Counted(1, 2)]
        assert records(rs.io.json(tmp_path / "**", Counted)) == [Counted(1, 2)]


def test_what_a_pattern_leaves_out_is_named(tmp_path: Path) -> None:
    for name in ("a", "_b"):
        (tmp_path / f"{name}.csv").write_text("key,n\n1,2\n")
    with pytest.warns(InputWarning, match=r"1 of 2 files(.|\n)*_b\.csv(.|\n)*so, too: .*/_\*"):
        assert records(rs.io.csv(tmp_path / "*.csv", Counted)) == [Counted(1, 2)]
    assert records(rs.io.csv(tmp_path / "_*.csv", Counted)) == [Counted(1, 2)]
    assert records(rs.io.csv(tmp_path / "_b.csv", Counted)) == [Counted(1, 2)]


def test_a_pattern_that_finds_only_markers(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(InputError, match=r"finds only files whose names begin with _(.|\n)*/_\*"):
        rs.io.csv(tmp_path / "*", Counted).splits()
