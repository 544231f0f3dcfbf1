"""Pathway: an incremental `groupby` over a CSV file that is followed.

There is an answer for each key and commit, not for each record. A second reduction adds them up in
the engine, so that no row has to go to Python, and says when all have come. Words are counted by
word and start of the window, and each count is told as it grows.
"""

from __future__ import annotations

import os
from time import perf_counter, sleep
from typing import Any
from zlib import crc32

import numpy as np
import pathway as pw

from benchmarks.peers.programs.protocol import Task, Totals, asked

COMMIT_MS = 100
PACED_COMMIT_MS = 5

totals = Totals()


class Key(pw.Schema):
    key: int


class Line(pw.Schema):
    time: int
    text: str


class Due(pw.Schema):
    key: int
    due: float


def w1(task: Task) -> pw.Table:
    keys = pw.io.csv.read(task.path, schema=Key, autocommit_duration_ms=COMMIT_MS)
    counts = keys.groupby(keys.key).reduce(keys.key, n=pw.reducers.count())
    return counts.select(counts.n, product=counts.n * counts.key)


def w2(task: Task) -> pw.Table:
    lines = pw.io.csv.read(task.path, schema=Line, autocommit_duration_ms=COMMIT_MS)
    size = task.window_seconds
    words = lines.select(
        start=lines.time // size * size, word=pw.apply(lambda text: tuple(text.split()), lines.text)
    ).flatten(pw.this.word)
    counts = words.groupby(words.start, words.word).reduce(
        words.start, words.word, n=pw.reducers.count()
    )
    hashed = pw.apply_with_type(lambda word: crc32(word.encode()), int, counts.word)
    return counts.select(counts.n, product=hashed * (counts.start + 1) * counts.n)


def until_all_came(counts: pw.Table, records: int) -> None:
    """Adds up the answers, and ends the process when as many records have been counted."""
    sums = counts.reduce(
        rows=pw.reducers.count(),
        sum_n=pw.reducers.sum(counts.n),
        checksum=pw.reducers.sum(counts.product),
    )

    def take(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if not is_addition or row["sum_n"] < records:
            return
        totals.rows, totals.sum_n, totals.checksum = row["rows"], row["sum_n"], row["checksum"]
        totals.end()
        totals.tell()
        os._exit(0)  # a file that is followed has no end

    pw.io.null.write(counts)
    pw.io.subscribe(sums, take)


class Paced(pw.io.python.ConnectorSubject):
    """Keys as they are due."""

    deletions_enabled = False

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def run(self) -> None:
        keys = np.memmap(self.task.path, "<i4", "r")[: self.task.rows].tolist()
        totals.begin()
        for i, key in enumerate(keys):
            due = totals.began + i / self.task.rate
            while (early := due - perf_counter()) > 0:
                sleep(early)
            self.next(key=key, due=due)


def latency(task: Task) -> None:
    keys = pw.io.python.read(Paced(task), schema=Due, autocommit_duration_ms=PACED_COMMIT_MS)
    latest = keys.groupby(keys.key).reduce(
        keys.key, n=pw.reducers.count(), due=pw.reducers.max(keys.due)
    )
    last: dict[int, int] = {}

    def take(row: dict[str, Any], now: float) -> None:
        last[row["key"]] = row["n"]
        if row["due"] >= totals.began + task.warm:
            totals.late.append(now - row["due"])

    def told(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            take(row, perf_counter())

    pw.io.subscribe(latest, told)
    run(task)
    totals.end()
    totals.counts(last.items())
    totals.tell()


def run(task: Task) -> None:
    every = round(task.checkpoint_seconds * 1000)
    backend = pw.persistence.Backend.filesystem(task.scratch)
    kept = pw.persistence.Config(backend, snapshot_interval_ms=every)
    pw.run(persistence_config=kept, monitoring_level=pw.MonitoringLevel.NONE)


def main() -> None:
    task = asked()
    if task.work == "latency":
        latency(task)
        return
    if task.work == "w1":
        until_all_came(w1(task), task.rows)
    else:
        until_all_came(w2(task), task.rows * task.words_per_line)
    totals.begin()
    run(task)


if __name__ == "__main__":
    main()
