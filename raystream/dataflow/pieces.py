"""Pieces: what one producer range sends on one edge for one epoch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raystream.schema.columns import Columns, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import NEVER, KeyRange


class Header(NamedTuple):
    """What travels with every piece, empty or not.

    keys: the producer's range. watermark: no record with a lesser time will come from it (see L1:
    as of the end of this epoch). cut: a checkpoint is taken at the end of this epoch; so it is
    at the end of a range, for that range alone. ended: this is the last epoch of the range.
    """

    epoch: int
    keys: KeyRange
    watermark: int
    cut: bool = False
    ended: bool = False


class Piece(NamedTuple):
    """rows: for a range of the consumer, sorted by the consumer's key group; offsets: int64 [R + 1]
    by key group of that range."""

    header: Header
    rows: Columns
    offsets: np.ndarray


def silence(epoch: int, keys: KeyRange, schema: RecordSchema, groups: int) -> Piece:
    """What the range `keys`, which has ended, sends in an epoch to a consumer range of so many key
    groups: no rows."""
    header = Header(epoch, keys, NEVER, False, True)
    return Piece(header, empty(schema), np.zeros(groups + 1, np.int64))
