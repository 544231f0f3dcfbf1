"""Recovery of killed operators: from the kill until latency is what it was.

A paced word count in windows of 30 s, which also shows every count as it grows, runs on Ray; its
operator is killed with SIGKILL again and again, one instance or several at once. The sink notes
when each epoch came. Recovered is the first epoch after the kill whose latency, with that of all
that come within a second of it, is at most twice the 99th percentile of those before the first
kill.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import raystream as rs
from benchmarks.shared.notes import Notes
from benchmarks.shared.words import WORDS, Counted, Line, Lines, Tally, Word, split
from raystream.errors import JobError

TICKS = 20
"""Event time counts epochs, of which there are so many in a real second."""
WINDOW = 30 * TICKS
WARM_SECONDS = 50.0
"""Before the first kill: processes are started, a checkpoint is stored, spare processes are loaded;
and the second half of it is what latency is when nothing is disturbed."""
BETWEEN_SECONDS = 6.0
"""Between kills, if the job has caught up."""
STEADY_SECONDS = 1.0
"""So long latency is to be as usual again: what is on its way when somebody dies still comes."""
BEHIND_SECONDS = 1.0
"""A job that is no further behind has caught up: its progress is known about so late."""
BATCH_FROM = 50_000
"""From so many lines a second on, the count runs in the batch form."""
POOL_LINES = 20_000


# ---------------------------------------------------------------- the work


@rs.operator(key="word", window=rs.tumbling(seconds=WINDOW))
class GrowingCounts:
    """Counts of a window, each as soon as it changes."""

    def process(self, word: Word, tally: Tally) -> Iterator[Counted]:
        tally.n += 1
        yield Counted(word.word, word.time, tally.n)

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


@dataclass(frozen=True)
class Pooled(Lines):
    """Lines that are drawn from a pool: so many are not made one by one."""

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 0]))
        ranks = rng.zipf(1.3, (POOL_LINES, 5)) % len(WORDS)
        pool = pa.array([" ".join(words) for words in WORDS[ranks].tolist()])
        for t in range(position, self.seconds):
            rng = np.random.Generator(np.random.Philox(key=[self.seed, 1 + t]))
            text = pool.take(pa.array(rng.integers(0, POOL_LINES, self.rate)))
            yield t + 1, rs.Batch(Line, {"time": np.full(self.rate, t), "text": text})


@rs.operator()
def split_batch(lines: rs.Batch[Line]) -> rs.Batch[Word]:
    words = pc.split_pattern(lines["text"], " ")
    origin = pc.list_parent_indices(words).to_numpy()
    return rs.Batch(
        Word, {"time": lines["time"][origin], "word": pc.list_flatten(words)}, origin=origin
    )


class WindowTally(rs.State):
    start: int = 0
    n: int = 0


@rs.operator(key="word")
def count_batch(words: rs.Batch[Word], rows: rs.Rows[WindowTally]) -> rs.Batch[Counted]:
    """The count of each word that came, in its window; an epoch is one tick, so all its records
    belong to one window."""
    start = int(words["time"][0]) // WINDOW * WINDOW
    before = np.where(rows["start"] == start, rows["n"], 0)
    rows["n"] = before + np.bincount(rows.index, minlength=len(rows))
    rows["start"] = np.full(len(rows), start)
    _, first = np.unique(rows.index, return_index=True)
    columns = {
        "word": words["word"].take(pa.array(first)),
        "start": rows["start"],
        "n": rows["n"],
    }
    return rs.Batch(Counted, columns, origin=first)


class Arrivals(Notes):
    """Notes at what time each epoch came."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        self.file.write(f"{epoch} {time.time()}\n")


