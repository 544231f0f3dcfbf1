"""python -m benchmarks.checkpoints sizes | throughput | latency: what checkpoints cost an operator.

`sizes`: for 100 to 10 million keys, in compiled and in Python rows, full and with a tenth of the
rows changed: rows, bytes, the milliseconds of CPU that a cut takes of the thread that computes, and
those that copying and encoding take in the background.

`throughput`: compiled sums over a million keys, of which a tenth changes between two cuts;
intervals that begin with a cut and such that do not, in turns. Cuts are shipped by the thread that
ships them in a job; keepers are a store in this process. On a machine that does other work as well
the ratio by the clock is noisy; that by the CPU time of the computing thread is less so.

`latency`: the same state, epochs at a pace: how long after it was due an epoch was done, for those
that came due between a cut and the end of its storing, and for all others.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.restore import CUT, WIDTH, Nothing, Trade, accounts, state
from raystream.actors.shipping import Shipper
from raystream.actors.turns import Turns
from raystream.api.flow import OperatorNode
from raystream.controller.planning import make_plan
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import capture, install, settled, view_with
from raystream.dataflow.source import Taken
from raystream.schema.columns import Columns
from raystream.schema.types import KeyRange
from raystream.state.chain import CHAIN_MAX
from raystream.state.image import ImageHeader
from raystream.state.images import ImageStore, Stored

CHANGED = 10
"""One row in so many changes between two cuts."""
BATCHES = 8
"""Different epochs of input between two cuts; they come again and again."""

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


def planned(*, compiled: bool) -> Plan:
    flow = rs.Flow("checkpoints")
    source = rs.io.iterable([], Trade)
    flow.source(source).through(accounts, name="work").to(Nothing())
    for node in flow.nodes:
        if isinstance(node, OperatorNode):
            node.spec = replace(node.spec, compiled=compiled)
    return make_plan(flow)


def restored(plan: Plan, keys: int) -> Instance:
    """An instance with state of so many keys, as it was at the cut."""
    instance = Instance(plan, plan.vertex("work"), KeyRange(0, plan.groups))
    install(instance, [[state(plan, "numbers", keys)]])
    instance.open()
    return instance


# ---------------------------------------------------------------- sizes


def change(instance: Instance, epoch: int) -> None:
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
    """The cyclic garbage collector leaves the thread that computes alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def sizes_of(keys: int, *, compiled: bool, repeat: int) -> list[dict[str, Any]]:
    """What a full checkpoint and a delta take."""
    instance = restored(planned(compiled=compiled), keys)
    change(instance, CUT + 1)
    out = []
    for since in (0, CUT):
        taking, encoding, nbytes, rows = [], [], 0, 0
        for _ in range(repeat):
            began = time.thread_time()
            captured = capture(instance, since)
            taken = time.thread_time()
            image = captured.image()
            nbytes, rows = len(image.encode()), len(image)
            taking.append(taken - began)
            encoding.append(time.thread_time() - taken)
        out.append(
            {
                "keys": keys,
                "rows": "compiled" if compiled else "Python",
                "kind": "delta" if since else "full",
                "stored": rows,
                "bytes": nbytes,
                "copy": statistics.median(taking),
                "encode": statistics.median(encoding),
            }
        )
    return out


@app.command()
def sizes(
    largest: Annotated[int, typer.Option(help="Keys of the largest state.")] = 10_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Checkpoints; the median is shown.")] = 3,
) -> None:
    """What a checkpoint takes, by the size of the state."""
    table = Table("keys", "state", "kind", "rows", "MB", "copy ms", "background ms")
    keys = 100
    while keys <= largest:
        for compiled in (True, False):
            with as_in_a_shell():
                measured = sizes_of(keys, compiled=compiled, repeat=repeat)
            for r in measured:
                table.add_row(
                    f"{keys:,}", r["rows"], r["kind"], f"{r['stored']:,}",
                    f"{r['bytes'] / 1e6:,.2f}", f"{r['copy'] * 1e3:,.2f}",
                    f"{r['encode'] * 1e3:,.2f}",
                )  # fmt: skip
        keys *= 10
    Console(width=WIDTH).print(table)


# ---------------------------------------------------------------- throughput


