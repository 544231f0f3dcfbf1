"""python -m benchmarks compare: the same work here and in other systems, on the same input.

Every run is a process of its own that starts from nothing; forms take turns, and the order is
another one in each round. All keep checkpoints every 5 s. Seconds go from the first record to the
last answer, so that nobody pays for starting. All answers are checked, by count, sum and checksum.
A system that is not installed is skipped: `python -m benchmarks.peers install NAME`.

Some are so slow that they are given a part of the records; the rate is what counts. Some answer
once for each key and micro-batch instead of once for each record: the table says so. PyFlink's time
starts when its Python is up.

Latency is from when a record was due until its answer is at the sink, without the first 8 s of 28,
which have the first checkpoint in them.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.peers.catalog import FORMS, OURS, SYSTEMS, Form
from benchmarks.peers.running import Found, run
from raystream.errors import JobError

WORKS = {
    "w1": "W1, keyed running count, {records:,} records, 100,000 keys",
    "w2": "W2, windowed word count, {records:,} words in lines of 140 bytes, windows of 30 s",
    "latency": "Latency of W1 at a pace",
}
ANSWERS = {
    "record": "each record",
    "batch": "each key and micro-batch",
    "window": "each word and window",
}


class Case(NamedTuple):
    """A form, and the rate at which it is measured; 0 for as fast as it goes."""

    form: Form
    rate: int = 0


Results = Mapping[Case, Sequence[Found]]
Failures = Mapping[Case, str]


def main(
    records: Annotated[
        int, typer.Option(min=20_000, help="Records of W1, and words of W2.")
    ] = 20_000_000,
    peers: Annotated[
        str, typer.Option(help="Of flink, bytewax, pathway, spark; all, or none.")
    ] = "all",
    works: Annotated[str, typer.Option(help="Of w1, w2, latency.")] = "w1,w2,latency",
    forms: Annotated[
        str, typer.Option(help="Only these, as in raystream:batch,flink:java,pyflink:thread.")
    ] = "",
    rates: Annotated[str, typer.Option(help="Of latency, records a second.")] = "10000,100000",
    runs: Annotated[int, typer.Option(min=1, help="Rounds; the median is shown.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds that a run may take.")] = 300.0,
    data: Annotated[Path, typer.Option(help="Where the input is kept.")] = Path("data/peers"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run, too.")] = False,
) -> None:
    """The same work here and in other systems, on the same input, in turns."""
    asked = chosen(works.split(","), peers, [f for f in forms.split(",") if f])
    there = {OURS, *(s.name for s in SYSTEMS.values() if s.installed)}
    for name in sorted({f.system for f in asked} - there):
        print(f"{name} is not installed: python -m benchmarks.peers install {name}")
    present = [f for f in asked if f.system in there]
    cases = cases_of(present, [int(r) for r in rates.split(",")])
    results: dict[Case, list[Found]] = {case: [] for case in cases}
    failures: dict[Case, str] = {}
    console = Console(stderr=True)
    for i in range(runs):
        turns = [c for c in cases if c not in failures]
        random.Random(i).shuffle(turns)
        for case in turns:
            console.print(f"[dim]round {i + 1} of {runs}: {case.form.work} {case.form.shown}[/dim]")
            try:
                found = run(case.form, records=records, data=data, limit=limit, rate=case.rate)
            except JobError as error:
                failures[case] = str(error)
                console.print(str(error), style="red", markup=False)
                continue
            results[case].append(found)
            if as_json:
                print(json.dumps(as_dict(found)), flush=True)
    text = report(results, failures, records, machine())
    Console().print(Markdown(text)) if sys.stdout.isatty() else print(text)
    if failures:
        raise typer.Exit(1)


def chosen(works: Sequence[str], peers: str, forms: Sequence[str]) -> list[Form]:
    """The forms that are asked for; ours are always among them.

    Raises:
        BadParameter: one is unknown.
    """
    systems = [*SYSTEMS] if peers == "all" else [] if peers == "none" else peers.split(",")
    for what, given, known in (
        ("--works", works, [*WORKS]),
        ("--peers", systems, [*SYSTEMS]),
        ("--forms", forms, sorted({f.name for f in FORMS})),
    ):
        if unknown := [g for g in given if g not in known]:
            raise typer.BadParameter(f"{what} {unknown[0]}: of {', '.join(known)}")
    return [
        f
        for f in FORMS
        if f.work in works and f.system in (OURS, *systems) and (not forms or f.name in forms)
    ]


def cases_of(forms: Iterable[Form], rates: Sequence[int]) -> list[Case]:
    """The forms, those at a pace once for each rate."""
    return [
        Case(f, rate) for f in forms for rate in (sorted(rates) if f.work == "latency" else [0])
    ]


def as_dict(found: Found) -> dict[str, Any]:
    """A run as JSON says it."""
    form = found.form
    names = {"work": form.work, "form": form.name, "rate": found.rate}
    figures = {"units": found.units, "seconds": found.seconds, "latency_ms": found.latency_ms}
    return {**names, **figures}


def machine() -> str:
    """Date and machine, in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    today = datetime.now(UTC).date()
    return f"{today}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, {system}"


