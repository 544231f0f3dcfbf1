"""The rows of a source instance for an epoch, and the positions of its splits after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raystream.dataflow.plan import Plan, Vertex, split_group
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.types import NEVER, KeyRange


class EpochRows(NamedTuple):
    """The rows that a source instance publishes for an epoch."""

    rows: Columns
    """The rows in canonical order."""
    offsets: np.ndarray
    """Where the rows of each key group of the instance's range begin, and the end: int64."""
    watermark: int
    """The watermark of the instance after the epoch."""
    ended: bool
    """Whether this is the last epoch."""
    idle: bool = False
    """Whether all splits of the instance that have not ended are idle."""
    epochs: int = 1
    """How many epochs these are: none of those before the last has rows, except as in
    `Header.epochs`."""
    lag: int | None = None
    """Set where there is more than one epoch: see `Header.lag`."""
    holding: np.ndarray | None = None
    """See `EventTimes.holding`; None where no watermark follows times that are emitted."""
    aside: Aside | None = None
    """The rows that were set aside, because their times are far ahead; None if there are none."""


class Aside(NamedTuple):
    """Rows that a source has set aside in an epoch."""

    rows: Columns
    """The rows in canonical order."""
    offsets: np.ndarray
    """Where the rows of each key group of the instance's range begin, and the end: int64."""
    number: np.ndarray
    """int64 [n]: the number of each row among all that were read in its key group."""
    others: np.ndarray
    """int64: the same of the rows that were not set aside."""


def parted(read: EpochRows, aside: np.ndarray) -> EpochRows:
    """An epoch without the rows that are set aside, which it holds by themselves.

    Args:
        aside: bool [n], which rows of the epoch these are.
    """
    if not aside.any():
        return read
    before = np.concatenate([[0], aside.cumsum()])[read.offsets]
    number = np.arange(len(aside)) - read.offsets[:-1].repeat(np.diff(read.offsets))
    out, kept = np.flatnonzero(aside), np.flatnonzero(~aside)
    return read._replace(
        rows=read.rows.take(kept),
        offsets=read.offsets - before,
        aside=Aside(read.rows.take(out), before, number[out], number[kept]),
    )


def my_splits(plan: Plan, vertex: Vertex, keys: KeyRange) -> list[tuple[int, str]]:
    """(key group, name) of the splits of a source that fall into a range, in canonical order."""
    names = plan.splits[vertex.id]
    placed = [(split_group(i, len(names), plan.groups), n) for i, n in enumerate(names)]
    return [(g, n) for g, n in placed if keys.holds(g)]


def start_of(plan: Plan, vertex: Vertex, split: str) -> int:
    """The position at which a job that begins its input begins to read a split."""
    return plan.starts.get(vertex.id, {}).get(split, 0)


def gather(groups: list[int], rows: list[Columns], keys: KeyRange) -> tuple[Columns, np.ndarray]:
    """Rows of several splits in canonical order, with offsets by key group of the range."""
    counts = np.zeros(len(keys) + 1, np.int64)
    full = [(g, part) for g, part in zip(groups, rows, strict=True) if part.length]
    if len(full) == 1:
        counts[full[0][0] - keys.lo + 1 :] = full[0][1].length
        return full[0][1], counts
    for g, part in zip(groups, rows, strict=True):
        counts[g - keys.lo + 1] += len(part)
    return concat(rows), counts.cumsum()


Positions = Mapping[str, tuple[Any, ...]]
"""For each split of a source its key group and where to read on. In recorded data: (key group,
position, epoch of the row before it, where the batch that begins there ends), and with `max_ahead=`
the greatest time before it. In sources cut by arrival: (key group, position, watermark), and of an
idle split `Boundary.beyond`; then, of a split that cannot be read again and has senders, a tuple:
`LiveSplit.senders`."""


def senders_at(position: tuple[Any, ...]) -> tuple[Any, ...]:
    """`LiveSplit.senders` in the position of a split; none where it has none."""
    return position[-1] if position and isinstance(position[-1], tuple) else ()


class EndedSource:
    """A source instance that replaces one that had ended, so it reads nothing.

    Args:
        positions: the positions of the splits at that end.
    """

    def __init__(self, vertex: Vertex, keys: KeyRange, positions: Positions) -> None:
        self._schema = vertex.ports[0].schema
        self._keys = keys
        self._positions = positions

    def positions(self) -> Positions:
        """The positions of the splits, as `Recorded.positions`."""
        return self._positions

    def quiet_until(self, epoch: int) -> int:
        """As `Recorded.quiet_until`: the next epoch is the last."""
        return epoch

    def take(self, epoch: int) -> EpochRows:
        """An epoch without rows, which is the last."""
        return EpochRows(empty(self._schema), np.zeros(len(self._keys) + 1, np.int64), NEVER, True)
