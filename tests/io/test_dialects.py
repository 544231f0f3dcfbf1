"""CSV as people write it, and JSON that is not an object on each line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import ConfigError, InputError
from tests.io.test_found_files import read


class Row(NamedTuple):
    time: int
    name: str
    v: float | None


class Paid(NamedTuple):
    time: int
    price: Annotated[Decimal, rs.decimal(9, 3)] | None
    wait: timedelta
    at: Annotated[datetime, rs.timestamp(unit="ms")]


class Maybe(NamedTuple):
    time: int
    name: str | None
    v: float | None
    flag: bool | None


def rows(data: bytes | str, tmp_path: Path, record: Any = Row, **options: Any) -> list[Any]:
    path = tmp_path / "a.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return [tuple(r) for r in read(rs.io.csv(path, record, **options))]


READ: list[Any] = [
    ("a plus", "time,name,v\n+7,a,+1.5\n", {}, [(7, "a", 1.5)]),
    ("an int with a point", "time,name,v\n7.0,a,1\n8.,b,2\n", {}, [(7, "a", 1.0), (8, "b", 2.0)]),
    ("the end of a DOS file", b"time,name,v\n1,a,1\n\x1a", {}, [(1, "a", 1.0)]),
    ("a DOS end behind a header", b"time,name,v\n\x1a", {}, []),
    ("spaces after commas", "time, name, v\n1, a, 1\n", {}, [(1, " a", 1.0)]),
    ("trimmed", "time, name, v\n1, a , 1\n", {"trim": True}, [(1, "a", 1.0)]),
    (
        "a word for None",
        "time,name,v\n1,a,NA\n2,b,-\n",
        {"null": ("NA", "-")},
        [(1, "a", None), (2, "b", None)],
    ),
    ("one word", "time,name,v\n1,a,NA\n", {"null": "NA"}, [(1, "a", None)]),
    (
        "quoted words",
        'time,name,v\n"1","a","NA"\n"2","b",""\n',
        {"null": "NA"},
        [(1, "a", None), (2, "b", None)],
    ),
    (
        "thousands",
        'time,name,v\n"1,000",a,"1,234,567.5"\n',
        {"thousands": ","},
        [(1000, "a", 1234567.5)],
    ),
    (
        "a decimal comma",
        "time;name;v\n1.000;1.5;-1.234,5\n",
        {"delimiter": ";", "decimal": ",", "thousands": "."},
        [(1000, "1.5", -1234.5)],
    ),
    ("a space for thousands", "time,name,v\n1 000,a,1\n", {"thousands": " "}, [(1000, "a", 1.0)]),
    (
        "comments",
        "# by x\ntime,name,v\n1,a,1\n# more\n2,#b,2\n",
        {"comment": "#"},
        [(1, "a", 1.0), (2, "#b", 2.0)],
    ),
    ("a comment in quotes", 'time,name,v\n1,"a\n# b",1\n', {"comment": "#"}, [(1, "a\n# b", 1.0)]),
    ("lines before", "Report\n\n\ntime,name,v\n1,a,1\n", {"skip": 2}, [(1, "a", 1.0)]),
    ("lines before, no header", "x\n1,a,1\n", {"skip": 1, "header": False}, [(1, "a", 1.0)]),
    ("empty lines first", "\n\r\ntime,name,v\n1,a,1\n", {}, [(1, "a", 1.0)]),
    ("another quote", "time,name,v\n1,'a,b',1\n", {"quote": "'"}, [(1, "a,b", 1.0)]),
    (
        "a header over lines",
        '"time","name\n(full)","v"\n1,a,2\n',
        {"columns": {"name": "name\n(full)"}},
        [(1, "a", 2.0)],
    ),
    ("a long header", "time,name,v," + "x" * 100_000 + "\n1,a,1,2\n", {}, [(1, "a", 1.0)]),
    ("a mark and quotes", b'\xef\xbb\xbf"time","name","v"\n1,a,1\n', {}, [(1, "a", 1.0)]),
    ("an old Mac", "time,name,v\r1,a,1\r2,b,2\r", {}, [(1, "a", 1.0), (2, "b", 2.0)]),
    ("names twice that nobody reads", "time,x,name,x,v,,\n1,2,a,3,1,,\n", {}, [(1, "a", 1.0)]),
    (
        "a vertical tab in the header",
        "time,na\x0bme,v\n1,a,1\n",
        {"columns": {"name": "na\x0bme"}},
        [(1, "a", 1.0)],
    ),
]


@pytest.mark.parametrize(
    ("data", "options", "expected"), [r[1:] for r in READ], ids=[r[0] for r in READ]
)
def test_read(data: Any, options: dict[str, Any], expected: list[Any], tmp_path: Path) -> None:
    assert rows(data, tmp_path, **options) == expected


REFUSED: list[Any] = [
    ("a word", "time,name,v\n1,a,1\n2,b,oops\n", {}, ["line 3", "'v' is 'oops'", "v: float64"]),
    ("a word for None", "time,name,v\n1,a,NA\n", {}, ["line 2", "'v' is 'NA'", "null="]),
    (
        "None where none may be",
        "time,name,v\nNA,a,1\n",
        {"null": "NA"},
        ["line 2", "'time' is missing"],
    ),
    ("thousands that are none", 'time,name,v\n1,a,"1,23"\n', {"thousands": ","}, ["'1,23'"]),
    ("half an int", "time,name,v\n7.5,a,1\n", {}, ["'time' is '7.5'", "time: int64"]),
    (
        "a comment that is not said",
        "# x\ntime,name,v\n1,a,1\n",
        {},
        ["no column 'time'", 'comment="#"'],
    ),
    ("a row behind comments", "#\n#\ntime,name,v\n#\n1,a,x\n", {"comment": "#"}, ["line 5", "'x'"]),
    ("a row behind lines", "Report\ntime,name,v\n\n1,a,x\n", {"skip": 1}, ["line 4", "'x'"]),
    (
        "too many cells",
        "time,name,v\n1,a,1\n2,b,2,3\n",
        {},
        ["line 3", "Expected 3 columns, got 4"],
    ),
    ("a quote", 'time,name,v\n1,a,"1\n', {}, ["line 2", "a quote is not closed"]),
]


@pytest.mark.parametrize(
    ("data", "options", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(data: Any, options: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        rows(data, tmp_path, **options)
    for word in ("a.csv", *words):
        assert word in str(told.value)


LONG = "x" * 200_000


@pytest.mark.parametrize("cell", ["short", LONG])
def test_cells_may_be_long(cell: str, tmp_path: Path) -> None:
    """In what is right, and in front of what is wrong."""
    text = f'time,name,v\n1,{cell},1.5\n2,a 5" pipe,%s\n'
    assert rows(text % 2, tmp_path) == [(1, cell, 1.5), (2, 'a 5" pipe', 2.0)]
    with pytest.raises(InputError, match=r"a\.csv, line 3: 'v' is 'oops'"):
        rows(text % "oops", tmp_path)
    with pytest.raises(InputError, match=r"a\.csv, line 3: 'time' is missing"):
        rows(f"time,name,v\n1,{cell},1\n,b,1\n", tmp_path)


def test_a_row_that_is_too_long_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.csv, line 3: a row of more than 4 MiB"):
        rows(f"time,name,v\n0,b,1\n1,{'x' * 9_000_000},1\n", tmp_path)


def test_quoted_empties(tmp_path: Path) -> None:
    """Of text a quoted empty cell is the empty text, and nothing between commas is None; of all
    else both are None."""
    data = 'time,name,v,flag\n1,"","",""\n2,,,\n3,"x","2","true"\n'
    assert rows(data, tmp_path, Maybe) == [
        (1, "", None, None),
        (2, None, None, None),
        (3, "x", 2.0, True),
    ]


def test_what_is_converted_is_the_same_where_it_is_not_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read as text from the block on that Arrow does not convert: no row is lost or comes
    twice."""
    monkeypatch.setattr("raystream.io.files.csv.BLOCK_BYTES", 64)
    plain = [f"{n},a{n},{n}.5" for n in range(100)]
    odd = [row if n % 7 else f"+{row}" for n, row in enumerate(plain)]
    expected = rows("time,name,v\n" + "\n".join(plain), tmp_path)
    assert rows("time,name,v\n" + "\n".join(odd), tmp_path) == expected
    late = "\n".join(plain[:60] + [f"{n}.0,a{n},{n}.5" for n in range(60, 100)])
    assert rows("time,name,v\n" + late, tmp_path) == expected
    with pytest.raises(InputError, match=r"line 92: 'v' is '90\.x'"):
        rows(("time,name,v\n" + late).replace("90.5", "90.x"), tmp_path)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**12),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x1a"), max_size=5),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=20,
    )
)
def test_both_ways_of_converting_agree(values: list[tuple[Any, ...]]) -> None:
    import csv as python_csv
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        with path.open("w", newline="") as file:
            python_csv.writer(file).writerows([("time", "name", "v"), *values])
        at_once = [tuple(r) for r in read(rs.io.csv(path, Row))]
        as_text = [tuple(r) for r in read(rs.io.csv(path, Row, thousands="_"))]
    assert at_once == as_text
    assert [(t, v) for t, _, v in at_once] == [(t, v) for t, _, v in values]


