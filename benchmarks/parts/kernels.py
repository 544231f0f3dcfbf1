"""What the loops over rows and records cost by themselves, in one thread, without an engine.

The shapes are those of W1: batches of 100,000 records over 100,000 keys that the table knows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import cycle
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.shared.w1 import Key, Tally
from raystream.api.batch import Rows
from raystream.dataflow.emission import Emission, cut_for
from raystream.dataflow.plan import Edge
from raystream.dataflow.sources.recorded import Cutting
from raystream.schema.records import record_schema
from raystream.schema.state import state_schema
from raystream.schema.storing import from_columns
from raystream.schema.types import KeyRange
from raystream.state.kernels import key_groups, sort_by_group
from raystream.state.tables.structured_table import StructuredTable

GROUPS = 256
BATCHES = 8
"""Batches that take turns, so that the cache does not know the next one."""


def main(
    rows: Annotated[int, typer.Option(min=1, help="Records of a batch.")] = 100_000,
    distinct: Annotated[int, typer.Option(min=1, help="Distinct keys.")] = 100_000,
    repeat: Annotated[int, typer.Option(min=1, help="Calls; the median is shown.")] = 25,
) -> None:
    """What the loops over rows and records cost: nanoseconds for each."""
    table = Table(title=f"{rows:,} records a batch, {distinct:,} keys, one thread")
    for column in ("loop", "ns", "for each"):
        table.add_column(column, justify="right" if column == "ns" else "left")
    for name, (nanoseconds, unit) in measured(rows, distinct, repeat).items():
        table.add_row(name, f"{nanoseconds:.2f}", unit)
    Console().print(table)


def measured(rows: int, distinct: int, repeat: int) -> dict[str, tuple[float, str]]:
    """Per loop its nanoseconds and for what."""
    rng = np.random.default_rng(1)
    table = StructuredTable(state_schema(Tally), keys=1, groups=GROUPS)
    table.slots_of([rng.permutation(distinct)], 1)
    batches = cycle([rng.integers(0, distinct, rows, np.int32) for _ in range(BATCHES)])
    keys = next(batches)
    slots, index = table.slots_of([keys], 1)
    written = {"n": table.read(slots, "n")}
    cutting, times = Cutting("time", 0, 1, 1, 0), np.full(rows, 7, np.int32)
    groups = key_groups([keys], GROUPS)
    order, _ = sort_by_group(groups, GROUPS)
    schema, every = record_schema(Key), KeyRange(0, GROUPS)
    columns = from_columns(schema, {"time": times, "key": keys})
    emitted = Emission(columns, np.full(GROUPS + 1, rows), None)
    edge = Edge(
        id=0, producer=0, port=0, consumer=1, type=0, schema=schema, key=("key",), ranked=False
    )

    def rows_of() -> Rows[Tally]:
        return Rows(table.schema, written.__getitem__, len(slots), index)

    def each(what: Callable[[], object], n: int = rows) -> float:
        what()
        return statistics.median(_seconds(what) for _ in range(repeat)) / n * 1e9

    return {
        "cut a batch into epochs": (each(lambda: cutting.runs(times, 1)), "record"),
        "hash keys into groups": (each(lambda: key_groups([next(batches)], GROUPS)), "record"),
        "sort by group": (each(lambda: sort_by_group(groups, GROUPS)), "record"),
        "take a column in that order": (each(lambda: keys.take(order)), "record"),
        "sort two columns for a consumer": (
            each(lambda: cut_for(edge, emitted, every, GROUPS)),
            "record",
        ),
        "find the rows of keys": (each(lambda: table.slots_of([next(batches)], 1)), "record"),
        "number records by key": (each(lambda: rows_of().nth), "record"),
        "read a field": (each(lambda: table.read(slots, "n"), len(slots)), "distinct key"),
        "write a field": (each(lambda: table.write(slots, written, 1), len(slots)), "distinct key"),
    }


def _seconds(what: Callable[[], object]) -> float:
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun
