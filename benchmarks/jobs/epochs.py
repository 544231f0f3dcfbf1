"""Many small epochs, and records that are far apart, in one process.

A record a second with `rs.by_time()` is an epoch for each record: what an epoch costs besides its
records. Daily records are a day of empty epochs for each record, which are one step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.testing import Collect

DAY = 86_400
YEAR = 252
"""Trading days."""


class Bar(NamedTuple):
    time: int
    symbol: str
    close: float


class Tally(rs.State):
    n: int = 0


@rs.operator()
def same(bar: Bar) -> Iterator[Bar]:
    yield bar


@rs.operator(key="symbol")
def counted(bar: Bar, tally: Tally) -> Iterator[Bar]:
    tally.n += 1
    yield bar


@rs.operator(key="symbol", window=rs.tumbling(seconds=1))
class Windowed:
    def process(self, bar: Bar, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Bar]:
        yield Bar(window.start, key, float(tally.n))


@rs.operator(key="symbol", window=rs.tumbling(count=1))
class Counts(Windowed):
    pass


@rs.operator(key="symbol", window=rs.tumbling(seconds=1, lateness=1))
class Corrected:
    def process(self, bar: Bar, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally, correction: bool) -> Iterator[Bar]:
        yield Bar(window.start, key, float(tally.n))


class Alarm(rs.State):
    n: int = 0
    due: rs.Timer = rs.NEVER


@rs.operator(key="symbol")
class Timed:
    def process(self, bar: Bar, alarm: Alarm) -> None:
        alarm.n += 1
        alarm.due = bar.time + 1

    def timer(self, key: str, time: int, alarm: Alarm) -> Iterator[Bar]:
        yield Bar(time, key, float(alarm.n))


@rs.operator()
def columns(bars: rs.Batch[Bar]) -> rs.Batch[Bar]:
    return bars


@rs.operator(key="symbol")
def rows(bars: rs.Batch[Bar], tallies: rs.Rows[Tally]) -> rs.Batch[Bar]:
    tallies["n"] = tallies["n"] + 1
    return bars


OPERATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "stateless": (same, {}),
    "columns": (columns, {}),
    "keyed": (counted, {}),
    "rows as columns": (rows, {}),
    "keyed, failures apart": (counted, {"on_error": "stream"}),
    "windows": (Windowed(), {}),
    "windows that are corrected": (Corrected(), {}),
    "windows of one record": (Counts(), {}),
    "timers": (Timed(), {}),
}


def run(bars: list[Bar], operator: Any, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds on the clock and of CPU until all records are at the sink."""
    sink, flow = Collect(), rs.Flow("epochs")
    stream = flow.source(rs.io.iterable(bars, Bar), epochs=rs.by_time())
    made = stream.through(operator, **options)
    if options:
        made[rs.FailedRecord].to(Collect(), name="failed")
        made = made[Bar]
    made.to(sink)
    began, cpu = time.perf_counter(), time.process_time()
    flow.run()
    took = time.perf_counter() - began, time.process_time() - cpu
    if len(sink.by_epoch()) != len(bars):
        raise AssertionError(f"{len(sink.by_epoch())} records came of {len(bars)}")
    return took


def main(
    records: Annotated[int, typer.Option(min=1, help="Records a second apart.")] = 60_000,
    years: Annotated[int, typer.Option(min=1, help="Years of daily records.")] = 10,
) -> None:
    """Many epochs of one record, and ten years of daily records, in one process."""
    seconds = [Bar(at, "X", 1.0) for at in range(records)]
    days = [Bar(day * DAY * 365 // YEAR, "X", 1.0) for day in range(years * YEAR)]
    for operator in OPERATORS.values():
        run(seconds[:100], *operator)  # imports and first uses
    table = Table("records", "operator", "epochs", "s", "s of CPU", "us of CPU a record")
    for name, bars in ((f"{records}, a second apart", seconds), (f"{years} years of days", days)):
        for kind, operator in OPERATORS.items():
            took, cpu = run(bars, *operator)
            epochs = f"{bars[-1].time + 1:,}"
            cells = f"{took:.2f}", f"{cpu:.2f}", f"{cpu / len(bars) * 1e6:.0f}"
            table.add_row(name, kind, epochs, *cells)
    Console().print(table)
