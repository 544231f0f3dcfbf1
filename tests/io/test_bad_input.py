"""Whatever is wrong with the input: one `InputError` that names the file and the place."""

from __future__ import annotations

import gzip
import json
import os
import stat
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError
from tests.io.kinds import Counted, Lane, Point, records


class Small(NamedTuple):
    time: rs.Int64
    n: rs.Int8


class Whole(NamedTuple):
    time: rs.Int64
    n: int | None


class Hued(NamedTuple):
    time: rs.Int64
    hue: Literal["red", "blue"]


class Named(NamedTuple):
    time: rs.Int64
    name: str


class Laned(NamedTuple):
    time: rs.Int64
    lane: Lane


class Listed(NamedTuple):
    time: rs.Int64
    items: list[int]


class Lanes(NamedTuple):
    time: rs.Int64
    lanes: list[Lane]


class Placed(NamedTuple):
    time: rs.Int64
    at: Point


def fails(source: Any, *words: str) -> None:
    """Reading ends with an `InputError` that has these words, and nothing that is Arrow's."""
    with pytest.raises(InputError) as caught:
        records(source)
    for word in words:
        assert word in str(caught.value)
    assert "pyarrow" not in str(caught.value)


CSV = [
    ("a row too short", b"time,n\n1,2\n3\n", ["line 3", "Expected 2 columns, got 1"]),
    ("a row too long", b"time,n\n1,2\n\n3,4,5\n", ["line 4", "got 3"]),
    ("no number", b'time,n\n1,2\n"3",x\n', ["line 3", "'n' is 'x'", "int8"]),
    ("too large", b"time,n\n1,300\n", ["line 2", "'n' is '300'", "int8"]),
    ("no value", b"time,n\n1,2\n\n,3\n", ["line 4", "'time' is missing", "| None"]),
    ("no column", b"time,m\n1,2\n", ["no column 'n'", "It has time, m"]),
    ("a column twice", b"time,n,n\n1,2,3\n", ["line 1", "'n' is there twice"]),
    ("an open quote", b'time,n\n1,2\n3,"4\n5,6\n', ["line 3"]),
    ("an open quote in what is not read", b'time,n,x\n1,2,a\n3,4,"b\n', ["line 3", "quote"]),
    ("empty", b"", ["is empty"]),
    (
        "after values with line breaks",
        b'time,n,x\n1,2,"a\nb\nc"\n\n3,x,y\n',
        ["line 6", "'n' is 'x'"],
    ),
]


