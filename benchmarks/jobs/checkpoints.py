"""python -m benchmarks checkpoints sizes | throughput | latency | job: what checkpoints cost.

`sizes`: for 100 to 10 million keys, in compiled and in Python rows, full and with a tenth of the
rows changed: rows, bytes, and the milliseconds of CPU that a checkpoint takes of the thread that
computes, that copying and encoding take in the background, and that a restore takes (see
`benchmarks.parts.sizes`).

`throughput`: compiled sums over a million keys, of which a tenth changes between two checkpoints;
intervals that begin with a checkpoint and such that do not, in turns. Checkpoints are shipped by
the thread that ships them in a job; keepers are a store in this process. On a machine that does
other work as well the ratio by the clock is noisy; that by the CPU time of the computing thread is
less so.

`latency`: the same state, epochs at a pace: how long after it was due an epoch was done, for those
that came due between a checkpoint and the end of its storing, and for all others.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.jobs import checkpoint_latency
from benchmarks.parts import sizes
from benchmarks.parts.restore import WIDTH
from benchmarks.parts.sizes import CHANGED, as_in_a_shell, planned, restored
from raystream.actors.worker.driving.fair_lock import Turns
from raystream.actors.worker.shipping import Shipper
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import capture, rows_of, sample_of, settled, view_with
from raystream.dataflow.sources.epochs import EpochRows
from raystream.dataflow.tenure import Storing
from raystream.schema.columns import Columns
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import ImageHeader
from raystream.state.images.image_store import Arrivals, ImageStore, Stored

BATCHES = 8
"""Different epochs of input between two checkpoints; they come again and again."""

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
app.command("sizes")(sizes.main)
app.command("job")(checkpoint_latency.main)


# ---------------------------------------------------------------- throughput


def pieces_of(plan: Plan, keys: int, records: int) -> list[list[Piece]]:
    """Per interval between checkpoints the epochs of input that touch its tenth of the keys."""
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
            source.step(EpochRows(columns, offsets, epoch, False))
            interval.append(source.outlets.piece(0, epoch, source.keys))
        out.append(interval)
    return out


class Backup:
    """What a shell does at a checkpoint, with a store in place of keepers."""

    def __init__(self, instance: KeyedInstance) -> None:
        self.instance = instance
        self.arrivals: Arrivals[memoryview] = Arrivals()
        self.store: ImageStore[tuple[memoryview, ...]] = ImageStore()
        self.nbytes: list[int] = []
        self.checkpoints = self.stored = 0
        self.failed: list[BaseException] = []
        self.turns = Turns()
        view_with(self.turns, instance)
        self.known: Storing[str] = Storing(instance.position, guard=threading.Lock())
        self.shipper = Shipper(
            self._ship, self.known, self.failed.append, lambda: capture(instance)
        )

    def _ship(self, _: Any, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        arrived = Stored(
            header.checkpoint, header.base or None, data, len(data), oldest=header.oldest
        )
        whole = self.arrivals.take("instance", header.keys, part, arrived)
        if whole is None:
            return True
        self.nbytes.append(whole.size)
        held = self.store.store(0, header.keys, whole)
        self.store.trim(header.checkpoint)
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
    def wanted(self) -> CheckpointRequest:
        """What the next checkpoint is to hold."""
        return self.known.chain.next(rows_of(self.instance), sample_of(self.instance))

    @property
    def storing(self) -> bool:
        """Whether the newest checkpoint is not stored yet."""
        return self.stored < self.checkpoints

    def checkpoint(self, *, full: bool = False) -> float:
        """Take a checkpoint, a full one in any case if that is asked for; the seconds that the
        computing thread stood still."""
        if full:
            self.known.chain.restart()
        began = time.perf_counter()
        self.checkpoints += 1
        wanted = self.wanted
        self.shipper.put(capture(self.instance, wanted, table="table"), wanted)
        stood = time.perf_counter() - began
        settled(self.instance, self.known.chain.stored.upto)
        return stood


class Speed(NamedTuple):
    """Of one interval: records, seconds, seconds of CPU of the computing thread and of all, and how
    long it stood still for a checkpoint."""

    records: int
    seconds: float
    thread: float
    process: float
    stood: float


def interval(backup: Backup, pieces: list[Piece], seconds: float, *, checkpoint: bool) -> Speed:
    """Count records for so long; a checkpoint comes first, or none."""
    instance = backup.instance
    began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    stood = backup.checkpoint() if checkpoint else 0.0
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
        interval(backup, intervals[-1], seconds, checkpoint=False)
        yield backup, intervals
    backup.shipper.stop()
    if backup.failed:
        raise backup.failed[0]


def ratio_of(having: list[Speed], without: list[Speed], clock: str) -> float:
    """Throughput with checkpoints as a part of that without, by this clock, over all intervals."""
    speeds = [
        sum(s.records for s in side) / sum(getattr(s, clock) for s in side)
        for side in (having, without)
    ]
    return speeds[0] / speeds[1]


@app.command()
def throughput(
    keys: Annotated[int, typer.Option(help="Keys of the state.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Of an interval: between two checkpoints.")] = 5,
    checkpoints: Annotated[
        int,
        typer.Option("--checkpoints", "--cuts", min=1, help="Every ninth is full, others deltas."),
    ] = 9,
    records: Annotated[int, typer.Option(help="In an epoch.")] = 50_000,
) -> None:
    """Records a second with a checkpoint at the beginning of an interval and without, in turns."""
    with begun(keys, records, seconds / 10) as (backup, intervals):
        pairs = []
        for i in range(checkpoints):
            pieces = intervals[i % CHANGED]
            pairs.append(
                [
                    interval(backup, pieces, seconds, checkpoint=checkpoint)
                    for checkpoint in (True, False)
                ]
            )
    table = Table("checkpoint", "MB", "stood still ms", "without M/s", "with M/s", "ratio",
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
    """Of epochs from one checkpoint to the next: seconds from when they were due until they were
    done, and whether the checkpoint was being stored then; whether a full image was made at it."""

    late: np.ndarray
    storing: np.ndarray
    full: bool


def paced(backup: Backup, pieces: list[Piece], epochs: int, pace: float, *, full: bool) -> Epochs:
    """Apply so many epochs, one every `pace` seconds; after the first one comes a checkpoint."""
    late, storing = np.zeros(epochs), np.zeros(epochs, bool)
    began = time.perf_counter()
    for i in range(epochs):
        due = began + i * pace
        time.sleep(max(0.0, due - time.perf_counter()))
        storing[i] = backup.storing or i == 1  # or it began in time, and the checkpoint came first
        backup.step(pieces[i % len(pieces)])
        late[i] = time.perf_counter() - due
        if i == 0:
            full = full or not backup.wanted.base
            backup.checkpoint(full=full)
    return Epochs(late, storing, full)


@app.command()
def latency(
    keys: Annotated[int, typer.Option(help="Keys of the state.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Between two checkpoints.")] = 2,
    checkpoints: Annotated[
        int, typer.Option("--checkpoints", "--cuts", min=1, help="Checkpoints.")
    ] = 40,
    fulls: Annotated[int, typer.Option(min=1, help="Every so many-th is full; in jobs 9.")] = 2,
    records: Annotated[int, typer.Option(help="In an epoch.")] = 5_000,
    pace: Annotated[float, typer.Option(help="Seconds of an epoch.")] = 0.02,
) -> None:
    """How late epochs are while a checkpoint is stored, and otherwise."""
    epochs = max(2, round(seconds / pace))
    with begun(keys, records, seconds / 10) as (backup, intervals):
        seen = [
            paced(backup, intervals[i % CHANGED], epochs, pace, full=i % fulls == 0)
            for i in range(checkpoints)
        ]
    sides = {
        "full image": [e.late[e.storing] for e in seen if e.full],
        "delta": [e.late[e.storing] for e in seen if not e.full],
        "otherwise": [e.late[~e.storing] for e in seen],
    }
    usual = np.percentile(np.concatenate(sides["otherwise"]), 99)
    table = Table("while stored", "checkpoints", "MB", "epochs", "p50 ms", "p99 ms", "most ms",
                  "ratio of p99")  # fmt: skip
    for name, some in sides.items():
        if some:
            full = name == "full image"
            stored = [n for n, e in zip(backup.nbytes, seen, strict=True) if e.full == full]
            shown = np.percentile(np.concatenate(some), (50, 99, 100))
            table.add_row(
                name, f"{len(some)}",
                "" if name == "otherwise" else f"{statistics.mean(stored) / 1e6:.1f}",
                f"{sum(map(len, some))}", *(f"{v * 1e3:.2f}" for v in shown),
                f"{shown[1] / usual:.2f}",
            )  # fmt: skip
    Console(width=WIDTH).print(table)
