"""Draws docs/time.png: watermark, windows, a timer and a late record of a job that runs for it.

python tools/draw_time.py [docs/time.png]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes

import raystream as rs
from lrb.reporting.plots import LIGHT, png_of, style_of
from raystream.testing import Collect

ROOT = Path(__file__).resolve().parent.parent
TIMES = (2, 5, 4, 9, 14, 12, 18, 7, 23, 26, 25)
"""The times of the records, in the order in which they come."""
DISORDER = 4
SIZE = 10
WAIT = 14
"""The timer is set to so long after the first record."""
(BLUE, ORANGE, GREEN), RED = LIGHT.hues[:3], LIGHT.hues[5]


class Event(NamedTuple):
    time: int
    key: int


class Told(NamedTuple):
    what: str
    time: int
    n: int


class Tally(rs.State):
    n: int = 0


class Waiting(rs.State):
    first: int = -1
    due: rs.Timer = rs.NEVER


@dataclass(frozen=True)
class Each(rs.Source[Event]):
    """Each record is an epoch of its own."""

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Event]]]:
        for at in range(position, len(TIMES)):
            yield at + 1, rs.Batch(Event, {"time": [TIMES[at]], "key": [0]})


@rs.operator(key="key", window=rs.tumbling(seconds=SIZE))
class Windows:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: int, window: rs.Window, tally: Tally) -> Iterator[Told]:
        yield Told("closes", window.start, tally.n)


@rs.operator(key="key")
class Reminder:
    def process(self, event: Event, waiting: Waiting) -> None:
        if waiting.first < 0:
            waiting.first = event.time
            waiting.due = event.time + WAIT

    def timer(self, key: int, time: int, waiting: Waiting) -> Iterator[Told]:
        yield Told("rings", time, 0)


@rs.operator()
def lateness(event: Event) -> Iterator[Told]:
    yield Told("late", event.time, 0)


def what_happens() -> list[tuple[int, Told]]:
    """Which window closes, which timer rings and which record is late after how many records; one
    more at the end of the input."""
    sink, flow = Collect(), rs.Flow("time")
    events = flow.source(Each(), epochs=rs.by_arrival(disorder=DISORDER))
    closed, late = events.through(Windows(), late=True)
    (closed | events.through(Reminder()) | late.through(lateness)).to(sink)
    flow.run(on_note=lambda note: None)
    return sorted((min(epoch, len(TIMES) + 1), told) for epoch, told in sink.by_epoch())


def watermarks() -> list[int]:
    """The watermark after each record."""
    return [max(TIMES[: n + 1]) - DISORDER for n in range(len(TIMES))]


def draw(axes: Axes, happened: list[tuple[int, Told]]) -> None:
    """Draw time over the records in the order in which they come."""
    end, top = len(TIMES) + 1, 33
    late = {epoch for epoch, told in happened if told.what == "late"}
    for epoch, told in happened:
        if told.what == "closes":
            _window(axes, told, epoch, end)
        elif told.what == "rings":
            axes.plot([1, epoch], [told.time] * 2, ":", color=GREEN, linewidth=1.3)
            axes.plot(epoch, told.time, marker="*", markersize=13, color=GREEN, linestyle="none")
            axes.text(1, told.time + 0.5, f"a timer is set to {told.time}", color=GREEN, fontsize=9)
            axes.annotate(
                "it rings", (epoch, told.time), (10, -1), textcoords="offset points",
                color=GREEN, fontsize=9, va="center",
            )  # fmt: skip
    marks = watermarks()
    steps = [marks[0] - 3, *marks, marks[-1]]
    axes.step([0.4, *range(1, end + 1)], steps, where="post", color=ORANGE, linewidth=2)
    axes.annotate(
        "", (end, top - 0.5), (end, marks[-1]),
        arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 2},
    )  # fmt: skip
    axes.text(
        2.1, marks[1] - 1.2, f"the watermark: {DISORDER} behind the greatest time so far",
        color=ORANGE, fontsize=9, va="top",
    )  # fmt: skip
    axes.text(
        end + 0.12, top - 0.4, "the end of the\ninput: windows\nclose, timers ring", fontsize=9,
        va="top", color=LIGHT.quiet,
    )  # fmt: skip
    for n, time in enumerate(TIMES, 1):
        colour = RED if n in late else LIGHT.ink
        axes.plot(n, time, "o", color=colour, markersize=6, zorder=3)
        axes.annotate(
            str(time), (n, time), (0, 7), textcoords="offset points", color=colour, fontsize=9,
            ha="center",
        )  # fmt: skip
        if n in late:
            axes.annotate(
                "late: its window\nhas closed", (n, time), (8, -4), textcoords="offset points",
                color=RED, fontsize=9, va="top",
            )  # fmt: skip
    axes.set_xlim(0.4, end + 1.6)
    axes.set_ylim(-5, top)
    axes.set_xticks(range(1, end))
    axes.set_yticks(range(0, 31, SIZE))
    axes.set_xlabel("records, in the order in which they come")
    axes.set_ylabel("event time")
    axes.spines[["top", "right"]].set_visible(False)


def _window(axes: Axes, told: Told, epoch: int, end: int) -> None:
    """A band from the first record of a window to where it closes."""
    first = next(n for n, t in enumerate(TIMES, 1) if told.time <= t < told.time + SIZE)
    axes.fill_between(
        [first - 0.35, epoch], told.time, told.time + SIZE, color=BLUE, alpha=0.13, linewidth=0
    )
    axes.plot([epoch] * 2, [told.time, told.time + SIZE], color=BLUE, linewidth=2)
    axes.text(
        first - 0.25, told.time + SIZE - 0.5, f"window [{told.time}, {told.time + SIZE})",
        color=BLUE, fontsize=9, va="top",
    )  # fmt: skip
    where = (epoch + 0.1, told.time + SIZE - 0.5) if epoch < end else (end - 0.1, told.time + 0.5)
    axes.text(
        *where, f"closes: {told.n} records", color=BLUE, fontsize=9,
        va="top" if epoch < end else "bottom", ha="left" if epoch < end else "right",
    )  # fmt: skip


def picture() -> bytes:
    """The picture as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = style_of(LIGHT)
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9.4, 4.9), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.subplots(), what_happens())
        return png_of(figure)


if __name__ == "__main__":
    (Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/time.png").write_bytes(picture())
