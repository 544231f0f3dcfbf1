"""python -m benchmarks simulate: the threshold of the policy on hundreds of instances, simulated.

Linear Road's three hours for L expressways, on nodes that are a fraction of a core each: what a
threshold costs in instances and in latency, against the best fixed number of instances. Detector
and policy are the real ones (`benchmarks.model.queueing` says what is modelled); what operators
cost was measured on this engine, by `python -m benchmarks simulate --measure DATA`.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.model.queueing import SOURCE, Model, Operator, Outcome, World
from raystream.controller.elastic.policy import CpuThreshold
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.plan import Plan
from raystream.errors import RaystreamError
from raystream.local.job import LocalJob
from raystream.local.source import LocalSource

TIMES = Path(__file__).with_name("service_times.json")
DEADLINE_S = 5.0
PRODUCERS = {
    "vehicles": ("rows",),
    "places": ("vehicles",),
    "segments": ("vehicles", "places"),
    "accounts": ("rows", "vehicles", "segments"),
    "expenditure": ("rows",),
}
"""The operators of Linear Road and what feeds them (`lrb.query.flow`)."""
USES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
"""How busy fixed instances are to be at the highest rate: the best of these is shown."""
FORMS = ("compiled", "interpreted")
EPOCHS_S = (20.0, 1.0)
"""Of the runs that measure: as many rows come in one as an instance gets in the simulation."""
MEASURED_S = 3600.0
"""So much of the input is measured."""
Result = dict[str, Any]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_W = World()


@app.command(help=__doc__)
def main(
    xways: Annotated[list[float] | None, typer.Option(help="Expressways; may be repeated.")] = None,
    threshold: Annotated[
        list[int] | None, typer.Option(help="Of CPU, in percent; may be repeated.")
    ] = None,
    form: Annotated[str, typer.Option(help=f"Of the operators: {', '.join(FORMS)}.")] = FORMS[1],
    cores: Annotated[
        float, typer.Option(help="Cores of an instance, of one on which was measured.")
    ] = _W.cores,
    epoch: Annotated[float, typer.Option(help="Seconds of an epoch.")] = _W.epoch,
    pool: Annotated[int, typer.Option(help="Spare nodes, an instance each.")] = _W.pool,
    start: Annotated[float, typer.Option(help="Seconds until a node is there.")] = _W.start,
    message: Annotated[
        float, typer.Option(help="Seconds of CPU for an instance that is read from, or reads.")
    ] = _W.message,
    jitter: Annotated[
        float, typer.Option(help="How unevenly an instance works, relative.")
    ] = _W.jitter,
    restore: Annotated[float, typer.Option(help="Seconds of a move without state.")] = _W.restore,
    restore_rate: Annotated[float, typer.Option(help="Bytes of state a second.")] = _W.restore_rate,
    row_bytes: Annotated[float, typer.Option(help="Of a row of state.")] = _W.row_bytes,
    cut: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = _W.cut,
    processes: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = os.cpu_count()
    or 1,
    plot: Annotated[Path | None, typer.Option(help="Write a picture, as PNG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Instead of a table.")] = False,
    times: Annotated[Path, typer.Option(help="What operators cost.")] = TIMES,
    measure: Annotated[
        Path | None,
        typer.Option(metavar="DATA", help="Measure that first, on a prepared folder."),
    ] = None,
) -> None:
    if form not in FORMS:
        raise typer.BadParameter(f"{form!r}: one of {', '.join(FORMS)}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    try:
        if measure is not None:
            times.write_text(json.dumps(measured(measure), indent=1) + "\n", encoding="utf-8")
        operators = read(times, form)
        world = World(
            cores=cores, epoch=epoch, message=message, cut=cut, pool=pool, start=start,
            restore=restore, restore_rate=restore_rate, row_bytes=row_bytes, jitter=jitter,
        )  # fmt: skip
        runs = _runs(xways, threshold)
        results = []
        for result in _all(runs, operators, world, processes):
            results.append(result)
            if not as_json:
                console.print(_line(result), style="dim")
        if plot is not None:
            from benchmarks.model.simulate_plot import draw

            plot.write_bytes(draw(results))
    except RaystreamError as error:
        console.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps({"world": asdict(world), "results": results}))
    else:
        console.print(table(results))


# ---------------------------------------------------------------- runs


def _runs(
    xways: Sequence[float] | None, threshold: Sequence[int] | None
) -> list[tuple[float, int | None]]:
    """Expressways and the threshold in percent of each run; None for the best fixed number."""
    percents = threshold or range(10, 100, 10)
    return [(x, p) for x in xways or [350.0, 1000.0] for p in (None, *percents)]


def _all(
    runs: Sequence[tuple[float, int | None]],
    operators: Sequence[Operator],
    world: World,
    processes: int,
) -> Iterator[Result]:
    """Results of runs, in their order: expressways, and the threshold in percent, or None for the
    best fixed."""
    one = partial(_one, operators, world)
    if processes == 1:
        yield from map(one, runs)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(one, runs)


def _one(operators: Sequence[Operator], world: World, run: tuple[float, int | None]) -> Result:
    xways, percent = run
    if percent is None:
        return best_fixed(operators, world, xways)
    return dynamic(operators, world, xways, percent / 100)


def dynamic(operators: Sequence[Operator], world: World, xways: float, threshold: float) -> Result:
    """What the policy makes of it, that begins with one instance for each operator."""
    policy = CpuThreshold(threshold=threshold, low=threshold / 2)
    outcome = Model(operators, world, xways, policy).run()
    return _result(xways, f"above {threshold:.0%}", threshold, outcome)


def best_fixed(operators: Sequence[Operator], world: World, xways: float) -> Result:
    """As few instances from the beginning as answer all in time; where none do, the most."""
    found = None
    for use in USES:
        start = sized(operators, world, xways, use)
        outcome = Model(operators, world, xways, None, start).run()
        if found is not None and outcome.late(DEADLINE_S) > 0:
            break
        found = _result(xways, "fixed, the best", None, outcome)
        found["start"] = start
    assert found is not None
    return found


def sized(operators: Sequence[Operator], world: World, xways: float, use: float) -> dict[str, int]:
    """How many instances keep each operator so busy at the highest rate: what an expert would set,
    who knows the load and what operators cost."""
    model = Model(operators, world, xways, None)
    rate = float(model.rate.max())
    counts = {o.name: 1 for o in operators}
    for _ in range(len(operators) + 1):  # messages depend on how many instances the others have
        for o in operators:
            near = [n for n in (*o.producers, *model.consumers[o.name]) if n in counts]
            peers = max(1, sum(counts[n] for n in near))
            fixed = (o.per_epoch + world.message * peers) / world.epoch
            room = max(use * world.cores - fixed, 0.05 * world.cores)
            counts[o.name] = math.ceil(o.per_record * o.share * rate / room) or 1
    return counts


def _result(xways: float, form: str, threshold: float | None, outcome: Outcome) -> Result:
    return {
        "xways": xways,
        "form": form,
        "threshold": threshold,
        "instances_mean": float(outcome.instances.mean()),
        "instances_most": int(outcome.instances.max()),
        "latency_s": {f"p{q}": outcome.percentile(q) for q in (50, 95, 99, 100)},
        "late": outcome.late(DEADLINE_S),
        "moves": outcome.moves,
        "given_up": outcome.given_up,
    }


def _line(r: Result) -> str:
    """What came of one run: all of them take long."""
    return (
        f"L = {r['xways']:g}, {r['form']}: {r['instances_mean']:.0f} instances on average,"
        f" {r['instances_most']} at most, p99 {r['latency_s']['p99']:.2f} s"
    )


def table(results: Sequence[Result]) -> Table:
    """A row for each run."""
    out = Table(title="Linear Road, simulated", title_justify="left", box=SIMPLE_HEAD)
    names = ("L", "instances", "mean", "most", "p50", "p95", "p99", "max", "over 5 s", "moves",
             "given up")  # fmt: skip
    for i, name in enumerate(names):
        out.add_column(name, justify="left" if i == 1 else "right", no_wrap=True)
    for r in results:
        latency = (f"{s:.2f} s" for s in r["latency_s"].values())
        out.add_row(
            f"{r['xways']:g}", r["form"], f"{r['instances_mean']:.0f}", f"{r['instances_most']}",
            *latency, f"{r['late']:.2%}", f"{r['moves']}", f"{r['given_up']}",
        )  # fmt: skip
    return out


# ---------------------------------------------------------------- what operators cost


def read(times: Path, form: str = FORMS[1]) -> list[Operator]:
    """The operators in one form, in the order of the flow."""
    known = json.loads(times.read_text(encoding="utf-8"))["operators"][form]
    return [Operator(name, producers, **known[name]) for name, producers in PRODUCERS.items()]


def measured(data: Path) -> dict[str, Any]:
    """What the operators of Linear Road cost on this machine, compiled and interpreted.

    Runs in one process over the same rows with long and with short epochs. The CPU of an operator
    is a sum of records and epochs; what it takes to send and receive is not in it, see
    `World.message`.
    """
    from lrb.query.source import look_through

    prepared = look_through(data)
    forms = {
        form: [_run(prepared, epoch, compiled=form == "compiled") for epoch in EPOCHS_S]
        for form in FORMS
    }
    rows = forms["compiled"][0][SOURCE].records
    return {
        "measured": {
            "data": f"{prepared.meta.kind}, the first {rows:,} rows",
            "epochs_s": EPOCHS_S,
            "unit": "seconds of a core",
        },
        "operators": {
            form: {name: _fitted([run[name] for run in of], rows) for name in PRODUCERS}
            for form, of in forms.items()
        },
    }


class Spent(NamedTuple):
    """What one operator did in a run. cpu: seconds."""

    epochs: int
    records: int
    state_rows: int
    cpu: float


class Nothing(rs.Sink[Any]):
    """A sink that keeps nothing."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        pass

    def commit(self, epoch: int) -> None:
        pass


