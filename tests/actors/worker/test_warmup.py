"""Loading in the background, and being needed meanwhile."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from raystream.actors.worker import warmup as loading
from raystream.actors.worker.warmup import Loading, idle_seconds
from raystream.native.thread_priority import may_return
from tests.gates import LIMIT_SECONDS

STEPS = 3
IDLE = {os.SCHED_IDLE} if hasattr(os, "SCHED_IDLE") else set()


class Steps:
    """Notes which steps were done, and at which priority."""

    def __init__(self) -> None:
        self.done = 0
        self.seen: set[int] = set()
        self.over = threading.Event()

    def __iter__(self) -> Iterator[None]:
        for _ in range(STEPS):
            self.done += 1
            if hasattr(os, "sched_getscheduler"):
                self.seen.add(os.sched_getscheduler(0))
            yield
        self.over.set()


def busy() -> float:
    return 7.0


def saying(times: Callable[[], float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "idle_seconds", times)
    monkeypatch.setattr(loading, "LOOK_SECONDS", 0.01)


def test_steps_wait_while_the_processors_are_needed_until_they_are_needed_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saying(busy, monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 1e9)
    steps, background = Steps(), Loading()
    background.begin(steps)
    assert not steps.over.wait(0.1)
    assert steps.done == 0
    background.hurry()
    assert steps.over.wait(LIMIT_SECONDS)
    assert steps.done == STEPS
    assert not steps.seen & IDLE


def test_a_machine_that_is_always_busy_loads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    saying(busy, monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 0.05)
    steps = Steps()
    Loading().begin(steps)
    assert steps.over.wait(LIMIT_SECONDS)
    assert not steps.seen & IDLE


def test_free_processors_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    saying(lambda: float(next(seconds)), monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 1e9)
    steps, background = Steps(), Loading()
    background.begin(steps)
    assert steps.over.wait(LIMIT_SECONDS)
    assert steps.seen == (IDLE if may_return() else steps.seen - IDLE)


def test_a_step_that_has_begun_is_hurried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (IDLE and may_return()):
        pytest.skip("this user may not, or this system has no idle priority")
    seconds = itertools.count()
    saying(lambda: float(next(seconds)), monkeypatch)
    begun, goes_on, over = (threading.Event() for _ in range(3))
    seen: list[int] = []

    def steps() -> Iterator[None]:
        seen.append(os.sched_getscheduler(0))
        begun.set()
        assert goes_on.wait(LIMIT_SECONDS)
        seen.append(os.sched_getscheduler(0))
        over.set()
        yield

    background = Loading()
    background.begin(steps())
    assert begun.wait(LIMIT_SECONDS)
    background.hurry()
    goes_on.set()
    assert over.wait(LIMIT_SECONDS)
    assert (seen[0], seen[1] in IDLE) == (os.SCHED_IDLE, False)


def test_where_the_system_does_not_say_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    saying(lambda: None, monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 1e9)
    steps = Steps()
    Loading().begin(steps)
    assert steps.over.wait(LIMIT_SECONDS)


def test_idle_processors_are_seen() -> None:
    first = idle_seconds()
    if first is None:
        pytest.skip("this system does not say")
    again = idle_seconds()
    assert again is not None and again >= first >= 0
