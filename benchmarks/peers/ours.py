"""Ours, from the same files: W1 as in `benchmarks.shared.w1`, W2, and W1 at a pace.

W2's batch form counts the words of an epoch's lines, window by window, before they are sent; the
windowed operator adds up such counts. Its interpreted form sends every word.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import raystream as rs
from benchmarks.peers import inputs
from benchmarks.peers.programs.protocol import MASK, Task, tell
from benchmarks.shared import w1 as works
from benchmarks.shared.words import Line, Word, split

BATCH_ROWS = 100_000
BATCH_SPAN = 5, 2
"""Seconds of an epoch of W2's batch form, and instances that read lines and count their words,
which is most of the work there."""
PACED_EPOCH = {"compiled": 0.0005, "together": 0.0005, "arrival": 0.0005}
"""Seconds of an epoch of W1 at a pace."""
MICRO = 1_000_000


@dataclass(frozen=True)
class Keys:
    """W1; `time` counts blocks."""

    given: inputs.Keys

    record = works.Key

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("keys")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[works.Key]]]:
        for at in range(position, self.given.rows, works.EPOCH_ROWS):
            keys = self.given.keys[at : at + works.EPOCH_ROWS]
            time = np.full(len(keys), at // works.EPOCH_ROWS, np.int32)
            yield at + len(keys), rs.Batch(works.Key, {"time": time, "key": keys})


class Paced(NamedTuple):
    """time: when it is due, in microseconds."""

    time: rs.Int64
    key: rs.Int32


class Counted(NamedTuple):
    time: rs.Int64
    key: rs.Int32
    n: rs.Int32


@dataclass(frozen=True)
class PacedKeys:
    """W1 at a rate of records a second."""

    given: inputs.Keys
    rate: int

    record = Paced

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("keys")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Paced]]]:
        for at in range(position, self.given.rows, BATCH_ROWS):
            keys = self.given.keys[at : at + BATCH_ROWS]
            time = np.arange(at, at + len(keys)) * MICRO // self.rate
            yield at + len(keys), rs.Batch(Paced, {"time": time, "key": keys})


class ArrivingKeys(PacedKeys):
    """W1 as records arrive: each is there when it is due, and its time is Unix time in
    microseconds."""

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Paced]]]:
        began, wait = time.time() - position / self.rate, PACED_EPOCH["arrival"]
        at = position
        while at < self.given.rows:
            time.sleep(wait)
            upto = min(int((time.time() - began) * self.rate), self.given.rows, at + BATCH_ROWS)
            if upto > at:
                due = int(began * MICRO) + np.arange(at, upto) * MICRO // self.rate
                yield upto, rs.Batch(Paced, {"time": due, "key": self.given.keys[at:upto]})
                at = upto


@rs.operator(key="key", compiled=True)
def paced_count(paced: Paced, tally: works.Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(paced.time, paced.key, tally.n)


@dataclass(frozen=True)
class Lines:
    """W2; `time` in seconds. Splits take turns, span by span of so many seconds."""

    given: inputs.Lines
    seconds: int = 1
    parts: int = 1

    record = Line

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split(str(part)) for part in range(self.parts)]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        """Positions are spans."""
        size = self.seconds * inputs.LINES_PER_SECOND
        spans = -(-self.given.rows // size)
        for span in range(max(position, int(split.name)), spans, self.parts):
            at = span * size
            n = min(size, self.given.rows - at)
            columns = {"time": inputs.seconds_of(at, n), "text": self.given.text(at, n)}
            yield span + self.parts, rs.Batch(Line, columns)


class Part(NamedTuple):
    time: rs.Int64
    word: str
    n: rs.Int64


class Total(NamedTuple):
    word: str
    start: rs.Int64
    n: rs.Int64


class Sum(rs.State):
    n: int = 0


@rs.operator()
def combine(lines: rs.Batch[Line]) -> rs.Batch[Part]:
    """The counts of the words of each window."""
    words = pc.split_pattern(lines["text"], " ")
    which = pc.list_parent_indices(words).to_numpy()
    coded = pc.list_flatten(words).dictionary_encode()
    size = len(coded.dictionary)
    windows, first, window = np.unique(
        lines["time"] // inputs.WINDOW_SECONDS, return_index=True, return_inverse=True
    )
    at = window[which] * size + coded.indices.to_numpy()
    counts = np.bincount(at, minlength=len(windows) * size)
    found = np.flatnonzero(counts)
    origin = np.empty(len(counts), np.int64)
    origin[at[::-1]] = which[::-1]  # the line where it comes first
    columns = {
        "time": lines["time"][first[found // size]],
        "word": coded.dictionary.take(pa.array(found % size)),
        "n": counts[found],
    }
    return rs.Batch(Part, columns, origin=origin[found])


@rs.operator(key="word", window=rs.tumbling(seconds=inputs.WINDOW_SECONDS))
class AddParts:
    def process(self, part: Part, sum_: Sum) -> None:
        sum_.n += part.n

    def close(self, key: str, window: rs.Window, sum_: Sum) -> Iterator[Total]:
        yield Total(key, window.start, sum_.n)


@rs.operator(key="word", window=rs.tumbling(seconds=inputs.WINDOW_SECONDS))
class CountWords:
    def process(self, word: Word, sum_: Sum) -> None:
        sum_.n += 1

    def close(self, key: str, window: rs.Window, sum_: Sum) -> Iterator[Total]:
        yield Total(key, window.start, sum_.n)


KEPT = 1 << 20
"""How many latencies a sink has room for at first."""


class Answers(rs.Sink[Any]):
    """Adds up the totals of W2, or of W1 with how late each record is. What came up to a checkpoint
    is kept in files, so a sink that is moved, or replaced, goes on from there.

    Args:
        warm: records that are due in these first seconds do not count as late.
        unix: whether the time of a record is Unix time, and not that since the job's start.
    """

    def __init__(self, folder: str, warm: float = 0.0, *, unix: bool = False) -> None:
        self.folder, self.warm, self.unix = Path(folder), warm * MICRO, unix

    def open(self, context: rs.SinkContext) -> None:
        self.started = 0.0 if self.unix else context.started or 0.0
        self.first: int | None = None if self.unix else 0
        self.late = np.empty(KEPT, np.float32)
        self._begin()

    def _begin(self) -> None:
        self.answers = {"rows": 0, "sum_n": 0, "checksum": 0}
        self.known = 0

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        if batch.record is Counted:
            self._note((time.time() - self.started) * MICRO, batch["time"])
            n = batch["n"].astype(np.int64)
            found = {
                "rows": len(batch),
                "sum_n": int(n.sum()),
                "checksum": int((n * batch["key"]).sum()),
            }
        else:
            found = inputs.word_answers(batch.records())
        for name, value in found.items():
            self.answers[name] = (self.answers[name] + value) & MASK

    def _note(self, now: float, due: np.ndarray) -> None:
        """Note how late records are, in few steps, because this counts as the job's time."""
        if self.first is None:
            self.first = int(due[0])
        if due[0] - self.first < self.warm:
            return
        upto = self.known + len(due)
        if upto > len(self.late):
            self.late = np.concatenate([self.late, np.empty(max(KEPT, len(due)), np.float32)])
        np.subtract(now, due, out=self.late[self.known : upto], casting="same_kind")
        self.known = upto

    def prepare(self, epoch: int) -> None:
        np.save(self.folder / f"{epoch}.npy", self.late[: self.known])
        (self.folder / f"{epoch}.json").write_text(json.dumps(self.answers))
        self._begin()


