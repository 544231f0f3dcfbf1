"""Sinks of files write into a bucket, and readers see whole checkpoints of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import JobError, OutputError
from raystream.io.buckets import objects
from tests.io.kinds import batch

ALL = rs.KeyRange(0, 256)
OUT = "s3://bucket/out"


class Row(NamedTuple):
    time: int
    word: str


def opened(make: Any, committed: int = 0, generation: int = 1, run: str = "one") -> Any:
    sink = make(OUT)
    sink.open(
        rs.SinkContext(run, "rows", ALL, None, 0.0, None, committed, "", False, generation, 0)
    )
    return sink


def keys(s3: Any) -> list[str]:
    found = s3.list_objects_v2(Bucket="bucket", Prefix="out/").get("Contents", [])
    return [f["Key"] for f in found if not f["Key"].endswith("/")]


def written(partial: bool = True) -> list[Row]:
    found = rs.io.read_parts(OUT, Row, partial=partial)
    return [r for b in found for r in b.records()]


def clear(s3: Any) -> None:
    found = s3.list_objects_v2(Bucket="bucket").get("Contents", [])
    for each in found:
        s3.delete_object(Bucket="bucket", Key=each["Key"])


@pytest.mark.parametrize("make", [rs.io.parquet, rs.io.csv, rs.io.json])
def test_a_job_writes_into_a_bucket(s3: Any, make: Any) -> None:
    rows = [Row(n, f"w{n % 3}") for n in range(50)]
    flow = rs.Flow("bucket")
    flow.source(rs.io.iterable(rows, Row), epochs=rs.by_time()).to(make(OUT))
    flow.run()
    assert sorted(written(partial=False)) == rows
    parts = rs.io.parts(OUT)
    assert all(str(p.path).startswith(f"{OUT}/Row/") and p.path.is_file() for p in parts)


def test_readers_see_whole_checkpoints_only(s3: Any) -> None:
    sink = opened(rs.io.parquet)
    sink.write(1, ALL, batch(Row, [Row(1, "a")]))
    assert not [k for k in keys(s3) if "/Row/" in k], "what is not finished is in no bucket"
    sink.prepare(1)
    assert [k for k in keys(s3) if "/Row/" in k] and written() == []
    sink.commit(1)
    assert written() == [Row(1, "a")]
    with pytest.raises(JobError, match="has not ended"):
        written(partial=False)
    sink.close()
    assert written(partial=False) == [Row(1, "a")]


def test_one_that_was_replaced_does_no_harm(s3: Any) -> None:
    zombie = opened(rs.io.parquet)
    zombie.write(1, ALL, batch(Row, [Row(1, "a")]))
    zombie.prepare(1)
    successor = opened(rs.io.parquet, committed=1, generation=2)
    successor.write(2, ALL, batch(Row, [Row(2, "b")]))
    successor.prepare(2)
    successor.commit(2)
    with pytest.raises(OutputError, match=r"has taken the\s+place"):
        zombie.commit(1)
    assert written() == [Row(1, "a"), Row(2, "b")]


def test_what_a_bucket_refuses_is_said(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(rs.io.parquet)
    sink.write(1, ALL, batch(Row, [Row(1, "a")]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(
        OutputError, match=r"cannot be written: .*(.|\n)*AWS_ENDPOINT_URL"
    ) as raised:
        sink.prepare(1)
    assert "nothing" not in str(raised.value), "the secret key is in no message"


def test_a_new_run_removes_what_an_earlier_one_left(s3: Any) -> None:
    sink = opened(rs.io.json, run="one")
    sink.write(1, ALL, batch(Row, [Row(1, "a")]))
    sink.prepare(1)
    again = opened(rs.io.json, run="two")
    again.prepare(1)
    again.commit(1)
    assert written() == [] and not [k for k in keys(s3) if "/Row/" in k]


def test_nothing_is_left_on_this_machine(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sink = opened(rs.io.csv)
    for epoch in range(1, 4):
        sink.write(epoch, ALL, batch(Row, [Row(epoch, "a")]))
        sink.prepare(epoch)
    assert list(tmp_path.iterdir()) == [] and len(keys(s3)) == 4


def test_a_sink_whose_processes_die_at_every_call(s3: Any) -> None:
    rs.testing.check_sink(
        lambda: rs.io.json(OUT),
        [Row(n, w) for n, w in enumerate("abacab")],
        read=lambda: (
            r for b in rs.io.read_parts(OUT, Row, partial=True, key_groups=8) for r in b.records()
        ),
        clear=lambda: clear(s3),
        every_call=False,
        examples=6,
    )


def test_checking_a_bucket_leaves_it_as_it_was(s3: Any) -> None:
    assert rs.io.parquet(OUT).check() == f"{OUT} can be written"
    assert objects.below(objects.parsed(OUT)) == []
