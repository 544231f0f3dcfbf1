"""Files that keep arriving are read once each, whole, and by whoever is there."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.api.connectors import Source
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.live import LiveSplit, Sent
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.files import handles
from raystream.io.following import pieces
from raystream.io.following.source import Following
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.types import BEFORE_ALL
from raystream.testing import Collect
from tests.s3_server import s3 as s3
from tests.s3_server import s3_server as s3_server


class Row(NamedTuple):
    time: int
    word: str


QUICK = rs.io.Follow(every=0.02, settled=0, end="_END")


def text(rows: list[Row]) -> str:
    return "time,word\n" + "".join(f"{r.time},{r.word}\n" for r in rows)


def rows_of(number: int, count: int = 3) -> list[Row]:
    return [Row(number * 10 + i, f"{number}.{i}") for i in range(count)]


def move_in(folder: Path, name: str, content: str) -> None:
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text(content)
    hidden.rename(folder / name)


def run(source: Any, **options: Any) -> list[Row]:
    flow, sink = rs.Flow("followed"), Collect()
    flow.source(source, epochs=rs.by_arrival(seconds=0.01)).to(sink)
    flow.run(**options)
    return sink.records()


def filling(fill: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=fill)
    thread.start()
    return thread


def test_files_that_come_while_the_job_runs_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "in"  # which is not there at the beginning

    def fill() -> None:
        for n in range(4):
            move_in(folder, f"{n}.csv", text(rows_of(n)))
            time.sleep(0.03)
        (folder / "notes.md").write_text("no")
        (folder / "_END").touch()

    thread = filling(fill)
    found = run(rs.io.csv(folder, Row, follow=QUICK), check=True)
    thread.join()
    assert found == [r for n in range(4) for r in rows_of(n)]
    assert not handles._open and not pieces._going_on  # what is read again is closed, too


def test_what_is_being_written_is_not_read(tmp_path: Path) -> None:
    def fill() -> None:
        with (tmp_path / "slow.csv").open("w") as file:
            file.write("time,word\n")
            for row in rows_of(1, 20):
                file.write(f"{row.time},{row.word}\n")
                file.flush()
                time.sleep(0.02)
        (tmp_path / "_END").touch()

    thread = filling(fill)
    patient = rs.io.Follow(every=0.02, settled=0.5, end="_END")
    found = run(rs.io.csv(tmp_path, Row, follow=patient))
    thread.join()
    assert found == rows_of(1, 20)


def test_bad_lines_patterns_formats_and_lanes(tmp_path: Path) -> None:
    for n in range(6):
        move_in(tmp_path, f"in{n}.csv", text(rows_of(n)) + "x,bad\n")
    move_in(tmp_path, "other.csv", "nothing\n")
    (tmp_path / "_END").touch()
    flow, good, bad = rs.Flow("bad"), Collect(), Collect()
    many = rs.io.Follow(every=0.02, settled=0, end="_END", lanes=3)
    source = rs.io.csv(tmp_path / "in*.csv", Row, bad="stream", follow=many)
    stream = flow.source(source, epochs=rs.by_arrival(seconds=0.01))
    stream[Row].to(good)
    stream[rs.io.BadLine].to(bad)
    flow.run(check=True)
    assert sorted(good.records()) == [r for n in range(6) for r in rows_of(n)]
    assert sorted(Path(b.file).name for b in bad.records()) == [f"in{n}.csv" for n in range(6)]


def test_json_parquet_and_text_are_followed(tmp_path: Path) -> None:
    for name, sink in {"json": rs.io.json, "parquet": rs.io.parquet}.items():
        flow = rs.Flow("made")
        made = flow.source(rs.io.iterable(rows_of(1), Row), epochs=rs.by_time())
        made.to(sink(tmp_path / name))
        flow.run()
        (tmp_path / name / "_END").touch()
    json = rs.io.json(tmp_path / "json", Row, follow=QUICK)
    assert run(json) == rows_of(1) == run(rs.io.parquet(tmp_path / "parquet", Row, follow=QUICK))
    move_in(tmp_path / "text", "a.txt", "one\ntwo\n")
    (tmp_path / "text" / "_END").touch()
    assert [r.text for r in run(rs.io.text(tmp_path / "text", follow=QUICK))] == ["one", "two"]


def test_a_prefix_of_a_bucket_is_followed(s3: Any) -> None:
    def fill() -> None:
        for n in range(3):
            s3.put_object(Bucket="bucket", Key=f"in/day=1/{n}.csv", Body=text(rows_of(n)))
            time.sleep(0.05)
        s3.put_object(Bucket="bucket", Key="in/_END", Body=b"")

    thread = filling(fill)
    found = run(rs.io.csv("s3://bucket/in/", Row, follow=QUICK))
    thread.join()
    assert sorted(found) == [r for n in range(3) for r in rows_of(n)]


def test_the_watermark_is_that_of_the_rows(tmp_path: Path) -> None:
    class Count(rs.State):
        n: int = 0

    class Counted(NamedTuple):
        word: str
        n: int

    @rs.operator(key="word", window=rs.tumbling(seconds=10))
    class Counts:
        def process(self, row: Row, state: Count) -> None:
            state.n += 1

        def close(self, key: str, window: rs.Window, state: Count) -> Iterator[Counted]:
            yield Counted(key, state.n)

    for n in range(3):
        move_in(tmp_path, f"{n}.csv", text([Row(n * 10 + i, "a") for i in range(4)]))
        os.utime(tmp_path / f"{n}.csv", (n + 1, n + 1))
    (tmp_path / "_END").touch()
    flow, sink, late = rs.Flow("windows"), Collect(), Collect()
    rows = flow.source(rs.io.csv(tmp_path, Row, follow=QUICK), epochs=rs.by_arrival(seconds=0.01))
    counted, too_late = rows.through(Counts(), late=True)
    counted.to(sink)
    too_late.to(late)
    flow.run()
    assert [c.n for c in sink.records()] == [4, 4, 4] and not late.records()


def test_a_file_that_changes_when_it_was_read_ends_the_job(tmp_path: Path) -> None:
    move_in(tmp_path, "a.csv", text(rows_of(1)))
    source = rs.io.csv(tmp_path, Row, follow=QUICK)
    assert isinstance(source, Following)
    _, batch, _ = next(source.read(rs.Split("lane-0"), 0))
    pieces._held.clear()
    (tmp_path / "a.csv").write_text(text(rows_of(2)))
    (stage,) = source.stages(rs.errors.Where("", 0))
    with pytest.raises(InputError, match="is gone, or has changed"):
        stage.process(batch)


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    for wrong in ({"settled": -1}, {"every": "soon"}, {"lanes": 0}, {"end": "a/b"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            rs.io.Follow(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="follow="):
        rs.io.csv(tmp_path, Row, follow="yes")  # type: ignore[call-overload]
    with pytest.raises(GraphError, match="by_arrival"):
        rs.Flow("f").source(rs.io.csv(tmp_path, Row, follow=True), epochs=rs.by_time())


def test_looking_at_a_folder_says_what_is_there(tmp_path: Path) -> None:
    source: Source[Row] = rs.io.csv(tmp_path, Row, follow=True)
    assert source.check() == "0 files now, and what comes"
    move_in(tmp_path, "a.csv", text(rows_of(1)))
    assert source.check().startswith("1 file now, and what comes; read a record (Row) of ")


# ---------------------------------------------------------------- processes that die


class Checkpoint(NamedTuple):
    """Where a lane was after some epochs."""

    epochs: int = 0
    position: int = 0
    watermark: int = BEFORE_ALL
    senders: Any = ()


class Process:
    """One process that reads a lane, and what it would claim."""

    def __init__(self, source: Following, name: str, before: Checkpoint) -> None:
        schema = record_schema(source.record)
        at = (before.position, before.watermark)
        self.split = LiveSplit(schema, name, "lane-0", "0:lane-0", "time", 0, None, *at)
        self.split.sender_seconds = source.sender_seconds
        self.split.knows(before.senders)
        self.source = Following(source.files, source.follow)
        self.source.knows(rs.Split("lane-0"), {n: s for n, s, _ in self.split.senders})
        self.reading = self.source.read(rs.Split("lane-0"), self.split.position)

    def read(self) -> bool:
        """Take what comes next; whether there was something."""
        number, batch, *sent = next(self.reading)
        if len(batch):
            at = Sent(*sent[0], 0) if sent else None
            self.split.add(number, batch._columns, at)
        return bool(len(batch))

    def take(self, boundary: Boundary) -> list[Columns]:
        """Take the rows of an epoch, and hear what others have recorded."""
        taken = self.split.take(boundary)
        if self.split.heard:
            self.source.knows(rs.Split("lane-0"), dict(self.split.heard))
            self.split.heard.clear()
        return taken


@pytest.mark.parametrize("seed", range(8))
def test_each_row_comes_once_whoever_dies(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies and another goes on from the last checkpoint; or one that was replaced works
    on. Whatever is claimed first holds. Rows are read from the files again at random."""
    monkeypatch.setattr("raystream.io.files.lines.CHUNK_BYTES", 30)
    monkeypatch.setattr("raystream.io.following.source.STEP_SECONDS", 0)
    rng = random.Random(seed)
    files = rs.io.json(tmp_path, Row)
    source = Following(files, rs.io.Follow(every=0.0001, settled=0))
    wanted: list[Row] = []
    found: list[Row] = []
    (stage,) = source.stages(rs.errors.Where("", 0))
    checkpoint, history = Checkpoint(), []
    owner, asleep = Process(source, "p0", checkpoint), []

    def rows_in(taken: list[Columns]) -> list[Row]:
        return [r for part in taken for r in stage.process(rs.Batch._of(part)).records()]

    for step in range(120):
        if step < 60 and rng.random() < 0.3:
            rows = rows_of(step, rng.randrange(1, 6))
            wanted += rows
            move_in(
                tmp_path,
                f"{step}.jsonl",
                "".join(f'{{"time": {r.time}, "word": "{r.word}"}}\n' for r in rows),
            )
        for _ in range(rng.randrange(4)):
            owner.read()
        claimant = rng.choice(asleep) if asleep and rng.random() < 0.3 else owner
        history.append(claimant.split.wanted())
        for process in asleep:
            process.take(history[-1])
        if rng.random() < 0.5:
            pieces._held.clear()
        found += rows_in(owner.take(history[-1]))
        if rng.random() < 0.3:
            at = owner.split
            checkpoint = Checkpoint(len(history), at.position, at.watermark, at.senders)
        if rng.random() < 0.1:
            asleep = [owner] if rng.random() < 0.5 else []
            owner = Process(source, f"p{step + 1}", checkpoint)
            for boundary in history[checkpoint.epochs :]:
                if rng.random() < 0.3:
                    owner.read()
                owner.take(boundary)
    for _ in range(200):
        owner.read()
        found += rows_in(owner.take(owner.split.wanted()))
    assert sorted(found) == sorted(wanted)
