"""What a batch function sees of its keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.api.batch import Rows
from raystream.schema.state import State


@given(st.integers(1, 9), st.data())
def test_records_are_numbered_within_their_key(distinct: int, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, distinct - 1), max_size=60))
    rows: Rows[State] = Rows({}.__getitem__, distinct, np.array(index, np.int64))
    assert rows.nth.tolist() == [index[:i].count(key) for i, key in enumerate(index)]
    assert rows.counts.tolist() == [index.count(key) for key in range(distinct)]
    for numbers in (rows.index, rows.nth, rows.counts):
        assert numbers.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            numbers[:] = 0
