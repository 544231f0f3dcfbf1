"""What rows on disk cost: a table that keeps some of its rows in memory, beside one that has all.

Rows of 64 bytes are made, and then touched by epochs of keys that are drawn in three ways: from a
twentieth of all keys (which stay in memory), from that twentieth nine times of ten, and evenly from
all. Each epoch brings its rows, touches them, and lets others leave. Afterwards the counts in the
rows are added up: none may be lost.

Memory is that of the process without pages of files, beyond what it had before the first row. The
page cache holds what is on disk while there is memory for it; `disk reads` are pages that it had
not. In a memory cgroup it has less.

In the end a successor takes over: from the files of the table, and from images, as on another node.
Both then bring a thousand rows.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.schema.state import state_schema
from raystream.state.images.chain import FULL
from raystream.state.images.image import Image, ImageHeader, InputPosition, decode
from raystream.state.tables.structured_table import StructuredTable
from raystream.state.tiers.row_folder import RowFolder, left_at
from raystream.state.tiers.structured_tier import StructuredTier

GROUPS = 256
ROW_BYTES = 64
PART_BYTES = 8 << 20
WHOLE_RANGE = rs.KeyRange(0, GROUPS)
SETTLE = 5
"""Epochs from one checkpoint to the next."""


class Counted(rs.State):
    """With its key and epoch a row of 64 bytes."""

    n: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0


_HEADER = ImageHeader(
    operator="count",
    shape="rows",
    groups=GROUPS,
    keys=WHOLE_RANGE,
    base=0,
    checkpoint=0,
    input_position=InputPosition(),
)


class Measured(NamedTuple):
    """Of the epochs of one kind. keys, cpu: distinct keys a second, of wall and of CPU time."""

    keys: float
    cpu: float
    worst: float
    brought: float


def main(
    gb: Annotated[float, typer.Option(min=0.001, help="Rows, in GB of 64 bytes each.")] = 0.2,
    part: Annotated[int, typer.Option(min=1, help="The part of them that memory may take.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 30,
    each: Annotated[int, typer.Option(min=1, help="Records of an epoch.")] = 50_000,
    folder: Annotated[str | None, typer.Option(help="Where rows lie.")] = None,
) -> None:
    """Rows on disk: distinct keys a second, all in memory, skewed and even; memory and disk."""
    rows = int(gb * 1e9 / ROW_BYTES)
    memory = int(rows * ROW_BYTES // part)
    where = Path(folder or tempfile.gettempdir())
    shown = Table(title=f"{rows:,} rows of {ROW_BYTES} bytes; {memory / 1e6:.0f} MB of memory")
    columns = ("state_memory", "keys", "M keys/s", "M keys/s CPU", "slowest epoch, s", "from disk")
    for name in columns:
        shown.add_column(name, justify="right")
    small = _Run(10_000, 1_000, where, 1)  # code is loaded before memory is looked at
    small.check()
    shutil.rmtree(small.folder)
    for budget in (None, memory):
        run = _Run(rows, each, where, budget)
        for name, draw in run.kinds().items():
            m = run.measure(draw, epochs)
            shown.add_row(
                "-" if budget is None else f"{budget / 1e6:.0f} MB", name, f"{m.keys / 1e6:.3f}",
                f"{m.cpu / 1e6:.3f}", f"{m.worst:.3f}", f"{m.brought:.0%}",
            )  # fmt: skip
        shown.add_section()
        Console().print(run.told())
        run.check()
        if budget is not None:
            Console().print(run.taken_over())
        shutil.rmtree(run.folder, ignore_errors=True)
        del run
    Console().print(shown)


class _Run:
    """A table that is filled, and epochs that touch its rows. budget: None keeps all in memory."""

    def __init__(self, rows: int, each: int, folder: Path, budget: int | None) -> None:
        self.rows, self.each, self.rng = rows, each, np.random.default_rng(1)
        self.base = _anonymous()
        self.tier = StructuredTier(_table, folder, "count", budget or 1 << 50)
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        if budget is not None:
            self.tier.keep_in(RowFolder.made(self.folder, "bench", "1"))
        self.budget, self.epoch, self.touched = budget, 0, 0
        for first in range(0, rows, each):
            self._epoch(np.arange(first, min(first + each, rows)))
        self.most = _anonymous()

    def kinds(self) -> dict[str, Callable[[], np.ndarray]]:
        """How keys are drawn, by name."""
        few = max(1, self.rows // 20)

        def even() -> np.ndarray:
            return self.rng.integers(0, self.rows, self.each)

        def hot() -> np.ndarray:
            return self.rng.integers(0, few, self.each)

        def skewed() -> np.ndarray:
            return np.where(self.rng.random(self.each) < 0.9, hot(), even())

        return {"of 5 %": hot, "90 % of 5 %": skewed, "of all": even}

    def measure(self, draw: Callable[[], np.ndarray], epochs: int) -> Measured:
        """Epochs of keys that are drawn so; the first of them are not counted."""
        seconds, cpu, distinct, worst = 0.0, 0.0, 0, 0.0
        for n in range(epochs + 5):
            keys = draw()
            begun, used, before = time.perf_counter(), time.process_time(), self.tier.brought
            many = self._epoch(keys)
            took = time.perf_counter() - begun
            if n == 5:
                brought = before
            if n >= 5:
                seconds, cpu = seconds + took, cpu + time.process_time() - used
                distinct, worst = distinct + many, max(worst, took)
        self.most = max(self.most, _anonymous())
        return Measured(
            distinct / seconds, distinct / cpu, worst, (self.tier.brought - brought) / distinct
        )

    def _epoch(self, keys: np.ndarray) -> int:
        tier = self.tier
        self.epoch = tier.epoch = self.epoch + 1
        if tier.cold:
            tier.bring_keys([keys])
        hot = tier.hot
        slots, index = hot.slots_of([keys], self.epoch)
        n = hot.read(slots, "n") + np.bincount(index, minlength=len(slots))
        hot.write(slots, {"n": n}, self.epoch)
        self.touched += len(keys)
        tier.note_removals()
        tier.shrink()
        if self.epoch % SETTLE == 0:
            tier.note("count", WHOLE_RANGE, self.epoch)
            tier.settle(self.epoch)
        return len(slots)

    def taken_over(self) -> str:
        """How long a successor needs that opens the files, and one that reads images."""
        while self.epoch % SETTLE:
            self._epoch(self.rng.integers(0, self.rows, self.each))
        asked = self.rng.integers(0, self.rows, 1000)
        rows = self.tier.capture(FULL, self.epoch).parts(PART_BYTES)
        images = [
            Image(replace(_HEADER, checkpoint=self.epoch), part.rows, part.gone).encode()
            for part in rows
        ]
        shape, begun = self.tier.shape.fingerprint, time.perf_counter()
        found = left_at(self.folder, "bench", "count", shape, WHOLE_RANGE, self.epoch)
        assert found is not None
        files = RowFolder.made(self.folder, "bench", "2")
        files.take(found, GROUPS)
        opened = self._successor()
        opened.keep_in(files)
        opened_in, first = time.perf_counter() - begun, _bring(opened, asked)
        begun = time.perf_counter()
        filled = self._successor()
        filled.fill([decode(data)] for data in images)
        filled_in, then = time.perf_counter() - begun, _bring(filled, asked)
        shutil.rmtree(self.folder)
        return (
            f"a successor with {len(opened) * ROW_BYTES / 1e6:.0f} MB of rows, {len(asked)} keys:"
            f" files opened in {opened_in:.2f} s, the keys after {first:.2f} s more; images of"
            f" {sum(map(len, images)) / 1e6:.0f} MB put in in {filled_in:.1f} s, {then:.2f} s"
        )

    def _successor(self) -> StructuredTier:
        return StructuredTier(_table, self.folder, "count", self.budget or 1 << 50)

    def told(self) -> str:
        """What it takes of memory and disk."""
        cold, kept = self.tier.cold, "all rows in memory"
        if self.budget is not None:
            kept = f"{self.budget / 1e6:.0f} MB of rows in memory"
        return (
            f"{kept}: {(self.most - self.base) / 1e6:.0f} MB taken; {cold.nbytes / 1e6:.0f} MB on"
            f" disk in {len(cold.segments)} segments, {cold.folded / self.rows:.1f} times folded,"
            f" {cold.reads} disk reads"
        )

    def check(self) -> None:
        """No touch was lost."""
        found = 0
        for first in range(0, self.rows, self.each):
            keys = np.arange(first, min(first + self.each, self.rows))
            self.tier.epoch = self.epoch + 1
            self.tier.bring_keys([keys])
            slots = self.tier.hot.find([keys])
            assert (slots >= 0).all(), "rows were lost"
            found += int(self.tier.hot.read(slots, "n").sum())
            self.tier.shrink()
        assert found == self.touched, f"{found} of {self.touched}"


def _bring(tier: StructuredTier, keys: np.ndarray) -> float:
    """Bring the rows of keys; how many seconds it takes."""
    begun = time.perf_counter()
    tier.bring_keys([keys])
    assert (tier.hot.find([keys]) >= 0).sum() > 0
    return time.perf_counter() - begun


def _table() -> StructuredTable:
    return StructuredTable(state_schema(Counted), keys=1, groups=GROUPS)


def _anonymous() -> int:
    """Bytes of memory of this process, without pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
