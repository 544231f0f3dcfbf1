"""Bytewax: `stateful_map`, its windows, and a form that is vectorised by hand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import bytewax.operators as op
import bytewax.operators.windowing as win
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.peers.programs.protocol import Task, Totals, asked

BATCH = 5_000
"""Records in a batch of W1, 2,000 to 20,000 being alike."""
VECTOR = 100_000
LINES = 1_000
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

totals = Totals()


class Part(StatefulSourcePartition):
    """Batches from a position on, as `batch(at)` makes them; (batch, next position)."""

    def __init__(self, task: Task, at: int) -> None:
        self.task = task
        self.at = at

    def batch(self) -> list[Any]:
        raise NotImplementedError

    def next_batch(self) -> list[Any]:
        totals.begin()
        if self.at >= self.task.rows:
            raise StopIteration
        return self.batch()

    def snapshot(self) -> int:
        return self.at


class Keys(Part):
    """(text of the key, key): Bytewax takes only text as a key."""

    def __init__(self, task: Task, at: int) -> None:
        super().__init__(task, at)
        self.keys = np.memmap(task.path, "<i4", "r")
        self.names = [str(k) for k in range(task.distinct)]

    def batch(self) -> list[Any]:
        keys = self.keys[self.at : min(self.at + BATCH, self.task.rows)].tolist()
        self.at += len(keys)
        names = self.names
        return [(names[k], k) for k in keys]


class Vectors(Keys):
    """Many keys as one item."""

    def batch(self) -> list[Any]:
        keys = self.keys[self.at : min(self.at + VECTOR, self.task.rows)]
        self.at += len(keys)
        return [("all", keys)]


class Paced(Keys):
    """(text of the key, (key, when it was due))."""

    def batch(self) -> list[Any]:
        due = (time.perf_counter() - totals.began) * self.task.rate
        keys = self.keys[self.at : min(int(due) + 1, self.task.rows)].tolist()
        dues = [totals.began + (self.at + i) / self.task.rate for i in range(len(keys))]
        self.at += len(keys)
        return [(self.names[k], (k, d)) for k, d in zip(keys, dues, strict=True)]


class Lines(Part):
    """(event time, text)."""

    def __init__(self, task: Task, at: int) -> None:
        super().__init__(task, at)
        self.file = Path(task.path).open(encoding="ascii")  # noqa: SIM115 - as long as it runs
        self.file.seek(at * task.line_bytes)

    def batch(self) -> list[Any]:
        per = self.task.lines_per_second
        until = min(self.at + LINES, (self.at // per + 1) * per, self.task.rows)
        time_ = EPOCH + timedelta(seconds=self.at // per)
        found = [(time_, next(self.file)) for _ in range(until - self.at)]
        self.at = until
        return found


class Input(FixedPartitionedSource):
    def __init__(self, kind: type[Part], task: Task) -> None:
        self.kind = kind
        self.task = task

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return self.kind(self.task, resume_state or 0)


class Output(DynamicSink):
    """Hands each batch of answers to a function."""

    def __init__(self, take: Any) -> None:
        self.take = take

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition:
        return Writer(self.take)


class Writer(StatelessSinkPartition):
    def __init__(self, take: Any) -> None:
        self.take = take

    def write_batch(self, items: list[Any]) -> None:
        self.take(items)
        totals.end()


# ---------------------------------------------------------------------------- W1


def count(before: int | None, key: int) -> tuple[int, tuple[int, int]]:
    n = 1 if before is None else before + 1
    return n, (key, n)


def count_paced(
    before: int | None, record: tuple[int, float]
) -> tuple[int, tuple[int, int, float]]:
    n = 1 if before is None else before + 1
    return n, (record[0], n, record[1])


class CountVectors(op.StatefulBatchLogic):
    """Counts of keys that are known to be 0 to distinct - 1."""

    def __init__(self, distinct: int, counts: Any) -> None:
        self.counts = np.zeros(distinct, np.int64) if counts is None else counts

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        return [self.count(keys) for keys in values], False

    def count(self, keys: Any) -> tuple[Any, Any]:
        order = np.argsort(keys, kind="stable")
        at = keys[order]
        nth = np.empty(len(keys), np.int64)
        nth[order] = np.arange(len(keys)) - np.searchsorted(at, at)
        n = self.counts[keys] + nth + 1
        self.counts += np.bincount(keys, minlength=len(self.counts))
        return keys, n

    def snapshot(self) -> Any:
        return self.counts.copy()


def take_vectors(items: list[Any]) -> None:
    for _, (keys, n) in items:
        totals.rows += len(keys)
        totals.sum_n += int(n.sum())
        totals.checksum += int((n * keys).sum())


def w1(flow: Dataflow, task: Task) -> None:
    if task.form == "vectors":
        keys = op.input("keys", flow, Input(Vectors, task))
        counts = op.stateful_batch("count", keys, lambda s: CountVectors(task.distinct, s))
        op.output("answers", counts, Output(take_vectors))
        return
    keys = op.input("keys", flow, Input(Keys, task))
    counts = op.stateful_map("count", keys, count)
    op.output("answers", counts, Output(lambda items: totals.counts(a for _, a in items)))


def latency(flow: Dataflow, task: Task) -> None:
    def take(items: list[Any]) -> None:
        now = time.perf_counter()
        totals.counts((key, n) for _, (key, n, _) in items)
        warm = totals.began + task.warm
        totals.late += [now - due for _, (_, _, due) in items if due >= warm]

    keys = op.input("keys", flow, Input(Paced, task))
    op.output("answers", op.stateful_map("count", keys, count_paced), Output(take))


# ---------------------------------------------------------------------------- W2


def split(line: tuple[datetime, str]) -> Iterator[tuple[str, datetime]]:
    """(word, event time)."""
    time_ = line[0]
    return ((word, time_) for word in line[1].split())


def w2(flow: Dataflow, task: Task) -> None:
    lines = op.input("lines", flow, Input(Lines, task))
    words = op.flat_map("split", lines, split)
    # Its watermark goes on with the clock of the machine, so that what is read more slowly than it
    # was written would be late: here that clock stands still.
    clock = win.EventClock(
        lambda time_: time_, wait_for_system_duration=timedelta(0), now_getter=lambda: EPOCH
    )
    windows = win.TumblingWindower(timedelta(seconds=task.window_seconds), EPOCH)
    counts = win.fold_window(
        "count", words, clock, windows, int, lambda n, time_: n + 1, lambda a, b: a + b
    )

    def take(items: list[Any]) -> None:
        for word, (window, n) in items:
            totals.rows += 1
            totals.sum_n += n
            start = window * task.window_seconds
            totals.checksum += crc32(word.encode()) * (start + 1) * n

    op.output("answers", counts.down, Output(take))


def main() -> None:
    task = asked()
    flow = Dataflow(task.work)
    {"w1": w1, "w2": w2, "latency": latency}[task.work](flow, task)
    init_db_dir(Path(task.scratch), 1)
    every = timedelta(seconds=task.checkpoint_seconds)
    cli_main(flow, epoch_interval=every, recovery_config=RecoveryConfig(task.scratch))
    totals.tell()


if __name__ == "__main__":
    main()
