"""Checkpoints of rows in memory and on disk: the parts of an image, one range of key groups after
the other, so that no more than a part is in memory at a time beside the rows that are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from raystream.schema.types import KeyRange
from raystream.state.images.partition import count_keys, fold_batches, offsets_of
from raystream.state.keys import among, group_of_hash
from raystream.state.segments.cold_rows import newest_of, range_of
from raystream.state.segments.record import epochs_of, is_removed
from raystream.state.segments.segment import RecordBlock, Segment
from raystream.state.tables.backend import WHOLE, MadePart, PendingRows
from raystream.state.tables.structured_columns import part_ends

if TYPE_CHECKING:
    from raystream.state.tiers.tiered_table import TieredTable


class TieredRows(PendingRows):
    """The first half of a checkpoint of a tier.

    Args:
        hot: that of the table in memory.
        segments: those that have rows of it, the oldest first. They do not change.
        since: the checkpoint that the rows are newer than; 0 for all rows.
        hidden: int64 [n, words]: keys that have no row any more, whatever is on disk.
    """

    def __init__(
        self,
        tier: TieredTable,
        hot: PendingRows,
        segments: Sequence[Segment],
        since: int,
        hidden: np.ndarray | None,
    ) -> None:
        self._batch, self._groups, self._shape = tier.batch, tier.groups, tier.shape
        self._hot, self._segments, self._since = hot, list(segments), since
        self._hidden = hidden

    @property
    def nbytes(self) -> int:
        """Of the rows in memory. The others take none until their part is made."""
        return self._hot.nbytes

    def copy(self) -> None:
        """Copy the rows in memory."""
        self._hot.copy()

    def parts(self, nbytes: int) -> Iterator[MadePart]:
        """The parts, each of about `nbytes` bytes of rows. A delta has few of the rows of its
        segments, so a part may be what is found in several ranges."""
        groups, shape = self._groups, self._shape
        (hot,) = self._hot.parts(WHOLE)
        counts = count_keys(hot.rows.select(shape.gone.names), groups)
        size = hot.rows.nbytes // max(1, hot.rows.num_rows) if hot.rows.num_rows else 1
        for segment in self._segments:
            size = max(size, segment.nbytes // len(segment))
            # None of a key group of others: a part would end before the range begins.
            low, high = (group_of_hash(h, groups) for h in (segment.low, segment.high))
            for g in range(low, high + 1):
                counts[g] += segment.count_between(*range_of(KeyRange(g, g + 1), groups))
        offsets = np.concatenate(([0], np.cumsum(counts)))
        most = max(1, nbytes // max(1, size))
        yield from _gathered(self._pieces(hot, part_ends(offsets, most)), most)

    def _pieces(self, hot: MadePart, ends: Sequence[int]) -> Iterator[MadePart]:
        """What there is of each of these ranges of key groups."""
        groups, shape = self._groups, self._shape
        begins = [0, *ends]
        rows_at, gone_at = (offsets_of(b, groups, begins) for b in (hot.rows, hot.gone))
        for i, end in enumerate(ends):
            cold = self._between(KeyRange(begins[i], end))
            pairs = [] if cold is None else [(self._batch(cold), shape.nothing_gone)]
            rows = hot.rows.slice(rows_at[i], rows_at[i + 1] - rows_at[i])
            gone = hot.gone.slice(gone_at[i], gone_at[i + 1] - gone_at[i])
            folded = fold_batches([*pairs, (rows, gone)], groups, whole=not self._since)
            yield MadePart(end, *folded)

    def _between(self, keys: KeyRange) -> RecordBlock | None:
        """The newest records on disk of the keys of a range, as far as they are of this checkpoint;
        None if there are none."""
        low, high = range_of(keys, self._groups)
        found = []
        for segment in self._segments:
            rows = segment.between(max(low, segment.low), min(high, segment.high + 1))
            newer = epochs_of(rows.records) > (self._since or -1)
            if self._hidden is not None:
                newer &= ~among(rows.records["_key"], self._hidden)
            if newer.any():
                found.append(RecordBlock(rows.records[newer], rows.heap))
        if not found:
            return None
        rows = newest_of(found)  # the table in memory says which were removed
        return RecordBlock(rows.records[~is_removed(rows.records)], rows.heap)


def _gathered(pieces: Iterable[MadePart], most: int) -> Iterator[MadePart]:
    """Pieces that follow each other as parts of up to `most` rows, or of one piece."""
    some, many = list[MadePart](), 0
    for piece in pieces:
        size = piece.rows.num_rows + piece.gone.num_rows
        if some and size and many + size > most:
            yield _joined(some)
            some, many = [], 0
        some.append(piece)
        many += size
    yield _joined(some)


def _joined(pieces: Sequence[MadePart]) -> MadePart:
    """Pieces that follow each other as one."""
    if len(pieces) == 1:
        return pieces[0]
    rows, gone = (pa.concat_batches(b) for b in zip(*(p[1:] for p in pieces), strict=True))
    return MadePart(pieces[-1].end, rows, gone)
