"""What a run shows while it lasts: a table that is renewed on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lrb.query.flow import SINK, SOURCE, epoch_seconds
from lrb.query.run import OnProgress
from lrb.query.source import Prepared
from spark_ingest.layout import Meta

LINE_EVERY_SECONDS = 5.0


@contextmanager
def shown(
    console: Console, data: Prepared | None, speed: float | None, epoch: float | None = None
) -> Iterator[OnProgress]:
    """Shows a run; yields what is to be told of its progress.

    Args:
        data: None of a run over rows that are pushed: their number is not known. epoch: as of
            `lrb.query.run.run`.
    """
    watch = _Watch(data, epoch or (0.0 if data is None else epoch_seconds(data, speed)))
    if not console.is_terminal:
        told = time.monotonic()

        def tell(sample: Any, p99: float | None) -> None:
            nonlocal told
            if time.monotonic() - told >= LINE_EVERY_SECONDS:
                told = time.monotonic()
                headline = watch.headline(sample, p99)  # its rates are those since the line before
                console.print(headline, markup=False, highlight=False, soft_wrap=True)

        yield tell
        return
    starting = Text("starting: processes, compiled operators, toll history")
    with Live(starting, console=console, transient=True, auto_refresh=False) as live:

        def renew(sample: Any, p99: float | None) -> None:
            live.update(Group(Text(watch.headline(sample, p99)), watch.table(sample)), refresh=True)

        yield renew


class _Watch:
    """Makes rates of totals."""

    def __init__(self, data: Prepared | None, epoch: float) -> None:
        self._meta = None if data is None else data.meta
        self._epoch = epoch
        self._last: Any = None
        self._before: Any = None

    def headline(self, sample: Any, p99: float | None) -> str:
        """Simulated time, rows so far and a second, and how late answers are."""
        self._before, self._last = self._last, sample
        rows = sample.operators[SOURCE].records_in
        rate = f"{self._rate(SOURCE, 'records_in'):,.0f} rows/s"
        if self._meta is None and not rows:
            parts = ["no rows have come yet"]
        elif self._meta is None:  # with those that only tell the time
            parts = [f"{rows:,} rows have come", rate]
        else:
            parts = [*self._of(self._meta, sample, rows), rate]
        if p99 is not None:
            parts.append(f"p99 latency {p99:.3f} s")
        return ", ".join(parts)

    def _of(self, meta: Meta, sample: Any, rows: int) -> list[str]:
        """How much of prepared data is done."""
        done = meta.first + sample.operators[SINK].position * self._epoch
        end = meta.last + 1
        return [
            f"{_clock(min(done, end))} of {_clock(end)} simulated",
            f"{rows:,} of {meta.rows_total:,} rows",
        ]

    def table(self, sample: Any) -> Table:
        """What each operator does."""
        table = Table(box=None, pad_edge=False)
        for heading in ("operator", "instances", "in/s", "out/s", "cores", "keys"):
            table.add_column(heading, justify="left" if heading == "operator" else "right")
        for name, totals in sample.operators.items():
            table.add_row(
                name,
                str(totals.instances),
                f"{self._rate(name, 'records_in'):,.0f}",
                f"{self._rate(name, 'records_out'):,.0f}",
                f"{self._rate(name, 'cpu'):.2f}",
                f"{totals.state_rows:,}",
            )
        return table

    def _rate(self, operator: str, count: str) -> float:
        """How much a count grows in a second, between the two last samples."""
        seconds = self._last.t - (self._before.t if self._before else 0.0)
        earlier = getattr(self._before.operators[operator], count) if self._before else 0
        grown: float = getattr(self._last.operators[operator], count) - earlier
        return grown / seconds if seconds > 0 else 0.0


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
