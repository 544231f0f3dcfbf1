"""A job that finds its own size, told line by line:
`python -m tests.actors.helpers.elastic_story ADDRESS FOLDER`. A program of its own, because a
process can be in one cluster only."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray

import raystream as rs
from raystream.controller.elastic.pool import OPERATOR_NODE

TICKS = 20
"""Epochs a second."""
CALM, ALL = 4 * TICKS, 280 * TICKS
"""After how many epochs there is much to do, and nothing at the latest: a test that takes so long
fails anyway."""
FEW, MANY = 10, 1500
"""Records an epoch."""
BURN = 1200
NODES_MAX = 3


class Key(NamedTuple):
    time: rs.Int64
    key: rs.Int64


class Counted(NamedTuple):
    key: rs.Int64
    n: int


class Tally(rs.State):
    n: int = 0


@dataclass(frozen=True)
class Wave:
    """Few records, then many until there is a file `grown`, then few until there is a file
    `enough`. When it saw a file it notes, so that it does the same when it is read again."""

    folder: Path

    record = Key

    def splits(self) -> list[rs.Split]:
        return [rs.Split("wave")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Key]]]:
        for t in range(position, ALL):
            if t >= self._seen("enough", t):
                return
            n = MANY if CALM <= t < self._seen("grown", t) else FEW
            keys = np.random.Generator(np.random.Philox(key=t)).integers(0, 1000, n)
            yield t + 1, rs.Batch(Key, {"time": np.full(n, t), "key": keys})

    def _seen(self, name: str, now: int) -> int:
        """The epoch at which a file was seen first."""
        note = self.folder / f"{name}-at"
        if (self.folder / name).exists() and not note.exists():
            note.write_text(str(now))
        return int(note.read_text()) if note.exists() else ALL


@rs.operator(key="key")
def count(key: Key, tally: Tally) -> Iterator[Counted]:
    """Counts, and takes its time."""
    sum(range(BURN))
    tally.n += 1
    yield Counted(key.key, tally.n)


class Nodes:
    """Notes how many nodes for operators there were, and says when there was much to do for long
    enough, and when it is enough: the operator has grown and shrunk, and a node was given back.

    Were there little to do as soon as it has grown, all of it might be on the node that was spare:
    when it shrinks, that one and a spare one are what is needed, and none is given back.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[int] = []
        self.cpu: list[tuple[int, int, float]] = []

    def __call__(self, sample: Any) -> None:
        listed: Any = ray.nodes
        nodes = [n for n in listed() if n["Alive"] and n["Resources"].get(OPERATOR_NODE)]
        self.seen.append(len(nodes))
        count = sample.operators["count"]
        self.cpu.append((round(sample.t), count.instances, round(count.cpu, 2)))
        if count.instances > 1 and self.seen[-1] == NODES_MAX:
            (self.folder / "grown").touch()
        grown = (self.folder / "grown").exists()
        if grown and count.instances == 1 and self.seen[-1] < max(self.seen):
            (self.folder / "enough").touch()


def main(address: str, folder: Path) -> None:
    flow = rs.Flow("wave")
    keys = flow.source(Wave(folder), epochs=rs.by_time(seconds=1, speed=TICKS), name="keys")
    keys.through(count, name="count").to(rs.io.parquet(folder / "out"), name="files")
    nodes = Nodes(folder)
    report = flow.run(
        cluster=address,
        policy=rs.CpuThreshold(threshold=0.15, low=0.1, interval=1.0, lull=3),
        bounds={"count": (1, 3)},
        pool=rs.PoolOptions(1, idle_seconds=2.0, nodes_max=NODES_MAX),
        spares=1,
        checkpoint_seconds=1.0,
        on_progress=nodes,
    )
    sizes = [len(m.new) - len(m.gone) for m in report.moved if not m.failed]
    found = Counter(
        r.key for batch in rs.io.read_parts(folder / "out", Counted) for r in batch.records()
    )
    wanted: Counter[int] = Counter()
    for _, batch in Wave(folder).read(rs.Split("wave"), 0):
        wanted.update(batch["key"].tolist())
    told = {
        "what": "done",
        "sizes": sizes,
        "because": [m.because for m in report.moved],
        "failed": [m.failed for m in report.moved if m.failed],
        "operators": sorted({m.operator for m in report.moved}),
        "nodes": nodes.seen,
        "moved": [(round(m.t), round(m.place + m.restore + m.replay, 1)) for m in report.moved],
        "cpu": nodes.cpu,
        "right": found == wanted,
        "answers": found.total(),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    from tests.actors.helpers import elastic_story  # by its name, under which others can import it

    elastic_story.main(sys.argv[1], Path(sys.argv[2]))
