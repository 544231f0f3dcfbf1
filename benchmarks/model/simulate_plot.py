"""A picture of simulated runs: what a threshold costs in instances, and in latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.shared.drawing import panels_beside
from lrb.reporting.plots import LIGHT, png_of, seconds_text

DEADLINE_S = 5.0
PANELS = (("instances_mean", "instances, mean"), ("instances_most", "instances, most"),
          ("latency_s", "99th percentile of latency"))  # fmt: skip
Results = Sequence[Mapping[str, Any]]


def draw(results: Results) -> bytes:
    """The picture, as PNG.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure, panels = panels_beside([1] * len(PANELS), 3.4)
    for axes, (what, label) in zip(panels, PANELS, strict=True):
        for i, xways in enumerate(sorted({r["xways"] for r in results})):
            _lines(axes, [r for r in results if r["xways"] == xways], what, LIGHT.hues[i], xways)
        axes.set_xlabel("threshold, % of CPU")
        axes.set_ylabel(label)
        axes.set_xticks(range(10, 100, 20))
        if what != "latency_s":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    _late(panels[-1], [value(r, "latency_s") for r in results])
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return png_of(figure)


def _late(axes: Any, latencies: Sequence[float]) -> None:
    """Latency by powers of ten, and the deadline."""
    axes.set_yscale("log")
    axes.set_ylim(min(latencies) / 2, 2 * max(DEADLINE_S, *latencies))
    axes.yaxis.set_major_formatter(lambda seconds, _: seconds_text(seconds))
    axes.axhline(DEADLINE_S, color=LIGHT.hues[5], linewidth=1, linestyle=(0, (1, 2)))
    axes.annotate(
        f"deadline {DEADLINE_S:g} s", (0, DEADLINE_S), xycoords=("axes fraction", "data"),
        xytext=(3, 2), textcoords="offset points", ha="left", va="bottom", fontsize=7,
        color=LIGHT.hues[5],
    )  # fmt: skip


def value(result: Mapping[str, Any], what: str) -> float:
    """What is drawn of a run."""
    found = result[what]
    return float(found["p99"] if isinstance(found, Mapping) else found)


def _lines(axes: Any, mine: Results, what: str, hue: str, xways: float) -> None:
    """The runs of one load: a line over the thresholds, and a dashed one for the best fixed."""
    moving = sorted((r["threshold"], value(r, what)) for r in mine if r["threshold"] is not None)
    at, values = [100 * t for t, _ in moving], [v for _, v in moving]
    axes.plot(at, values, color=hue, marker="o", markersize=4, linewidth=1.3,
              label=f"L = {xways:g}, by the policy")  # fmt: skip
    for r in mine:
        if r["threshold"] is None:
            axes.axhline(value(r, what), color=hue, linewidth=1, linestyle=(0, (4, 3)),
                         label=f"L = {xways:g}, the best fixed")  # fmt: skip
