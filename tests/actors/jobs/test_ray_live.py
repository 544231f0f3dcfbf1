"""Sources that cannot be read again on real Ray, while those die and move that hold what came."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from tests.actors.helpers import parts
from tests.actors.jobs.test_ray_moves import Asks
from tests.flows import Word, running
from tests.gates import Gate

LEAST = 20
OPTIONS: dict[str, Any] = {"instances": {"words": 2, "running": 2}, "spares": 1}
pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


@dataclass(frozen=True)
class Session:
    """A feed that begins again in each process: its words name the process and the split. It ends
    when the gate is open, but yields `LEAST` words in any case."""

    gate: Gate

    def __call__(self, split: int) -> Iterator[Word]:
        i = 0
        while i < LEAST or not (self.gate.folder / "open").exists():
            yield Word(i, f"{split}-{os.getpid()}")
            i += 1
            time.sleep(0.003)


def run(tmp_path: Path, watch: Any, **options: Any) -> tuple[Any, list[tuple[str, int]]]:
    (tmp_path / "out").mkdir()
    gate = watch.gate
    gate.folder.mkdir(exist_ok=True)
    flow = rs.Flow("fed")
    feed = rs.io.recorded(Session(gate), Word, splits=2)
    words = flow.source(feed, epochs=rs.by_arrival(seconds=0.05), name="words")
    words.through(running).to(parts.Files(tmp_path / "out"))
    report = flow.run(cluster="auto", on_progress=watch, **options)
    return report, [tuple(r) for _, _, r in parts.records(tmp_path / "out")]  # type: ignore[misc]


@dataclass
class Watching:
    """Follows a job, and has a gate."""

    gate: Gate
    asks: Asks

    def __call__(self, sample: Any) -> None:
        self.asks(sample)


def check_counted_once(found: list[tuple[str, int]]) -> Counter[str]:
    """Each word that was recorded is counted from 1 on, without a gap and never twice. Returns how
    often each was there."""
    words = Counter(word for word, _ in found)
    assert sorted(found) == sorted((w, n) for w, m in words.items() for n in range(1, m + 1))
    return words


@pytest.mark.long
def test_what_was_recorded_outlives_the_keeper_and_the_source(tmp_path: Path) -> None:
    """The only place of the register dies, so that sources say what was recorded; then a source."""
    kill = parts.Killer(Gate(tmp_path / "gate"), "keeper/0", "words/0", samples=2)
    report, found = run(tmp_path, kill, checkpoint_every=4, **OPTIONS)
    assert not kill.victims
    assert [name for recovery in report.recoveries for name in recovery.gone] == ["words/0"]
    words = check_counted_once(found)
    assert len(words) == 3  # a split has two processes, one after the other


def test_only_an_owner_feeds_and_a_move_loses_nothing(tmp_path: Path) -> None:
    """One instance becomes two, and then one again, each by another way of moving."""
    gate = Gate(tmp_path / "gate")
    gate.folder.mkdir()
    commands = ["scale fed words=2", "scale fed words=1 --handover"]
    asks = Asks(gate.folder / "open", commands)
    watch = Watching(gate, asks)
    report, found = run(tmp_path, watch, checkpoint_seconds=0.5, spares=2)
    assert asks.codes == [0, 0], asks.said
    assert [m.failed for m in report.moved] == ["", ""]
    words = check_counted_once(found)
    # A candidate reads nothing: in each split, an owner after the other had words.
    assert len(words) <= 6
    assert {word.partition("-")[0] for word in words} == {"0", "1"}


# ---------------------------------------------------------------- a folder that fills

MOST = 2_000


@dataclass
class Filling:
    """Moves a file into a folder at each sample, kills, and ends the folder when all is whole."""

    folder: Path
    kill: parts.Killer
    files: int = 0

    def __call__(self, sample: Any) -> None:
        if not (self.folder / "_END").exists() and self.files < MOST:
            hidden = self.folder / f".{self.files}"
            lines = (f'{{"time": {i}, "word": "f{self.files}"}}\n' for i in range(3))
            hidden.write_text("".join(lines))
            hidden.rename(self.folder / f"{self.files}.jsonl")
            self.files += 1
        self.kill(sample)
        if (self.kill.gate.folder / "open").exists():
            (self.folder / "_END").touch()


def test_each_file_is_read_once_although_its_reader_dies(tmp_path: Path) -> None:
    folder, gate = tmp_path / "in", Gate(tmp_path / "gate")
    for made in (folder, gate.folder, tmp_path / "out"):
        made.mkdir()
    watch = Filling(folder, parts.Killer(gate, "words/0", samples=2))
    flow = rs.Flow("filled")
    follow = rs.io.Follow(every=0.05, settled=0, end="_END")
    source = rs.io.json(folder, Word, follow=follow)
    words = flow.source(source, epochs=rs.by_arrival(seconds=0.05), name="words")
    words.through(running).to(parts.Files(tmp_path / "out"))
    report = flow.run(cluster="auto", on_progress=watch, checkpoint_every=4, spares=1)
    assert [name for recovery in report.recoveries for name in recovery.gone] == ["words/0"]
    found = sorted(tuple(r) for _, _, r in parts.records(tmp_path / "out"))
    assert watch.files > 1
    assert found == sorted((f"f{i}", n) for i in range(watch.files) for n in (1, 2, 3))
