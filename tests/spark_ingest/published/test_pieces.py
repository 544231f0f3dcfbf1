"""Reading published files, without Spark."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raystream.errors import InputError
from spark_ingest import layout
from spark_ingest.published import pieces as published
from spark_ingest.published.pieces import blocks, pieces
from spark_ingest.published.rules import Bad, check_history, check_rows, used_columns

NAMES = ("a", "b", "c")
LINES = st.lists(
    st.one_of(
        st.tuples(*[st.integers(-(10**9), 10**9)] * 3).map(lambda row: ",".join(map(str, row))),
        st.sampled_from(["", "  ", "1,2", "1,x,3", "1,2,3,4", "1,,3", "1.5,2,3", "1,2,3\r"]),
    ),
    max_size=40,
)


def read(
    path: Path, names: tuple[str, ...] = NAMES
) -> tuple[list[tuple[int, ...]], list[Bad], int]:
    """(line, values...) of the good rows, the bad ones, and the number of lines."""
    rows: list[tuple[int, ...]] = []
    bad: list[Bad] = []
    first = 0
    for piece in pieces([path]):
        lines = 0
        for block in blocks(piece, names):
            columns = [block.columns[name].tolist() for name in names]
            for line, *values in zip(block.line.tolist(), *columns, strict=True):
                rows.append((first + line, *values))
            bad += [Bad(first + row.line, row.reason, row.text) for row in block.bad]
            lines += block.lines
        first += lines
    return rows, bad, first


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(LINES, st.integers(1, 60), st.integers(1, 60), st.booleans(), st.booleans())
def test_cutting_changes_neither_rows_nor_numbers_of_lines(
    tmp_path: Path, lines: list[str], piece: int, block: int, last: bool, zipped: bool
) -> None:
    text = "\n".join(lines) + "\n" * last
    path = tmp_path / "input.csv"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    expected = [
        (number, *map(int, line.split(",")))
        for number, line in enumerate(lines)
        if line.count(",") == 2 and not {"x", "."} & set(line) and ",," not in line
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "PIECE_BYTES", piece)
        patch.setattr(published, "_BLOCK_BYTES", block)
        if not text and not zipped:
            with pytest.raises(InputError, match="is empty"):
                read(path)
            return
        rows, bad, _ = read(path)
    assert rows == expected
    blank = [number for number, line in enumerate(lines) if not line.strip()]
    good = [row[0] for row in rows]
    assert sorted([*blank, *good, *(row.line for row in bad)]) == list(range(len(lines)))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,2", "it has 2 fields instead of 3"),
        ("1,2,3,4", "it has 4 fields instead of 3"),
        ("1,two,3", "field 2 (b) is 'two', which is not an integer"),
        ("1,0x1F,3", "field 2 (b) is '0x1F', which is not an integer"),
        ("1,,3", "field 2 (b) is '', which is not an integer"),
        ("1,2.0,3", "field 2 (b) is '2.0', which is not an integer"),
        ("1,2,--3", "field 3 (c) is '--3', which is not an integer"),
        ("NA,2,3", "field 1 (a) is 'NA', which is not an integer"),
        ('"1",2,3', "field 1 (a) is '\"1\"', which is not an integer"),
        ("1,2," + "9" * 30, "field 3 (c) has 30 digits"),
        ("x" * 10_000, "it has 1 field instead of 3"),
    ],
)
def test_a_malformed_line_is_told_apart(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "input.csv"
    path.write_text(f"1,2,3\n{line}\n4,5,6\n")
    rows, bad, lines = read(path)
    assert [row[0] for row in rows] == [0, 2]
    assert [(row.line, row.reason) for row in bad] == [(1, says)]
    assert len(bad[0].text) <= 200
    assert lines == 3


def test_a_byte_order_mark_and_windows_line_ends_are_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "input.csv"
    path.write_bytes(b"\xef\xbb\xbf1,2,3\r\n4, 5,6\r\n")
    assert read(path)[0] == [(0, 1, 2, 3), (1, 4, 5, 6)]


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.csv does not exist"):
        pieces([tmp_path / "nothing.csv"])
    (tmp_path / "empty.csv").touch()
    with pytest.raises(InputError, match=r"empty\.csv is empty"):
        pieces([tmp_path / "empty.csv"])
    os.mkfifo(tmp_path / "pipe")  # as of <(zcat input.gz)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="cannot be read: it is no regular file"):
            pieces([path])


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "input.gz"
    path.write_bytes(gzip.compress(b"1,2,3\n" * 1_000)[:-20])
    with pytest.raises(InputError, match=r"input\.gz cannot be read to its end"):
        read(path)


GOOD = {
    "report": "0,38,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1",
    "balance": "2,26,433,-1,-1,-1,-1,-1,-1,2,-1,-1,-1,-1,-1",
    "expenditure": "3,10,231,-1,0,-1,-1,-1,-1,0,-1,-1,-1,-1,60",
    "travel": "4,23,396,-1,0,-1,-1,-1,-1,1,0,0,0,0,-1",
}


def judge(line: str) -> tuple[bool, list[Bad], dict[str, int]]:
    columns = {
        name: np.array([int(value)])
        for name, value in zip(layout.PUBLISHED, line.split(","), strict=True)
    }
    mask, bad = check_rows(columns, np.array([41]))
    used = {name: int(values[0]) for name, values in used_columns(columns).items()}
    return bool(mask[0]), bad, used


@pytest.mark.parametrize("line", GOOD.values(), ids=GOOD.keys())
def test_official_rows_pass_unchanged(line: str) -> None:
    good, bad, used = judge(line)
    assert good
    assert bad == []
    assert ",".join(map(str, used.values())) == line


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("2,26,433,55,1,2,0,8,45545,2,-1,-1,-1,-1,-1", GOOD["balance"]),
        ("3,10,231,55,0,2,1,8,45545,0,-1,-1,3,700,60", GOOD["expenditure"]),
        ("0,38,3,0,0,1,0,8,45545,7,7,7,7,7,7", GOOD["report"]),
    ],
)
def test_columns_that_a_type_does_not_use_are_emptied(line: str, becomes: str) -> None:
    good, _, used = judge(line)
    assert good
    assert ",".join(map(str, used.values())) == becomes


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,38,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1", "type 1 is not one of 0, 2, 3, 4"),
        ("0,-5,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1", "time -5 is outside 0 to 864000"),
        ("0,864001,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1", "time 864001 is outside"),
        ("0,38,-1,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1", "vid -1 is outside"),
        ("0,38,3,101,0,1,0,8,45545,-1,-1,-1,-1,-1,-1", "spd 101 is outside 0 to 100"),
        ("0,38,3,0,-1,1,0,8,45545,-1,-1,-1,-1,-1,-1", "xway -1 is outside"),
        ("0,38,3,0,0,5,0,8,45545,-1,-1,-1,-1,-1,-1", "lane 5 is outside 0 to 4"),
        ("0,38,3,0,0,1,2,8,45545,-1,-1,-1,-1,-1,-1", "dir 2 is outside 0 to 1"),
        ("0,38,3,0,0,1,0,100,45545,-1,-1,-1,-1,-1,-1", "seg 100 is outside 0 to 99"),
        ("0,38,3,0,0,1,0,8,528000,-1,-1,-1,-1,-1,-1", "pos 528000 is outside 0 to 527999"),
        ("2,26,433,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1", "qid -1 is outside"),
        ("3,10,231,-1,-1,-1,-1,-1,-1,0,-1,-1,-1,-1,60", "xway -1 is outside"),
        ("3,10,231,-1,0,-1,-1,-1,-1,0,-1,-1,-1,-1,0", "day 0 is outside 1 to 69"),
        ("3,10,231,-1,0,-1,-1,-1,-1,0,-1,-1,-1,-1,70", "day 70 is outside 1 to 69"),
        ("4,23,396,-1,0,-1,-1,-1,-1,1,0,0,8,0,-1", "dow 8 is outside"),
        ("4,23,396,-1,0,-1,-1,-1,-1,99999999999,0,0,0,0,-1", "qid 99999999999 is outside"),
    ],
)
def test_what_is_out_of_range_is_told(line: str, says: str) -> None:
    good, bad, _ = judge(line)
    assert not good
    assert len(bad) == 1
    assert bad[0].reason.startswith(says)
    assert bad[0].line == 41
    assert bad[0].text == line


def test_history_has_ranges_too() -> None:
    columns = {
        "vid": np.array([231, -1, 1, 1]),
        "day": np.array([60, 1, 0, 1]),
        "xway": np.array([0, 0, 0, 0]),
        "toll": np.array([37, 1, 1, -4]),
    }
    mask, bad = check_history(columns, np.arange(4))
    assert mask.tolist() == [True, False, False, False]
    assert [row.reason.split(" is")[0] for row in bad] == ["vid -1", "day 0", "toll -4"]
