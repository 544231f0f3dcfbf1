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
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import checkpoints, compare, elastic, kernels, restore
from raystream.errors import RaystreamError

app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)

app.command("kernels")(kernels.main)
app.command("restore")(restore.main)
app.command("compare")(compare.main)
app.command("elastic")(elastic.main)
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
    instances: Annotated[int, typer.Option(min=1, help="Instances of the operator.")] = 1,
    repeat: Repeat = 3,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """A keyed running count: an update and an output per record, three actors."""
    from benchmarks import w1 as work

    forms = list(work.FORMS) if form == "all" else [form]
    if unknown := [f for f in forms if f not in work.FORMS]:
        raise typer.BadParameter(f"{unknown[0]!r}: one of {', '.join(work.FORMS)}, all")
    run = partial(work.run, rows=rows, distinct=distinct, instances=instances, local=local)
    runs: Runs = {f: partial(run, f) for f in forms}
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
    from benchmarks import epoch as work

    runs: Runs = {f"{hops} hops": partial(work.run, epochs=epochs, hops=hops, local=local)}
    _measure(runs, repeat, as_json, "microseconds_per_hop", "µs/hop")


@app.command()
def recovery(
    rates: Annotated[str, typer.Option(help="Lines a second, as in 1000,100000.")] = "1000,10000",
    cuts: Annotated[str, typer.Option(help="Seconds between cuts, as in 1,5,10,30.")] = "5",
    modes: Annotated[str, typer.Option(help="Of state, upstream, source.")] = "state",
    into: Annotated[str, typer.Option(help="Instances that share a dead one's range.")] = "1",
    together: Annotated[str, typer.Option(help="Instances that die at once, as in 1,2.")] = "1",
    kills: Annotated[int, typer.Option(min=1, help="Kills in each run.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="Draw recovery by rate into this PNG.")] = None,
    repeat: Repeat = 1,
    as_json: Json = False,
) -> None:
    """From the kill of operators until latency is what it was."""
    from benchmarks import recovery as work

    asked = modes.split(",")
    if unknown := [m for m in asked if m not in ("state", "upstream", "source")]:
        raise typer.BadParameter(f"--modes {unknown[0]}: of state, upstream, source")
    deaths = [int(n) for n in together.split(",")]
    forms = [
        work.Form(int(rate), float(cut), mode, int(parts), n, max(deaths))
        for rate, cut, mode, parts, n in product(
            rates.split(","), cuts.split(","), asked, into.split(","), deaths
        )
    ]
    results = _runs({str(f): partial(work.run, f, kills=kills) for f in forms}, repeat, as_json)
    if plot is not None:
        from benchmarks.recovery_plot import draw

        plot.write_bytes(draw([r for rs in results.values() for r in rs]))
    if as_json:
        return
    table = Table(title="Recovery of killed operators, ms (medians over the kills)")
    shown = {name: work.medians(rs) for name, rs in results.items()}
    table.add_column("form")
    for figure in next(iter(shown.values())):
        table.add_column(figure.removesuffix("_ms").replace("_", " "), justify="right")
    for name, figures in shown.items():
        table.add_row(name, *(f"{v:,.0f}" for v in figures.values()))
    Console().print(table)


@app.command()
def lrb(
    data: Annotated[Path | None, typer.Option(help="A prepared folder; made when absent.")] = None,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of traffic to make.")] = 5400,
    instances: Annotated[str, typer.Option(help="As in vehicles=2,segments=2.")] = "",
    repeat: Repeat = 3,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Linear Road at full speed, every run with the same checksum."""
    from benchmarks import linear_road as work

    folder = data or Path("data") / f"bench-{seconds}"
    if not (folder / "meta.json").exists():
        from spark_ingest.generate import generate

        generate(folder, xways=1, seconds=seconds, seed=7)
    counts = {k: int(v) for k, _, v in (p.partition("=") for p in instances.split(",") if p)}
    name = instances or "1 instance each"
    run = partial(work.run, folder.resolve(), instances=counts, local=local)
    results = _measure({name: run}, repeat, as_json, "records_per_second", "tuples/s")
    if len({r["checksum"] for r in results}) > 1:
        sys.exit("the checksums of the runs differ")


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