def flow_of(
    sink: rs.Sink[Counted], rate: int, ticks: int, *, speed: float | None, batch: bool
) -> rs.Flow:
    """The flow, `ticks` long. rate: lines a second. speed: ticks a second; None for as fast as it
    goes. batch: in the batch form."""
    flow = rs.Flow("recovery")
    each = max(2, rate // TICKS)
    epochs = rs.by_time(seconds=1, speed=speed)
    if batch:
        pooled = flow.source(Pooled(each, ticks), epochs=epochs, name="lines")
        counts = pooled.through(split_batch).through(count_batch, name="count")
    else:
        lines = flow.source(Lines(each, ticks), epochs=epochs, name="lines")
        counts = lines.through(split).through(GrowingCounts(), name="count")
    counts.to(sink, name="arrivals")
    return flow


# ---------------------------------------------------------------- the kills


@dataclass
class Killer:
    """Kills instances of the operator, so many at once, every few seconds, whenever the job has
    caught up; remembers when and whom."""

    kills: int
    together: int
    warm: float
    at: list[float] = field(default_factory=list)
    whom: list[tuple[str, ...]] = field(default_factory=list)
    _due: float = 0.0

    def __call__(self, sample: Any) -> None:
        if len(self.at) == self.kills or sample.t < max(self.warm, self._due):
            return
        behind = sample.t - sample.operators["count"].position / TICKS
        names = sorted(n for n in sample.processes if n.startswith("count/"))[: self.together]
        if behind > BEHIND_SECONDS or len(names) < self.together:
            return
        self._due = sample.t + BETWEEN_SECONDS
        self.at.append(time.time())
        self.whom.append(tuple(names))
        for name in names:
            os.kill(sample.processes[name], signal.SIGKILL)


class Case(NamedTuple):
    """What is measured. rate: lines a second. form: interpreted or batch. together: so many of
    `instances` die at once. into: so many share the range of each."""

    rate: int
    form: str = "interpreted"
    checkpoint_seconds: float = 5.0
    mode: str = "state"
    into: int = 1
    together: int = 1
    instances: int = 1

    def __str__(self) -> str:
        return (
            f"{self.rate:,} lines/s {self.form}, a checkpoint every {self.checkpoint_seconds:g} s,"
            f" {self.mode}, {self.together} of {self.instances} restored by {self.into}"
        )


def form_of(form: str, rate: int) -> str:
    """The form that is meant at a rate: "auto" is what keeps up with it."""
    if form == "auto":
        return "batch" if rate >= BATCH_FROM else "interpreted"
    return form


def run(case: Case, *, kills: int = 5) -> dict[str, Any]:
    """One job that is disturbed `kills` times, or as often as it catches up. Times in milliseconds.

    Raises:
        JobError: it was not disturbed at all, or a kill was not followed by a recovery.
    """
    warm = max(WARM_SECONDS, case.checkpoint_seconds + 3.0)
    ticks = int((warm + (kills + 1) * (BETWEEN_SECONDS + 1)) * TICKS)
    killer = Killer(kills, case.together, warm)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "arrivals"))
        batch = case.form == "batch"
        flow = flow_of(Arrivals(path), case.rate, ticks, speed=float(TICKS), batch=batch)
        report = flow.run(
            cluster="auto",
            checkpoint_seconds=case.checkpoint_seconds,
            instances={"count": case.instances},
            recovery=case.mode,
            restore_into=case.into,
            spares=max(2, case.into * case.together),
            on_progress=killer,
        )
        first = first_arrivals(np.loadtxt(path, ndmin=2))
    if not killer.at:
        raise JobError(f"{case}: the job never kept up with its input, so nothing was killed")
    recovered = [_recovery_of(whom, report.recoveries) for whom in killer.whom]
    detected = [report.started + r.t - at for r, at in zip(recovered, killer.at, strict=True)]
    # an epoch of one tick is released as it begins
    latency = {e: at - (report.started + (e - 1) / TICKS) for e, at in first.items()}
    usual, back = times_back(first, latency, killer.at, report.started + warm / 2)
    return {
        "work": "recovery",
        "case": str(case),
        **case._asdict(),
        "cluster": report.cluster,
        "seconds": report.elapsed,
        "kills": len(killer.at),
        "usual_p99_ms": usual * 1e3,
        "detect_ms": [s * 1e3 for s in detected],
        "replace_ms": [r.seconds * 1e3 for r in recovered],
        "recovered_ms": [s * 1e3 for s in back],
    }


def _recovery_of(names: tuple[str, ...], recoveries: Sequence[Any]) -> Any:
    """The last of the recoveries that replaced these.

    Raises:
        JobError: there was none for one of them.
    """
    found = [r for r in recoveries if set(names) & set(r.gone)]
    missing = set(names) - {n for r in found for n in r.gone}
    if missing:
        raise JobError(f"{', '.join(sorted(missing))} was killed, but not replaced")
    return found[-1]


def first_arrivals(arrivals: Any) -> dict[int, float]:
    """When each epoch came first. arrivals: [n, 2] epochs and Unix times, in any order."""
    first: dict[int, float] = {}
    for epoch, at in arrivals.tolist():
        first[int(epoch)] = min(at, first.get(int(epoch), at))
    return first


def times_back(
    first: Mapping[int, float], latency: Mapping[int, float], kills: Sequence[float], begin: float
) -> tuple[float, list[float]]:
    """The 99th percentile of latency before the first kill, and of each kill the
    seconds until latency is at most twice that again, and stays so for a while; infinity where it
    does not before the next kill, or the end.

    Args:
        first: when each epoch came; latency: how late; kills: when; begin: of what counts.

    Raises:
        JobError: nothing came before the first kill.
    """
    calm = [latency[e] for e, at in first.items() if begin < at < kills[0]]
    if not calm:
        raise JobError("nothing came before the first kill")
    usual = float(np.percentile(calm, 99))
    back = []
    for kill, following in zip(kills, [*kills[1:], float("inf")], strict=True):
        after = sorted((at, latency[e]) for e, at in first.items() if kill < at < following)
        slow = [at for at, late in after if late > 2 * usual]
        steady = (at for at, _ in after if not any(at <= s <= at + STEADY_SECONDS for s in slow))
        back.append(next(steady, math.inf) - kill)
    return usual, back


def pooled(results: Sequence[Mapping[str, Any]], figure: str) -> list[float]:
    """A figure of all kills of several runs; of a figure with one value per run, those."""
    values = [r[figure] for r in results]
    return [v for each in values for v in (each if isinstance(each, list) else [each])]


def medians(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What is shown of the runs of a case, in milliseconds: medians over all kills."""
    figures = ("usual_p99_ms", "detect_ms", "replace_ms", "recovered_ms")
    back = pooled(results, "recovered_ms")
    shown = {f: statistics.median(pooled(results, f)) for f in figures}
    return {**shown, "recovered_most_ms": max(back), "kills": len(back)}
