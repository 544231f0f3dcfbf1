"""The process of an instance with much state is killed, again and again, at steady load.

A keyed operator keeps a kilobyte for each key (`benchmarks.jobs.elastic`), and changes some of them
all the time. Its process is killed with SIGKILL. The sink notes when each epoch came. Back is the
first epoch from which on latency is at most twice its usual 99th percentile, for a second.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.jobs.elastic import (
    CHECKPOINT_SECONDS,
    FILL_KEYS,
    KEYS_PER_MB,
    NUMBERS,
    SETTLED_MB,
    SPARES_SECONDS,
    TICKS,
    WARM_SECONDS,
    Keys,
    check,
    first,
    flow_of,
)
from benchmarks.recovery.kills import times_back
from raystream.errors import JobError

ROW_BYTES = 8 * (NUMBERS + 2)
"""Of a key, a count and its numbers."""
BETWEEN_SECONDS = 8.0
"""Between kills, and after the last one, if the job has caught up."""
BEHIND_SECONDS = 1.0
"""A job that is no further behind has caught up: its progress is known about so late."""


@dataclass
class Killer:
    """Kills the instance of the operator whenever it is due and the job has caught up."""

    kills: int
    due: float
    at: list[float] = field(default_factory=list)
    """The Unix times of the kills."""

    def __call__(self, sample: Any) -> None:
        if len(self.at) == self.kills or sample.t < self.due or not sample.committed.epoch:
            return
        count = sample.operators["count"]
        names = [n for n in sample.processes if n.startswith("count/")]
        if sample.t - count.position / TICKS > BEHIND_SECONDS or len(names) != 1:
            return
        self.due = sample.t + BETWEEN_SECONDS
        self.at.append(time.time())
        os.kill(sample.processes[names[0]], signal.SIGKILL)


def run(megabytes: float, rate: int, kills: int, memory: str | None) -> dict[str, Any]:
    """One job that is struck so often. Times in milliseconds.

    Args:
        rate: records a second.
        memory: for the rows of the instance; what is beyond it is on disk. None: all of it.

    Raises:
        JobError: nothing was killed, or the counts are not right.
    """
    several = round(megabytes * KEYS_PER_MB)
    filled = -(-several // FILL_KEYS) / TICKS
    begin = max(filled + WARM_SECONDS * (1 + megabytes / SETTLED_MB), SPARES_SECONDS)
    ticks = int((begin + (kills + 1) * (BETWEEN_SECONDS + 2)) * TICKS)
    keys = Keys(several, ticks, max(1, rate // TICKS))
    killer = Killer(kills, begin)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = flow_of(keys, folder).run(
            cluster="auto",
            checkpoint_seconds=CHECKPOINT_SECONDS,
            spares=2,
            state_memory=memory,
            on_progress=killer,
        )
        came = np.loadtxt(folder / "came", dtype=[("t", "i8"), ("at", "f8"), ("sum", "i8")])
    if not killer.at:
        raise JobError(f"{megabytes:g} MB: the job was over before anything was killed")
    check(keys, came)
    moments, at = (found.tolist() for found in first(came["t"], came["at"]))
    arrived = dict(zip(moments, at, strict=True))
    late = {t: at - (report.started + t / TICKS) for t, at in arrived.items()}
    usual, back = times_back(arrived, late, killer.at, killer.at[0] - WARM_SECONDS / 2)
    return {
        "work": "state",
        "megabytes": several * ROW_BYTES / 1e6,
        "memory": memory or "all",
        "rate": keys.rate * TICKS,
        "kills": len(killer.at),
        "usual_p99_ms": usual * 1e3,
        "replace_ms": [r.seconds * 1e3 for r in report.recoveries],
        "back_ms": [seconds * 1e3 for seconds in back],
    }


def main(
    megabytes: Annotated[str, typer.Option(help="Sizes of the state, as in 100,1000.")] = "100",
    rate: Annotated[int, typer.Option(min=TICKS, help="Records a second.")] = 10_000,
    kills: Annotated[int, typer.Option(min=1, help="Kills in each run.")] = 3,
    state_memory: Annotated[
        str | None, typer.Option(help="Memory for rows, as in 100MB; all are in memory otherwise.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
) -> None:
    """A process with much state is killed: how long until latency is what it was."""
    results = []
    for size in megabytes.split(","):
        results.append(run(float(size), rate, kills, state_memory))
        if as_json:
            print(json.dumps(results[-1]), flush=True)
    if not as_json:
        Console(width=100).print(table(results))


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Medians over the kills of each run, in milliseconds; the most in brackets."""
    shown = Table(title="Killed with much state, ms: medians, and the most", title_justify="left")
    for heading in ("MB of state", "in memory", "records/s", "kills", "usual p99", "replaced",
                    "back"):  # fmt: skip
        shown.add_column(heading, justify="right")
    for r in results:
        took = [
            f"{statistics.median(r[figure]):,.0f} ({max(r[figure]):,.0f})"
            for figure in ("replace_ms", "back_ms")
        ]
        shown.add_row(
            f"{r['megabytes']:,.0f}", r["memory"], f"{r['rate']:,}",
            str(r["kills"]), f"{r['usual_p99_ms']:,.0f}", *took,
        )  # fmt: skip
    return shown
