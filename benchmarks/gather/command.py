"""python -m benchmarks gather: star, line and tree over several classes of links.

Eight hosts hold the state: an eighth each, and the eighths of their neighbours as further copies.
One to eight other hosts receive it at once. Hosts are network namespaces of this machine with
shaped links, which needs root, `ip` and `tc`. Without these, and with `--simulated`, the command
only predicts. `durable` restores from one store with one link, as Storm did in SR3's comparison.
SR3's own rule is by size alone. The restores of a job do not use these plans yet.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.gather import thousand
from benchmarks.gather.classes import CLASSES, links_of, sr3_form, stored, wants
from benchmarks.gather.runs import Hosts
from benchmarks.shared.namespaces import NoNamespacesError
from raystream.controller.protocol.gathering.plan import Gathering
from raystream.controller.protocol.gathering.widest import gather

MEGA = 1_000_000
FORMS = ("star", "line", "tree", "auto", "durable")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One form at one size, number of failures and class of links."""

    links: str
    nbytes: int
    """Bytes of each state."""
    failures: int
    form: str
    takes: str
    """The form of the plan: of `auto` the form that it chose."""
    predicted: float
    """Seconds until the last receiver has everything."""
    measured: float | None = None
    """The same as measured, the median of all runs; None where nothing was run."""


def plans_of(
    links: str, nbytes: int, failures: int, form: str, copies: int
) -> tuple[Gathering, ...]:
    """The plans of a cell."""
    known = links_of(CLASSES[links], store=form == "durable")
    if form == "durable":
        return gather(stored(nbytes, failures), known, "star")
    return gather(wants(nbytes, failures, copies), known, form)


def cells(
    links: str, sizes: Sequence[int], failures: Sequence[int], copies: int, repeat: int,
    longest: float, hosts: Hosts | None,
) -> Iterator[Cell]:  # fmt: skip
    """All cells of a class of links. A cell is run if there are hosts and it is predicted to take
    no more than `longest` seconds.

    Raises:
        GatherError: a receiver did not get all bytes.
    """
    for nbytes in sizes:
        for count in failures:
            for form in FORMS:
                plans = plans_of(links, nbytes, count, form, copies)
                expected = max(plan.seconds for plan in plans)
                measured = None
                if hosts is not None and expected <= longest:
                    measured = statistics.median(hosts.gather(plans) for _ in range(repeat))
                yield Cell(
                    links=links, nbytes=nbytes, failures=count, form=form, takes=plans[0].form,
                    predicted=expected, measured=measured,
                )  # fmt: skip


def main(
    links: Annotated[str, typer.Option(help="Classes of links: " + ", ".join(CLASSES))] = ",".join(
        CLASSES
    ),
    sizes: Annotated[str, typer.Option(help="MB of each state.")] = "8,32,128",
    failures: Annotated[str, typer.Option(help="How many instances failed at once.")] = "1,4,8",
    copies: Annotated[int, typer.Option(min=1, max=8, help="Of each eighth.")] = 2,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each cell; the median is shown.")] = 1,
    longest: Annotated[
        float, typer.Option(help="Cells that would take more seconds are only predicted.")
    ] = 15.0,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Predict, and run nothing.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(help="A folder for pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each cell.")] = False,
) -> None:
    """Star, line and tree over several classes of links, in namespaces or predicted."""
    console = Console()
    found: list[Cell] = []
    for name in links.split(","):
        if name not in CLASSES:
            raise typer.BadParameter(f"no class of links is {name!r}: " + ", ".join(CLASSES))
        with ExitStack() as stack:
            hosts = None
            if not simulated:
                try:
                    hosts = stack.enter_context(Hosts(CLASSES[name]))
                except NoNamespacesError as why:
                    print(f"only predicted: {why}", file=sys.stderr)
            each = _numbers(sizes)
            mine = list(cells(name, [n * MEGA for n in each], _numbers(failures), copies, repeat,
                              longest, hosts))  # fmt: skip
        found += mine
        if as_json:
            for cell in mine:
                print(json.dumps(asdict(cell)), flush=True)
        else:
            console.print(table_of(name, mine))
    if not as_json:
        console.print(summary(found))
        if simulated:
            console.print(of_thousand())
    if figure is not None:
        from benchmarks.gather.figure import draw

        for name in links.split(","):
            (figure / f"gather-{name}.png").write_bytes(draw(found, name))


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def table_of(links: str, found: Sequence[Cell]) -> Table:
    """A row for each size and number of failures: seconds as measured, in brackets as predicted."""
    table = Table(box=SIMPLE_HEAD, title=CLASSES[links].title, title_justify="left")
    for name in ("MB", "at once", *FORMS, "auto is", "SR3 says"):
        table.add_column(name, justify="right")
    rows: dict[tuple[int, int], list[Cell]] = {(c.nbytes, c.failures): [] for c in found}
    for cell in found:
        rows[cell.nbytes, cell.failures].append(cell)
    for (nbytes, count), row in rows.items():
        by_form = {cell.form: cell for cell in row}
        said = [_said(by_form[form]) for form in FORMS]
        table.add_row(
            f"{nbytes / MEGA:g}", f"{count}", *said, by_form["auto"].takes, sr3_form(nbytes)
        )
    return table


def _said(cell: Cell) -> str:
    measured = "" if cell.measured is None else f"{cell.measured:.2f} "
    return f"{measured}({cell.predicted:.2f})"


def summary(found: Sequence[Cell]) -> str:
    """A sentence: how near `auto` is to the best of star, line and tree, and how near predictions
    are to what was measured."""
    run = [cell for cell in found if cell.measured is not None]
    if not run:
        return "nothing was run: all seconds are predicted"
    off = [abs(cell.predicted / (cell.measured or 1) - 1) for cell in run]
    by_place: dict[tuple[str, int, int], dict[str, float]] = {}
    for cell in run:
        place = by_place.setdefault((cell.links, cell.nbytes, cell.failures), {})
        place[cell.form] = cell.measured or 0.0
    best = [
        place["auto"] / min(place[form] for form in ("star", "line", "tree") if form in place)
        for place in by_place.values()
        if "auto" in place and "star" in place
    ]
    near = sum(ratio <= 1.1 for ratio in best)
    return (
        f"auto took at most 1.1 times the best of star, line and tree in {near} of {len(best)}"
        f" cells, {max(best, default=0):.2f} times at worst; predictions were off by"
        f" {statistics.median(off):.0%} in the middle, by at most 15 % in"
        f" {sum(o <= 0.15 for o in off)} of {len(off)} runs"
    )


def of_thousand() -> Table:
    """The plans for 1,000 nodes."""
    table = Table(
        box=SIMPLE_HEAD,
        title="1,000 nodes in five zones, 10 Gbit/s, 0.5 Gbit/s between nodes of two zones:"
        " 512 MB each, seconds as predicted (CPU seconds of planning)",
        title_justify="left",
    )
    for name in ("at once", "star", "line", "tree", "widest", "auto"):
        table.add_column(name, justify="right")
    for failures in (1, 8, 64):
        by_form = {c.form: c for c in thousand.computed(512e6, failures)}
        order = ("star", "line", "tree", "widest", "auto")
        said = [f"{by_form[f].seconds:.2f} ({by_form[f].planning:.2f})" for f in order]
        table.add_row(f"{failures}", *said)
    return table
