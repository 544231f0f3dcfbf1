"""What is compared: commands that old commits know, too, each with one figure of its JSON.

Modules have moved since, so an old tree is only called by its commands.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raystream.errors import JobError

Result = Mapping[str, Any]
LINES_SHOWN = 15
"""Of what a command that failed has printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One thing that is compared."""

    title: str
    """What the table calls it."""
    unit: str
    """Of its figure."""
    arguments: tuple[str, ...]
    """After `python -m benchmarks`; `{data}` is the folder of its input, `{records}` the size."""
    figure: Callable[[Result], float]
    """Reads the figure from what one run says in JSON."""
    more_is_better: bool = True
    """Whether a greater figure is the better one: a rate, and not a delay."""


def _rate(result: Result) -> float:
    return float(result["records_per_second"])


def _units(result: Result) -> float:
    return float(result["units"]) / float(result["seconds"])


def _p99(result: Result) -> float:
    return float(result["latency_ms"]["p99"])


def _recovered(result: Result) -> float:
    return float(statistics.median(result["recovered_ms"]))


def _w1(form: str) -> Work:
    return Work(
        title=f"W1, {form}",
        unit="records/s",
        arguments=("w1", "--form", form, "--rows", "{records}", "--repeat", "1", "--json"),
        figure=_rate,
    )


def _latency(rate: int) -> Work:
    return Work(
        title=f"latency, {rate:,} records/s, p99",
        unit="ms",
        arguments=(
            *("compare", "--works", "latency", "--peers", "none", "--forms", "raystream:compiled"),
            *("--rates", str(rate), "--runs", "1", "--data", "{data}/peers", "--json"),
        ),
        figure=_p99,
        more_is_better=False,
    )


WORKS: Mapping[str, Work] = {
    "w1-compiled": _w1("compiled"),
    "w1-batch": _w1("batch"),
    "w2": Work(
        title="W2, batch",
        unit="words/s",
        arguments=(
            *("compare", "--works", "w2", "--peers", "none", "--forms", "raystream:batch"),
            *("--records", "{records}", "--runs", "1", "--data", "{data}/peers", "--json"),
        ),
        figure=_units,
    ),
    "linear-road": Work(
        title="Linear Road at full speed",
        unit="tuples/s",
        arguments=("lrb", "--data", "{data}/{traffic}", "--repeat", "1", "--json"),
        figure=_rate,
    ),
    "latency-10k": _latency(10_000),
    "latency-100k": _latency(100_000),
    "recovery": Work(
        title="recovery, from the kill until latency is as usual",
        unit="ms",
        arguments=(
            *("recovery", "--rates", "10000", "--form", "auto", "--cuts", "5", "--modes", "state"),
            *("--into", "1", "--together", "1", "--kills", "5", "--json"),
        ),
        figure=_recovered,
        more_is_better=False,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the inputs are, and where they are."""

    data: Path
    """Absolute; inputs are made in it once, and read by both trees."""
    records: int
    """Records of W1, words of W2."""
    traffic_seconds: int
    """Seconds of traffic on one expressway."""

    @property
    def traffic(self) -> str:
        """The folder of the traffic, inside `data`."""
        return f"traffic-{self.traffic_seconds}"


def measured(work: Work, tree: Path, sizes: Sizes, limit: float) -> Result:
    """What one run of a work in a tree says.

    Args:
        tree: a checkout of this repository. limit: seconds that the run may take.

    Raises:
        JobError: it failed, or took too long.
    """
    fill = {"data": sizes.data, "records": sizes.records, "traffic": sizes.traffic}
    arguments = [argument.format(**fill) for argument in work.arguments]
    command = [sys.executable, "-m", "benchmarks", *arguments]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process of a job compiles all modules anew
    try:
        done = subprocess.run(
            command, cwd=tree, env=env, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise JobError(f"{work.title} was not done after {limit:g} s in {tree}") from None
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(said) != 1:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_SHOWN:])
        raise JobError(f"{work.title} ended with {done.returncode} in {tree}:\n{last}")
    result: Result = said[0]
    return result
