"""Linear Road fed by Spark, while everything that takes part is killed; each answer is checked.

The job runs on the Ray of this machine, the feed is a process of its own with executors of its own.
One after the other is killed, when rows have been committed since the last kill: the driver, which
is started again with another number of tasks; an executor; the query, by the process that releases
its rows; and of the job the source, a keeper and the controller.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from lrb.query.fed import Feed
from lrb.query.fed_run import run_fed
from lrb.query.run import run
from lrb.query.source import look_through
from spark_ingest.feed.state import State
from spark_ingest.layout import history_files

OF_FEED = ("driver", "executor", "query")
OF_JOB = ("source", "keeper", "controller")
TASKS = (2, 5, 3, 7)
"""As many tasks read a batch of the first driver, of the second, and so on."""
EXECUTORS = "spark.master=local-cluster[2,1,1024]"
_SHOWS = {"executor": "CoarseGrainedExecutorBackend", "query": "python_streaming_source_runner"}
"""What is in the command line of a process."""


@dataclass
class FeedProcess:
    """A feed that is started again when it is gone."""

    command: list[str]
    state: State
    log: Path
    token: str
    starts: int = 0
    process: Any = None

    def keep(self) -> None:
        """Start it, unless it runs or has ended well."""
        if self.process is None or self.process.poll() not in (None, 0):
            tasks = TASKS[self.starts % len(TASKS)]
            self.starts += 1
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [*self.command, "--tasks", str(tasks)],
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"RAYSTREAM_PUSH_TOKEN": self.token},
                )

    def family(self, kind: str) -> list[psutil.Process]:
        """Its processes of a kind."""
        try:
            own = psutil.Process(self.process.pid)
            family = [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        if kind == "driver":
            return family
        found = []
        for each in family:
            with suppress(psutil.NoSuchProcess):
                if _SHOWS[kind] in " ".join(each.cmdline()):
                    found.append(each)
        return found[:1] if kind == "executor" else found

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            kill(self.family("driver"))
            self.process.wait()


def kill(processes: list[psutil.Process]) -> None:
    """Kill processes; some may be gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@dataclass
class Striker:
    """Kills what is due next while it is told of the job's progress.

    due: kinds, the next one first. every: seconds from one kill to the next, on average.
    """

    feed: FeedProcess
    due: list[str]
    every: float
    rng: random.Random
    say: Callable[[str], None]
    made: Counter[str] = field(default_factory=Counter)
    _next: float = 0.0
    _fed: int = 0
    _epoch: int = 0

    def __call__(self, sample: Any) -> None:
        """Kill, if it is time, and rows were committed since the last kill."""
        self.feed.keep()
        fed = self.feed.state.committed() or 0
        committed = sample.committed
        if not self.due or fed <= self._fed or time.monotonic() < self._next or committed is None:
            return
        if committed.epoch <= self._epoch or committed.under_replicated:
            return  # what was lost last is not whole again
        kind = self.due[0]
        victims = self.feed.family(kind) if kind in OF_FEED else _of_job(kind, sample.processes)
        if victims:
            self.due.pop(0)
            kill(victims)
            self.made[kind] += 1
            self.say(f"{sample.t:6.1f} s, second {fed}: {kind}")
            self._fed, self._epoch = fed, committed.epoch
            self._next = time.monotonic() + self.rng.uniform(0.5, 1.5) * self.every


def _of_job(kind: str, processes: dict[str, int]) -> list[psutil.Process]:
    vertex = "rows" if kind == "source" else kind
    for name, pid in sorted(processes.items()):
        if name.partition("/")[0] == vertex:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if " ".join(process.cmdline()).startswith("ray::"):
                    return [process]
    return []


def order(kinds: tuple[str, ...], kills: int, rng: random.Random) -> list[str]:
    """Each kind so often, in rounds of all of them in any order."""
    return [kind for _ in range(kills) for kind in rng.sample(kinds, len(kinds))]


