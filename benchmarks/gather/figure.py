"""The picture of a class of links, in the manner of SR3 (Middleware 2020): seconds over the size of
the state, a line for each form, a panel for each number of failures."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gather.classes import CLASSES
from benchmarks.gather.command import Cell
from benchmarks.shared.drawing import panels_beside
from lrb.reporting.plots import LIGHT, png_of

MEGA = 1e6
SHOWN = ("star", "line", "tree", "auto", "durable")
HEIGHT = 2.6


def draw(cells: Sequence[Cell], links: str) -> bytes:
    """The panels of a class of links, as PNG: points were measured, lines are predicted.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    mine = [cell for cell in cells if cell.links == links]
    failures = sorted({cell.failures for cell in mine})
    figure, panels = panels_beside([1.0] * len(failures), HEIGHT, sharey=True)
    for axes, count in zip(panels, failures, strict=True):
        for form, hue in zip(SHOWN, LIGHT.hues, strict=False):
            line = sorted((c for c in mine if (c.failures, c.form) == (count, form)),
                          key=lambda c: c.nbytes)  # fmt: skip
            sizes = [c.nbytes / MEGA for c in line]
            width = 2.4 if form == "auto" else 1.2
            axes.plot(sizes, [c.predicted for c in line], label=form, color=hue, linewidth=width)
            seen = [(c.nbytes / MEGA, c.measured) for c in line if c.measured is not None]
            axes.plot([x for x, _ in seen], [y for _, y in seen], "o", color=hue, markersize=4)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("MB of each state", fontsize=8)
        axes.set_title(f"{count} at once", fontsize=9, color=LIGHT.ink)
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel("seconds until all is there", fontsize=8)
    panels[0].legend(fontsize=7, frameon=False)
    figure.suptitle(CLASSES[links].title, fontsize=9.5)
    return png_of(figure)
