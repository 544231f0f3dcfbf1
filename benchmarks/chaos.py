"""python -m benchmarks.chaos: kill processes of a running job at random, and check its answers.

A paced windowed word count, or Linear Road, runs on Ray while its processes are killed with
SIGKILL: sources, operators, sinks, keepers, one or several at once; with --nodes also whole nodes
(raylets on this machine). What it answers must be what an undisturbed run in one process answers.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import words
from raystream.errors import RaystreamError

HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@dataclass
class Monkey:
    """Kills processes while it is told of the job's progress.

    every: seconds between kills, on average. together: how many die at once, at most. settle: after
    a keeper or a node nothing else is killed so long: checkpoints have one copy, and another keeper
    must first have been given the next one.
    """

    rng: random.Random
    every: float
    together: int
    nodes: Nodes | None
    settle: float
    killed: Counter[str] = field(default_factory=Counter)
    next: float = 0.0

    def __call__(self, sample: Any) -> None:
        """Kill somebody, if it is time."""
        now = time.monotonic()
        if now < self.next or not sample.processes:
            return
        self.next = now + self.rng.uniform(0.5, 1.5) * self.every
        names = sorted(sample.processes)
        if self.nodes is not None and self.rng.random() < 0.2 and self.nodes.kill():
            self._count("node")
            return
        victims = self.rng.sample(names, self.rng.randint(1, self.together))
        if any(v.startswith("keeper") for v in victims):
            victims = [v for v in victims if v.startswith("keeper")][:1]
        for victim in victims:
            try:
                os.kill(sample.processes[victim], signal.SIGKILL)
            except ProcessLookupError:
                continue
            self._count(victim.partition("/")[0])

    def _count(self, kind: str) -> None:
        self.killed[kind] += 1
        if kind in ("keeper", "node"):
            self.next = max(self.next, time.monotonic() + self.settle)
        Console(stderr=True).print(f"[dim]killed {kind}[/dim]")


class Nodes:
    """Raylets on this machine, of which all but the head may be killed; each is replaced."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        head = {"num_cpus": 4, "include_dashboard": False, "_system_config": HEALTH_CHECKS}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.workers = [self.cluster.add_node(num_cpus=4) for _ in range(count - 1)]

    def kill(self) -> bool:
        """Kill a node with all that runs on it, and start another; False if there is none."""
        if not self.workers:
            return False
        self.cluster.remove_node(self.workers.pop(0), allow_graceful=False)
        self.workers.append(self.cluster.add_node(num_cpus=4))
        return True

    def close(self) -> None:
        """End all raylets."""
        shutdown: Any = self.cluster.shutdown
        shutdown()


@dataclass
class Outcome:
    """What a disturbed job gave, beside what an undisturbed one gives."""

    answers: int
    wrong: int
    seconds: float
    recoveries: list[tuple[float, tuple[str, ...]]]
    """Seconds it took, who was replaced."""


def count_words(monkey: Monkey, rate: int, seconds: int, **options: Any) -> Outcome:
    """The windowed word count, ten times as fast as its own time."""
    speed = 10.0
    spec = {"rate": max(2, int(rate / speed)), "seconds": int(seconds * speed)}
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, disturbed = Path(folder, "undisturbed"), Path(folder, "disturbed")
        words.flow(undisturbed, speed=None, **spec).run()
        report = words.flow(disturbed, speed=speed, **spec).run(
            checkpoint_seconds=1.0, on_progress=monkey, **options
        )
        expected, got = words.answers(undisturbed), words.answers(disturbed)
    wrong = len(set(expected) ^ set(got)) + abs(len(got) - len(expected))
    recoveries = [(r.seconds, r.gone) for r in report.recoveries]
    return Outcome(len(got), wrong, report.elapsed, recoveries)


def linear_road(monkey: Monkey, data: Path, seconds: int, **options: Any) -> Outcome:
    """Linear Road over a prepared folder, as fast as makes it last so long."""
    from lrb.run import run
    from lrb.source import look_through

    prepared = look_through(data.resolve())
    with tempfile.TemporaryDirectory() as folder:
        expected = run(prepared, Path(folder, "undisturbed"))
        speed = prepared.meta.seconds / seconds
        got = run(
            prepared,
            Path(folder, "disturbed"),
            speed=speed,
            on_progress=lambda s, _: monkey(s),
            **options,
        )
    wrong = int(got["checksum"] != expected["checksum"])
    recoveries = [(r["seconds"], tuple(r["gone"])) for r in got["recoveries"]]
    return Outcome(sum(got["rows_out"].values()), wrong, got["elapsed"], recoveries)


def main(
    seconds: Annotated[int, typer.Option(min=1, help="How long the job runs, about.")] = 60,
    rate: Annotated[int, typer.Option(min=2, help="Lines a second.")] = 1000,
    data: Annotated[
        Path | None, typer.Option(help="Linear Road over this prepared folder, instead of words.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between kills, on average.")] = 3.0,
    together: Annotated[int, typer.Option(min=1, help="Processes that die at once, at most.")] = 2,
    nodes: Annotated[int, typer.Option(min=1, help="Raylets; above 1 they are killed too.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the choice of victims.")] = 1,
) -> None:
    """Kill processes of a running job at random, and check its answers."""
    raylets = Nodes(nodes) if nodes > 1 else None
    settle = 3.0 if data is None else 12.0  # cuts are every second, or every five
    monkey = Monkey(random.Random(seed), every, together, raylets, settle)
    cluster = "auto" if raylets is None else raylets.cluster.address
    try:
        if data is None:
            two = {"count": 2}
            outcome = count_words(monkey, rate, seconds, cluster=cluster, instances=two)
        else:
            two = {"vehicles": 2, "segments": 2}
            outcome = linear_road(monkey, data, seconds, cluster=cluster, instances=two)
    except RaystreamError as error:
        Console(stderr=True).print(f"the job stopped: {error}", markup=False)
        sys.exit(1)
    finally:
        if raylets is not None:
            raylets.close()
    Console().print(_table(monkey, outcome))
    kills = sum(monkey.killed.values())
    verdict = "all right" if not outcome.wrong else f"{outcome.wrong} wrong"
    Console().print(
        f"{kills} kills, {outcome.answers:,} answers, {verdict};"
        f" seed {seed}, {outcome.seconds:.0f} s"
    )
    sys.exit(1 if outcome.wrong else 0)


def _table(monkey: Monkey, outcome: Outcome) -> Table:
    table = Table(title="Killed and replaced")
    for column in ("kind", "killed", "replaced", "median ms", "most ms"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    replaced: dict[str, list[float]] = {}
    for seconds, gone in outcome.recoveries:
        for name in gone:
            replaced.setdefault(name.partition("/")[0], []).append(seconds * 1e3)
    for kind in sorted({*monkey.killed, *replaced}):
        times = sorted(replaced.get(kind, []))
        shown = (f"{times[len(times) // 2]:.0f}", f"{times[-1]:.0f}") if times else ("", "")
        table.add_row(kind, str(monkey.killed[kind]), str(len(times)), *shown)
    return table


if __name__ == "__main__":
    typer.run(main)
