"""What `python -m benchmarks start` starts: a small flow, as light to import as one of a user's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import raystream as rs
from benchmarks.shared import w1

FOLDER = "RAYSTREAM_BENCHMARK_FOLDER"
"""Tells the flow where its sink is to write."""
SOURCE = w1.Keys(rows=10 * w1.EPOCH_ROWS, distinct=1000, seed=1)


class First(w1.Check):
    """Checks all answers, and notes the Unix time at which the first came."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[w1.Counted]) -> None:
        if not self.rows and len(batch):
            Path(self.folder, "first").write_text(repr(time.time()))
        super().write(epoch, keys, batch)


def flow() -> rs.Flow:
    """W1, compiled, over ten epochs."""
    counts = rs.Flow("start")
    keys = counts.source(SOURCE, epochs=rs.by_time("time", seconds=1))
    keys.through(w1.compiled, name="count").to(First(os.environ[FOLDER]))
    return counts
