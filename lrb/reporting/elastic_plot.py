"""A picture of a run that finds its own size, in the manner of SEEP's (SIGMOD 2013, figure 6): what
came in, how many instances there were, how late answers were, and every decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lrb.reporting.elastic import Decision, decisions_of
from lrb.reporting.plots import (
    Floats,
    Series,
    Theme,
    clock_of,
    latency_panel,
    panels_of,
    png_of,
    rate_line,
    series_of,
    short_numbers,
    style_of,
    time_axis,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "elastic"
HEIGHTS = (1.0, 1.9, 1.5)
"""Of the panels, against each other."""
MARK_APART = 0.026
"""Marks that are closer than this part of the width are put above each other."""
ROW = 0.085
"""The height of a row of marks, as a part of the panel's."""


def draw(run: Mapping[str, Any], latency: pa.Table | None, theme: Theme) -> dict[str, bytes]:
    """The picture as PNG, by its name; none of a run in which nothing was decided, or that kept no
    pace.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    series, clock, decisions = series_of(run), clock_of(run, latency), decisions_of(run)
    if series is None or clock is None or latency is None or not decisions:
        return {}
    from matplotlib import rc_context

    with rc_context(style_of(theme)):
        figure, axes = panels_of(3, 6.4, HEIGHTS)
        _input(axes[0], series, theme)
        _instances(axes[1], series, decisions, theme)
        latency_panel(axes[2], latency, clock, theme)
        colours = colours_of(series, theme)
        for panel in axes:
            for d in decisions:  # below everything else
                hue = colours[d.operator]
                panel.axvspan(d.t, d.at_work, color=hue, alpha=0.15, linewidth=0, zorder=0.2)
                panel.axvline(d.t, color=hue, linewidth=0.8, zorder=0.3)
        time_axis(axes, series, clock)
        return {NAME: png_of(figure)}


def colours_of(series: Series, theme: Theme) -> dict[str, str]:
    """By operator; the same as in the other pictures."""
    return dict(zip(series.operators, theme.hues, strict=False))


def counts_of(series: Series) -> dict[str, Floats]:
    """Instances over time [n] of operators that did not always have as many, and before them of all
    others together."""
    counts = {name: values["instances"] for name, values in series.operators.items()}
    changed = {name: n for name, n in counts.items() if n.min() < n.max()}
    rest = [n for name, n in counts.items() if name not in changed]
    return {"others": np.sum(rest, axis=0), **changed} if rest else changed


def rows_of(t: Sequence[float], end: float) -> list[int]:
    """In which row each mark is put, so that none hides another. t: rising; end: of the axis."""
    last: list[float] = []
    rows = []
    for at in t:
        free = (i for i, before in enumerate(last) if at - before >= MARK_APART * end)
        row = next(free, len(last))
        last[row : row + 1] = [at]
        rows.append(row)
    return rows


def _input(axes: Axes, series: Series, theme: Theme) -> None:
    rate_line(axes, series.t, series.input_rate, theme)
    axes.set_ylim(bottom=0)
    title(axes, "Input", "tuples per second")
    short_numbers(axes)


def _instances(axes: Axes, series: Series, decisions: Sequence[Decision], theme: Theme) -> None:
    """Instances of each operator, one upon the other, and above them a numbered mark for each
    decision: hollow for fewer instances, grey when it was given up."""
    from matplotlib.ticker import MaxNLocator

    counts = counts_of(series)
    total = np.sum(list(counts.values()), axis=0)
    colours = colours_of(series, theme)
    axes.stackplot(
        series.t,
        *counts.values(),
        labels=list(counts),
        colors=[colours.get(name, theme.grid) for name in counts],
        step="post",
        edgecolor=theme.paper,
        linewidth=0.6,
    )
    axes.plot(series.t, total, color=theme.ink, drawstyle="steps-post")
    rows = rows_of([d.t for d in decisions], float(series.t[-1]))
    free = 1.0 - (max(rows) + 1.6) * ROW
    top = float(total.max()) / max(free, 0.3)
    axes.set_ylim(0, top)
    for d, row in zip(decisions, rows, strict=True):
        hue = theme.quiet if d.failed else colours[d.operator]
        ink, inside = (hue, theme.paper) if d.after < d.before else (theme.paper, hue)
        axes.annotate(
            str(d.number), (d.t, 1 - (row + 0.8) * ROW), xycoords=("data", "axes fraction"),
            ha="center", va="center", fontsize=6.5, color=ink, weight="bold",
            bbox={
                "boxstyle": "circle,pad=0.25", "facecolor": inside, "edgecolor": hue,
                "linewidth": 0.9,
            },
        )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_yticks([tick for tick in axes.get_yticks() if tick <= total.max() + 0.5])
    notes = {"hollow: fewer": any(d.after < d.before for d in decisions),
             "grey: given up": any(d.failed for d in decisions)}  # fmt: skip
    title(axes, "Instances", ", ".join(["decisions numbered", *(n for n in notes if notes[n])]))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles, labels, loc="lower right", ncols=len(labels), bbox_to_anchor=(1, 1), borderpad=0,
        handlelength=0.9, columnspacing=1.0,
    )  # fmt: skip
