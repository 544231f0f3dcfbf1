"""What a large table costs the thread that computes: while it grows, and while all of it is copied.

Growth: keys come once each, a batch after the other, in the order of their key groups. What counts
is the slowest second at a pace of twenty batches a second, beside a usual one.

A view: one thread changes rows in steps without a pause, another copies all rows for a checkpoint;
they take turns. As long as the view is open, changed rows are put aside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.actors.worker.driving.fair_lock import Turns
from raystream.schema.state import state_schema
from raystream.state.kernels import sort_by_key
from raystream.state.tables.structured_table import StructuredTable

GROUPS = 256
SECOND = 20
"""Batches."""
STEPS = 64
"""Different ones, which come again and again."""


class Wide(rs.State):
    """With its key and epoch a row of 64 bytes."""

    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0


class Viewed(NamedTuple):
    """open_s: how long a view was open, in seconds. step_ms: the median of a step meanwhile."""

    open_s: float
    step_ms: float


def main(
    rows: Annotated[int, typer.Option(min=1, help="Of the table.")] = 18_000_000,
    each: Annotated[int, typer.Option(min=1, help="New rows of a batch.")] = 35_000,
    changed: Annotated[int, typer.Option(min=1, help="Rows that a step changes.")] = 100_000,
    repeat: Annotated[int, typer.Option(min=1, help="Views, one after the other.")] = 3,
) -> None:
    """A large table: its slowest seconds while it grows, and how long a view of it is open."""
    none, small, table = (
        StructuredTable(state_schema(Wide), keys=1, groups=GROUPS) for _ in range(3)
    )
    none.warm()
    for loading in (grown(small, 10, 10), viewed(small, 10, 1)):  # what else is compiled
        list(loading)
    batches = list(grown(table, rows, each))
    seconds = [sum(batches[i : i + SECOND]) * 1e3 for i in range(max(1, len(batches) - SECOND + 1))]
    shown = Table("", "", title=f"{rows:,} rows of {table.store.dtype.itemsize} bytes")
    shown.add_row(
        f"{SECOND} batches of {each:,} new rows, median", f"{statistics.median(seconds):.0f} ms"
    )
    shown.add_row("the slowest", f"{max(seconds):.0f} ms")
    for seen in viewed(table, changed, repeat):
        shown.add_row(
            f"a view, beside steps of {changed:,} rows without a pause",
            f"open for {seen.open_s:.2f} s, a step took {seen.step_ms:.1f} ms",
        )
    Console().print(shown)


def grown(table: StructuredTable, rows: int, each: int) -> Iterator[float]:
    """Insert `rows` rows; the seconds of each batch."""
    keys = np.random.default_rng(1).permutation(rows)
    for at in range(0, rows, each):
        batch = keys[at : at + each]
        batch = batch[sort_by_key([batch], GROUPS)[0]]
        begun = time.perf_counter()
        table.slots_of([batch], 1)
        yield time.perf_counter() - begun


def viewed(table: StructuredTable, changed: int, repeat: int) -> Iterator[Viewed]:
    """Copy all rows while others change."""
    rng = np.random.default_rng(2)
    steps = cycle([np.unique(rng.integers(0, len(table), changed)) for _ in range(STEPS)])
    turns = Turns()
    table.use_guard(turns)
    with ThreadPoolExecutor(1) as aside:
        for epoch in range(1, repeat + 1):
            view, took = table.view(-1, epoch), list[float]()
            begun = time.perf_counter()
            copied = aside.submit(view.rows)
            while not (took and copied.done()):
                step = time.perf_counter()
                with turns:
                    slots = next(steps)
                    table.write(slots, {"a": table.read(slots, "a") + 1}, epoch + 1)
                took.append(time.perf_counter() - step)
            yield Viewed(time.perf_counter() - begun, statistics.median(took) * 1e3)
            copied.result()
            del copied
            view.close()
