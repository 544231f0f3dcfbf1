"""python -m benchmarks recovery: what a recovery takes, along one axis at a time.

Each option is a list. Its first value belongs to the middle case; each other value is measured with
all other options at their first. The defaults take about 22 minutes. They need not be taken at
once: runs are kept in a file, and what is there is not run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.recovery.kills import Case, form_of, medians, run
from benchmarks.recovery.plot import draw

FORMS = ("auto", "interpreted", "batch")
MODES = ("state", "upstream", "source")
COLUMNS = {
    "usual_p99_ms": "usual p99", "detect_ms": "detected", "replace_ms": "replaced",
    "recovered_ms": "back", "recovered_most_ms": "at most", "kills": "kills",
}  # fmt: skip


class Axis(NamedTuple):
    """Cases that differ from the middle in one thing, which `title` names, by what they have."""

    title: str
    cases: Mapping[str, Case]


def axes_of(
    rates: Sequence[int],
    forms: Sequence[str],
    checkpoints: Sequence[float],
    modes: Sequence[str],
    into: Sequence[int],
    together: Sequence[int],
) -> tuple[Case, list[Axis]]:
    """The middle case, and an axis for each list of more than one value; if there is none, one with
    the middle case alone."""
    most = max(together)
    middle = Case(rates[0], form_of(forms[0], rates[0]), checkpoints[0], modes[0], into[0],
                  together[0], together[0])  # fmt: skip
    formed = [middle._replace(form=form_of(f, middle.rate)) for f in forms]
    axes = [
        Axis("lines/s", {f"{r:,}": middle._replace(rate=r, form=form_of(forms[0], r))
                         for r in sorted(rates)}),
        Axis("form", {case.form: case for case in formed}),
        Axis("interval", {f"{s:g} s": middle._replace(checkpoint_seconds=s)
                                  for s in sorted(checkpoints)}),
        Axis("mode", {m: middle._replace(mode=m) for m in modes}),
        Axis("restored by", {f"{n}": middle._replace(into=n) for n in sorted(into)}),
        Axis("die at once", {f"{n} of {most}": middle._replace(together=n, instances=most)
                             for n in sorted(together)}),
    ]  # fmt: skip
    return middle, [a for a in axes if len(a.cases) > 1] or [Axis("", {"": middle})]


def jobs_of(case: Case, kills: int) -> list[int]:
    """The kills in each job of a case. Who is replaced by several is killed once in a job: after
    that there is nobody with as large a range."""
    return [kills] if case.into == 1 else [1] * kills


Results = Mapping[Case, Sequence[Mapping[str, Any]]]
Runs = dict[Case, list[dict[str, Any]]]


def kept_in(file: Path) -> list[dict[str, Any]]:
    """The runs in a file, one JSON object a line; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def sorted_by_case(cases: Iterable[Case], runs: Iterable[dict[str, Any]]) -> Runs:
    """The runs of each of these cases; others are left out."""
    found: Runs = {case: [] for case in cases}
    for each in runs:
        found.get(Case(**{f: each[f] for f in Case._fields}), []).append(each)
    return found


def missing(runs: Runs, kills: int, repeat: int) -> list[tuple[Case, int]]:
    """The jobs to be run, each with its kills: of all that are asked for those not run yet, case by
    case, and again."""
    wanted = {case: jobs_of(case, kills) for case in runs}
    rounds = [
        (case, number, i * len(jobs) + at)
        for i in range(repeat)
        for case, jobs in wanted.items()
        for at, number in enumerate(jobs)
    ]
    return [(case, number) for case, number, place in rounds if place >= len(runs[case])]


def table(middle: Case, axes: Sequence[Axis], results: Results) -> Table:
    """What was measured; the middle case stands under each axis."""
    shown = Table(
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        title="Recovery of killed operators, ms: medians over the kills",
        caption=f"where nothing else is said: {middle}",
    )
    for column in ("", "", *COLUMNS.values()):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for title, cases in axes:
        for i, (label, case) in enumerate(cases.items()):
            figures = medians(results[case]) if results[case] else {}
            shown.add_row(
                "" if i else title,
                f"[bold]{label}[/bold]" if case == middle else label,
                *(f"{figures[c]:,.0f}" if figures else "not run" for c in COLUMNS),
            )
        shown.add_section()
    return shown


def main(
    rates: Annotated[str, typer.Option(help="Lines a second.")] = "10000,1000,100000",
    forms: Annotated[
        str, typer.Option("--form", help="Of auto (by rate), interpreted, batch.")
    ] = "auto,batch",
    checkpoints: Annotated[
        str, typer.Option("--checkpoints", "--cuts", help="Seconds between checkpoints.")
    ] = "5,1,10,30",
    modes: Annotated[str, typer.Option(help="Of state, upstream, source.")] = ",".join(MODES),
    into: Annotated[str, typer.Option(help="Instances that share a dead one's range.")] = "1,2,4",
    together: Annotated[str, typer.Option(help="Instances that die at once.")] = "1,2",
    kills: Annotated[int, typer.Option(min=1, help="Kills in each case.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case.")] = 1,
    kept: Annotated[
        Path | None,
        typer.Option(help="Runs are added to this file; those in it are not run again."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Run so many jobs at most; 0 shows KEPT.")
    ] = None,
    plot: Annotated[Path, typer.Option(help="The PNG to draw.")] = Path("data/recovery.png"),
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per run; no table, no plot.")
    ] = False,
) -> None:
    """From the kill of operators until latency is what it was.

    Options are lists: first the middle case, then what else is measured.
    """
    for option, asked, known in (("--form", forms, FORMS), ("--modes", modes, MODES)):
        if unknown := [a for a in asked.split(",") if a not in known]:
            raise typer.BadParameter(f"{option} {unknown[0]}: of {', '.join(known)}")
    middle, axes = axes_of(
        [int(r) for r in rates.split(",")], forms.split(","),
        [float(s) for s in checkpoints.split(",")],
        modes.split(","), [int(n) for n in into.split(",")], [int(n) for n in together.split(",")],
    )  # fmt: skip
    cases = dict.fromkeys(case for axis in axes for case in axis.cases.values())
    results = sorted_by_case(cases, kept_in(kept) if kept is not None else [])
    console = Console(stderr=True)
    to_run = missing(results, kills, repeat)
    for i, (case, number) in enumerate(islice(to_run, jobs), 1):
        console.print(f"[dim]{case}: job {i} of {len(to_run)}[/dim]")
        measured = run(case, kills=number)
        results[case].append(measured)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("a") as file:
                file.write(json.dumps(measured) + "\n")
        if as_json:
            print(json.dumps(measured), flush=True)
    if not as_json:
        Console().print(table(middle, axes, results))
        panels = {a.title: {n: results[c] for n, c in a.cases.items() if results[c]} for a in axes}
        if there := {title: runs for title, runs in panels.items() if runs}:
            plot.parent.mkdir(parents=True, exist_ok=True)
            plot.write_bytes(draw(there))
            console.print(f"{plot}")