class Timed(LocalJob):
    """A job in this process that counts the CPU of each operator."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.cpu: Counter[str] = Counter()

    def _step(self, each: LocalSource | ReceivingInstance, upto: int = 0) -> None:
        began = time.thread_time()
        super()._step(each, upto)
        vertex = each.vertex if isinstance(each, ReceivingInstance) else each.machine.vertex
        self.cpu[vertex.name] += time.thread_time() - began  # type: ignore[assignment]


def _run(prepared: Any, epoch: float, *, compiled: bool) -> dict[str, Spent]:
    """What each operator did. epoch: seconds of the input."""
    from lrb.query.flow import build

    plan = make_plan(build(prepared, Nothing(), speed=None, epoch=epoch))
    for vertex in plan.vertices:
        if vertex.spec is not None and not compiled:
            vertex.spec = replace(vertex.spec, compiled=False)
    job = Timed(plan)
    for _ in range(int(MEASURED_S / epoch)):
        if not job.ended:
            job.turn()
    return {
        p.vertex: Spent(p.position, p.records_in, p.state_rows, job.cpu[p.vertex])
        for p in job.progress()
    }


def _fitted(runs: Sequence[Spent], rows: int) -> dict[str, float]:
    """The costs of an operator: two numbers that explain the CPU of all runs, none of them less
    than nothing."""
    lines = np.array([[r.records, r.epochs] for r in runs], float)
    found = least_squares(lines, np.array([r.cpu for r in runs]))
    return {
        "per_record": float(found[0]),
        "per_epoch": float(found[1]),
        "share": runs[0].records / rows,
        "rows": runs[0].state_rows / rows,
    }


def least_squares(lines: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The x of least |lines x - values| without a negative part: the best of those that leave some
    parts out."""
    scale = np.abs(lines).max(axis=0)
    scale[scale == 0] = 1.0
    best, error = np.zeros(lines.shape[1]), math.inf
    for mask in range(1, 1 << lines.shape[1]):
        used = [i for i in range(lines.shape[1]) if mask >> i & 1]
        x = np.linalg.lstsq(lines[:, used] / scale[used], values, rcond=None)[0]
        off = float(((lines[:, used] / scale[used] @ x - values) ** 2).sum())
        if (x >= 0).all() and off < error - 1e-12:
            best, error = np.zeros(lines.shape[1]), off
            best[used] = x / scale[used]
    return best
