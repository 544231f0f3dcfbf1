"""Paired ratios: each run of this tree with the run of the older commit next to it.

A machine that is slow for a while slows both runs of a pair down, so the ratio says more than two
medians do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.against.works import Work

DRAWS = 10_000
SEED = 1
"""Of the bootstrap: the same figures give the same interval."""
COVERED = (2.5, 97.5)
"""Percentiles of the drawn means: an interval of 95 %."""


class Interval(NamedTuple):
    """A mean ratio and the interval that holds it in 95 of 100 cases."""

    mean: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.least:.3f} to {self.most:.3f})"


def ratio(new: Sequence[float], old: Sequence[float]) -> Interval:
    """The geometric mean of the paired ratios new / old, with its bootstrap interval.

    Args:
        new, old: figures of the same pairs, at least one.
    """
    logs = np.log(np.asarray(new, float) / np.asarray(old, float))
    drawn = np.random.Generator(np.random.Philox(key=SEED)).integers(
        0, len(logs), (DRAWS, len(logs))
    )
    least, most = np.percentile(logs[drawn].mean(axis=1), COVERED)
    return Interval(*(float(np.exp(x)) for x in (logs.mean(), least, most)))


class Compared(NamedTuple):
    """Figures of one work, pair by pair; `again` are those of second runs of the older commit, if
    there were any."""

    work: Work
    new: Sequence[float]
    old: Sequence[float]
    again: Sequence[float] = ()


def table(compared: Sequence[Compared], rev: str) -> str:
    """A table in Markdown, for `docs/lab/`."""
    head = ("work", "unit", f"{rev}, median", "now, median", "now / then (95 %)", "better is")
    rows: list[tuple[str, ...]] = [(*head, "then / then (95 %)", "pairs")]
    for each in compared:
        medians = (statistics.median(figures) for figures in (each.old, each.new))
        rows.append(
            (
                each.work.title,
                each.work.unit,
                *(f"{m:,.0f}" if m >= 1000 else f"{m:.3g}" for m in medians),
                str(ratio(each.new, each.old)),
                "more" if each.work.more_is_better else "less",
                str(ratio(each.again, each.old)) if each.again else "",
                str(len(each.new)),
            )
        )
    lines = [rows[0], ("---", "---", *["--:"] * (len(rows[0]) - 2)), *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
