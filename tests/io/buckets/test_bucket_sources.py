"""Files in a bucket are read as those of a folder are."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.buckets import objects
from raystream.io.buckets.urls import parsed, place_name
from raystream.io.files.listing import InputWarning
from raystream.testing import Collect


class Row(NamedTuple):
    time: int
    word: str


ROWS = [Row(n, f"w{n % 7}") for n in range(100)]
TEXT = "time,word\n" + "".join(f"{r.time},{r.word}\n" for r in ROWS)


def put(s3: Any, files: dict[str, bytes | str]) -> None:
    for key, data in files.items():
        s3.put_object(Bucket="bucket", Key=key, Body=data)


def read(source: Any, position: int = 0) -> list[Any]:
    return [
        record
        for split in source.splits()
        for _, batch in source.read(split, position)
        for record in batch.records()
    ]


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([r._asdict() for r in ROWS]), sink, row_group_size=30)
    return bytes(sink.getvalue())


def test_every_format_reads_from_a_bucket(s3: Any) -> None:
    lines = "".join(json.dumps(r._asdict()) + "\n" for r in ROWS)
    put(
        s3,
        {
            "rows/a.csv": TEXT,
            "rows/b.jsonl": lines,
            "rows/c.parquet": parquet_bytes(),
            "rows/d.txt": "one\ntwo\n",
        },
    )
    assert read(rs.io.csv("s3://bucket/rows/a.csv", Row)) == ROWS
    assert read(rs.io.json("s3://bucket/rows/b.jsonl", Row)) == ROWS
    parquet = rs.io.parquet("s3://bucket/rows/c.parquet", Row)
    assert read(parquet) == ROWS and read(parquet, 45) == ROWS[45:]
    assert [line.text for line in read(rs.io.text("s3://bucket/rows/d.txt"))] == ["one", "two"]
    assert read(rs.io.csv("s3://bucket/rows/a.csv", Row), 37) == ROWS[37:]


def test_packed_files_in_a_bucket_are_unpacked(s3: Any) -> None:
    text = TEXT.encode()
    packed = {
        "gz": gzip.compress(text),
        "bz2": bz2.compress(text),
        "xz": lzma.compress(text),
        "zst": pa.Codec("zstd").compress(text, asbytes=True),
    }
    put(s3, {f"p/rows.csv.{how}": data for how, data in packed.items()})
    for how in packed:
        assert read(rs.io.csv(f"s3://bucket/p/rows.csv.{how}", Row)) == ROWS, how


def test_prefixes_patterns_and_lists(s3: Any) -> None:
    files = {
        "in/day=1/a.csv": "time\n1\n",
        "in/day=2/b.csv": "time\n2\n",
        "in/_manifest.csv": "no",
        "in/.hidden.csv": "no",
        "in/day=2/notes.md": "no",
        "in/deep/er/c.csv": "time,day\n3,7\n",
    }
    put(s3, files)  # type: ignore[arg-type]

    class Day(NamedTuple):
        time: int
        day: int

    with pytest.warns(InputWarning, match=r"1 of 4 files in s3://bucket/in are not read"):
        assert read(rs.io.csv("s3://bucket/in/", Day)) == [Day(1, 1), Day(2, 2), Day(3, 7)]
    assert read(rs.io.csv("s3://bucket/in/*/*.csv", Day)) == [Day(1, 1), Day(2, 2)]
    assert read(rs.io.csv("s3://bucket/in/**/?.csv", Day)) == [Day(1, 1), Day(2, 2), Day(3, 7)]
    both = ["s3://bucket/in/day=2/b.csv", "s3://bucket/in/day=[2-9]/*.csv"]
    assert read(rs.io.csv(both, Day)) == [Day(2, 2)]


def test_bad_lines_in_a_bucket_become_a_stream(s3: Any) -> None:
    put(s3, {"bad.csv": "time,word\n1,a\nx,b\n2,c\n"})
    flow = rs.Flow("bad")
    stream = flow.source(rs.io.csv("s3://bucket/bad.csv", Row, bad="stream"), epochs=rs.by_time())
    good, bad = Collect(), Collect()
    stream[Row].to(good)
    stream[rs.io.BadLine].to(bad)
    flow.run()
    assert good.records() == [Row(1, "a"), Row(2, "c")]
    assert [(b.file, b.line, b.data) for b in bad.records()] == [("s3://bucket/bad.csv", 3, b"x,b")]


def test_what_goes_wrong_is_said_in_words(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, {"empty.csv": b"", "zip.csv.gz": gzip.compress(TEXT.encode())[:-20]})
    for url, message in {
        "s3://bucket/none.csv": r"There is no object s3://bucket/none\.csv",
        "s3://bucket/none/*.csv": r"There is no object s3://bucket/none/\*\.csv",
        "s3://nobody/a.csv": "s3://nobody/a.csv cannot be read: The specified bucket does not"
        r" exist(.|\n)*Make the bucket first",
        "s3://bucket/empty.csv": r"s3://bucket/empty\.csv is empty",
        "s3://bucket/zip.csv.gz": r"s3://bucket/zip\.csv\.gz is cut off or damaged",
    }.items():
        with pytest.raises(InputError, match=message):
            read(rs.io.csv(url, Row))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(InputError, match=r"cannot be read: .*(.|\n)*AWS_ENDPOINT_URL"):
        read(rs.io.csv("s3://bucket/empty.csv", Row))


def test_an_object_that_went_away_is_named(s3: Any) -> None:
    put(s3, {"a.csv": TEXT})
    source = rs.io.csv("s3://bucket/a.csv", Row)
    (split,) = source.splits()
    s3.delete_object(Bucket="bucket", Key="a.csv")
    with pytest.raises(InputError, match=r"s3://bucket/a\.csv is not there"):
        list(source.read(split, 0))


def test_settings_may_stand_in_the_url(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    put(s3, {"a/b.csv": TEXT})
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert read(rs.io.csv(f"s3://bucket/a/*.csv?region=us-east-1&endpoint={endpoint}", Row)) == ROWS


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:topsecret@bucket/a.csv",
        "s3://bucket/a.csv?secret_key=topsecret",
        "s3://bucket/a.csv?access_key=topsecret&region=eu",
        "az://c/a.csv?sas_token=topsecret",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="credentials do not belong") as raised:
        rs.io.csv(url, Row)
    assert "topsecret" not in str(raised.value)


def test_urls_that_are_none() -> None:
    for url, message in {
        "s3://": "names no bucket",
        "s3:///a.csv": "names no bucket",
        "s3://b/a?regoin=eu": "regoin=, which is no setting",
    }.items():
        with pytest.raises(ConfigError, match=message):
            rs.io.csv(url, Row)
    assert place_name("s3a://b/x/") == "s3://b/x" and place_name("gcs://b") == "gs://b"
    assert parsed("s3://b/a?.csv").key == "a?.csv"
    assert parsed("s3://b/a?region=eu").settings == (("region", "eu"),)


def test_patterns() -> None:
    def fits(key: str, pattern: str) -> bool:
        return objects._fits(key.split("/"), pattern.split("/"))

    assert fits("a/b.csv", "a/*.csv") and not fits("a/b/c.csv", "a/*.csv")
    assert fits("a/b/c.csv", "a/**/*.csv") and fits("a/c.csv", "a/**/*.csv")
    assert fits("a/b", "a/**") and not fits("a/.b", "a/*") and fits("a/.b", "a/.*")
    assert not fits("a", "a/b") and not fits("a/b", "a")


def test_a_sink_may_not_write_where_a_source_reads() -> None:
    flow = rs.Flow("round")
    stream = flow.source(rs.io.csv("s3://bucket/rows/*.csv?region=eu", Row), epochs=rs.by_time())
    with pytest.raises(GraphError, match="where the source"):
        stream.to(rs.io.csv("s3://bucket/rows"))