@pytest.mark.parametrize(("data", "words"), [c[1:] for c in CSV], ids=[c[0] for c in CSV])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("delimiter", [",", "\t"], ids=["comma", "tab"])
def test_csv(data: bytes, words: list[str], packed: bool, delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    data = data.replace(b",", delimiter.encode())
    path.write_bytes(gzip.compress(data) if packed else data)
    fails(rs.io.csv(path, Small, delimiter=delimiter), str(path), *words)


def test_csv_far_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raystream.io.files.csv.BLOCK_BYTES", 1000)
    lines = ["time,n,x", *(f"{i},1,a" for i in range(2000))]
    lines[1500] = "7,seven,a"
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    fails(rs.io.csv(tmp_path, Small), "line 1501", "'seven'")
    lines[1500] = '7,1,"' + "x" * 2000
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    fails(rs.io.csv(tmp_path, Small), "line 1501", "quote")


def test_csv_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,name\n1,a\n2,\xff\n")
    fails(rs.io.csv(tmp_path / "a.csv", Named), "line 3", "'name' is not UTF-8 text")
    (tmp_path / "b.csv").write_bytes(b"time,\xff\n1,a\n")
    fails(rs.io.csv(tmp_path / "b.csv", Named), "line 1", "UTF-8")


def test_packed_files_that_are_not(tmp_path: Path) -> None:
    packed = gzip.compress(b"time,n\n" + b"1,2\n" * 5000)
    (tmp_path / "cut.csv.gz").write_bytes(packed[:-20])
    fails(rs.io.csv(tmp_path / "cut.csv.gz", Small), "cut")
    (tmp_path / "archive.csv.zip").write_bytes(b"PK\x03\x04")
    fails(rs.io.csv(tmp_path / "archive.csv.zip", Small), "is a zip archive", "Unpack it")
    (tmp_path / "cut.txt.gz").write_bytes(packed[:-20])
    fails(rs.io.text(tmp_path / "cut.txt.gz"), "cut")


def test_csv_cannot_hold_lists(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,items\n1,2\n")
    fails(rs.io.csv(tmp_path, Listed), "items", "Parquet")


class Nested(NamedTuple):
    time: rs.Int64
    lane: Lane
    data: bytes
    items: list[int]
    marks: dict[int, bool]
    pair: tuple[int, str]
    inner: Small


class Real(NamedTuple):
    time: rs.Int64
    x: list[float]


NESTED = {
    "time": 1,
    "lane": 4,
    "data": "YQ==",
    "items": [1],
    "marks": {"7": True},
    "pair": [1, "a"],
    "inner": {"time": 1, "n": 2},
}
JSON: list[tuple[str, type, str, list[str]]] = [
    ("no JSON", Small, '{"time": 1, "n"', ["no JSON", "JSON Lines have an object on each line"]),
    ("far too deep", Small, "[" * 100_000, ["no JSON"]),
    ("an array", Small, '[{"time": 1, "n": 1}]', ["no JSON object"]),
    ("missing", Small, '{"time": 1}', ["'n' is missing", "Small.n a default"]),
    ("null", Small, '{"time": 1, "n": null}', ["'n' is None", "n: int8"]),
    ("text for a number", Small, '{"time": 1, "n": "2"}', ["'n' is '2'", "n: int8"]),
    ("a fraction", Small, '{"time": 1, "n": 2.5}', ["'n' is 2.5", "n: int8"]),
    ("no number", Small, '{"time": 1, "n": NaN}', ["'n' is nan", "n: int8"]),
    ("truth for a number", Small, '{"time": 1, "n": true}', ["'n' is True", "n: int8"]),
    ("too large", Small, '{"time": 1, "n": 300}', ["300", "int8"]),
    ("far too large", Small, f'{{"time": 1, "n": {10**30}}}', [str(10**30), "int8"]),
    ("number for text", Named, '{"time": 1, "name": 1}', ["'name' is 1", "name: str"]),
    ("half of a pair", Named, '{"time": 1, "name": "\\ud800"}', ["is no text that can be stored"]),
    ("no base64", Nested, json.dumps({**NESTED, "data": "Y"}), ["'data' is 'Y'", "bytes"]),
    ("not even text", Nested, json.dumps({**NESTED, "data": "é"}), ["'data' is 'é'", "bytes"]),
    ("no member", Nested, json.dumps({**NESTED, "lane": 7}), ["'lane': 7 is not a valid Lane"]),
    (
        "twice",
        Nested,
        json.dumps({**NESTED, "marks": {"1": True, "1.0": True}}),
        ["'marks' is {", "dict[int, bool]"],
    ),
    ("far too wide", Real, f'{{"time": 1, "x": [{10**400}]}}', ["'x[0]' is 1000", "item: float64"]),
    ("in a list", Nested, json.dumps({**NESTED, "items": [1, "2"]}), ["'items[1]' is '2'"]),
    ("of a dict", Nested, json.dumps({**NESTED, "marks": {"a": True}}), ["'marks' is 'a'"]),
    ("in a dict", Nested, json.dumps({**NESTED, "marks": {"7": 1}}), ["\"marks['7']\" is 1"]),
    ("a pair of three", Nested, json.dumps({**NESTED, "pair": [1, "a", 2]}), ["'pair' is"]),
    ("in a record", Nested, json.dumps({**NESTED, "inner": {"n": 1}}), ["'inner.time' is missing"]),
]


@pytest.mark.parametrize(
    ("record", "line", "words"), [c[1:] for c in JSON], ids=[c[0] for c in JSON]
)
def test_json(record: type, line: str, words: list[str], tmp_path: Path) -> None:
    good = '{"time": 1, "n": 1, "name": "a", "x": [1], ' + json.dumps(NESTED)[1:]
    assert good.count("time") == 3, "the last of equal names counts, so it is good for all"
    (tmp_path / "a.jsonl").write_text(f"{good}\n\n{line}\n{good}\n")
    fails(rs.io.json(tmp_path, record), "a.jsonl, line 3: ", *words)


def test_the_first_line_of_json_is_far_too_deep(tmp_path: Path) -> None:
    deep = '{"time": 1, "n": 1, "x": ' + "[" * 5_000 + "]" * 5_000 + "}"
    (tmp_path / "a.jsonl").write_text(f"{deep}\n")
    fails(rs.io.json(tmp_path, Small), "a.jsonl, line 1: no JSON: maximum recursion")


def table(**columns: Any) -> Any:
    return pa.table({"time": pa.array([1, 2, 3], pa.int64()), **columns})


PARQUET: list[tuple[str, type, Any, list[str]]] = [
    ("no column", Small, table(m=[1, 2, 3]), ["no column 'n'", "It has time, m"]),
    ("text for a number", Small, table(n=["1", "2", "3"]), ["'n' holds string", "n: int8"]),
    ("a fraction for a number", Small, table(n=[1.0, 2.5, 3.0]), ["row 1", "'n' is 2.5", "int8"]),
    ("a float too large", Small, table(n=[1.0, 2.0, 300.0]), ["row 2", "'n' is 300", "int8"]),
    ("no number for a number", Small, table(n=[float("nan"), 2.0, 3.0]), ["row 0", "'n' is nan"]),
    ("a gap among floats", Small, table(n=[1.0, None, 3.0]), ["row 1", "'n' is missing"]),
    ("half a float too large", Whole, table(n=[1.0, 2.0**63, 3.0]), ["row 1", "int64"]),
    ("a time for a number", Small, table(n=pa.array([1, 2, 3], pa.timestamp("s"))), ["timestamp"]),
    ("too large", Small, table(n=[1, 2, 300]), ["row 2", "'n' is 300", "int8"]),
    ("far too large", Small, table(n=pa.array([1, 2**63, 3], pa.uint64())), ["row 1", str(2**63)]),
    ("missing", Small, table(n=[1, None, 3]), ["row 1", "'n' is missing"]),
    ("missing text", Named, table(name=["a", "b", None]), ["row 2", "'name' is missing"]),
    ("missing list", Listed, table(items=[[1], None, [2]]), ["row 1", "'items' is missing"]),
    ("nothing but None", Small, table(n=pa.nulls(3)), ["'n' holds null"]),
    ("number for text", Named, table(name=[1, 2, 3]), ["'name' holds int64", "str"]),
    ("no member", Laned, table(lane=[1, 4, 7]), ["row 2", "'lane' is 7", ".Lane"]),
    (
        "other items",
        Listed,
        table(items=[[1.5]] * 3),
        ["'items' holds list", "double", "list[int]"],
    ),
    ("None for an item", Listed, table(items=[[1], [], [None]]), ["row 2", "[None] does not fit"]),
    ("no member within", Lanes, table(lanes=[[1], [7], []]), ["row 1", "7 is not a valid Lane"]),
    ("half a point", Placed, table(at=[{"x": 1}] * 3), ["'at' holds struct<x: int64>", "Point"]),
    (
        "None in a point",
        Placed,
        table(at=[{"x": None, "label": ""}] * 3),
        ["row 0", "Point(x=None"],
    ),
    ("not a list", Listed, table(items=[1, 2, 3]), ["'items' holds int64"]),
    (
        "bytes that are no text",
        Named,
        table(name=pa.array([b"a", b"\xff", b"c"]).view(pa.string())),
        ["row 1", r"b'\xff'"],
    ),
]


@pytest.mark.parametrize(
    ("record", "rows", "words"), [c[1:] for c in PARQUET], ids=[c[0] for c in PARQUET]
)
def test_parquet(record: type, rows: Any, words: list[str], tmp_path: Path) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    fails(rs.io.parquet(tmp_path, record), "rows.parquet", *words)


def test_whole_numbers_may_be_floats_in_parquet(tmp_path: Path) -> None:
    """As in CSV and JSON: pandas makes floats of ints with gaps."""
    for n, held in enumerate((pa.float64(), pa.float32(), pa.float16())):
        values = pa.array([1, None, -3]).cast(held)
        pq.write_table(table(n=values), tmp_path / f"{n}.parquet")
        found = records(rs.io.parquet(tmp_path / f"{n}.parquet", Whole))
        assert found == [Whole(1, 1), Whole(2, None), Whole(3, -3)]
        assert {type(r.n) for r in found} == {int, type(None)}
    pq.write_table(table(n=[2.0**53, -(2.0**63), 0.0]), tmp_path / "wide.parquet")
    wide = records(rs.io.parquet(tmp_path / "wide.parquet", Whole))
    assert [r.n for r in wide] == [2**53, -(2**63), 0]


def test_another_delimiter_is_told(tmp_path: Path) -> None:
    for mark in ";\t|":
        (tmp_path / "a.csv").write_text(f"Time{mark} n\n1{mark}2\n")
        fails(rs.io.csv(tmp_path / "a.csv", Small), "no column 'time'", f"delimiter={mark!r}")


def test_text_that_is_no_member_is_shown_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,hue\n1,green\n")
    fails(rs.io.csv(tmp_path / "a.csv", Hued), "'hue' is 'green'", "one of 'red', 'blue'")


def test_what_to_do_about_an_empty_file(tmp_path: Path) -> None:
    for name, read in (("a.csv", rs.io.csv), ("a.parquet", rs.io.parquet)):
        (tmp_path / name).touch()
        fails(read(tmp_path / name, Small), f"{name} is empty", "Remove it")


def test_rows_that_are_no_records_yet() -> None:
    for row, how in (({"time": 1, "n": 2}, "Small(**row)"), ((1, 2), "Small(*row)")):
        fails(rs.io.iterable([row], Small), "not a Small", how)  # type: ignore[list-item]


def test_a_row_is_counted_from_the_begin_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.files.parquet.BATCH_ROWS", 10)
    values = [0] * 95 + [1000]
    rows = pa.table({"time": values, "n": values})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=30)
    source = rs.io.parquet(tmp_path, Small)
    fails(source, "row 95")
    with pytest.raises(InputError, match="row 95"):
        list(source.read(source.splits()[0], 93))


def test_parquet_that_is_not(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(table(n=[1, 2, 3]), whole)
    cut = whole.read_bytes()[:-10]
    for name, data in (("text", b"time,n\n1,2\n"), ("cut", cut), ("empty", b"")):
        (tmp_path / f"{name}.parquet").write_bytes(data)
        fails(rs.io.parquet(tmp_path / f"{name}.parquet", Small), name)


KINDS: list[Any] = [lambda p: rs.io.parquet(p, Small), lambda p: rs.io.csv(p, Small), rs.io.text]


@pytest.mark.parametrize("make", KINDS)
def test_no_file(make: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("nothing.csv", "no*.csv", "folder", "folder/*"):
        fails(make(tmp_path / name), "There is no", name)
    fails(make(tmp_path / "folder"), f"by a pattern: {tmp_path / 'folder' / '*'}")


@pytest.mark.parametrize("make", KINDS)
def test_a_file_that_vanishes_or_is_barred(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(table(n=[1, 2, 3]), path)
    if make is not KINDS[0]:
        path.write_text("time,n\n1,2\n")
    source = make(path)
    split = source.splits()[0]
    path.unlink()
    with pytest.raises(InputError, match="no longer there"):
        next(source.read(split, 0))
    path.mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        next(source.read(split, 0))


def rows_of(kind: int, path: Path, number: int) -> Any:
    """A source of so many rows."""
    if kind == 0:
        pq.write_table(pa.table({"time": [0] * number, "n": [1] * number}), path)
    elif kind == 3:
        return rs.io.iterable([Small(0, n) for n in range(number)], Small, splits=2)
    else:
        path.write_text("time,n\n" + "0,1\n" * number)
    return KINDS[kind](path)


@pytest.mark.parametrize("kind", range(4))
def test_a_source_that_has_less_than_was_read_of_it(kind: int, tmp_path: Path) -> None:
    """Else a job that goes on would be at its end at once, and say nothing."""
    source = rows_of(kind, tmp_path / "a.csv", 9)
    split = source.splits()[0]
    *_, (end, _) = source.read(split, 0)
    assert list(source.read(split, end)) == []
    source = rows_of(kind, tmp_path / "a.csv", 4)
    with pytest.raises(InputError, match=f"is not what it was: it was read up to position {end}"):
        list(source.read(split, end))


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_a_last_line_that_goes_on(opened: Any, tmp_path: Path) -> None:
    """What was read of a file that was still being written would become two lines."""
    path = tmp_path / f"a.txt{'.gz' if opened is gzip.open else ''}"
    with opened(path, "wb") as file:
        file.write(b"one\ntw")
    source = rs.io.text(path)
    *_, (end, batch) = source.read(source.splits()[0], 0)
    assert [r.text for r in batch.records()] == ["one", "tw"]
    with opened(path, "ab") as file:
        file.write(b"o\nthree\n")
    with pytest.raises(InputError, match="continues with something else"):
        list(source.read(source.splits()[0], end))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,n\n1,2\n")
    path.chmod(stat.S_IWUSR)
    fails(rs.io.csv(path, Small), "Permission denied")


def test_text_lines_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raystream.io.files.lines.CHUNK_BYTES", 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"1 1\n" * 50 + b"\xff\n")
    fails(rs.io.text(path), "line 51", "UTF-8")
    path.write_text("1 1\n" * 50 + "2 two\n")
    fails(
        rs.io.text(path, Counted, lambda s: Counted(*map(int, s.split()))),
        "line 51",
        "ValueError",
        "'2 two'",
    )
    fails(rs.io.text(path, Counted, lambda s: Small(1, 1)), "line 1", "a Small, not a Counted")  # type: ignore[arg-type, return-value]
    fails(rs.io.text(path, Small, lambda s: Small(1, len(s) * 30)), "line 51", "150 does not fit")


def test_iterables_are_checked() -> None:
    fails(rs.io.iterable([Small(1, 1), Small(1, 200)], Small), "record 1", "200 does not fit")
    fails(rs.io.iterable([Small(1, 1), (1, 2)], Small), "record 1", "a tuple, not a Small")  # type: ignore[list-item]
    fails(rs.io.iterable([Small(1, 1), Small(1, None)], Small), "record 1")  # type: ignore[arg-type]
    fails(rs.io.iterable([Small(0, 0)] * 9 + [Small(1, "a")], Small), "record 9", "'a'")  # type: ignore[arg-type]


def test_a_table_in_the_place_of_records_is_told_what_to_pass() -> None:
    table: Any = pa.table({"time": [1]})
    with pytest.raises(ConfigError, match="given a Table: that is a table") as told:
        rs.io.iterable(table, Small)
    assert "[Small(**row) for row in table.to_pylist()]" in str(told.value)
