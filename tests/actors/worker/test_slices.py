"""When the thread of an instance asks for a short slice, and when for the usual one."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raystream.actors.worker.driving.slices import BUSY_SECONDS, Slices


@given(
    epochs=st.lists(
        st.tuples(st.sampled_from([0.0, 0.3, 0.9, 2.0]), st.booleans()), min_size=1, max_size=30
    )
)
def test_a_thread_that_has_not_waited_for_long_has_the_usual_slice(
    epochs: list[tuple[float, bool]],
) -> None:
    rounds, asked = 0, [True]
    slices = Slices(lambda: rounds, asked.append)
    waited = now = time.monotonic()
    for shares, waits in epochs:  # of BUSY_SECONDS; whether it waits before the epoch
        now += shares * BUSY_SECONDS
        rounds += waits
        slices.at(now)
        if waits:
            waited = now
        assert asked[-1] == (now - waited < BUSY_SECONDS)
    assert all(a != b for a, b in pairwise(asked)), "it asked for what it has"