def main(
    kills: Annotated[int, typer.Option(min=0, help="How often each kind is killed.")] = 10,
    data: Annotated[Path | None, typer.Option(help="A prepared folder; made when absent.")] = None,
    seconds: Annotated[int, typer.Option(min=60, help="Seconds of traffic to make.")] = 5400,
    speed: Annotated[float, typer.Option(min=0.1, help="Event seconds per second.")] = 8.0,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds from kill to kill.")] = 4.0,
    only: Annotated[str, typer.Option(help="Kinds to kill, with commas; all unless given.")] = "",
    seed: Annotated[int, typer.Option(help="Of the order of kills.")] = 0,
) -> None:
    """Kill driver, executors, query, source, keeper and controller of Linear Road fed by Spark."""
    folder = (data or Path("data") / f"bench-feed-{seconds}").resolve()
    if not (folder / "meta.json").exists():
        from spark_ingest.generate import generate

        generate(folder, xways=1, seconds=seconds, seed=7)
    kinds = tuple(filter(None, only.split(","))) or (*OF_FEED, *OF_JOB)
    if unknown := set(kinds) - {*OF_FEED, *OF_JOB}:
        raise typer.BadParameter(f"--only {only}: there is no {sorted(unknown)[0]!r}")
    rng = random.Random(seed)
    console = Console(stderr=True)
    say: Callable[[str], None] = lambda text: console.print(text, highlight=False)  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="bench-feed-") as home:
        right = run(look_through(folder), Path(home, "right"))["checksum"]
        record, striker = _struck(folder, Path(home), speed, every, order(kinds, kills, rng), say)
    Console().print(_table(record, striker, kinds))
    if record["checksum"] != right:
        sys.exit(f"wrong answers: checksum {record['checksum']} instead of {right}")
    print(f"all {sum(record['rows_out'].values()):,} answers are right, checksum {right}")
    if striker.due:
        print(f"the feed ended before {len(striker.due)} more kills: a lower --speed lasts longer")


def _struck(
    data: Path, home: Path, speed: float, every: float, due: list[str], say: Callable[[str], None]
) -> tuple[dict[str, Any], Striker]:
    """Run the job and its feed, and kill."""
    token = secrets.token_urlsafe(16)
    with socket.create_server(("127.0.0.1", 0)) as tried:
        port = tried.getsockname()[1]
    command = [sys.executable, "-m", "spark_ingest", "feed", "--input", str(data)]
    command += ["--address", f"http://127.0.0.1:{port}", "--speed", f"{speed:g}"]
    command += ["--state", str(home / "state"), "--spark", EXECUTORS]
    feed = FeedProcess(command, State(home / "state"), home / "feed.log", token)
    striker = Striker(feed, due, every, random.Random(len(due)), say)
    try:
        record = run_fed(
            Feed(port=port, token=token, history=tuple(history_files(data))),
            home / "answers",
            cluster="auto",
            on_progress=lambda sample, _: striker(sample),
        )
    except BaseException:
        with suppress(OSError):
            say(feed.log.read_text(encoding="utf-8", errors="replace")[-3000:])
        raise
    finally:
        feed.close()
    return record, striker


def _table(record: dict[str, Any], striker: Striker, kinds: tuple[str, ...]) -> Table:
    latency = record["latency"] or {}
    gone = Counter(n.partition("/")[0] for r in record["recoveries"] for n in r["gone"])
    table = Table(title="Linear Road, fed by Spark", show_header=False)
    for kind in kinds:
        table.add_row(f"{kind} killed", str(striker.made[kind]))
    table.add_row("feeds started", str(striker.feed.starts))
    table.add_row("instances replaced", ", ".join(f"{n} {k}" for k, n in sorted(gone.items())))
    table.add_row("seconds", f"{record['elapsed']:.0f}")
    table.add_row("p50, p99, s", f"{latency.get('p50', 0):.2f}, {latency.get('p99', 0):.2f}")
    table.add_row("late answers", str(record["deadline_missed"]))
    return table
