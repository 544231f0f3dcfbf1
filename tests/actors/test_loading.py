"""Loading in the background, and being needed meanwhile."""

from __future__ import annotations

import os
import threading

import pytest

from raystream.actors import loading
from raystream.actors.loading import IDLE_NICE, Loading

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux schedules like this")


class Work:
    """Notes the priority at which it is done, before and after it is let go on."""

    def __init__(self) -> None:
        self.begun, self.goes_on, self.over = (threading.Event() for _ in range(3))
        self.seen: list[int] = []
        self.nice = 0

    def __call__(self) -> None:
        self.seen.append(os.sched_getscheduler(0))
        self.nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.begun.set()
        assert self.goes_on.wait(60)
        self.seen.append(os.sched_getscheduler(0))
        self.over.set()


def test_what_is_needed_does_not_wait_until_nobody_needs_the_processor() -> None:
    if not loading.may_return():
        pytest.skip("this user may not")
    work, of_tests = Work(), os.sched_getscheduler(0)
    background = Loading()
    background.begin(work)
    assert work.begun.wait(60)
    background.hurry()
    work.goes_on.set()
    assert work.over.wait(60)
    assert work.seen == [os.SCHED_IDLE, os.SCHED_OTHER]
    assert os.sched_getscheduler(0) == of_tests


def test_who_could_not_return_does_not_go_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "may_return", lambda: False)
    work, before = Work(), os.sched_getscheduler(0)
    background = Loading()
    background.begin(work)
    work.goes_on.set()
    assert work.over.wait(60)
    assert (work.seen[0], work.nice) == (before, IDLE_NICE)
