"""Records of a segment that was opened again can be joined with new ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from raystream.state.segments.cold_rows import joined_rows
from raystream.state.segments.record import record_dtype
from raystream.state.segments.segment import RecordBlock, SegmentWriter
from raystream.state.segments.stored_segment import load, save


def test_records_that_were_opened_keep_the_gaps_between_their_fields(tmp_path: Path) -> None:
    """A structured row with a small field before a large one has gaps, which NumPy leaves out where
    arrays with and without an aligned form are joined."""
    dtype = record_dtype(1, [("small", "i1"), ("large", "i8"), ("last", "i1")])
    records = np.zeros(3, dtype)
    records["_hash"], records["last"] = [1, 2, 3], 7
    writer = SegmentWriter(tmp_path, "count", dtype, 3, 1, 3, "000001")
    writer.append(RecordBlock(records), records["_hash"].copy())
    segment = writer.close()
    assert segment is not None
    save(segment, tmp_path)
    opened = load(tmp_path, "000001", "count").rows(np.arange(3))
    for parts in ([opened, RecordBlock(records)], [RecordBlock(records), opened], [opened]):
        joined = joined_rows(parts).records
        assert joined.dtype == dtype and joined.dtype.itemsize % 8 == 0
        assert joined["last"].tolist() == [7] * len(joined)
