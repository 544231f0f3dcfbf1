"""What a checkpoint and a restore take, by the size of the state: rows, bytes, and milliseconds of
CPU.

A full checkpoint, and a delta with a tenth of the rows. `checkpoint` is what the computing thread
does; `background` is what copying and encoding take on the thread that ships. `restore` is from the
bytes to the rows in a new instance; for a delta that of the full image before it is in it."""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.parts.restore import CHECKPOINT, WIDTH, Nothing, Trade, accounts, state
from raystream.actors.cluster.environment import MEMORY, SWITCH_SECONDS
from raystream.actors.worker.shipping import PART_BYTES
from raystream.api.nodes import OperatorNode
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import capture, install
from raystream.dataflow.warming import warm
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import decode
from raystream.state.images.partition import by_parts

CHANGED = 10
"""One row in this many changes between two checkpoints."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_ARENA_MAX": -8}
"""What glibc's mallopt calls what variables of the environment say."""
ROWS = {"compiled": True, "Python": False}


def planned(*, compiled: bool) -> Plan:
    flow = rs.Flow("checkpoints")
    source = rs.io.iterable([], Trade)
    flow.source(source).through(accounts, name="work").to(Nothing())
    for node in flow.nodes:
        if isinstance(node, OperatorNode):
            node.spec = replace(node.spec, compiled=compiled)
    return make_plan(flow)


def fresh(plan: Plan) -> KeyedInstance:
    """An instance without state."""
    return KeyedInstance(plan, plan.vertex("work"), KeyRange(0, plan.groups))


def restored(plan: Plan, keys: int) -> KeyedInstance:
    """An instance with state of `keys` keys, as it was at the checkpoint."""
    instance = fresh(plan)
    install(instance, [[state(plan, "numbers", keys)]])
    instance.open()
    return instance


def change(instance: KeyedInstance, epoch: int) -> None:
    """Touch one row in ten, here and there, as an epoch would."""
    logic: Any = instance.logic
    if isinstance(getattr(logic.table, "rows", None), dict):
        for i, row in enumerate(logic.table.rows.values()):
            if i % CHANGED == 0:
                row._mark = epoch
    else:
        slots = np.random.default_rng(1).permutation(len(logic.table))[::CHANGED]
        logic.table.write(slots, {}, epoch)
    instance.position = epoch


@contextmanager
def as_in_a_shell() -> Iterator[None]:
    """As in the process of an instance the cyclic garbage collector leaves the thread that computes
    alone, the interpreter's lock is asked for as soon, and the C library keeps memory (which it
    goes on to do afterwards)."""
    with suppress(AttributeError):  # another C library
        for name, option in MALLOC.items():
            ctypes.CDLL(None).mallopt(option, int(MEMORY[name]))
    gc.collect()
    gc.disable()
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        gc.enable()


class Took(NamedTuple):
    """Of one checkpoint: seconds of CPU, and the encoded parts of the image with its rows."""

    checkpoint: float
    background: float
    parts: list[memoryview]
    rows: int


def checkpoint(instance: KeyedInstance, since: int) -> Took:
    """Take one since a checkpoint; 0 for all rows."""
    began = time.process_time()
    captured = capture(instance, CheckpointRequest(since))
    checkpoint = time.process_time() - began
    parts, rows = list[memoryview](), 0
    for part in captured.parts(PART_BYTES):
        parts.append(part.encode())
        rows += len(part)
    return Took(checkpoint, time.process_time() - began - checkpoint, parts, rows)


def restore(plan: Plan, chain: list[list[memoryview]], rows: int) -> float:
    """Seconds of CPU from encoded images, in parts, to all rows in a new instance."""
    instance = fresh(plan)
    began = time.process_time()
    install(instance, by_parts([[decode(data) for data in parts] for parts in chain]))
    took = time.process_time() - began
    logic: Any = instance.logic
    assert len(logic.table) == rows
    return took


def measured(keys: int, *, compiled: bool, repeat: int) -> list[list[str]]:
    """A line of the table for full checkpoints and one for deltas: medians."""
    plan = planned(compiled=compiled)
    for _ in warm(plan):
        pass
    instance = restored(plan, keys)
    full = [checkpoint(instance, 0) for _ in range(repeat)]
    change(instance, CHECKPOINT + 1)
    deltas = [checkpoint(instance, CHECKPOINT) for _ in range(repeat)]
    del instance
    lines = []
    for kind, taken in (("full", full), ("delta", deltas)):
        chain = [full[0].parts] if taken is full else [full[0].parts, deltas[0].parts]
        restores = [restore(plan, chain, keys) for _ in range(repeat)]
        seconds = [[t.checkpoint for t in taken], [t.background for t in taken], restores]
        lines.append([
            f"{keys:,}", "compiled" if compiled else "Python", kind, f"{taken[0].rows:,}",
            f"{sum(map(len, taken[0].parts)) / 1e6:,.3f}",
            *(f"{statistics.median(s) * 1e3:,.2f}" for s in seconds),
        ])  # fmt: skip
    return lines


def main(
    smallest: Annotated[int, typer.Option(min=1, help="Keys of the smallest state.")] = 100,
    largest: Annotated[int, typer.Option(help="Keys of the largest state.")] = 10_000_000,
    rows: Annotated[str, typer.Option(help="compiled, Python, or all.")] = "all",
    repeat: Annotated[int, typer.Option(min=1, help="Of each; the median is shown.")] = 3,
) -> None:
    """What a checkpoint and a restore take, by the size of the state."""
    forms = list(ROWS) if rows == "all" else [rows]
    if unknown := [f for f in forms if f not in ROWS]:
        raise typer.BadParameter(f"{unknown[0]!r}: one of {', '.join(ROWS)}, all")
    milliseconds = (f"{what} ms" for what in ("checkpoint", "background", "restore"))
    table = Table("keys", "state", "kind", "rows", "MB", *milliseconds)
    for form in forms:
        measured(1, compiled=ROWS[form], repeat=1)  # what is called first is loaded
        keys = smallest
        while keys <= largest:
            with as_in_a_shell():
                for line in measured(keys, compiled=ROWS[form], repeat=repeat):
                    table.add_row(*line)
            keys *= 10
    Console(width=WIDTH).print(table)
