"""What the files of real people are like: where they are, how they are packed, encoded, named."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.files import handles
from raystream.io.files.listing import InputWarning
from raystream.testing import Collect


class Timed(NamedTuple):
    time: int


class Trip(NamedTuple):
    time: int
    distance: float


class Day(NamedTuple):
    time: int
    day: str


class Extra(NamedTuple):
    time: int
    extra: str | None = None
    kind: str = "plain"


def read(source: Any) -> list[Any]:
    """All records; each batch is read from its own beginning, too."""
    found = []
    for split in source.splits():
        begin = 0
        for end, batch in source.read(split, 0):
            rows = list(batch.records())
            again_end, again = next(iter(source.read(split, begin)))
            assert (again_end, list(again.records())) == (end, rows)
            found += rows
            begin = end
        assert not [b for _, b in source.read(split, begin) if len(b)]
    return found


def as_csv(rows: list[dict[str, Any]], path: Path) -> None:
    names = list(rows[0])
    lines = [",".join(names), *(",".join(str(r[n]) for n in names) for r in rows)]
    path.write_text("".join(f"{line}\n" for line in lines))


def as_json(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def as_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


Write = Callable[[list[dict[str, Any]], Path], None]
FORMATS: list[Any] = [
    pytest.param(rs.io.csv, as_csv, "csv", id="csv"),
    pytest.param(rs.io.json, as_json, "jsonl", id="json"),
    pytest.param(rs.io.parquet, as_parquet, "parquet", id="parquet"),
]
formats = pytest.mark.parametrize(("reader", "write", "suffix"), FORMATS)

# ---------------------------------------------------------------- where they are


@formats
def test_several_paths_are_one_source(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    for name, times in (("one", (1,)), ("two", (2, 3)), ("three", (4,))):
        (tmp_path / name).mkdir()
        write([{"time": t} for t in times], tmp_path / name / f"a.{suffix}")
    source = reader([tmp_path / "two", str(tmp_path / "o*" / "*"), tmp_path / "two"], Timed)
    assert [r.time for r in read(source)] == [1, 2, 3]
    with pytest.raises(InputError, match="There is no file"):
        reader([tmp_path / "two", tmp_path / "none"], Timed).splits()


def test_upper_case_and_other_usual_suffixes(tmp_path: Path) -> None:
    for n, name in enumerate(("a.PARQUET", "b.parq", "c.pq", "d.Parquet")):
        as_parquet([{"time": n}], tmp_path / name)
    assert [r.time for r in read(rs.io.parquet(tmp_path, Timed))] == [0, 1, 2, 3]
    (tmp_path / "tabs").mkdir()
    (tmp_path / "tabs" / "a.TSV").write_text("time\tdistance\n1\t2\n")
    assert read(rs.io.csv(tmp_path / "tabs", Trip, delimiter="\t")) == [Trip(1, 2.0)]


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    as_csv([{"time": 1}], tmp_path / "a.csv")
    for name in ("b.txt", "c.dat", "d", "e.xlsx", "_SUCCESS", ".a.csv.crc"):
        (tmp_path / name).write_text("x")
    with pytest.warns(
        InputWarning, match=r"4 of 5 files in .* are not read(.|\n)*b\.txt(.|\n)*1 more"
    ):
        assert len(rs.io.csv(tmp_path, Timed).splits()) == 1
    flow = rs.Flow("folder")
    flow.source(rs.io.csv(tmp_path, Timed)).to(Collect())
    with pytest.warns(InputWarning, match="are not read") as told:
        flow.run()
    assert {each.filename for each in told} == {__file__}
    with pytest.raises(InputError, match=r"no file \*\.parquet(.|\n)*of other names:\n +a\.csv"):
        rs.io.parquet(tmp_path, Timed).splits()


@pytest.mark.parametrize("url", ["hdfs://n/x", "https://n/x", "file://host/a"])
def test_places_that_are_no_paths_are_refused(url: str) -> None:
    for made in (
        lambda: rs.io.parquet(url),
        lambda: rs.io.csv(url),
        lambda: rs.io.json(url, Timed),
        lambda: rs.io.text([url]),
        lambda: rs.io.parts(url),
    ):
        with pytest.raises(ConfigError, match=r"cannot be used here(.|\n)*file:///data"):
            made()


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    flow = rs.Flow("urls")
    flow.source(rs.io.iterable([Timed(1)], Timed)).to(rs.io.json(f"file://{tmp_path}/with%20space"))
    flow.run()
    assert [p.rows for p in rs.io.parts(folder)] == [1]
    assert read(rs.io.json(f"file://{tmp_path}/with%20space/Timed", Timed)) == [Timed(1)]


@pytest.mark.parametrize("path", ["", "  ", b"a.csv", None, 3, []])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for made in (lambda: rs.io.csv(path, Timed), lambda: rs.io.parquet(path)):
        with pytest.raises(ConfigError, match="path"):
            made()


@formats
def test_folders_say_what_columns_files_lack(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    class Deep(NamedTuple):
        time: int
        year: rs.Int16
        place: str | None

    for n, (year, place) in enumerate(
        [("2024", "S%C3%A3o Paulo"), ("2025", "__HIVE_DEFAULT_PARTITION__")]
    ):
        folder = tmp_path / f"year={year}" / f"place={place}"
        folder.mkdir(parents=True)
        write([{"time": n}], folder / f"part-0.{suffix}")
    assert read(reader(tmp_path, Deep)) == [Deep(0, 2024, "São Paulo"), Deep(1, 2025, None)]
    (tmp_path / "year=old").mkdir()
    write([{"time": 9, "place": "x"}], tmp_path / "year=old" / f"a.{suffix}")
    with pytest.raises(
        InputError, match=r"year=old.*'year' is 'old' in the path, which does not fit"
    ):
        read(reader(tmp_path, Deep))


@formats
def test_what_a_file_has_itself_counts_more(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    (tmp_path / "day=folder").mkdir()
    write([{"time": 1, "day": "file"}], tmp_path / "day=folder" / f"a.{suffix}")
    assert read(reader(tmp_path, Day)) == [Day(1, "file")]


@formats
def test_files_of_before_a_column_was_added(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    write([{"time": 1}], tmp_path / f"1.{suffix}")
    write([{"time": 2, "extra": "x", "kind": "new"}], tmp_path / f"2.{suffix}")
    assert read(reader(tmp_path, Extra)) == [Extra(1, None, "plain"), Extra(2, "x", "new")]


@pytest.mark.parametrize("limit", [0, 2])
@formats
def test_more_files_than_may_be_open(
    reader: Any,
    write: Write,
    suffix: str,
    limit: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever stay open: those of several batches, too, which are read in turn."""
    monkeypatch.setattr(handles, "limit", lambda: limit)
    monkeypatch.setattr("raystream.io.files.parquet.BATCH_ROWS", 3)
    monkeypatch.setattr("raystream.io.files.csv.BATCH_ROWS", 3)
    monkeypatch.setattr("raystream.io.files.csv.BLOCK_BYTES", 16)
    monkeypatch.setattr("raystream.io.files.lines.CHUNK_BYTES", 30)
    for n in range(5):
        write([{"time": 10 * n + i} for i in range(10)], tmp_path / f"{n}.{suffix}")
    source = reader(tmp_path, Timed)
    readers = [source.read(split, 0) for split in source.splits()]
    found: dict[int, list[int]] = {n: [] for n in range(5)}
    most = 0
    while readers:
        for n, one in list(enumerate(readers)):
            batch = next(one, None)
            if batch is None:
                readers.remove(one)
            else:
                rows = [r.time for r in batch[1].records()]
                found[rows[0] // 10] += rows
            most = max(most, len(handles._open))
            del n
    assert found == {n: list(range(10 * n, 10 * n + 10)) for n in range(5)}
    assert most <= max(limit, 1) and not handles._open


@pytest.mark.slow
def test_thousands_of_files_at_a_limit_of_256(tmp_path: Path) -> None:
    for n in range(5000):
        (tmp_path / f"{n:04}.jsonl").write_text(f'{{"time": {n}}}\n')
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import raystream as rs
from tests.io.test_found_files import Timed
from raystream.testing import Collect
for epochs in (None, rs.by_time(seconds=600)):
    sink, flow = Collect(), rs.Flow("many")
    flow.source(rs.io.json({str(tmp_path)!r}, Timed), epochs=epochs).to(sink)
    flow.run()
    print(len(sink.records()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["5000", "5000"], done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0


# ---------------------------------------------------------------- packed and encoded

PACKED = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "lz4": lambda data: pa.Codec("lz4").compress(data, asbytes=True),
}


@pytest.mark.parametrize("name", ["rows", "rows.gz"])
@pytest.mark.parametrize("how", [*PACKED, "not"])
def test_how_a_file_is_packed_its_content_says(how: str, name: str, tmp_path: Path) -> None:
    pack = PACKED.get(how, bytes)
    rows = "".join(f"{n},{n}.5\n" for n in range(1000))
    for suffix, text in (
        ("csv", f"time,distance\n{rows}"),
        ("jsonl", "".join(f'{{"time": {n}, "distance": {n}.5}}\n' for n in range(1000))),
        ("txt", rows),
    ):
        folder = tmp_path / suffix
        folder.mkdir()
        (folder / f"{name}.{suffix}".replace("rows.gz.", "rows.")).write_bytes(pack(text.encode()))
    expected = [Trip(n, n + 0.5) for n in range(1000)]
    assert read(rs.io.csv(tmp_path / "csv", Trip)) == expected
    assert read(rs.io.json(tmp_path / "jsonl", Trip)) == expected
    assert [r.text for r in read(rs.io.text(tmp_path / "txt"))] == rows.split()


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".lz4", ".GZ"])
def test_packed_files_of_a_folder_are_found(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.csv{suffix}").write_bytes(gzip.compress(b"time\n1\n"))
    assert read(rs.io.csv(tmp_path, Timed)) == [Timed(1)]


@pytest.mark.parametrize("how", PACKED)
def test_a_packed_file_that_is_cut_off(how: str, tmp_path: Path) -> None:
    data = PACKED[how](os.urandom(50_000).hex().encode())
    (tmp_path / "a.txt").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"a\.txt"):
        read(rs.io.text(tmp_path))


