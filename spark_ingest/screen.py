"""What the commands show: progress while Spark works, and a closing table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from spark_ingest import progress
from spark_ingest.summary import Summary

_LINE_EVERY_SECONDS = 5.0

_ROW_NAMES = {
    "0": "position reports",
    "2": "account balance requests",
    "3": "daily expenditure requests",
    "4": "travel time requests",
}


@contextmanager
def shown(console: Console) -> Iterator[progress.Progress]:
    """Shows steps as bars on a terminal, as plain lines elsewhere."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._step = ""
        self._task = TaskID(0)

    def __call__(self, step: str, done: int, total: int) -> None:
        if step != self._step:
            self._finish()
            self._step, self._task = step, self._bars.add_task(step, total=None)
        elif total:
            self._bars.update(self._task, completed=done, total=total)

    def _finish(self) -> None:
        """The next step begins, so this one is done."""
        if self._step:
            total = self._bars.tasks[-1].total or 1
            self._bars.update(self._task, completed=total, total=total)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = ""
        self._begun = self._told = time.monotonic()

    def __call__(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        if step != self._step:
            self._step, self._told = step, now
            self._print(f"{now - self._begun:6.1f} s  {step}")
        elif now - self._told >= _LINE_EVERY_SECONDS:
            self._told = now
            self._print(f"{now - self._begun:6.1f} s  {step}: {done} of {total} tasks")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary_table(summary: Summary) -> Table:
    """What was written."""
    meta = summary.meta
    title = Text(f"Prepared data in {summary.data}", style="table.title")
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    for kind, name in _ROW_NAMES.items():
        table.add_row(f"{name} (type {kind})", f"{meta.rows[kind]:,}")
    table.add_row("rows in all", f"{meta.rows_total:,}", end_section=True)
    table.add_row("expressways", f"{meta.xways:,}")
    table.add_row("time of the first and the last row, s", f"{meta.first} to {meta.last}")
    table.add_row("vehicles: the largest VID, plus one", f"{meta.vehicles:,}")
    table.add_row("rows a second in the busiest minute", f"{summary.rate_peak:,.1f}")
    table.add_row("rows of toll history", f"{meta.history_rows:,}", end_section=True)
    if summary.quarantined:
        table.add_row("bad rows put aside in quarantine.csv", f"{summary.quarantined:,}")
    table.add_row("seconds it took", f"{summary.elapsed:.1f}")
    return table
