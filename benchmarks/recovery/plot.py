"""A picture of recoveries: a panel for each thing in which cases differ, a dot for each kill."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.recovery.kills import pooled
from benchmarks.shared.drawing import panels_beside
from lrb.reporting.plots import LIGHT, png_of, seconds_text

GOAL_S = 0.3
TICKS_S = (0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10, 20, 30)
LEVEL = 0.34
"""Half the length of the line that shows a median; cases are one apart."""

Panels = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""By the name of a panel, by the name of a case: its runs."""


def seconds_back(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds until latency was back, of each kill; infinity where it was not in time."""
    return [ms / 1e3 for ms in pooled(runs, "recovered_ms")]


def draw(panels: Panels) -> bytes:
    """The picture, as PNG.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure, drawn = panels_beside([len(cases) + 0.4 for cases in panels.values()], 3.0, sharey=True)
    every = [s for cases in panels.values() for runs in cases.values() for s in seconds_back(runs)]
    finite = [s for s in every if math.isfinite(s)] or [GOAL_S]
    bottom, top = min(*finite, GOAL_S) / 1.5, max(*finite, GOAL_S) * 1.5
    for axes, (title, cases) in zip(drawn, panels.items(), strict=True):
        for at, runs in enumerate(cases.values()):
            _case(axes, at, seconds_back(runs), top)
        axes.axhline(GOAL_S, color=LIGHT.quiet, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.set_xticks(range(len(cases)), list(cases))
        axes.set_xlim(-0.6, len(cases) - 0.4)
        axes.set_title(title, fontsize=9, color=LIGHT.ink)
        axes.tick_params(axis="x", labelsize=8, length=0, rotation=30)
        axes.tick_params(axis="y", left=axes is drawn[0])
        axes.grid(visible=False, axis="x")
    drawn[0].set_yscale("log")
    drawn[0].set_ylim(bottom, top)
    ticks = [s for s in TICKS_S if bottom <= s <= top]
    drawn[0].set_yticks(ticks, [seconds_text(s) for s in ticks], fontsize=8)
    drawn[0].set_yticks([], minor=True)
    drawn[0].set_ylabel("from the kill until latency is back", fontsize=8.5)
    return png_of(figure)


def _case(axes: Any, at: int, seconds: Sequence[float], top: float) -> None:
    """Its kills, crosses at the top for those that were not recovered from, and their median."""
    finite = [s for s in seconds if math.isfinite(s)]
    axes.plot([at] * len(finite), finite, "o", color=LIGHT.hues[0], markersize=4, alpha=0.45,
              markeredgewidth=0)  # fmt: skip
    if len(finite) < len(seconds):
        axes.plot([at], [top / 1.1], "x", color=LIGHT.hues[5], markersize=6)
    middle = statistics.median(seconds)
    if math.isfinite(middle):
        axes.plot([at - LEVEL, at + LEVEL], [middle] * 2, color=LIGHT.hues[0], linewidth=2)
        axes.annotate(
            f"{middle:.2f}", (at, middle), xytext=(0, 3), textcoords="offset points", fontsize=7,
            ha="center", va="bottom", color=LIGHT.ink,
            bbox={"facecolor": LIGHT.paper, "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip
