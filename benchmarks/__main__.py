"""python -m benchmarks COMMAND: a table each.

Every run checks its answers. Times are noisy on shared machines: runs are repeated, forms take
turns, and the median is shown with the least and the most.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.against import command as against
from benchmarks.chaos import feed, schedules, soak_summary
from benchmarks.fuzz import command as fuzz
from benchmarks.gather import command as gathering
from benchmarks.jobs import checkpoints, compare, elastic, epochs, large_state, push, start
from benchmarks.kafka import latency, throughput
from benchmarks.model import simulate
from benchmarks.parts import (
    claims,
    compiled,
    keeping,
    kernels,
    paced_epochs,
    page,
    query,
    restore,
    small_epochs,
    tables,
    tiers,
    touch,
)
from benchmarks.recovery import table as recovery_table
from raystream.errors import RaystreamError

app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)

app.command("kernels")(kernels.main)
app.command("tables")(tables.main)
app.command("tiers")(tiers.main)
app.command("touch")(touch.main)
app.command("restore")(restore.main)
app.command("query")(query.main)
app.command("keeping")(keeping.main)
app.command("claims")(claims.main)
app.command("compiled")(compiled.main)
app.command("small-epochs")(small_epochs.main)
app.command("paced-epochs")(paced_epochs.main)
app.command("page")(page.main)
app.command("schedules")(schedules.main)
app.command("push")(push.main)
app.command("fuzz")(fuzz.main)
app.command("feed")(feed.main)
app.command("soak-summary")(soak_summary.main)
app.command("simulate", help=simulate.__doc__)(simulate.main)
app.command("recovery")(recovery_table.main)
app.command("compare")(compare.main)
app.command("against")(against.main)
app.command("elastic")(elastic.main)
app.command("state")(large_state.main)
app.command("gather", help=gathering.__doc__)(gathering.main)
app.command("start")(start.main)
app.command("epochs")(epochs.main)
app.command("kafka", help=latency.__doc__)(latency.main)
app.command("kafka-throughput", help=throughput.__doc__)(throughput.main)
app.add_typer(checkpoints.app, name="checkpoints")

Repeat = Annotated[int, typer.Option(min=1, help="Runs of each form; the median is shown.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per run instead of a table.")]
Local = Annotated[bool, typer.Option("--local", help="In this process, without Ray.")]
Result = dict[str, Any]
Runs = dict[str, Callable[[], Result]]


@app.command()
def w1(
    rows: Annotated[int, typer.Option(min=1, help="Records.")] = 20_000_000,
    distinct: Annotated[int, typer.Option(min=1, help="Distinct keys.")] = 100_000,
    form: Annotated[str, typer.Option(help="compiled, interpreted, batch or all.")] = "all",
    instances: Annotated[
        str, typer.Option(help="Instances of the operator; as in 1,4 in turns.")
    ] = "1",
    epoch_rows: Annotated[
        int | None, typer.Option(min=1, help="Records of an epoch; some 100,000 unless given.")
    ] = None,
    repeat: Repeat = 3,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """A keyed running count: an update and an output per record, three actors."""
    from benchmarks.shared import w1 as work

    forms = list(work.FORMS) if form == "all" else [form]
    if unknown := [f for f in forms if f not in work.FORMS]:
        raise typer.BadParameter(f"{unknown[0]!r}: one of {', '.join(work.FORMS)}, all")
    counts = [int(n) for n in instances.split(",") if n.isdecimal() and int(n)]
    if len(counts) != instances.count(",") + 1:
        raise typer.BadParameter(f"--instances {instances}: numbers from 1 on, as in 1,4")
    length = epoch_rows or work.EPOCH_ROWS
    run = partial(work.run, rows=rows, distinct=distinct, epoch_rows=length, local=local)
    runs: Runs = {
        f if len(counts) == 1 else f"{f}, {n} instances": partial(run, f, instances=n)
        for f in forms
        for n in counts
    }
    _measure(runs, repeat, as_json, "records_per_second", "records/s")


@app.command()
def epoch(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs without records.")] = 20_000,
    hops: Annotated[int, typer.Option(min=1, help="Operators and the sink.")] = 3,
    repeat: Repeat = 3,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """The fixed cost of an empty epoch, per hop."""
    from benchmarks.jobs import epoch as work

    runs: Runs = {f"{hops} hops": partial(work.run, epochs=epochs, hops=hops, local=local)}
    _measure(runs, repeat, as_json, "microseconds_per_hop", "µs/hop")


@app.command()
def postgres(
    rows: Annotated[int, typer.Option(min=1, help="Rows to write.")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys.")] = 200_000,
    instances: Annotated[int, typer.Option(min=1, help="Instances of the sink.")] = 1,
    url: Annotated[str, typer.Option(help="A server; one of its own unless given.")] = "",
    repeat: Repeat = 3,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Rows that replace each other by their keys in a table of PostgreSQL, exactly once."""
    from contextlib import nullcontext

    from benchmarks.jobs import postgres as work

    with nullcontext(url) if url else work.server() as at:
        run = partial(work.run, at, rows=rows, keys=keys, instances=instances, local=local)
        _measure({f"{instances} instances": run}, repeat, as_json, "records_per_second", "rows/s")


@app.command()
def lrb(
    data: Annotated[Path | None, typer.Option(help="A prepared folder; made when absent.")] = None,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of traffic to make.")] = 10_800,
    instances: Annotated[str, typer.Option(help="As in vehicles=2,segments=2.")] = "",
    judge: Annotated[bool, typer.Option("--judge", help="Compare with the oracle.")] = False,
    repeat: Repeat = 3,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Linear Road at full speed, one expressway for three hours unless told otherwise. All runs
    must have the same checksum; with --judge, that of the right answers."""
    from benchmarks.jobs import linear_road as work

    folder = data or Path("data") / f"bench-{seconds}"
    if not (folder / "meta.json").exists():
        from spark_ingest.generate import generate

        generate(folder, xways=1, seconds=seconds, seed=7)
    counts = {k: int(v) for k, _, v in (p.partition("=") for p in instances.split(",") if p)}
    name = instances or "1 instance each"
    run = partial(work.run, folder.resolve(), instances=counts, local=local)
    results = _measure({name: run}, repeat, as_json, "records_per_second", "tuples/s")
    checksums = {r["checksum"] for r in results}
    if len(checksums) > 1:
        sys.exit("the checksums of the runs differ")
    if judge:
        if checksums != {right := work.right(folder)}:
            sys.exit(f"wrong answers: checksum {checksums.pop()} instead of {right}")
        Console().print(f"all answers are those of the oracle, checksum {right}")


def _measure(runs: Runs, repeat: int, as_json: bool, figure: str, unit: str) -> list[Result]:
    """Run every form `repeat` times, taking turns, and show one figure of it."""
    results = _runs(runs, repeat, as_json)
    if not as_json:
        Console().print(_table(results, figure, unit))
    return [r for rs in results.values() for r in rs]


def _runs(runs: Runs, repeat: int, as_json: bool) -> dict[str, list[Result]]:
    console = Console(stderr=True)
    results: dict[str, list[Result]] = {name: [] for name in runs}
    for i in range(repeat):
        for name, run in runs.items():
            console.print(f"[dim]{name}: run {i + 1} of {repeat}[/dim]")
            results[name].append(run())
            if as_json:
                print(json.dumps(results[name][-1]), flush=True)
    return results


def _table(results: dict[str, list[Result]], figure: str, unit: str) -> Table:
    first = next(iter(results.values()))[0]
    table = Table(title=f"{first['work']} ({first['cluster']})")
    for column in ("form", f"median {unit}", "least", "most", "seconds", "runs"):
        table.add_column(column, justify="left" if column == "form" else "right")
    for name, rs in results.items():
        values = [r[figure] for r in rs]
        seconds = statistics.median(r["seconds"] for r in rs)
        table.add_row(
            name,
            *(f"{v:,.0f}" for v in (statistics.median(values), min(values), max(values))),
            f"{seconds:.2f}",
            str(len(rs)),
        )
    return table


def main() -> None:
    """Run a benchmark; errors end with one message."""
    try:
        app()
    except RaystreamError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
