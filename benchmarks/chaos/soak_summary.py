"""python -m benchmarks soak-summary: what all recorded chaos and schedule runs came to.

Reads `benchmarks/results/soak.csv`, one row for each run. Add a row for a run by hand, also for one
that found something wrong: rows are never changed or removed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path(__file__).resolve().parent.parent / "results" / "soak.csv"
COLUMNS = (
    "date",  # of the run, as 2026-11-28
    "commit",  # that was run
    "command",  # that ran it, as it was typed
    "work",  # the job that was struck, or `simulated schedules`
    "seconds",  # how long a chaos run was told to last; empty if it was told kinds of faults only
    "schedules",  # how many were simulated; empty for a chaos run
    "faults",  # how many were made; moves do not count as faults
    "moves",  # how many moves were made to their end
    "answers",  # how many answers were compared with those of an undisturbed run
    "wrong",  # how many answers, or schedules, were wrong
    "lost",  # schedules that stopped because all copies of a checkpoint were lost, as they must
    "note",
)
"""What a row of the file has. A number that nobody wrote down is empty, and counts as none."""


def read(path: Path = RESULTS) -> list[dict[str, str]]:
    """All rows of the file, oldest first."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary(rows: Sequence[dict[str, str]]) -> list[str]:
    """A table of one line for each work, as Markdown, and which runs were wrong."""
    works = sorted({row["work"] for row in rows})
    lines = [
        f"{len(rows)} runs from {min(row['date'] for row in rows)}"
        f" to {max(row['date'] for row in rows)}:",
        "",
        "| work | runs | hours | schedules | faults | moves | answers | wrong | lost |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for work in works:
        of = [row for row in rows if row["work"] == work]
        hours = _sum(of, "seconds") / 3600
        cells = [f"{hours:.1f}" if hours else ""]
        cells += [
            f"{number:,}" if any(row[column] for row in of) else ""
            for column in ("schedules", "faults", "moves", "answers", "wrong", "lost")
            for number in [_sum(of, column)]
        ]
        lines.append(f"| {work} | {len(of)} | {' | '.join(cells)} |")
    return lines


def wrong(rows: Iterable[dict[str, str]]) -> list[str]:
    """A line for each run that was wrong, with what came of it."""
    return [
        f"wrong: {row['wrong']} on {row['date']}, commit {row['commit']}: {row['note']}"
        for row in rows
        if int(row["wrong"])
    ]


def main(
    results: Annotated[Path, typer.Option(help="The file of results.")] = RESULTS,
) -> None:
    """What all recorded chaos and schedule runs came to, as a table."""
    rows = read(results)
    for line in [*summary(rows), "", *wrong(rows)]:
        typer.echo(line)


def _sum(rows: Iterable[dict[str, str]], column: str) -> int:
    return sum(int(row[column] or 0) for row in rows)
