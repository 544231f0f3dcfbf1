"""Prepared folders, with Spark."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from raystream.errors import ConfigError, InputError
from spark_ingest import layout
from spark_ingest.published import pieces as published_files
from spark_ingest.published.prepare import prepare
from spark_ingest.summary import Summary
from tests.spark_ingest.data import assert_layout, published, read_history, read_rows

pytestmark = pytest.mark.spark

REPORT = "0,38,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1"
LATER = "0,68,3,0,0,1,0,8,45600,-1,-1,-1,-1,-1,-1"
BALANCE = "2,68,3,-1,-1,-1,-1,-1,-1,5,-1,-1,-1,-1,-1"
EXPENDITURE = "3,38,3,-1,0,-1,-1,-1,-1,4,-1,-1,-1,-1,60"


def lines_of(path: Path) -> set[tuple[int, ...]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return {tuple(map(int, line.split(","))) for line in text.decode().split()}


@pytest.mark.parametrize(
    ("name", "rows", "vehicles"),
    [
        ("official-t0-419.csv", {"0": 31_652, "2": 168, "3": 24, "4": 149}, 4_153),
        ("official-t5179-5299.csv.gz", {"0": 146_992, "2": 780, "3": 157, "4": 595}, 65_564),
    ],
)
def test_official_slices(
    spark: SparkSession,
    slices: Path,
    tmp_path: Path,
    name: str,
    rows: dict[str, int],
    vehicles: int,
) -> None:
    summary = prepare([slices / name], tmp_path / "data", spark=spark)
    assert_layout(summary.data)
    assert summary.meta.rows == rows
    assert summary.meta.vehicles == vehicles
    assert summary.meta.kind == "prepared"
    assert published(read_rows(summary.data)) == lines_of(slices / name)


def test_micro_inputs_together(spark: SparkSession, slices: Path, tmp_path: Path) -> None:
    files = sorted((slices / "micro").glob("*.dat"))
    assert files
    for file in files:
        rows = lines_of(file)
        summary = prepare([file], tmp_path / file.stem, spark=spark)
        assert_layout(summary.data)
        assert published(read_rows(summary.data)) == rows


def test_pieces_of_several_files_in_any_order_of_time(
    spark: SparkSession, generated: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sorted(published(read_rows(generated.data)), key=hash)[:20_000]
    text = [",".join(map(str, row)) + "\n" for row in rows]
    plain, zipped = tmp_path / "a.csv", tmp_path / "b.csv.gz"
    plain.write_text("".join(text[:15_000]))
    zipped.write_bytes(gzip.compress("".join(text[15_000:]).encode()))
    monkeypatch.setattr(published_files, "PIECE_BYTES", 200_000)
    summary = prepare([plain, zipped], tmp_path / "data", spark=spark)
    assert_layout(summary.data)
    assert published(read_rows(summary.data)) == set(rows)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([REPORT, "0,38,4"], r"in.csv:2: it has 3 fields instead of 15"),
        (["Type,Time,VID" + ",x" * 12, REPORT], r"in.csv:1: field 1 \(type\) is 'Type', which"),
        ([REPORT, REPORT.replace("45545", "far")], r"in.csv:2: field 9 \(pos\) is 'far', which"),
        ([REPORT, "", "0,-1" + REPORT[4:]], r"in.csv:3: time -1 is outside 0 to 864000"),
        ([REPORT, LATER, REPORT], r"in.csv:3: the same row is at .*in.csv:1\n  the row: 0,38,3,"),
        ([BALANCE, LATER, BALANCE], r"in.csv:3: the same row is at .*in.csv:1"),
        ([REPORT, REPORT.replace("45545", "45546")], r"in.csv:2: vehicle 3 reports twice in se"),
        (
            [REPORT, REPORT.replace(",38,", ",20,"), REPORT.replace(",38,", ",50,")],
            r"in.csv:3: vehicle 3 reports more than twice from segment 8 in minute 1",
        ),
        ([""], r"There are no good rows in .*in.csv"),
        (["\x00\x01\x02PNG"], r"in.csv:1: it has 1 field instead of 15"),
    ],
)
def test_the_first_bad_row_is_told_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, lines: list[str], says: str
) -> None:
    path = write(tmp_path / "in.csv", *lines)
    with pytest.raises(InputError, match=says):
        prepare([path], tmp_path / "data", spark=spark)
    assert list((tmp_path / "data").iterdir()) == []


def test_bad_rows_are_put_aside_with_file_line_and_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = write(tmp_path / "first.csv", REPORT, "0,38,4", "", LATER, REPORT)
    second = write(tmp_path / "second.csv", BALANCE, "nonsense, at best", LATER, EXPENDITURE)
    history = write(tmp_path / "tolls.out", "3,60,0,37", "3,60,0", "3,70,0,1", "4,1,0,5")
    summary = prepare(
        [first, second], tmp_path / "data", history=history, on_bad_row="quarantine", spark=spark
    )
    assert_layout(summary.data)
    good = {tuple(map(int, row.split(","))) for row in (REPORT, LATER, BALANCE, EXPENDITURE)}
    assert published(read_rows(summary.data)) == good
    assert read_history(summary.data).to_pylist() == [
        {"vid": 3, "day": 60, "xway": 0, "toll": 37},
        {"vid": 4, "day": 1, "xway": 0, "toll": 5},
    ]
    with layout.quarantine_file(summary.data).open() as file:
        aside = list(csv.DictReader(file))
    assert [(Path(row["file"]).name, row["line"], row["row"]) for row in aside] == [
        ("first.csv", "2", "0,38,4"),
        ("first.csv", "5", REPORT),
        ("second.csv", "2", "nonsense, at best"),
        ("second.csv", "3", LATER),
        ("tolls.out", "2", "3,60,0"),
        ("tolls.out", "3", "3,70,0,1"),
    ]
    assert aside[3]["reason"] == f"the same row is at {first}:4"
    assert summary.quarantined == 6


def test_only_bad_rows_are_no_input(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", "0,1", "0,2")
    with pytest.raises(
        InputError, match=r"no good rows in .*in\.csv\. The first bad one: .*:1: it"
    ):
        prepare([path], tmp_path / "data", on_bad_row="quarantine", spark=spark)


def test_too_many_bad_rows_are_another_kind_of_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ingest.published.origins.QUARANTINE_ROWS_MAX", 2)
    path = write(tmp_path / "in.csv", "1,1", REPORT, "1,2", "1,3")
    with pytest.raises(InputError, match=r"More than 2 rows are bad\. The first one: .*in\.csv:1"):
        prepare([path], tmp_path / "data", on_bad_row="quarantine", spark=spark)
    assert list((tmp_path / "data").iterdir()) == []


def test_tolls_of_the_same_day_add_up(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", REPORT)
    tolls = write(tmp_path / "tolls.out", "3,60,0,37", "20000,1,1,9", "3,60,0,5", "3,60,1,1")
    summary = prepare([path], tmp_path / "data", history=tolls, spark=spark)
    found = [tuple(row.values()) for row in read_history(summary.data).to_pylist()]
    assert found == [(3, 60, 0, 42), (3, 60, 1, 1), (20_000, 1, 1, 9)]
    assert summary.meta.history_rows == 3
    write(tolls, "3,60,0,2147483647", "3,60,0,1")
    with pytest.raises(InputError, match="add up to more than 2147483647"):
        prepare([path], tmp_path / "data", history=tolls, spark=spark)


def test_bad_history_is_told_with_its_file(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", REPORT)
    tolls = write(tmp_path / "tolls.out", "3,60,0,37", "3,60,zero,1")
    with pytest.raises(InputError, match=r"tolls\.out:2: field 3 \(xway\) is 'zero'"):
        prepare([path], tmp_path / "data", history=tolls, spark=spark)


def test_a_bad_input_leaves_earlier_data_alone(spark: SparkSession, tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.csv", REPORT), write(tmp_path / "bad.csv", "0,1")
    data = prepare([good], tmp_path / "data", spark=spark).data
    with pytest.raises(InputError, match=r"bad\.csv:1"):
        prepare([bad], data, spark=spark)
    assert_layout(data)


def test_a_gzip_file_that_breaks_off_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress((REPORT + "\n").encode())[:-6])
    with pytest.raises(InputError, match=r"in\.csv\.gz cannot be read to its end"):
        prepare([path], tmp_path / "data", spark=spark)


def test_what_is_wrong_with_the_arguments_is_said_before_spark_starts(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", REPORT)
    with pytest.raises(ConfigError, match="no input file"):
        prepare([], tmp_path / "data")
    with pytest.raises(ConfigError, match=r"in\.csv is given twice"):
        prepare([path, tmp_path / "." / path.name], tmp_path / "data")
    with pytest.raises(ConfigError, match="neither fail nor quarantine"):
        prepare([path], tmp_path / "data", on_bad_row="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="lies in the output folder"):
        prepare([path], tmp_path)
    with pytest.raises(InputError, match=r"none\.csv does not exist"):
        prepare([path], tmp_path / "data", history=tmp_path / "none.csv")
    assert not (tmp_path / "data").exists()
