"""Damaged lines as a stream: the rows and the bad lines are the input, each exactly once."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.flow import Flow
from raystream.errors import ConfigError, InputError
from raystream.io import BadLine
from raystream.io.following.pieces import piece_of
from raystream.testing import Collect
from tests.gates import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    time: int
    name: str
    v: float
    maybe: bool | None = None


CSV = b"""# made by x
time,name,v
1,a,1.5
oops,b,2
3,"c
d",3
4,e

5,f",5
6,\xff,6
7,g,
8,"h,8
9,i,9
"""
CSV_ROWS = [Row(1, "a", 1.5), Row(3, "c\nd", 3.0), Row(5, 'f"', 5.0), Row(9, "i", 9.0)]
CSV_BAD = [
    (1, 4, "time", "'time' is 'oops', which does not fit time: int64", b"oops,b,2"),
    (3, 7, None, "Expected 3 columns, got 2", b"4,e"),
    (5, 10, "name", "'name' is not UTF-8 text", b"6,\xff,6"),
    (5, 11, "v", "'v' is missing", b"7,g,"),
    (5, 12, None, "Expected 3 columns, got 2", b'8,"h,8'),
]


def run(source: Any, epochs: Any = None) -> tuple[list[Any], list[BadLine]]:
    rows, bad, flow = Collect(), Collect(), Flow("bad")
    stream = flow.source(source, epochs=epochs)
    stream[source.files.record].to(rows)
    stream[BadLine].to(bad, name="bad")
    flow.run()
    return rows.records(), bad.records()


@pytest.mark.parametrize("epochs", [None, rs.by_time(seconds=1), rs.by_time(seconds=100)])
def test_csv(epochs: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV)
    rows, bad = run(rs.io.csv(tmp_path, Row, bad="stream", comment="#"), epochs)
    assert rows == CSV_ROWS
    assert [(b.time, b.line, b.column, b.data) for b in bad] == [
        (time, line, column, data) for time, line, column, _, data in CSV_BAD
    ]
    assert all(told in b.reason for b, (*_, told, _) in zip(bad, CSV_BAD, strict=True))
    assert {b.file for b in bad} == {str(tmp_path / "a.csv")}
    flow = Flow("refused")
    flow.source(rs.io.csv(tmp_path, Row, comment="#")).to(Collect())
    with pytest.raises(InputError, match=r"a\.csv, line 7: Expected 3 columns"):
        flow.run()


def test_json_lines_and_values(tmp_path: Path) -> None:
    good, wrong = {"time": 1, "name": "a", "v": 2}, {"time": 2, "name": 3, "v": 2}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(good)}\n{{oops\n\n{json.dumps(wrong)}\n[1]\n")
    rows, bad = run(rs.io.json(tmp_path, Row, bad="stream"), rs.by_time(seconds=1))
    assert rows == [Row(1, "a", 2.0)]
    assert [(b.line, b.column, b.data) for b in bad] == [
        (2, None, b"{oops"),
        (4, "name", json.dumps(wrong).encode()),
        (5, None, b"[1]"),
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps([wrong, good, wrong], indent=1))
    rows, bad = run(rs.io.json(tmp_path, Row, bad="stream"))
    assert (rows, [(b.time, b.line) for b in bad]) == ([Row(1, "a", 2.0)], [(1, 2), (1, 12)])
    (tmp_path / "a.jsonl").write_text('[{"time": 1, "name": "a", "v": 2}, {"time": ')
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: no JSON"):
        run(rs.io.json(tmp_path, Row, bad="stream"))


class Number(NamedTuple):
    n: int


def test_text_and_what_a_function_raises(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\nx\n\n\xff\n4\n")

    def parse(line: str) -> Number | None:
        return Number(int(line)) if line else None

    source = rs.io.text(tmp_path, Number, parse, bad="stream")
    stream = Flow("text").source(source)
    assert {b.schema.cls for b in stream._branches} == {Number, BadLine}
    sink, flow = Collect(), Flow("text")
    flow.source(source)[BadLine].to(sink)
    flow.run()
    assert [(b.line, b.data, b.reason[:10]) for b in sink.records()] == [
        (2, b"x", "ValueError"),
        (4, b"\xff", "b'\\xff\\n' "),
    ]


def test_fields_of_other_kinds(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Sale:
        time: datetime.datetime
        price: Annotated[decimal.Decimal, rs.decimal(6, 2)]
        kind: Literal["a", "b"] = "a"

    (tmp_path / "a.csv").write_text(
        "time,price,kind\n2024-01-01T00:00:00Z,1.50,b\nno,1.5,a\n2024-01-02T00:00:00Z,2,a\n"
        "2024-01-03T00:00:00Z,2,c\n"
    )
    rows, bad, flow = Collect(), Collect(), Flow("kinds", time_unit="us")
    source = rs.io.csv(tmp_path, Sale, bad="stream")
    stream = flow.source(source, epochs=rs.by_time(seconds=86_400))
    stream[Sale].to(rows)
    stream[BadLine].to(bad, name="bad")
    flow.run()
    first, second = (datetime.datetime(2024, 1, n, tzinfo=datetime.UTC) for n in (1, 2))
    assert rows.records() == [
        Sale(first, decimal.Decimal("1.50"), "b"),
        Sale(second, decimal.Decimal("2.00"), "a"),
    ]
    assert [(b.line, b.column, b.time // 10**6) for b in bad.records()] == [
        (3, "time", int(first.timestamp())),
        (5, "kind", int(second.timestamp())),
    ]


def test_where_nothing_is_bad(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,name,v\n" + "".join(f"{n},x,{n}\n" for n in range(1000)))
    rows, bad = run(rs.io.csv(tmp_path, Row, bad="stream"), rs.by_time(seconds=10))
    assert rows == [Row(n, "x", float(n)) for n in range(1000)] and not bad


ROW = st.tuples(st.integers(0, 99), st.sampled_from(["a", "b c", "ü"]), st.integers(0, 9))
DAMAGED = st.sampled_from(["x,a,1", "1,a", "1,a,1,1", '1,"a,1', "1,a,x", ",a,1", '1,a",', "#"])


@given(st.lists(ROW | DAMAGED, max_size=40), st.integers(1, 60))
def test_rows_and_bad_lines_are_the_input(lines: list[Any], chunk: int) -> None:
    """However the file is read, and from whichever position again."""
    patch = pytest.MonkeyPatch()
    patch.setattr("raystream.io.files.csv.CHUNK_BYTES", chunk)
    with tempfile.TemporaryDirectory() as folder, patch.context():
        texts = [each if isinstance(each, str) else ",".join(map(str, each)) for each in lines]
        Path(folder, "a.csv").write_text("\n".join(["time,name,v", *texts]))
        source: Any = rs.io.csv(folder, Row, bad="stream")
        (split,) = source.splits()
        batches = [(end, list(b.records())) for end, b in source.read(split, 0)]
        for n, (end, _) in enumerate(batches):
            assert [(e, list(b.records())) for e, b in source.read(split, end)] == batches[n + 1 :]
        records, bad = (stage.process for stage in source.stages(None))
        good, wrong = [], []
        for _, batch in source.read(split, 0):
            good += list(records(batch).records())
            wrong += list(bad(batch).records())
    patch.undo()
    assert good == [Row(t, n, float(v)) for t, n, v in (x for x in lines if not isinstance(x, str))]
    assert [b.data.decode() for b in wrong] == [x for x in lines if isinstance(x, str)]
    assert [b.line - 2 for b in wrong] == [n for n, x in enumerate(lines) if isinstance(x, str)]


def test_it_can_be_carried_to_other_processes() -> None:
    """Also the types of pieces of files that are followed, which are found in the same way."""
    source: Any = rs.io.csv("a.csv", Row, bad="stream")
    kinds = [source.record, piece_of(Row)]
    assert pickle.loads(pickle.dumps(kinds)) == kinds
    code = "import pickle, sys; print([k._fields for k in pickle.load(sys.stdin.buffer)])"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(kinds), capture_output=True, cwd=ROOT,
        timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == str([k._fields for k in kinds])
    assert pickle.loads(pickle.dumps(source.stages(None)))[0].name == "records"


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="bad='skip'"):
        rs.io.csv("a.csv", Row, bad="skip")  # type: ignore[call-overload]
