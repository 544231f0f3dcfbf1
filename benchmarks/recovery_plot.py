"""A picture of recoveries: the time by rate, a line for each mode and number of restores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from benchmarks.recovery import pooled
from lrb.plots import DPI, LIGHT, WIDTH_INCHES, seconds_text, short_number
from raystream.errors import ConfigError

GOAL_S = 0.3

Results = Sequence[Mapping[str, Any]]


def lines_of(results: Results) -> dict[str, list[tuple[int, float]]]:
    """By the name of a line its points: lines a second, median seconds over all kills; none where
    most were not recovered from in time."""
    kills: dict[str, dict[int, list[float]]] = {}
    several = len({r["cut_seconds"] for r in results}) > 1
    deaths = len({r["together"] for r in results}) > 1
    for r in results:
        name = f"{r['mode']}, into {r['into']}"
        name += f", cuts every {r['cut_seconds']:g} s" if several else ""
        name += f", {r['together']} at once" if deaths else ""
        kills.setdefault(name, {}).setdefault(r["rate"], []).extend(pooled([r], "recovered_ms"))
    medians = {
        name: [(rate, statistics.median(ms) / 1e3) for rate, ms in sorted(by_rate.items())]
        for name, by_rate in kills.items()
    }
    return {n: [p for p in points if math.isfinite(p[1])] for n, points in medians.items()}


def draw(results: Results) -> bytes:
    """The picture, as PNG.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullLocator
    except ImportError as error:
        raise ConfigError(
            "a plot needs matplotlib, which is not installed",
            hint="pip install 'raystream[report]'",
        ) from error
    figure = Figure(figsize=(WIDTH_INCHES, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for i, (name, points) in enumerate(lines_of(results).items()):
        rates, seconds = [p[0] for p in points], [p[1] for p in points]
        hue = LIGHT.hues[i % len(LIGHT.hues)]
        axes.plot(rates, seconds, color=hue, marker="o", markersize=4, linewidth=1.3, label=name)
    axes.axhline(GOAL_S, color=LIGHT.quiet, linewidth=1, linestyle=(0, (4, 3)), label="goal")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sorted({r["rate"] for r in results}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("lines a second")
    axes.set_ylabel("from the kill until latency is back")
    axes.grid(color=LIGHT.grid, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    file = BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()
