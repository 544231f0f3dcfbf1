"""What `python -m lrb rate` does and shows: traffic, oracle, search, and a table of the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from lrb import options
from lrb.oracle.expected import Expected, expected
from lrb.oracle.validate import SPARK_OPTIONS
from lrb.rating.rate import Search, Traffic, check, late_traffic, rate
from lrb.rating.rating_step import Step
from lrb.reporting.plots import seconds_text
from lrb.reporting.report import ACCOUNTS

Say = Callable[[str], None]
Generate = Callable[[Path, int, int, int], None]
"""Writes traffic into a folder, given expressways, seconds and a seed."""


def found(
    home: Path, out: Path, traffic: Traffic, asked: Search, say: Say, generate: Generate
) -> dict[str, Any]:
    """Make the traffic in `home` unless it is there, search, and say what each step has shown.

    Returns what rate.json says. Raises as `late_traffic` and `rate` do.
    """

    def make(whole: Path, wanted: Traffic) -> None:
        generate(whole, wanted.xways, wanted.whole_seconds, wanted.seed)

    def right(late: Path) -> Expected:
        say("Computing the right answers")
        return oracle(late)

    check(out, traffic.xways, asked)
    late = late_traffic(home, traffic, make)
    return rate(late, right, out, asked, on_step=lambda step: say(line(step)))


def oracle(late: Path) -> Expected:
    """The right answers to prepared data, by a Spark that is gone afterwards."""
    with options.spark_needed():
        from spark_ingest.spark.session import spark_session
    with spark_session("lrb rate", options=SPARK_OPTIONS) as session:
        return expected(session, late)


def line(step: Step) -> str:
    """A step in a line."""
    latency = step.latency or {}
    took = ", ".join(f"{name} {seconds_text(latency[name])}" for name in latency)
    parts = [
        f"{step.xways:,} expressways",
        f"{step.rows_per_second:,.0f} tuples/s",
        *([took] if took else []),
        step.why or "all answers right and in time",
    ]
    return ": ".join((parts[0], ", ".join(parts[1:])))


def table(record: Mapping[str, Any]) -> Table:
    """The rating for the terminal: a line for each step, and what the last good one took."""
    traffic, asked = record["traffic"], record["search"]
    least = "" if record["complete"] else "at least "
    made = f"L is {least}{record['L']:,}" if record["L"] else "no step passed"
    shown = Table(
        title=f"Linear Road: {made}",
        title_justify="left",
        caption=_basis(traffic, asked),
        caption_justify="left",
        box=None,
    )
    for heading in ("expressways", "tuples/s", "p50", "p99", "longest", "cores", "memory", ""):
        shown.add_column(heading, justify="left" if heading == "" else "right")
    for step in record["steps"]:
        latency = step["latency"]
        shown.add_row(
            f"{step['xways']:,}",
            f"{step['rows_per_second']:,.0f}",
            *(seconds_text(latency[name]) if latency else "–" for name in ("p50", "p99", "max")),
            f"{sum(step['cores'].values()):.2f}",
            _size(sum(step["memory"].values())),
            step["why"] or "right and in time",
        )
    for step in record["steps"]:
        if step["xways"] == record["L"]:
            _add_operators(shown, step)
    return shown


def _add_operators(shown: Table, step: Mapping[str, Any]) -> None:
    """By operator, and for the processes beside them, what the step took."""
    shown.add_section()
    for name in dict.fromkeys((*step["cores"], *step["memory"])):
        cores, memory = step["cores"].get(name), step["memory"].get(name)
        shown.add_row(
            *[""] * 5,
            "–" if cores is None else f"{cores:.2f}",
            "–" if memory is None else _size(memory),
            f"{name} at L{_state_text(step, name)}",
        )


def _state_text(step: Mapping[str, Any], name: str) -> str:
    """What an operator kept: rows at the end, and memory for each car that was ever seen."""
    rows, size = step["state_rows"], step["state_bytes"]
    if not size or name not in size:
        return ""
    per_car = size[name] / max(1, rows.get(ACCOUNTS, 0))
    return f": {rows[name]:,} rows, at most {_size(size[name])}, {per_car:.1f} bytes a car"


def _basis(traffic: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    first, last, whole = (traffic[name] for name in ("first", "last", "seconds"))
    return (
        f"Generator: {traffic['generator']}, seed {traffic['seed']}."
        f" Slice: seconds {first:,} to {last:,} of {whole:,}, from a cold start,"
        f" at {asked['speed']:g} times their pace."
        f" Replicas {traffic['replicas']}."
        f" In time: 5 s, expenditures 10 s, and p99 within {asked['p99']:g} s."
        f" Tried: {asked['tried']}, up to {asked['most']:,}."
    )


def _size(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
