"""How threads ask Linux to be scheduled."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import threading
from collections.abc import Callable
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest

import raystream as rs
from raystream.native import thread_priority as priority
from raystream.native.thread_priority import (
    ATTRIBUTES,
    CALLS,
    LONG_SLICE,
    SHORT_SLICE,
    be_prompt,
    be_usual,
    give_way,
    scheduling,
)
from raystream.schema.fields import field_of
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image, ImageHeader, InputPosition
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.structured_restore import RowColumns
from raystream.state.tables.structured_table import StructuredTable

GET_SLACK = 30
"""The number of PR_GET_TIMERSLACK."""


def in_thread(ask: Callable[[], object] = lambda: None) -> tuple[int, ...]:
    """What the scheduler is asked by a thread of its own."""
    seen: list[tuple[int, ...]] = []

    def run() -> None:
        ask()
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
@pytest.mark.parametrize(("ask", "length"), [(give_way, LONG_SLICE), (be_prompt, SHORT_SLICE)])
def test_a_thread_asks_for_a_long_or_a_short_slice_and_nothing_else(
    ask: Callable[[], None], length: int
) -> None:
    before, usual, given = scheduling(), in_thread(), in_thread(ask)
    assert scheduling() == before, "another thread of the process was meant"
    size, policy, flags, nice, urgency, asked, deadline, period = given
    assert size == ATTRIBUTES.size
    assert (policy, flags, nice, urgency) == usual[1:5]
    assert (deadline, period) == usual[6:]
    if kernel() >= (6, 12) and policy == os.SCHED_OTHER:
        assert asked == length


@pytest.mark.skipif(sys.platform != "linux", reason="the file is Linux's")
def test_the_timers_of_a_prompt_thread_are_exact_and_no_others() -> None:
    def slack() -> int:
        return ctypes.CDLL(None).prctl(GET_SLACK, 0, 0, 0, 0)

    before, found = slack(), []
    thread = threading.Thread(target=lambda: (be_prompt(), found.append(slack())))
    thread.start()
    thread.join()
    assert found == [1]
    assert slack() == before > 1


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in CALLS, reason="the call is not known here"
)
def test_a_prompt_thread_gets_its_usual_slice_back() -> None:
    assert in_thread(lambda: (be_prompt(), be_usual())) == in_thread()


def test_where_slices_are_not_known_a_thread_goes_on_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "another")
    give_way()
    be_prompt()
    be_usual()
    with pytest.raises(OSError, match="not implemented"):
        scheduling()


class Count(rs.State):
    n: int = 0


@pytest.mark.parametrize(("rows", "aside"), [(100_000, True), (100, False)])
def test_whoever_waits_goes_on_before_much_is_copied_or_sorted(
    monkeypatch: pytest.MonkeyPatch, rows: int, aside: bool
) -> None:
    """The functions of an image in the making that step aside."""
    steps: list[str] = []
    slept = SimpleNamespace(sleep=lambda _: steps.append(sys._getframe(2).f_code.co_name))
    monkeypatch.setattr(priority, "time", slept)
    shape = RowShape((field_of("Key", "key", int, state=False),), state_schema(Count))
    table = StructuredTable(shape.state, keys=1, groups=16, shape=shape)
    table.fill_columns(
        [RowColumns([np.random.default_rng(1).permutation(rows)], 1, {"n": np.arange(rows)})]
    )
    _, columns, gone = next(table.capture(CheckpointRequest(), 1).parts(WHOLE))
    header = ImageHeader(
        operator="op",
        shape=shape.fingerprint,
        groups=16,
        keys=KeyRange(0, 16),
        base=0,
        checkpoint=1,
        input_position=InputPosition(10),
    )
    Image(header, columns, gone).encode()
    wanted = ["advance", "matrix_columns", "key_order", "_shuffled", "encode"]
    assert [name for name, _ in groupby(steps)] == wanted * aside
