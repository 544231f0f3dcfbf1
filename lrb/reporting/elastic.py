"""Linear Road that finds its own size: the rate curve of hours in minutes, and small shares of CPU.

Three hours of traffic are answered in ten minutes, at 18 times real time: the curve of the rate
keeps its shape, and is 18 times as high. Epochs are cut by the traffic's time, so what is answered
does not depend on the speed. Deadlines stay real seconds.

A machine with fewer cores than the job would like has them emulated: an instance counts as having
a part of a core, and what it uses is held against that part. Nothing slows it down, so an instance
whose share is used up still answers in time while the others are found for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

import raystream as rs
from lrb.query.flow import OPERATORS, SINK
from lrb.reporting.plots import seconds_text
from raystream.errors import ConfigError
from spark_ingest.layout import SLOTS

HIGH, LOW = 0.70, 0.35
"""Shares of what an instance has: above the one it is split, below the other merged."""
LULL_SECONDS = 30.0
"""So long neighbours have to have little to do before they are merged."""


def speed_of(hours: float, minutes: float) -> tuple[int, float]:
    """Seconds of traffic, and how many of them go into a real second."""
    seconds = max(60, round(hours * 3600))
    return seconds, seconds / (minutes * 60)


def epoch_of(seconds: float, speed: float) -> float:
    """Simulated seconds of an epoch that lasts so many real ones: whole slots, one at least."""
    return max(1, round(seconds * speed * SLOTS)) / SLOTS


def policy_of(cores: float, interval: float) -> rs.CpuThreshold:
    """The default policy for instances that count as having `cores` of a core.

    Args:
        interval: seconds of a report.

    Raises:
        ConfigError: that is no part of a core.
    """
    if not 0 < cores <= 1:
        raise ConfigError(
            f"--cores {cores:g} is no part of a core", hint="For example 0.25, or 1 for a core."
        )
    lull = max(2, round(LULL_SECONDS / interval))
    return rs.CpuThreshold(
        round(HIGH * cores, 6), interval=interval, low=round(LOW * cores, 6), lull=lull
    )


def bounds_of(most: int) -> dict[str, tuple[int, int]]:
    """From one to `most` instances for everything but the sink, whose ranges stay."""
    return {name: (1, most) for name in OPERATORS if name != SINK}


@dataclass(frozen=True, slots=True)
class Decision:
    """A change of the number of instances. number: in the order of time, from 1; t: seconds since
    the start when it was decided; at_work: when the new instances were; why: for people."""

    number: int
    operator: str
    t: float
    at_work: float
    before: int
    after: int
    why: str
    failed: str = ""

    def __str__(self) -> str:
        return f"{self.operator} {self.before} to {self.after}"


def decisions_of(run: Mapping[str, Any]) -> list[Decision]:
    """The decisions of a run, in the order of time."""
    moved: Sequence[Mapping[str, Any]] = sorted(run.get("moved", ()), key=lambda m: m["t"])
    return [
        Decision(
            number,
            m["operator"],
            m["t"],
            m["t"] + m["place"] + m["restore"] + m["replay"],
            m["instances"] + len(m["gone"]) - len(m["new"]),
            m["instances"],
            m["because"],
            m["failed"],
        )
        for number, m in enumerate(moved, 1)
    ]


def decisions_table(decisions: Sequence[Decision]) -> Table:
    """What was decided, for the terminal."""
    table = Table(title="Decisions", title_justify="left")
    table.add_column("", justify="right")
    table.add_column("after", justify="right")
    table.add_column("operator")
    table.add_column("instances", justify="right", no_wrap=True)
    table.add_column("at work in", justify="right", no_wrap=True)
    table.add_column("because", style="dim", overflow="fold")
    for d in decisions:
        table.add_row(
            str(d.number),
            f"{d.t:,.0f} s",
            d.operator,
            f"{d.before} to {d.after}",
            "given up" if d.failed else seconds_text(d.at_work - d.t),
            f"{d.why}; {d.failed}" if d.failed else d.why,
        )
    return table
