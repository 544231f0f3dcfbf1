"""python -m benchmarks claims: what a claim at the boundary register takes.

A keeper is an actor of a Ray of this process's own. In turns a hundred claims go to its port, over
a connection that stays open, and a hundred calls of the actor that return a number go through Ray.
A claim could not be quicker through Ray than such a call.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import ray
import typer
from rich.console import Console
from rich.table import Table

from raystream.actors.cluster.connecting import start_ray
from raystream.actors.control.processes import KEEPER_GROUPS
from raystream.actors.keepers.keeper import Keeper
from raystream.actors.network.connections import Joining
from raystream.actors.worker.register_places import RegisterPlaces
from raystream.dataflow.register import Boundaries, Boundary, HeldBoundary
from raystream.security.credentials import Credentials

EACH = 100
"""Claims, and then calls, in a turn."""
VIEW = 1


def main(
    turns: Annotated[int, typer.Option(min=2, help="The first does not count.")] = 50,
) -> None:
    """Microseconds of a claim at the boundary register, and of a call through Ray."""
    credentials = Credentials("claims")
    start_ray(num_cpus=1, logging_level=logging.ERROR)
    try:
        groups = dict.fromkeys((*KEEPER_GROUPS, "park", "pass on"), 1)
        remote: Any = ray.remote
        keeper = remote(concurrency_groups=groups)(Keeper).remote(None, credentials, 1 << 20)
        assert ray.get(keeper.fill.remote(VIEW, Boundaries()))
        places = RegisterPlaces(Joining(credentials))
        claims, calls = list[float](), list[float]()
        for turn in range(turns):
            epochs = range(turn * EACH + 1, (turn + 1) * EACH + 1)
            took = [_timed(partial(_claim, places, keeper, epoch)) for epoch in epochs]
            called = [_timed(lambda: ray.get(keeper.pid.remote())) for _ in range(EACH)]
            if turn:
                claims += took
                calls += called
        places.keep(())
    finally:
        ray.shutdown()
    shown = Table("", "median", "99 %", title=f"{len(claims):,} of each, in turns")
    for name, each in (("a claim over a socket", claims), ("a call through Ray", calls)):
        late = float(np.quantile(each, 0.99))
        shown.add_row(name, f"{statistics.median(each):,.0f} µs", f"{late:,.0f} µs")
    Console().print(shown)


def _claim(places: RegisterPlaces, keeper: Any, epoch: int) -> None:
    end = Boundary(epoch, epoch, False)
    held = places.claim(keeper, VIEW, epoch, {"split": end})
    assert held == {"split": HeldBoundary(end, epoch)}, "the keeper holds something else"


def _timed(do: Callable[[], object]) -> float:
    """Microseconds."""
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e6
