"""W1: a keyed running count. Fresh seeded int keys, not sorted; an update and an output per record.

Three actors: a source that makes the keys, the keyed operator, a sink that checks every answer by
count and checksum. `time` counts blocks of rows, so that a block is an epoch.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import raystream as rs
from raystream.errors import JobError

EPOCH_ROWS = 400_000
"""Of an epoch: so many that its fixed cost does not show."""
CHECKPOINT_ROWS = 10_000_000
"""From one checkpoint to the next: one falls into the middle of a run of 20 million."""


class Key(NamedTuple):
    time: rs.Int32
    key: rs.Int32


class Counted(NamedTuple):
    key: rs.Int32
    n: rs.Int32


class Tally(rs.State):
    n: rs.Int32 = 0


@dataclass(frozen=True)
class Keys:
    """Uniform keys from a counter-based generator, so that any block can be made again."""

    rows: int
    distinct: int
    seed: int
    epoch_rows: int = EPOCH_ROWS

    record = Key

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("keys")]

    def block(self, at: int) -> np.ndarray:
        """int32 keys of the block of rows that begins at `at`."""
        rng = np.random.Generator(np.random.Philox(key=self.seed + at))
        return rng.integers(0, self.distinct, min(self.epoch_rows, self.rows - at), np.int32)

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Key]]]:
        for at in range(position, self.rows, self.epoch_rows):
            keys = self.block(at)
            time = np.full(len(keys), at // self.epoch_rows, np.int32)
            yield at + len(keys), rs.Batch(Key, {"time": time, "key": keys})


@rs.operator(key="key")
def interpreted(key: Key, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(key.key, tally.n)


@rs.operator(key="key", compiled=True)
def compiled(key: Key, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(key.key, tally.n)


@rs.operator(key="key")
def batch(keys: rs.Batch[Key], rows: rs.Rows[Tally]) -> rs.Batch[Counted]:
    n = rows["n"][rows.index] + rows.nth + 1
    rows["n"] += rows.counts
    return rs.Batch(Counted, {"key": keys["key"], "n": n.astype(np.int32)})


FORMS: dict[str, Any] = {"compiled": compiled, "interpreted": interpreted, "batch": batch}


class Check:
    """Counts what comes and sums it up; writes the totals of its range when it closes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rows = 0
        self.sum_n = 0
        self.checksum = 0

    def open(self, context: rs.SinkContext) -> None:
        self.keys = context.keys

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        n = batch["n"].astype(np.int64)
        self.rows += len(batch)
        self.sum_n += int(n.sum())
        self.checksum = (self.checksum + int((n * batch["key"]).sum())) & (2**64 - 1)

    def commit(self, epoch: int) -> None:
        pass

    def close(self) -> None:
        totals = {"rows": self.rows, "sum_n": self.sum_n, "checksum": self.checksum}
        Path(self.folder, f"{self.keys.lo}.json").write_text(json.dumps(totals))


def totals(folder: Path) -> dict[str, int]:
    """What the sinks of a run have found together."""
    found = [json.loads(p.read_text()) for p in folder.glob("*.json")]
    names = ("rows", "sum_n", "checksum")
    return {name: sum(f[name] for f in found) & (2**64 - 1) for name in names}


def expected(source: Keys) -> dict[str, int]:
    """The totals that all answers must add up to."""
    counts = np.zeros(source.distinct, np.int64)
    for at in range(0, source.rows, source.epoch_rows):
        counts += np.bincount(source.block(at), minlength=source.distinct)
    sums = counts * (counts + 1) // 2
    return {
        "rows": source.rows,
        "sum_n": int(sums.sum()),
        "checksum": int((sums * np.arange(source.distinct)).sum()) & (2**64 - 1),
    }


def run(
    form: str,
    *,
    rows: int,
    distinct: int = 100_000,
    seed: int = 1,
    instances: int = 1,
    epoch_rows: int = EPOCH_ROWS,
    local: bool = False,
) -> dict[str, Any]:
    """One measured run; seconds from the first row to the last answer.

    Raises:
        JobError: an answer is wrong.
    """
    source = Keys(rows, distinct, seed, epoch_rows)
    with tempfile.TemporaryDirectory() as folder:
        flow = rs.Flow("w1")
        keys = flow.source(source, epochs=rs.by_time("time", seconds=1))
        keys.through(FORMS[form], name="count").to(Check(folder))
        report = flow.run(
            cluster=None if local else "auto",
            instances={"count": instances},
            checkpoint_every=max(1, CHECKPOINT_ROWS // epoch_rows),
        )
        got = totals(Path(folder))
    if got != expected(source):
        raise JobError(f"W1 {form}: wrong answers: {got} instead of {expected(source)}")
    return {
        "work": "W1",
        "form": form,
        "rows": rows,
        "keys": distinct,
        "epoch_rows": epoch_rows,
        "instances": instances,
        "cluster": report.cluster,
        "seconds": report.elapsed,
        "records_per_second": rows / report.elapsed,
        "cpu": {o.name: o.cpu for o in report.operators},
    }