ENCODED = [
    ("latin-1", "café", False),
    ("cp1252", "“café” €", False),
    ("shift_jis", "日本", False),
    ("utf-16", "café 日本", True),
    ("utf-8-sig", "café 日本", True),
    ("utf-32", "café", True),
]


@pytest.mark.parametrize(("encoding", "word", "marked"), ENCODED, ids=[e[0] for e in ENCODED])
def test_encodings(encoding: str, word: str, marked: bool, tmp_path: Path) -> None:
    class Word(NamedTuple):
        time: int
        word: str

    (tmp_path / "a.csv").write_bytes(f"time,word\n1,{word}\n2,\n".encode(encoding))
    (tmp_path / "a.jsonl").write_bytes(f'{{"time": 1, "word": "{word}"}}\n'.encode(encoding))
    (tmp_path / "a.txt").write_bytes(f"{word}\nb\n".encode(encoding))
    for given in [encoding, None][: 1 + marked]:
        assert read(rs.io.csv(tmp_path / "a.csv", Word, encoding=given)) == [
            Word(1, word),
            Word(2, ""),
        ]
        assert read(rs.io.json(tmp_path / "a.jsonl", Word, encoding=given)) == [Word(1, word)]
        assert [r.text for r in read(rs.io.text(tmp_path / "a.txt", encoding=given))] == [word, "b"]


def test_text_that_is_of_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\nb\nc\xe9\n")
    for encoding in (None, "ascii"):
        with pytest.raises(InputError, match=r"a\.txt, line 3(.|\n)*encoding="):
            read(rs.io.text(tmp_path / "a.txt", encoding=encoding))
    for wrong in ("latin-99", "zlib", 8):
        with pytest.raises(ConfigError, match=r"encoding=.* is not known"):
            rs.io.text(tmp_path / "a.txt", encoding=wrong)  # type: ignore[call-overload]


# ---------------------------------------------------------------- names of columns


class Named(NamedTuple):
    time: Annotated[int, rs.field(name="@timestamp")]
    distance: Annotated[float | None, rs.field(name="Trip Distance")]
    user: Annotated[str, rs.field(name="user-id")] = "nobody"


@formats
def test_names_that_are_none_of_python(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    write([{"@timestamp": 1, "Trip Distance": 2.5, "class": "b"}], tmp_path / f"a.{suffix}")
    assert read(reader(tmp_path, Named)) == [Named(1, 2.5, "nobody")]
    columns = {"time": "@timestamp", "day": "class"}
    assert read(reader(tmp_path, Day, columns=columns)) == [Day(1, "b")]


@formats
def test_a_sink_writes_the_names_that_a_source_reads(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    rows = [Named(1, None, "a"), Named(2, 3.5, "b")]
    flow = rs.Flow("names")
    flow.source(rs.io.iterable(rows, Named)).to(reader(tmp_path, columns={"user": "who?"}))
    flow.run()
    (part,) = rs.io.parts(tmp_path)
    text = part.path.read_bytes()
    assert all(name in text for name in (b"@timestamp", b"Trip Distance", b"who?"))
    batches = rs.io.read_parts(tmp_path, Named, columns={"user": "who?"})
    assert [r for batch in batches for r in batch.records()] == rows


def test_what_is_wrong_with_names_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Time,Trip Distance\n1,2\n")
    with pytest.raises(InputError, match=r"columns=\{'time': 'Time'\}"):
        rs.io.csv(tmp_path, Timed).splits()
    with pytest.raises(ConfigError, match="names the field 'tiem', which Timed does not have"):
        rs.io.csv(tmp_path, Timed, columns={"tiem": "Time"})
    with pytest.raises(ConfigError, match="Two fields of Trip are read from the column 'x'"):
        rs.io.csv(tmp_path, Trip, columns={"time": "x", "distance": "x"})
    with pytest.raises(GraphError, match="Two fields of Trip are written to the column 'time'"):
        rs.Flow("x").source(rs.io.iterable([Trip(1, 2.0)], Trip)).to(
            rs.io.csv(tmp_path / "out", columns={"distance": "time"})
        )

    class Defaulted(NamedTuple):
        time: int = rs.field(name="Time")

    with pytest.raises(GraphError, match=r"time: Annotated\[\.\.\., rs\.field\(name='Time'\)\]"):
        rs.io.csv(tmp_path, Defaulted)
    with pytest.raises(GraphError, match=r"factory= .* or name="):
        rs.field()


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    twice = [pa.array([1]), pa.array([1.0]), pa.array([2.0])]
    table = pa.Table.from_arrays(twice, names=["time", "distance", "distance"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: the column 'distance' is there twice"):
        rs.io.parquet(tmp_path, Trip).splits()
    assert read(rs.io.parquet(tmp_path, Timed)) == [Timed(1)]


def test_layouts_of_one_type(tmp_path: Path) -> None:
    class Held(NamedTuple):
        time: int
        numbers: list[float]
        text: str

    table = pa.table(
        {
            "time": [1],
            "numbers": pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
            "text": pa.array(["a"], pa.string_view()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(rs.io.parquet(tmp_path, Held)) == [Held(1, [1.0, 2.0], "a")]


def test_flows_over_found_files(tmp_path: Path) -> None:
    """End to end, with a warning in place of a silent loss."""
    for day in ("2024-01-01", "2024-01-02"):
        (tmp_path / f"day={day}").mkdir()
        as_parquet([{"time": 1}], tmp_path / f"day={day}" / "part-0.parquet")
    sink, flow = Collect(), rs.Flow("found")
    flow.source(rs.io.parquet(tmp_path, Day)).to(sink)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow.run()
    assert sink.records() == [Day(1, "2024-01-01"), Day(1, "2024-01-02")]
