"""Recovery of a killed operator: from the kill until latency is what it was.

A paced word count in windows of 30 s, which also shows every count as it grows, runs on Ray; its
operator is killed with SIGKILL again and again. The sink notes when each epoch came. Recovered is
the first epoch after the kill, with all later ones, whose latency is at most twice the 99th
percentile of undisturbed ones.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import raystream as rs
from benchmarks.words import Counted, Lines, Tally, Word, split
from raystream.errors import JobError

WARM_SECONDS = 8.0
"""Before the first kill: processes are started, spare ones loaded, a cut is stored."""
BETWEEN_SECONDS = 6.0
EPOCH_SECONDS = 0.05


@rs.operator(key="word", window=rs.tumbling(seconds=30))
class GrowingCounts:
    """Counts of a window, each as soon as it changes."""

    def process(self, word: Word, tally: Tally) -> Iterator[Counted]:
        tally.n += 1
        yield Counted(word.word, word.time, tally.n)

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, window.start, tally.n)


class Arrivals:
    """Notes at what time each epoch came."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, context: rs.SinkContext) -> None:
        self.file = open(self.path, "a", buffering=1)  # noqa: SIM115 - closed with the process

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        self.file.write(f"{epoch} {time.time()}\n")

    def commit(self, epoch: int) -> None:
        pass


@dataclass
class Killer:
    """Kills the operator every few seconds; remembers when."""

    kills: int
    at: list[float] = field(default_factory=list)

    def __call__(self, sample: Any) -> None:
        due = WARM_SECONDS + len(self.at) * BETWEEN_SECONDS
        if len(self.at) < self.kills and sample.t >= due:
            name = next(n for n in sample.processes if n.startswith("count/"))
            self.at.append(time.time())
            os.kill(sample.processes[name], signal.SIGKILL)


def run(*, rate: int, cut_seconds: float, kills: int = 5) -> dict[str, Any]:
    """One job that is disturbed `kills` times. Times in milliseconds.

    Raises:
        JobError: a kill was not followed by a recovery.
    """
    speed = 30.0
    seconds = int((WARM_SECONDS + (kills + 1) * BETWEEN_SECONDS) * speed)
    killer = Killer(kills)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "arrivals"))
        flow = rs.Flow("recovery")
        source = Lines(max(2, int(rate / speed)), seconds)
        epochs = rs.by_time(seconds=max(1, round(EPOCH_SECONDS * speed)), speed=speed)
        words = flow.source(source, epochs=epochs, name="lines").through(split)
        words.through(GrowingCounts(), name="count").to(Arrivals(path), name="arrivals")
        report = flow.run(cluster="auto", checkpoint_seconds=cut_seconds, on_progress=killer)
        length = max(1, round(EPOCH_SECONDS * speed)) / speed
        arrivals = np.loadtxt(path)
    if len(report.recoveries) < kills:
        raise JobError(f"{kills} kills, but {len(report.recoveries)} recoveries")
    first: dict[int, float] = {}
    for epoch, at in arrivals.tolist():
        first.setdefault(int(epoch), at)
    latency = {e: at - (report.started + e * length) for e, at in first.items()}
    calm = [v for e, v in latency.items() if _calm(report.started + e * length, killer.at, report)]
    usual = float(np.percentile(calm, 99))
    back = [_back(first, latency, at, 2 * usual) for at in killer.at]
    detect = [
        report.started + r.t - at for r, at in zip(report.recoveries, killer.at, strict=False)
    ]
    return {
        "work": "recovery",
        "form": f"{rate:,} lines/s, cut every {cut_seconds:g} s",
        "cluster": report.cluster,
        "seconds": report.elapsed,
        "kills": kills,
        "usual_p99_ms": usual * 1e3,
        "detect_ms": statistics.median(detect) * 1e3,
        "replace_ms": statistics.median(r.seconds for r in report.recoveries) * 1e3,
        "recovered_ms": statistics.median(back) * 1e3,
        "recovered_most_ms": max(back) * 1e3,
    }


def _calm(due: float, kills: list[float], report: Any) -> bool:
    """Whether a moment is far from start, kills and end."""
    far = all(not -0.5 < due - k < BETWEEN_SECONDS / 2 for k in kills)
    return far and due - report.started > WARM_SECONDS / 2


def _back(first: dict[int, float], latency: dict[int, float], kill: float, limit: float) -> float:
    """Seconds from a kill to the first epoch that came late no more."""
    after = [at for e, at in first.items() if at > kill and latency[e] <= limit]
    slow = [
        at for e, at in first.items() if kill < at < kill + BETWEEN_SECONDS and latency[e] > limit
    ]
    last = max(slow, default=kill)
    return min(at for at in after if at >= last) - kill