@pytest.mark.parametrize(
    "options",
    [
        {"quote": ""},
        {"quote": ","},
        {"skip": -1},
        {"skip": "1"},
        {"comment": " "},
        {"comment": 1},
        {"decimal": ";"},
        {"thousands": "."},
        {"thousands": "1"},
        {"null": (None,)},
        {"encoding": "x"},
        {"delimiter": "ab"},
        {"delimiter": "\n"},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        rs.io.csv("a.csv", Row, **options)


def test_options_of_sources_are_none_of_sinks() -> None:
    with pytest.raises(ConfigError, match="without a record it is a sink"):
        rs.io.csv("out", skip=1)  # type: ignore[call-overload]


# ---------------------------------------------------------------- JSON


class Thing(NamedTuple):
    time: int
    name: str = ""


THINGS = [Thing(1, "a"), Thing(2, "b"), Thing(3, "ü\n")]
DICTS = [t._asdict() for t in THINGS]


def things(text: str, tmp_path: Path, record: Any = Thing, **options: Any) -> list[Any]:
    (tmp_path / "a.json").write_text(text)
    return read(rs.io.json(tmp_path, record, **options))


class Small(NamedTuple):
    v: rs.Float32


def test_a_float_that_is_too_large_is_not_infinity(tmp_path: Path) -> None:
    assert rows("v\n0.1\n-inf\n", tmp_path, Small) == [(float(np.float32(0.1)),), (-np.inf,)]
    with pytest.raises(InputError, match=r"a\.csv, line 3: .*1e\+39"):
        rows("v\n0.1\n1e39\n", tmp_path, Small)


def test_marks_of_numbers_are_those_of_decimals_lengths_and_counts_too(tmp_path: Path) -> None:
    """Otherwise 1.234, of which the dialect makes 1234, would be a price of 1.234."""
    text = "time;price;wait;at\n1;1.234;1.800,5;1.700.000.000.123\n2;-1.234,5;0;1,5\n3;;0;0\n"
    marks: dict[str, Any] = {"delimiter": ";", "decimal": ",", "thousands": "."}
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    assert rows(text, tmp_path, Paid, **marks) == [
        (
            1,
            Decimal(1234),
            timedelta(seconds=1800.5),
            zero + timedelta(milliseconds=1_700_000_000_123),
        ),
        (2, Decimal("-1234.5"), timedelta(0), zero + timedelta(milliseconds=1.5)),
        (3, None, timedelta(0), zero),
    ]
    with pytest.raises(InputError, match=r"line 2: 'price' is '1\.2\.3'"):
        rows("time;price;wait;at\n1;1.2.3;0;0\n", tmp_path, Paid, **marks)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(DICTS),
        json.dumps(DICTS, indent=2),
        "\ufeff" + json.dumps(DICTS),
        "\n".join(json.dumps(d, indent=1, ensure_ascii=False) for d in DICTS),
        " ".join(json.dumps(d, indent=1) for d in DICTS),
        "\n\n" + "\n".join(json.dumps(d) for d in DICTS),
    ],
    ids=["array", "indented", "mark", "objects", "on lines together", "lines"],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_json_of_any_form(
    text: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.files.json_values.CHUNK_BYTES", chunk)
    monkeypatch.setattr("raystream.io.files.json_source.BATCH_ROWS", 2)
    assert things(text, tmp_path) == THINGS


@pytest.mark.parametrize("text", ["[]", "[ ]\n", "", "\n"])
def test_json_without_values(text: str, tmp_path: Path) -> None:
    assert things(text, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"time": 1},\n {"time": 2}', ["line 2", "the array is not closed"]),
        ('[{"time": 1}\n {"time": 2}]', ["line 2", "expected ','"]),
        ('[{"time": 1},\n {"time": oops}]', ["line 2", "no JSON"]),
        ('[{"time": 1},\n\n {"time": "x"}]', ["line 3", "'time' is 'x'", "int64"]),
        ('[{"time": 1}, [2]]', ["line 1", "no JSON object"]),
        ('[{"time": 1}]\n[]', ["line 2", "something follows the array"]),
        ('{\n "time": 1\n}\n{\n "time": \n}', ["line 6", "no JSON"]),
    ],
)
def test_json_that_is_damaged(text: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        things(text, tmp_path)
    for word in ("a.json", *words):
        assert word in str(told.value)


def test_paths_in_json(tmp_path: Path) -> None:
    class Push(NamedTuple):
        time: int
        login: str
        tag: str | None
        dotted: int

    found = [
        {"at": {"s": 1}, "actor": {"login": "ann"}, "tags": [{"n": "x"}], "a.b": 7},
        {"at": {"s": 2}, "actor": {"login": "bob"}, "tags": [], "a.b": 8},
    ]
    columns = {"time": "$.at.s", "login": "$.actor['login']", "tag": "$.tags[0].n", "dotted": "a.b"}
    for text in (json.dumps(found), "\n".join(map(json.dumps, found))):
        assert things(text, tmp_path, Push, columns=columns) == [
            Push(1, "ann", "x", 7),
            Push(2, "bob", None, 8),
        ]
    with pytest.raises(InputError, match="'login' is missing"):
        things('{"at": {"s": 1}, "a.b": 1}', tmp_path, Push, columns=columns)
    with pytest.raises(ConfigError, match="which is no path"):
        rs.io.json(tmp_path, Push, columns={"time": "$.at[x"})
