"""python -m benchmarks schedules: simulated schedules on all processors; how many were wrong.

Runs the simulator (`raystream.simulation`) over the flows in turn, each schedule with a seed of its
own. The first seed is drawn and printed, so that no two runs try the same. A wrong schedule
is shown as soon as it is known, with the command that runs it again.
"""

from __future__ import annotations

import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Annotated, NamedTuple

import typer

from raystream.errors import RaystreamError
from raystream.simulation.flows import FLOWS
from raystream.simulation.scenarios import Scenario, asked_for, command
from raystream.simulation.simulator import Outcome, run_many

LINEAR_ROAD = "tests.lrb.simulated:linear_road"
FLOW_NAMES = (*FLOWS, LINEAR_ROAD)
ROUNDS = 8
"""How often a worker runs all flows before it says how that went."""
SAID_EVERY = 1000
"""Schedules from one line to the next."""
OBJECTS = 50_000
"""Python looks for garbage after so many new objects: a schedule makes many and keeps none."""


class Ran(NamedTuple):
    """Schedules that were run: outcomes and faults by kind, and what was wrong."""

    kinds: Counter[str]
    faults: Counter[str]
    wrong: list[tuple[Scenario, Outcome]]


def run_on(
    processes: int, scenarios: Sequence[Scenario], count: int, seed: int, *, idle: bool
) -> Iterator[Ran]:
    """Run schedules of all scenarios in turn, of the seeds from `seed` on, on so many processes.

    Args:
        idle: only while nobody else wants the processors.
    """
    size = ROUNDS * len(scenarios)
    begins = iter(range(0, count, size))
    with ProcessPoolExecutor(processes, get_context("spawn"), _ready, (idle,)) as pool:

        def submit(begin: int) -> Future[Ran]:
            return pool.submit(_run, scenarios, min(size, count - begin), seed + begin)

        running = {submit(begin) for begin in islice(begins, 2 * processes)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {submit(begin) for begin in islice(begins, len(done))}
            yield from (future.result() for future in done)


def _ready(idle: bool) -> None:
    """Make a worker process ready: one that ends with the command, also when that is killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if idle and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif idle:
        os.nice(19)
    gc.freeze()
    gc.set_threshold(OBJECTS)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(scenarios: Sequence[Scenario], count: int, seed: int) -> Ran:
    return Ran(*run_many(scenarios, count, seed))


def main(
    count: Annotated[int, typer.Option(min=1, help="Schedules.")] = 1000,
    processes: Annotated[int, typer.Option(min=1, help="Of this machine; one a processor.")] = (
        os.cpu_count() or 1
    ),
    flow: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(FLOW_NAMES)}; all unless given.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Of all schedules, as in copies=2."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first schedule.")] = None,
    idle: Annotated[
        bool, typer.Option(help="Only while nobody else wants the processors.")
    ] = False,
) -> None:
    """Run many simulated schedules; exit code 1 if one was wrong."""
    first = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    typer.echo(f"schedules {count} from seed {first} on {processes} processes")
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    try:
        scenarios = asked_for(setting or (), flow or FLOW_NAMES)
        for ran in run_on(processes, scenarios, count, first, idle=idle):
            before = kinds.total()
            kinds += ran.kinds
            faults += ran.faults
            for scenario, outcome in ran.wrong:
                typer.echo(f"\nwrong: {outcome.why}\n  {command(scenario, outcome.seed)}\n")
            if before // SAID_EVERY < kinds.total() // SAID_EVERY:
                typer.echo(_said(kinds))
    except RaystreamError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    typer.echo("faults " + ", ".join(f"{n} {kind}" for kind, n in sorted(faults.items())))
    typer.echo(_said(kinds))
    raise typer.Exit(1 if kinds["wrong"] else 0)


def _said(kinds: Counter[str]) -> str:
    return (
        f"{kinds.total()} schedules: {kinds['wrong']} wrong,"
        f" {kinds['lost']} stopped with lost checkpoints"
    )
