"""python -m benchmarks paced-epochs: the processor time of a small epoch in three processes.

A source with a pace, a compiled running count and a sink, each in the shell of an instance and in a
process of its own, as on Ray but without it: no checkpoints are stored, and the commits come from
here. With `--together` all three share one process and one thread, as with
`flow.run(together=True)`. Epochs are as long as asked, so between two of them the processor does
something else and the code finds cold caches, as it does in a paced job. Compare processor seconds:
latency depends on what else the machine does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Annotated, Any

import numpy as np
import typer

import raystream as rs
from benchmarks.parts.small_epochs import Counted, Events, compiled_count, count
from raystream.actors.cluster.environment import SWITCH_SECONDS
from raystream.actors.worker.driving.shared_thread import SharedThread
from raystream.actors.worker.shell import Role, Shell
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.plan import Plan
from raystream.native.lazy_pandas import put_off_pandas
from raystream.security.credentials import Credentials

LEAD_SECONDS = 1.0
"""From the start of the shells until the first record is due."""
WARM_SECONDS = 1.0
"""Epochs of the first second do not count."""
COMMIT_SECONDS = 0.25
CHECKPOINT_EVERY = 100


class Late(rs.Sink[Counted]):
    """A sink that notes when each epoch came."""

    came: list[tuple[int, float]] = []  # noqa: RUF012  the sink is copied into the job

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        Late.came.append((epoch, time.time()))

    def commit(self, epoch: int) -> None:
        pass


def plan_of(*, rows: int, epochs: int, milliseconds: float, compiled: bool) -> Plan:
    """The plan of the chain. An epoch is a unit of the flow's time."""
    flow = rs.Flow("paced", time_unit="ms")
    clock = rs.by_time(seconds=0.001, speed=1 / milliseconds)
    events = flow.source(Events(rows, epochs), epochs=clock, name="source")
    events.through(compiled_count if compiled else count, name="count").to(Late(), name="sink")
    return make_plan(flow, checkpoint_every=CHECKPOINT_EVERY)


def _process(pipe: Connection, vertices: Sequence[int], asked: dict[str, Any]) -> None:
    """The process of some instances. It is told an assignment, when to start, commits, and None."""
    put_off_pandas()
    sys.setswitchinterval(SWITCH_SECONDS)
    plan = plan_of(**asked)
    shared = SharedThread() if len(vertices) > 1 else None
    shells = [
        Shell(
            plan,
            Role(vertex=v.id, keys=keys, name=v.name, index=0),
            credentials=Credentials("token"),
            shared=shared,
        )
        for v, keys in plan.instances()
        if v.id in vertices
    ]
    for shell in shells:
        shell.open()
    pipe.send([Serving(s.role.vertex, s.keys, s.role.name, s.address) for s in shells])
    assignment, paced_from = pipe.recv(), pipe.recv()
    for shell in shells:
        shell.assign(assignment)
        shell.start("run", paced_from)
    time.sleep(max(0.0, paced_from + WARM_SECONDS - time.time()))
    last = shells[-1].machine
    began, cpu = last.position, time.process_time()
    while not last.ended:
        pipe.send(last.position)
        epoch = pipe.recv()
        for shell in shells:
            shell.commit(epoch, epoch)
            if shell.error is not None:
                raise shell.error
    spent = (time.process_time() - cpu) / (last.position - began)
    pipe.send((spent, Late.came))
    pipe.recv()
    for shell in shells:
        shell.stop()


def run(
    *, rows: int, epochs: int, milliseconds: float, compiled: bool, together: bool
) -> tuple[dict[str, float], np.ndarray]:
    """The processor seconds of an epoch by process, and the milliseconds by which each epoch came
    after its end."""
    asked: dict[str, Any] = {"rows": rows, "epochs": epochs}
    asked |= {"milliseconds": milliseconds, "compiled": compiled}
    plan, context = plan_of(**asked), get_context("spawn")
    names = {v.name: [v.id] for v in plan.vertices}
    if together:
        names = {"one thread": [v.id for v in plan.vertices]}
    pipes: list[Connection] = []
    processes = []
    for vertices in names.values():
        mine, theirs = context.Pipe()
        process = context.Process(target=_process, args=(theirs, vertices, asked), daemon=True)
        process.start()
        pipes.append(mine)
        processes.append(process)
    assignment = Assignment(1, tuple(serving for pipe in pipes for serving in pipe.recv()))
    for pipe in pipes:
        pipe.send(assignment)
    paced_from = time.time() + LEAD_SECONDS
    for pipe in pipes:
        pipe.send(paced_from)
    found = dict(zip(names, _ended(pipes), strict=True))
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    came = np.array(found[next(reversed(names))][1])
    due = paced_from + came[:, 0] * milliseconds / 1e3
    late = (came[:, 1] - due)[came[:, 0] * milliseconds / 1e3 > WARM_SECONDS] * 1e3
    assert len(came) == epochs, len(came)
    return {name: spent for name, (spent, _) in found.items()}, late


def _ended(pipes: list[Connection]) -> Iterator[Any]:
    """Commit checkpoints that all have passed until all have ended; what each says then."""
    ends: dict[int, Any] = {}
    while len(ends) < len(pipes):
        time.sleep(COMMIT_SECONDS)
        positions = []
        for i, pipe in enumerate(pipes):
            if i in ends:
                continue
            said = pipe.recv()
            if isinstance(said, tuple):
                ends[i] = said
            else:
                positions.append(said)
        committed = min(positions, default=0) // CHECKPOINT_EVERY * CHECKPOINT_EVERY
        for i, pipe in enumerate(pipes):
            if i not in ends:
                pipe.send(committed)
    return (ends[i] for i in range(len(pipes)))


def main(
    rows: Annotated[int, typer.Option(min=1, help="Records of an epoch.")] = 15,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs.")] = 6_000,
    milliseconds: Annotated[float, typer.Option(min=0.1, help="The length of an epoch.")] = 1.5,
    interpreted: Annotated[bool, typer.Option(help="The count is not compiled.")] = False,
    together: Annotated[bool, typer.Option(help="All three share a process and a thread.")] = False,
) -> None:
    """The microseconds of CPU of a small epoch at a pace, in three processes or in one."""
    if epochs * milliseconds <= 1e3 * WARM_SECONDS:
        raise typer.BadParameter("the first second does not count: more epochs, or longer ones")
    spent, late = run(
        rows=rows,
        epochs=epochs,
        milliseconds=milliseconds,
        compiled=not interpreted,
        together=together,
    )
    for name, seconds in spent.items():
        typer.echo(f"{name:18} {seconds * 1e6:8.0f} us of CPU an epoch")
    typer.echo(f"{'in all':18} {sum(spent.values()) * 1e6:8.0f} us of CPU an epoch")
    p50, p99 = np.percentile(late, [50, 99])
    typer.echo(f"{'after its end':18} {p50:8.2f} ms p50, {p99:.2f} ms p99")
