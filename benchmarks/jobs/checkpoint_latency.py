"""Latency in a job on Ray while a checkpoint is taken, and otherwise.

Source, compiled count and sink, each a process of its own; epochs at a pace. At first all keys come
once; after that between two checkpoints a tenth of them. An epoch is late by the time from its end,
when its last record is due, to the sink. A checkpoint lasts from the end of its epoch until the
sink hears that it is committed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.parts.restore import WIDTH
from benchmarks.parts.sizes import CHANGED
from benchmarks.shared.notes import Notes
from benchmarks.shared.w1 import Counted, Key, compiled
from raystream.errors import JobError

FULL, DELTA = 1, 2
KINDS = {"full image": FULL, "delta": DELTA, "otherwise": 0}
LOADING_SECONDS = 10.0
"""In which all keys come for the first time; what happens then does not count."""


@dataclass(frozen=True)
class Tenths:
    """All keys once, tick by tick, and then keys of one tenth after the other.

    each: records of a tick. loading, between: ticks, in which all keys come, and between two
    checkpoints.
    """

    keys: int
    each: int
    ticks: int
    loading: int
    between: int

    record = Key

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("keys")]

    def block(self, tick: int) -> np.ndarray:
        """int32: the keys of a tick."""
        if tick < self.loading:
            first, last = (self.keys * t // self.loading for t in (tick, tick + 1))
            return np.arange(first, last, dtype=np.int32)
        rng = np.random.Generator(np.random.Philox(key=tick))
        tenth = self.keys // CHANGED
        first = tick // self.between % CHANGED * tenth
        return rng.integers(first, first + tenth, self.each, np.int32)

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Key]]]:
        for tick in range(position, self.ticks):
            keys = self.block(tick)
            times = np.full(len(keys), tick, np.int32)
            yield tick + 1, rs.Batch(Key, {"time": times, "key": keys})


class Arrivals(Notes):
    """Notes when each epoch came, with how many answers, and when each checkpoint was committed."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        self.file.write(f"0 {epoch} {time.time()} {len(batch)} {int(batch['n'].sum())}\n")

    def commit(self, epoch: int) -> None:
        self.file.write(f"1 {epoch} {time.time()} 0 0\n")


class Seen(NamedTuple):
    """Of a job: how late epochs were in seconds, by number; the first and last epoch of each
    checkpoint, and how many bytes the state took that was stored at it."""

    late: Mapping[int, float]
    checkpoints: Sequence[tuple[int, int]]
    nbytes: Sequence[int]


def run(source: Tenths, tick: float) -> Seen:
    """One job.

    Raises:
        JobError: an answer is missing or wrong.
    """
    stored: dict[int, int] = {}

    def note(sample: Any) -> None:
        count = sample.operators["count"]
        if sample.committed is not None:
            stored[sample.committed.epoch] = count.image_bytes

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "arrivals"))
        flow = rs.Flow("cut-latency")
        keys = flow.source(source, epochs=rs.by_time("time", seconds=1, speed=1 / tick))
        keys.through(compiled, name="count").to(Arrivals(path), name="arrivals")
        report = flow.run(
            cluster="auto", checkpoint_seconds=source.between * tick, on_progress=note
        )
        lines = np.loadtxt(path, ndmin=2)
    written, committed = (lines[lines[:, 0] == kind] for kind in (0, 1))
    check(source, written)
    late = {int(e): at - (report.started + e * tick) for _, e, at, _, _ in written.tolist()}
    checkpoints = [
        (int(e), int((at - report.started) / tick) + 1) for _, e, at, _, _ in committed.tolist()
    ]
    return Seen(late, checkpoints, [stored.get(first, 0) for first, _ in checkpoints])


def check(source: Tenths, written: np.ndarray) -> None:
    """Every answer came once.

    Raises:
        JobError: one did not.
    """
    counts = np.zeros(source.keys, np.int64)
    for tick in range(source.ticks):
        counts += np.bincount(source.block(tick), minlength=source.keys)
    wanted = [int(counts.sum()), int((counts * (counts + 1) // 2).sum())]
    found = written[:, 3:].sum(axis=0).astype(np.int64).tolist()
    if found != wanted:
        raise JobError(f"answers and their sum are {found} instead of {wanted}")


def lateness(seen: Seen, loaded: int) -> dict[str, np.ndarray]:
    """Seconds: of epochs in checkpoints with full images, in such with deltas, and of all others;
    from the first checkpoint on that ends when all keys have come. A full image is told by its
    bytes."""
    kind = np.zeros(max(seen.late) + 1, np.int8)
    for (first, last), nbytes in zip(seen.checkpoints, seen.nbytes, strict=True):
        kind[first : last + 1] = FULL if nbytes > max(seen.nbytes) / 2 else DELTA
    begin = min(last for _, last in seen.checkpoints if last > loaded)
    epochs = [e for e in sorted(seen.late) if e > begin]
    late, kinds = np.array([seen.late[e] for e in epochs]), kind[epochs]
    return {name: late[kinds == k] for name, k in KINDS.items()}


def main(
    keys: Annotated[int, typer.Option(help="Keys of the state.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Of the job, when all keys have come.")] = 90,
    between: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 5,
    records: Annotated[int, typer.Option(help="In an epoch.")] = 2_000,
    pace: Annotated[float, typer.Option(help="Seconds of an epoch.")] = 0.02,
) -> None:
    """In a job on Ray: how late epochs are during checkpoints, and otherwise."""
    loading, all_ticks = round(LOADING_SECONDS / pace), round((LOADING_SECONDS + seconds) / pace)
    source = Tenths(keys, records, all_ticks, loading, round(between / pace))
    seen = run(source, pace)
    found = lateness(seen, loading)
    table = Table("epochs", "how many", "p50 ms", "p99 ms", "most ms", "ratio of p99",
                  title=f"{keys:,} keys, {records / pace:,.0f} records/s,"
                        f" checkpoints every {between:g} s",
                  )  # fmt: skip
    usual = np.percentile(found["otherwise"], 99)
    for name, late in found.items():
        if len(late):
            shown = np.percentile(late, (50, 99, 100))
            table.add_row(name, f"{len(late):,}", *(f"{v * 1e3:.1f}" for v in shown),
                          f"{shown[1] / usual:.2f}")  # fmt: skip
    Console(width=WIDTH).print(table)
