"""Ranges move on real Ray while the job goes on: the same answers, whoever dies on the way."""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.cli.app import app
from tests.flows import Line, Running, Tally, Word, split

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

LINES = 4000


@dataclass(frozen=True)
class Held:
    """A source that takes its time until a file is there, and does not end before.

    Who waits inside `read` ends no epoch, so nothing can be handed over: it only gets there where
    everything takes several times as long as it should.
    """

    gate: Path
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a"), rs.Split("b")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for i in range(position, LINES):
            while not self.gate.exists():
                time.sleep(0.005)
                if i <= LINES - 100:
                    break
            yield i + 1, rs.Batch(Line, {"time": [i], "text": [f"{split.name}{i % 7} w{i % 5}"]})


@rs.operator(key="word")
@dataclass(frozen=True)
class Mortal:
    """Counts. The first process beside the one that began kills itself."""

    folder: Path

    def process(self, word: Word, tally: Tally) -> Iterator[Running]:
        first = self.folder / "first"
        if not first.exists():
            first.write_text(str(os.getpid()))
        elif int(first.read_text()) != os.getpid() and not (self.folder / "died").exists():
            (self.folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        tally.n += 1
        yield Running(word.word, tally.n)


@dataclass
class Asks:
    """Gives one command after the other while a job is followed; then opens a gate."""

    gate: Path
    commands: list[str]
    said: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def __call__(self, sample: Any) -> None:
        """Begin once a cut is committed."""
        while self.commands and sample.committed.epoch:
            result = CliRunner().invoke(app, shlex.split(self.commands.pop(0)))
            self.codes.append(result.exit_code)
            self.said += (result.stdout + result.stderr).splitlines()
        if not self.commands:
            self.gate.touch()


def test_a_running_job_grows_and_shrinks(tmp_path: Path) -> None:
    """A candidate dies on the way, a source and a sink are moved too, and a sink to a database
    grows and shrinks."""
    gate = tmp_path / "gate"
    asks = Asks(
        gate,
        [
            "scale held count=3",
            "scale held count=3",
            "scale held count=2,lines=2 --handover",
            "move held files/0",
            "scale held files=2",
            "drain held nowhere",
            "scale held rows=3",
            "scale held rows=1",
        ],
    )
    (tmp_path / "notes").mkdir()
    flow = rs.Flow("held")
    lines = flow.source(Held(gate), epochs=rs.by_time(seconds=10), name="lines")
    counts = lines.through(split).through(Mortal(tmp_path / "notes"), name="count")
    counts.to(rs.io.parquet(tmp_path / "out"), name="files")
    counts.to(rs.io.sqlite(tmp_path / "out.db", table="counts", create=True), name="rows")
    report = flow.run(cluster="auto", on_progress=asks, checkpoint_seconds=0.5, spares=3)
    assert asks.codes == [0, 2, 0, 0, 2, 2, 0, 0], asks.said
    told = "\n".join(asks.said)
    assert "count (asked for): count/" in told and "restore" in told
    assert "count is served like that already" in told
    assert (
        "files is a sink that does not scale: its instances can be moved, but its ranges stay"
        in told
    )
    assert "there is no node nowhere" in told
    assert (tmp_path / "notes" / "died").exists()
    assert not report.recoveries
    moved = {(m.operator, m.gone): m for m in report.moved}
    assert [m.failed for m in report.moved] == [""] * 6
    out = moved["count", ("count/0",)]
    assert out.tries == 2 and len(out.new) == 3 and min(out.place, out.restore, out.replay) >= 0
    assert len(moved["count", out.new].new) == 2
    assert moved["files", ("files/0",)].new == ("files/1",)
    assert [report.operator(o).instances for o in ("lines", "count", "files")] == [2, 2, 1]
    words = [f"{split}{i % 7}" for split in "ab" for i in range(LINES)]
    words += [f"w{i % 5}" for i in range(LINES)] * 2
    expected = [(w, n) for w in sorted(set(words)) for n in range(1, words.count(w) + 1)]
    assert sorted(parts_of(tmp_path / "out")) == expected
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert sorted(connection.execute("SELECT word, n FROM counts").fetchall()) == expected


def parts_of(folder: Path) -> list[tuple[str, int]]:
    """The rows of all parts."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(part.path) for part in rs.io.parts(folder)]
    return [(r["word"], r["n"]) for t in tables for r in t.to_pylist()]