def w1(task: Task, cluster: str | None) -> None:
    """Run it, and tell."""
    source = Keys(inputs.Keys(Path(task.path).parent, task.rows, task.distinct))
    flow = rs.Flow("w1")
    keys = flow.source(source, epochs=rs.by_time("time", seconds=1))
    keys.through(works.FORMS[task.form], name="count").to(works.Check(task.scratch))
    # Not every task.checkpoint_seconds: all may be read before the first of them are over.
    report = flow.run(cluster=cluster, checkpoint_every=works.CHECKPOINT_ROWS // works.EPOCH_ROWS)
    tell(report.elapsed, works.totals(Path(task.scratch)), latency_ms=None)


def w2(task: Task, cluster: str | None) -> None:
    """Run it, and tell."""
    flow = rs.Flow("w2")
    seconds, readers = BATCH_SPAN if task.form == "batch" else (1, 1)
    source = Lines(inputs.Lines(Path(task.path).parent, task.rows), seconds, readers)
    lines = flow.source(source, epochs=rs.by_time("time", seconds=seconds), name="lines")
    if task.form == "batch":
        counts = lines.through(combine).through(AddParts(), name="count")
    else:
        counts = lines.through(split).through(CountWords(), name="count")
    counts.to(Answers(task.scratch))
    report = flow.run(
        cluster=cluster, checkpoint_seconds=task.checkpoint_seconds, instances={"lines": readers}
    )
    tell(report.elapsed, _answers(task), latency_ms=None)


def latency(task: Task, cluster: str | None) -> None:
    """Run it, and tell. A record is late by the time from when it was due until its answer is at
    the sink."""
    flow = rs.Flow("latency")
    given, seconds = inputs.Keys(Path(task.path).parent, task.rows, task.distinct), PACED_EPOCH
    arriving = task.form == "arrival"
    if arriving:
        epochs = rs.by_arrival("time", seconds=seconds[task.form])
        keys = flow.source(ArrivingKeys(given, task.rate), epochs=epochs, name="keys")
    else:
        epochs = rs.by_time("time", seconds=seconds[task.form], ticks=MICRO, speed=1.0)
        keys = flow.source(PacedKeys(given, task.rate), epochs=epochs, name="keys")
    keys.through(paced_count, name="count").to(Answers(task.scratch, task.warm, unix=arriving))
    report = flow.run(
        cluster=cluster,
        checkpoint_seconds=task.checkpoint_seconds,
        together=task.form == "together",
    )
    late = np.concatenate([np.load(path) for path in Path(task.scratch).glob("*.npy")]) / 1e3
    shares = {f"p{p}": float(np.percentile(late, p)) for p in (50, 99)}
    tell(report.elapsed, _answers(task), latency_ms={**shares, "n": len(late)})


def _answers(task: Task) -> dict[str, int]:
    """What the sinks added up."""
    parts = [json.loads(path.read_text()) for path in Path(task.scratch).glob("*.json")]
    return {name: sum(part[name] for part in parts) & MASK for name in parts[0]}


WORKS = {"w1": w1, "w2": w2, "latency": latency}
