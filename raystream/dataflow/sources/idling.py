"""When a split that is cut by arrival is idle, and what an idle split holds back: nothing.

The reader of the split measures the silence. The decision is part of the boundary that the register
holds (`raystream.dataflow.register`), so every later reader takes the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raystream.api.epochs import Epochs
from raystream.dataflow.register import Boundary
from raystream.schema.types import BEFORE_ALL, FAR, NEVER


class Idle(NamedTuple):
    """The state of an idle split, from which event time goes on with the clock."""

    beyond: int
    """`Boundary.beyond` when this reader first saw the split idle."""
    silent: float
    """For how many seconds nothing had come to this reader then."""


@dataclass(frozen=True, slots=True)
class Idling:
    """The rule of a source."""

    seconds: float
    """A split is idle when nothing has come for so long."""
    ticks: int
    """By how much event time goes on in a second of silence beyond that, in the flow's unit; 0 if
    it stays."""

    def beyond(self, before: Idle | None, silent: float) -> int | None:
        """How far the clock has carried event time beyond the watermark of a split to which nothing
        has come in this epoch; None if the split is not idle.

        Args:
            before: its state after the epoch before; None if it was not idle.
            silent: for how many seconds nothing has come.
        """
        if before is None:
            before = Idle(0, self.seconds)
            if silent < self.seconds:
                return None
        return min(before.beyond + int(max(0.0, silent - before.silent) * self.ticks), FAR)


def idling_of(epochs: Epochs, ticks: int) -> Idling | None:
    """The rule of a source; None if its splits are never idle. ticks: flow units per second."""
    if epochs.idle is None:
        return None
    return Idling(epochs.idle, ticks if epochs.all_idle == "advance" else 0)


def carried(boundary: Boundary) -> int:
    """The watermark of a split, with what the clock has added while it was idle. A split that never
    had a record has none to add to."""
    if not boundary.idle or boundary.watermark == BEFORE_ALL:
        return boundary.watermark
    return min(boundary.watermark + boundary.beyond, NEVER - 1)


def joint(parts: Sequence[tuple[int, bool]]) -> tuple[int, bool]:
    """The watermark of several parts of an input (of splits, or of the ranges that feed an
    instance), and whether all of them that have not ended are idle.

    The slowest part that is not idle decides. Where every part is idle or has ended, the idle part
    that has come furthest decides: so the order in which parts fell silent makes no difference, and
    the watermark is not infinite before the end. The function is associative, so it does not matter
    how parts are grouped into ranges.

    Args:
        parts: of each part its watermark (NEVER once it has ended) and whether it is idle. Of no
            part at all: the end.
    """
    idle = [watermark for watermark, silent in parts if silent]
    least = min([watermark for watermark, silent in parts if not silent], default=NEVER)
    return (least, False) if least < NEVER or not idle else (max(idle), True)
