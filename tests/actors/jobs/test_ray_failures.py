"""Records that fail, and sources that are told of commits, on real Ray, while instances die."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

import raystream as rs
from tests.actors.helpers import parts
from tests.flows import Running, Tally, Word, split
from tests.gates import Gate, Slow

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


class Told(NamedTuple):
    key: str
    reason: str


@rs.operator(key="word")
def picky(word: Word, tally: Tally) -> Iterator[Running]:
    """Fails at every third record of a word, after it has counted and emitted it."""
    tally.n += 1
    yield Running(word.word, tally.n)
    if word.time % 3 == 0:
        raise ValueError(f"the time {word.time}")


@rs.operator()
def told(failed: rs.FailedRecord) -> Iterator[Told]:
    yield Told(json.loads(failed.data)["word"], failed.reason)


@dataclass(frozen=True)
class Noting(Slow):
    """Notes what it is told of commits, in a file for each process."""

    notes: Path | None = None

    def commit(self, positions: Mapping[str, int]) -> None:
        assert self.notes is not None
        with (self.notes / f"{os.getpid()}").open("a") as file:
            file.write(json.dumps([time.time(), positions]) + "\n")


def test_records_that_fail_come_exactly_once(tmp_path: Path) -> None:
    for name in ("sound", "failed", "notes"):
        (tmp_path / name).mkdir()
    gate = Gate(tmp_path / "gate")
    drip = Noting(0, gate, notes=tmp_path / "notes")
    kill = parts.Killer(gate, "picky/0", "lines/0", samples=2)
    flow = rs.Flow("picky")
    lines = flow.source(drip, epochs=rs.by_arrival(seconds=0.05), name="lines")
    out = lines.through(split).through(picky, on_error="stream")
    out[Running].to(parts.Files(tmp_path / "sound"), name="sound")
    out[rs.FailedRecord].through(told).to(parts.Files(tmp_path / "failed"), name="failed")
    flow.run(
        cluster="auto",
        on_progress=kill,
        checkpoint_every=4,
        instances={"lines": 2, "picky": 2},
        spares=1,
    )
    assert not kill.victims
    ends = {s: gate.end(s) or 0 for s in "ab"}
    read = [
        (i, w) for s, end in ends.items() for i in range(end) for w in (f"{s}{i % 7}", f"w{i % 5}")
    ]
    sound = Counter(w for i, w in read if i % 3)
    found = sorted(tuple(r) for _, _, r in parts.records(tmp_path / "sound"))
    assert found == sorted((w, n) for w, many in sound.items() for n in range(1, many + 1))
    failed = Counter(tuple(r) for _, _, r in parts.records(tmp_path / "failed"))
    assert failed == Counter((w, f"ValueError: the time {i}") for i, w in read if i % 3 == 0)
    _check_notes(tmp_path / "notes", ends)


def _check_notes(notes: Path, ends: dict[str, int]) -> None:
    """Each process was told ever later positions, and in the end all was committed."""
    newest: dict[str, int] = {}
    for file in notes.iterdir():
        told_here = [json.loads(line)[1] for line in file.read_text().splitlines()]
        for name in "ab":
            mine = [positions[name] for positions in told_here if name in positions]
            assert mine == sorted(mine)
            newest[name] = max([newest.get(name, 0), *mine])
    assert newest == ends
