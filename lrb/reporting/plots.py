"""Pictures of a run: what came in and how late the answers were, rates and CPU by operator.

All of them have the same axis, real seconds since the start, so that what happens in one can be
looked up in the others. Colours are those of
Okabe and Ito, which readers with any kind of colour vision can tell apart; what has an order has
shades of one colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raystream.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.typing import RcKeyType

Floats = npt.NDArray[np.float64]

WIDTH_INCHES = 7.6
DPI = 170
#: Percentiles of latency that are drawn, the least first; 100 is the maximum.
PERCENTILES = (50, 95, 99, 100)
#: Dashes that stay apart from a full line of the same course.
DASHES = (0, (3, 1.4))
#: Latencies are put into this many bins of time: enough for a shape, few enough for percentiles.
BINS = 120
#: What a run records of an operator.
MEASURES = ("in", "out", "cpu", "instances")
#: Less than this many seconds cannot be told apart on the axis of latency.
LATENCY_MIN_S = 1e-3


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of paper, ink and lines."""

    name: str
    paper: str
    ink: str
    quiet: str  #: labels and axes
    grid: str
    shades: tuple[str, ...]  #: for PERCENTILES: the higher, the stronger
    hues: tuple[str, ...]  #: for operators, told apart without an order


LIGHT = Theme(
    "light", "#ffffff", "#1d2129", "#5d6470", "#e3e5e8",
    ("#9ecae1", "#4a98c9", "#1764ab", "#08306b"),
    ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a800"),
)  # fmt: skip
DARK = Theme(
    "dark", "#15171c", "#e4e6ea", "#9aa1ad", "#2d3139",
    ("#3f76a8", "#5c9fd2", "#95c5e9", "#dcecf9"),
    ("#4da6e0", "#f0b429", "#2bbf94", "#e39bc4", "#8fd0f5", "#f07f3c", "#a8a8a8", "#e8dc4a"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """What a run recorded while it went. A value holds for the time since the moment before."""

    t: Floats  #: [n] real seconds since the start; the first is 0, with the values of the second
    operators: Mapping[str, Mapping[str, Floats]]
    """name -> "in", "out", "cpu", "instances" -> [n]; of instances, how many there were then."""

    @property
    def source(self) -> str:
        """The operator that reads the input: the first."""
        return next(iter(self.operators))

    @property
    def input_rate(self) -> Floats:
        """Tuples per real second that came in."""
        rates = self.operators[self.source]
        return rates["in"] if rates["in"].any() else rates["out"]

    @property
    def has_cpu(self) -> bool:
        """Whether CPU was measured; it is not where all operators share one process."""
        return any(values["cpu"].any() for values in self.operators.values())


def series_of(run: Mapping[str, Any]) -> Series | None:
    """The series of a run, operators in the order in which run.json lists them; None if empty."""
    recorded: Sequence[Mapping[str, Any]] = run["series"]
    names = [operator["name"] for operator in run["operators"]]
    if not recorded or not names:
        return None
    points = [{**recorded[0], "t": 0.0}, *recorded]
    operators = {
        name: {
            measure: np.array([_measured(point, name, measure) for point in points])
            for measure in MEASURES
        }
        for name in names
    }
    return Series(np.array([float(point["t"]) for point in points]), operators)


def _measured(point: Mapping[str, Any], name: str, measure: str) -> float:
    return float(point["operators"].get(name, {}).get(measure, 0.0))


@dataclass(frozen=True, slots=True)
class Clock:
    """How the traffic's seconds relate to real seconds since the start of a paced run."""

    first: int  #: the traffic's second at the start
    speed: float

    def real(self, traffic: Floats) -> Floats:
        """Real seconds since the start, of seconds of the traffic."""
        return (traffic - self.first) / self.speed

    def minute(self, real: Floats) -> Floats:
        """Minutes of the traffic, of real seconds since the start."""
        return (self.first + real * self.speed) / 60


def clock_of(run: Mapping[str, Any], latency: pa.Table | None) -> Clock | None:
    """The clock of a paced run, taken to start with the first answer; None at full speed."""
    if run["speed"] is None or latency is None or latency.num_rows == 0:
        return None
    return Clock(int(latency["time"].to_numpy().min()), float(run["speed"]))


def draw(run: Mapping[str, Any], latency: pa.Table | None, theme: Theme) -> dict[str, bytes]:
    """All pictures that the run has data for, by file name without suffix, as PNG."""
    series = series_of(run)
    if series is None:
        return {}
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise ConfigError(
            "the plots of a report need matplotlib, which is not installed",
            hint="pip install 'raystream[report]'",
        ) from error
    clock = clock_of(run, latency)
    with rc_context(style_of(theme)):
        first = "input" if clock is None else "input-and-latency"
        figures = {
            first: _input_and_latency(series, latency, clock, theme),
            "rates": _rates(series, clock, theme),
        }
        if series.has_cpu:
            figures["cpu"] = _cpu(series, clock, theme)
        return {name: png_of(figure) for name, figure in figures.items()}


def latency_percentiles(seconds: Floats, latency: Floats) -> tuple[Floats, Floats]:
    """PERCENTILES of latency over time.

    seconds, latency: [n] when each answer was due and how long it took. Returns the middles of the
    bins that have answers [b] and the percentiles in each [b, len(PERCENTILES)].
    """
    end = max(float(seconds.max()), 1e-9)
    number = np.minimum((seconds / end * BINS).astype(int), BINS - 1).clip(0)
    order = np.argsort(number, kind="stable")
    found, starts = np.unique(number[order], return_index=True)
    parts = np.split(latency[order], starts[1:])
    values = np.array([np.percentile(part, PERCENTILES) for part in parts])
    return (found + 0.5) * end / BINS, values


# ---- the pictures -----------------------------------------------------------------------------


def _input_and_latency(
    series: Series, latency: pa.Table | None, clock: Clock | None, theme: Theme
) -> Figure:
    panels = 1 if clock is None else 2
    figure, axes = panels_of(panels, 2.1 * panels)
    top = axes[0]
    rate_line(top, series.t, series.input_rate, theme)
    top.set_ylim(bottom=0)
    title(top, "Input", "tuples per second")
    short_numbers(top)
    if clock is not None and latency is not None:
        latency_panel(axes[1], latency, clock, theme)
    time_axis(axes, series, clock)
    return figure


def latency_panel(axes: Axes, latency: pa.Table, clock: Clock, theme: Theme) -> None:
    """Percentiles of latency over time, and the deadline."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    due = clock.real(latency["time"].to_numpy().astype(float))
    taken = latency["latency"].to_numpy().astype(float).clip(LATENCY_MIN_S)
    at, values = latency_percentiles(due, taken)
    names = ["maximum" if p == 100 else f"{p} %" for p in PERCENTILES]
    for i, name in reversed(list(enumerate(names))):
        axes.plot(at, values[:, i], color=theme.shades[i], label=name)
    axes.axhline(5, color=theme.hues[5], linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        "deadline 5 s", (1, 5), xycoords=("axes fraction", "data"), xytext=(-4, 3),
        textcoords="offset points", ha="right", va="bottom", color=theme.hues[5],
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(float(values.min()) / 2, max(12.0, float(values.max()) * 1.6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    title(axes, "Latency", "from the release of a tuple to its answer")
    axes.legend(loc="lower right", ncols=len(PERCENTILES), bbox_to_anchor=(1, 1), borderpad=0)


def _rates(series: Series, clock: Clock | None, theme: Theme) -> Figure:
    """A strip for each operator, each with its own scale: their rates differ by thousands."""
    names = list(series.operators)
    figure, axes = panels_of(len(names), 0.62 * len(names) + 0.5)
    for strip, name in zip(axes, names, strict=True):
        _strip(strip, series, name, theme)
    title(axes[0], "Rates by operator", "records per second")
    axes[0].legend(
        handles=_in_and_out(theme), loc="lower right", ncols=2, bbox_to_anchor=(1, 1), borderpad=0
    )
    time_axis(axes, series, clock)
    return figure


def _strip(axes: Axes, series: Series, name: str, theme: Theme) -> None:
    into, out = (series.operators[name][measure] for measure in ("in", "out"))
    if into.any():
        rate_line(axes, series.t, into, theme)
    if out.any():
        axes.plot(series.t, out, color=theme.hues[5], linestyle=DASHES, drawstyle="steps-pre")
    top = 1.15 * max(1.0, float(into.max()), float(out.max()))
    axes.set_ylim(0, top)
    axes.set_yticks([0, _round_below(top)])
    short_numbers(axes)
    axes.set_ylabel(name, rotation=0, ha="left", va="center", color=theme.ink)
    axes.yaxis.set_label_coords(-0.19, 0.5)


def rate_line(axes: Axes, t: Floats, rate: Floats, theme: Theme) -> None:
    """A rate that holds for the time since the moment before."""
    axes.fill_between(t, rate, color=theme.hues[0], alpha=0.16, linewidth=0, step="pre")
    axes.plot(t, rate, color=theme.hues[0], drawstyle="steps-pre")


def _in_and_out(theme: Theme) -> list[Line2D]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=theme.hues[0], label="in"),
        Line2D([], [], color=theme.hues[5], linestyle=DASHES, label="out"),
    ]


def _cpu(series: Series, clock: Clock | None, theme: Theme) -> Figure:
    figure, (axes,) = panels_of(1, 2.9)
    busiest_first = sorted(
        series.operators, key=lambda name: -float(series.operators[name]["cpu"].sum())
    )
    shares = [series.operators[name]["cpu"] for name in busiest_first]
    colours = dict(zip(series.operators, theme.hues * len(shares), strict=False))
    axes.stackplot(
        series.t,
        *shares,
        labels=busiest_first,
        colors=[colours[name] for name in busiest_first],
        step="pre",
        edgecolor=theme.paper,  # neighbours stay apart where colours do not help
        linewidth=0.6,
    )
    axes.set_ylim(0, 1.1 * max(0.1, float(np.sum(shares, axis=0).max())))
    title(axes, "CPU by operator", "cores in use, one upon the other")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0
    )
    time_axis([axes], series, clock)
    return figure


# ---- what they have in common -----------------------------------------------------------------


def panels_of(
    panels: int, height: float, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with panels below each other; without pyplot, so nothing is kept or shown. ratios:
    of their heights."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height + 0.7), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=ratios)
    return figure, list(grid[:, 0])


def png_of(figure: Figure) -> bytes:
    """The figure as PNG."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def style_of(theme: Theme) -> dict[RcKeyType, Any]:
    """What all figures have in common."""
    return {
        "figure.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "axes.edgecolor": theme.grid,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "axes.labelcolor": theme.quiet,
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "text.color": theme.ink,
        "xtick.color": theme.quiet,
        "ytick.color": theme.quiet,
        "ytick.left": False,
        "font.size": 8.5,
        "lines.linewidth": 1.3,
        "lines.solid_joinstyle": "round",
        "legend.frameon": False,
        "legend.handlelength": 1.4,
        "legend.columnspacing": 1.3,
    }


def title(axes: Axes, heading: str, unit: str) -> None:
    """The name of a panel, and more quietly what its axis counts."""
    from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea

    words: list[Artist] = [
        TextArea(heading, textprops={"weight": "bold"}),
        TextArea(unit, textprops={"color": axes.yaxis.label.get_color()}),
    ]
    box = HPacker(children=words, align="baseline", pad=0, sep=7)
    axes.add_artist(
        AnchoredOffsetbox(
            "lower left", child=box, frameon=False, pad=0, borderpad=0.3,
            bbox_to_anchor=(0, 1), bbox_transform=axes.transAxes,
        )
    )  # fmt: skip


def time_axis(axes: Sequence[Axes], series: Series, clock: Clock | None) -> None:
    """Seconds below the last panel, and which minutes of the traffic they were."""
    end = max(float(series.t[-1]), 1e-9)
    axes[-1].set_xlim(0, end)
    axes[-1].tick_params(axis="x", length=3)
    for upper in axes[:-1]:
        upper.tick_params(axis="x", length=0)
    label = "seconds since the start"
    if clock is not None:
        first, last = clock.minute(np.array([0.0, end]))
        label += f" (minutes {first:.0f} to {last:.0f} of the traffic, {clock.speed:g} x real time)"
    axes[-1].set_xlabel(label, labelpad=5)


def short_numbers(axes: Axes) -> None:
    """Numbers on the vertical axis as in `short_number`."""
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _round_below(number: float) -> float:
    """The greatest of 1, 2, 5, 10, 20, ... that is not above a number of at least 1."""
    power = 10.0 ** np.floor(np.log10(number))
    return float(max(step * power for step in (1, 2, 5) if step * power <= number))


def short_number(number: float) -> str:
    """A number for an axis: 0, 200, 50 k, 2.5 M."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if abs(number) >= unit:
            return f"{number / unit:g}{name}"
    return f"{number:g}"


def seconds_text(seconds: float) -> str:
    """A duration with a unit that suits it: 3 ms, 250 ms, 1.20 s, 15 s, 2,035 s."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"
