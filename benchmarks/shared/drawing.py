"""What the pictures of benchmarks have in common: panels beside each other, without a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lrb.reporting.plots import LIGHT, WIDTH_INCHES
from raystream.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panels_beside(
    ratios: Sequence[float], height: float, *, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of this height in inches, with a panel for each ratio of their widths.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "a plot needs matplotlib, which is not installed",
            hint="pip install 'raystream[report]'",
        ) from error
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    found = figure.subplots(1, len(ratios), squeeze=False, sharey=sharey, width_ratios=ratios)
    panels = list(found[0])
    for axes in panels:
        axes.grid(color=LIGHT.grid, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels
