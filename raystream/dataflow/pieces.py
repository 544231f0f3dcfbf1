"""Pieces: what one producer range sends on one edge for one epoch, or for a run of empty epochs.

A run of epochs in which nothing is read, closed or due is one step at each instance, and one piece.
Where the steps of an instance begin and end depends on what it knows at the moment, and changes no
bit: a piece for a run says the same as a piece for each of its epochs. So it also says what the
watermark is after each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from raystream.schema.columns import Columns, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange

ANY_CODE = 2**32 - 1
"""Marks what every version of the code would send: the silence of a range that has ended."""


class Header(NamedTuple):
    """What travels with every piece, empty or not."""

    epoch: int
    """The number of the epoch."""
    keys: KeyRange
    """The producer's range."""
    watermark: int
    """No record with a lesser time will come from that range after this epoch."""
    checkpoint: bool = False
    """Whether every instance takes a checkpoint at the end of this epoch. At the end of a range its
    own instance does so in any case."""
    ended: bool = False
    """Whether this is the last epoch of the range."""
    idle: bool = False
    """Whether all of the input behind the range is idle, so that its watermark holds nothing back;
    see
    `dataflow.sources.idling`."""
    epochs: int = 1
    """How many epochs it speaks for: `epoch`, and those right before it. If these are more than
    one, none of them is the last of the range, only `epoch` may be a checkpoint, and none has rows,
    except where one instance of each vertex takes them all in one step (`local.several`): then the
    offsets of a piece are by epoch and key group."""
    lag: int | None = None
    """Of a run: by how much the watermark is behind the beginning of the epoch that follows, in the
    flow's unit. None: the watermark is the same after all its epochs."""
    code: int = 0
    """The number of the version of the code that made it; see `dataflow.upgrading`."""

    @property
    def first(self) -> int:
        """The first epoch that it speaks for."""
        return self.epoch - self.epochs + 1

    def watermark_after(self, epoch: int, clock: Callable[[int], int]) -> int:
        """The watermark after one of the epochs that it speaks for.

        Args:
            clock: the time at which the epoch after one begins, in the flow's unit.
        """
        if epoch == self.epoch or self.lag is None:
            return self.watermark
        return max(BEFORE_ALL, min(clock(epoch) - self.lag, self.watermark))


def lag_of(headers: Iterable[Header]) -> int | None:
    """The lag of a run of which the watermark is the least of those of several runs."""
    return max((h.lag for h in headers if h.lag is not None), default=None)


class Piece(NamedTuple):
    """What a range of a consumer gets of one producer range for one epoch, or for a run of them."""

    header: Header
    """What is said of the whole epoch of the producer range."""
    rows: Columns
    """Sorted by the consumer's key group."""
    offsets: np.ndarray
    """int64 [R + 1]: where each key group of the consumer's range begins."""


def silence(epoch: int, keys: KeyRange, schema: RecordSchema, groups: int) -> Piece:
    """What a range that has ended sends in an epoch: no rows.

    Args:
        keys: the range. groups: how many key groups the consumer's range has.
    """
    header = Header(epoch, keys, NEVER, False, True)
    return Piece(header, empty(schema), np.zeros(groups + 1, np.int64))
