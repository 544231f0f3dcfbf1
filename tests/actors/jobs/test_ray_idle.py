"""A silent split on real Ray: windows close, also when its reader and the register's place die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

import raystream as rs
from tests.actors.helpers import parts
from tests.gates import Gate

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


class Event(NamedTuple):
    time: int
    key: str


class Count(NamedTuple):
    start: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key", window=rs.tumbling(seconds=10))
class Counts:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Count]:
        yield Count(window.start, tally.n)


@dataclass(frozen=True)
class OneSilent(rs.Source[Event]):
    """Two splits. One of them is silent until the windows of the other have closed, and until the
    gate is open."""

    seen: Path
    gate: Path

    def splits(self) -> list[rs.Split]:
        return [rs.Split("loud"), rs.Split("silent")]

    def read(self, split: rs.Split, position: int, /) -> Iterator[tuple[int, rs.Batch[Event]]]:
        if split.name == "loud":
            for n in range(position, 40):
                yield n + 1, rs.Batch(Event, {"time": [n], "key": ["a"]})
        give_up = time.monotonic() + 120
        while not (self.seen.exists() and self.gate.exists()) and time.monotonic() < give_up:
            time.sleep(0.02)
        if split.name == "silent" and position == 0:
            yield 1, rs.Batch(Event, {"time": [3], "key": ["b"]})


@dataclass(frozen=True)
class Seen(rs.Sink[Count]):
    """Notes what it was given, and that the windows before 30 are there."""

    folder: Path

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Count], /) -> None:
        for count in batch.records():
            (self.folder / f"{epoch}-{count.start}-{count.n}").touch()
            if count.start == 20:
                (self.folder / "seen").touch()


@pytest.mark.parametrize(
    "killed",
    [
        pytest.param((), marks=pytest.mark.long),
        pytest.param(("events/1",), marks=pytest.mark.long),
        ("keeper/0", "events/0"),
    ],
)
def test_windows_close_while_a_split_is_silent(tmp_path: Path, killed: tuple[str, ...]) -> None:
    flow = rs.Flow("idle")
    epochs = rs.by_arrival(seconds=0.05, idle="1s")
    silent = OneSilent(tmp_path / "seen", tmp_path / "gate")
    source = flow.source(silent, epochs=epochs, name="events")
    source.through(Counts(), name="counts").to(Seen(tmp_path))
    kill = parts.Killer(Gate(tmp_path / "gate"), *killed)
    report = flow.run(cluster="auto", checkpoint_every=4, instances={"events": 2}, on_progress=kill)
    assert not kill.victims
    found = sorted(f.name.split("-")[1:] for f in tmp_path.glob("*-*-*"))
    assert found == [[str(start), "10"] for start in (0, 10, 20, 30)]
    assert report.operator("counts").late == 1