def pieces_of(plan: Plan, keys: int, records: int) -> list[list[Piece]]:
    """Per interval between cuts the epochs of input that touch its tenth of the keys."""
    vertex = plan.vertices[0]
    source = SourceInstance(plan, vertex, KeyRange(0, plan.groups))
    rng = np.random.default_rng(1)
    tenth, out = keys // CHANGED, []
    for i in range(CHANGED):
        interval = []
        for _ in range(BATCHES):
            epoch = source.position + 1
            account = rng.integers(i * tenth, (i + 1) * tenth, records)
            columns = Columns(
                vertex.ports[0].schema,
                [np.full(records, epoch), account, np.ones(records)],
                records,
            )
            offsets = np.zeros(plan.groups + 1, np.int64)
            offsets[1:] = records
            source.publish(Taken(columns, offsets, epoch, False))
            interval.append(source.outlets.piece(0, epoch, source.keys))
        out.append(interval)
    return out


class Backup:
    """What a shell does at a cut, with a store in place of keepers."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.store: ImageStore[memoryview] = ImageStore()
        self.nbytes: list[int] = []
        self.cuts = self.stored = 0
        self.failed: list[BaseException] = []
        self.turns = Turns()
        view_with(self.turns, instance)
        self.shipper = Shipper(
            self._ship, instance.position, self.failed.append, lambda: capture(instance)
        )

    def _ship(self, header: ImageHeader, data: memoryview) -> bool:
        self.nbytes.append(len(data))
        stored = Stored(header.cut, header.base or None, data, len(data))
        held = self.store.store(0, header.keys, stored)
        self.store.trim(header.cut)
        self.stored += 1
        return held

    def step(self, piece: Piece) -> None:
        """Apply a piece as the next epoch."""
        instance, epoch = self.instance, self.instance.position + 1
        instance.receive(0, Piece(piece.header._replace(epoch=epoch), piece.rows, piece.offsets))
        with self.turns:
            instance.step()
        instance.outlets.trim(epoch)

    @property
    def storing(self) -> bool:
        """Whether the newest cut is not stored yet."""
        return self.stored < self.cuts

    def cut(self) -> float:
        """Take a checkpoint; the seconds that the computing thread stood still."""
        began = time.perf_counter()
        self.cuts += 1
        self.shipper.put(capture(self.instance, self.shipper.chain.base))
        stood = time.perf_counter() - began
        settled(self.instance, self.shipper.chain.stored.upto)
        return stood


class Speed(NamedTuple):
    """Of one interval: records, seconds, seconds of CPU of the computing thread and of all, and how
    long it stood still for a cut."""

    records: int
    seconds: float
    thread: float
    process: float
    stood: float


def interval(backup: Backup, pieces: list[Piece], seconds: float, *, cut: bool) -> Speed:
    """Count records for so long; a cut comes first, or none."""
    instance = backup.instance
    began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    stood = backup.cut() if cut else 0.0
    records = 0
    while time.perf_counter() < began + seconds:
        piece = pieces[instance.position % len(pieces)]
        backup.step(piece)
        records += len(piece.rows)
    return Speed(
        records,
        time.perf_counter() - began,
        time.thread_time() - thread,
        time.process_time() - process,
        stood,
    )


@contextmanager
def begun(keys: int, records: int, seconds: float) -> Iterator[tuple[Backup, list[list[Piece]]]]:
    """A compiled count with so many keys that has counted for so long, and the pieces of intervals.
    What could not be stored is raised at the end."""
    plan = planned(compiled=True)
    backup = Backup(restored(plan, keys))
    intervals = pieces_of(plan, keys, records)
    with as_in_a_shell():
        interval(backup, intervals[-1], seconds, cut=False)
        yield backup, intervals
    backup.shipper.stop()
    if backup.failed:
        raise backup.failed[0]


def ratio_of(having: list[Speed], without: list[Speed], clock: str) -> float:
    """Throughput with cuts as a part of that without, by this clock, over all intervals."""
    speeds = [
        sum(s.records for s in side) / sum(getattr(s, clock) for s in side)
        for side in (having, without)
    ]
    return speeds[0] / speeds[1]


@app.command()
def throughput(
    keys: Annotated[int, typer.Option(help="Keys of the state.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Of an interval: between two cuts.")] = 5,
    cuts: Annotated[int, typer.Option(min=1, help="Every ninth is full, the others deltas.")] = 9,
    records: Annotated[int, typer.Option(help="In an epoch.")] = 50_000,
) -> None:
    """Records a second with a cut at the beginning of an interval and without, in turns."""
    with begun(keys, records, seconds / 10) as (backup, intervals):
        pairs = []
        for i in range(cuts):
            pieces = intervals[i % CHANGED]
            pairs.append([interval(backup, pieces, seconds, cut=cut) for cut in (True, False)])
    table = Table("cut", "MB", "stood still ms", "without M/s", "with M/s", "ratio",
                  "by the thread's CPU", "in the background")  # fmt: skip
    for i, ((having, without), nbytes) in enumerate(zip(pairs, backup.nbytes, strict=True), 1):
        background = (having.process - having.thread) / having.seconds
        table.add_row(
            str(i), f"{nbytes / 1e6:.1f}", f"{having.stood * 1e3:.1f}",
            *(f"{s.records / s.seconds / 1e6:.2f}" for s in (without, having)),
            *(f"{ratio_of([having], [without], c):.1%}" for c in ("seconds", "thread")),
            f"{background:.1%} of a core",
        )  # fmt: skip
    both = [list(side) for side in zip(*pairs, strict=True)]
    for name in ("median", "all"):
        shown = [
            statistics.median(ratio_of([h], [w], c) for h, w in pairs)
            if name == "median"
            else ratio_of(both[0], both[1], c)
            for c in ("seconds", "thread")
        ]
        table.add_row(name, "", "", "", "", *(f"{r:.1%}" for r in shown), "")
    Console(width=WIDTH).print(table)


# ---------------------------------------------------------------- latency


class Epochs(NamedTuple):
    """Of epochs: seconds from when they were due until they were done, and whether a cut was being
    stored then."""

    late: np.ndarray
    storing: np.ndarray


def paced(backup: Backup, pieces: list[Piece], epochs: int, pace: float) -> Epochs:
    """Apply so many epochs, one every `pace` seconds; after the first one comes a cut."""
    late, storing = np.zeros(epochs), np.zeros(epochs, bool)
    began = time.perf_counter()
    for i in range(epochs):
        due = began + i * pace
        time.sleep(max(0.0, due - time.perf_counter()))
        storing[i] = backup.storing or i == 1  # or it began in time, and the cut came first
        backup.step(pieces[i % len(pieces)])
        late[i] = time.perf_counter() - due
        if i == 0:
            backup.cut()
    return Epochs(late, storing)


@app.command()
def latency(
    keys: Annotated[int, typer.Option(help="Keys of the state.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Between two cuts.")] = 5,
    cuts: Annotated[int, typer.Option(min=1, help="Every ninth is full, the others deltas.")] = 10,
    records: Annotated[int, typer.Option(help="In an epoch.")] = 5_000,
    pace: Annotated[float, typer.Option(help="Seconds of an epoch.")] = 0.02,
) -> None:
    """How late epochs are while a cut is stored, and otherwise."""
    with begun(keys, records, seconds / 10) as (backup, intervals):
        seen = [
            paced(backup, intervals[i % CHANGED], max(2, round(seconds / pace)), pace)
            for i in range(cuts)
        ]
    table = Table("cut", "MB", "storing s", "epochs", "p50 ms", "p99 ms", "most ms",
                  "else: p50 ms", "p99 ms", "most ms", "ratio of p99")  # fmt: skip
    full = [e for i, e in enumerate(seen) if i % (CHAIN_MAX + 1) == 0]
    deltas = [e for i, e in enumerate(seen) if i % (CHAIN_MAX + 1)]
    otherwise = np.concatenate([e.late[~e.storing] for e in seen])
    for name, some in (("full", full), ("delta", deltas), ("all", seen)):
        if not some:
            continue
        during = np.concatenate([e.late[e.storing] for e in some])
        shown = [np.percentile(v, q) * 1e3 for v in (during, otherwise) for q in (50, 99, 100)]
        sizes = (
            backup.nbytes
            if some is seen
            else [
                n
                for i, n in enumerate(backup.nbytes)
                if (i % (CHAIN_MAX + 1) == 0) == (some is full)
            ]
        )
        table.add_row(
            name, f"{statistics.mean(sizes) / 1e6:.1f}", f"{len(during) * pace / len(some):.2f}",
            f"{len(during)}", *(f"{v:.2f}" for v in shown), f"{shown[1] / shown[4]:.2f}",
        )  # fmt: skip
    Console(width=WIDTH).print(table)


if __name__ == "__main__":
    app()