def versions(systems: Iterable[str]) -> str:
    """The versions of what ran."""
    pins = [SYSTEMS[s].packages[0].replace("==", " ") for s in SYSTEMS if s in systems]
    ours = f"{OURS} {metadata.version(OURS)} on Ray {metadata.version('ray')}"
    return ", ".join([ours, f"Python {platform.python_version()}", *pins])


def report(results: Results, failures: Failures, records: int, where: str) -> str:
    """Tables in Markdown: of each work, of what was run."""
    systems = {case.form.system for case, found in results.items() if found}
    parts = [f"{where}; {versions(systems)}."]
    for work, title in WORKS.items():
        mine = {c: fs for c, fs in results.items() if c.form.work == work and fs}
        if not mine:
            continue
        rows = late_rows(mine) if work == "latency" else rate_rows(mine)
        parts.append(f"### {title.format(records=records)}\n\n{table(rows)}")
    for case, why in failures.items():
        parts.append(f"Failed: {case.form.work} {case.form.shown}: {why.splitlines()[0]}")
    return "\n\n".join(parts)


def rate_rows(results: Results) -> list[list[str]]:
    """Rates in millions a second: the median of the runs with the least and the most, and how many
    times that is the fastest form of ours."""
    unit = "words" if next(iter(results)).form.work == "w2" else "records"
    medians = {c: statistics.median(f.per_second for f in fs) for c, fs in results.items()}
    mine = max((m for c, m in medians.items() if c.form.system == OURS), default=None)
    rows = [["", f"M {unit}/s", "least to most", "ours is", "answers for", f"{unit}", "runs"]]
    for case, median in sorted(medians.items(), key=lambda m: -m[1]):
        rates = [f.per_second / 1e6 for f in results[case]]
        ours = case.form.system == OURS
        rows.append(
            [
                case.form.shown,
                f"{median / 1e6:.3g}",
                f"{min(rates):.3g} to {max(rates):.3g}",
                "" if mine is None or ours else f"{mine / median:.3g} times",
                ANSWERS[case.form.answers],
                f"{results[case][0].units:,}",
                str(len(rates)),
            ]
        )
    return rows


def late_rows(results: Results) -> list[list[str]]:
    """Percentiles in milliseconds: medians over the runs, with the least and the most."""
    rows = [["", "records/s", "p50 ms", "p99 ms", "p99 least to most", "answers for", "runs"]]
    for case, found in sorted(results.items(), key=lambda r: r[0].rate):
        late = [f.latency_ms for f in found if f.latency_ms is not None]
        p50, p99 = ([f[p] for f in late] for p in ("p50", "p99"))
        rows.append(
            [
                case.form.shown,
                f"{case.rate:,}",
                f"{statistics.median(p50):.3g}",
                f"{statistics.median(p99):.3g}",
                f"{min(p99):.3g} to {max(p99):.3g}",
                ANSWERS[case.form.answers],
                str(len(found)),
            ]
        )
    return rows


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is the head."""
    head, *body = rows
    lines = [head, ["---", *(["--:"] * (len(head) - 1))], *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
