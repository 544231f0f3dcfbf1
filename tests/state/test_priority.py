"""How threads ask Linux to be scheduled."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading

import pytest

from raystream.state.priority import ATTRIBUTES, CALLS, LONG_SLICE, give_way, scheduling


def in_thread(*, give: bool) -> tuple[int, ...]:
    """What the scheduler is asked by a thread of its own."""
    seen: list[tuple[int, ...]] = []

    def run() -> None:
        if give:
            give_way()
        seen.append(scheduling())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (found,) = seen
    return found


def kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in CALLS, reason="the call is not known here"
)
def test_a_thread_that_gives_way_asks_for_a_long_slice_and_nothing_else() -> None:
    before, usual, given = scheduling(), in_thread(give=False), in_thread(give=True)
    assert scheduling() == before, "another thread of the process was meant"
    size, policy, flags, nice, urgency, asked, deadline, period = given
    assert size == ATTRIBUTES.size
    assert (policy, flags, nice, urgency) == usual[1:5]
    assert (deadline, period) == usual[6:]
    if kernel() >= (6, 12) and policy == os.SCHED_OTHER:
        assert asked == LONG_SLICE


def test_where_slices_are_not_known_a_thread_goes_on_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "another")
    give_way()
    with pytest.raises(OSError, match="not implemented"):
        scheduling()
