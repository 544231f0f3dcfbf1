"""Loading in the background, and being needed meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from raystream.actors import loading
from raystream.actors.loading import Loading, idle_seconds

STEPS = 3


class Steps:
    """Notes which steps were done."""

    def __init__(self) -> None:
        self.done = 0
        self.over = threading.Event()

    def __iter__(self) -> Iterator[None]:
        for _ in range(STEPS):
            self.done += 1
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
    assert steps.over.wait(60)
    assert steps.done == STEPS


def test_a_machine_that_is_always_busy_loads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    saying(busy, monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 0.05)
    steps = Steps()
    Loading().begin(steps)
    assert steps.over.wait(60)


def test_free_processors_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    saying(lambda: float(next(seconds)), monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 1e9)
    steps = Steps()
    Loading().begin(steps)
    assert steps.over.wait(60)


def test_where_the_system_does_not_say_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    saying(lambda: None, monkeypatch)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 1e9)
    steps = Steps()
    Loading().begin(steps)
    assert steps.over.wait(60)


def test_idle_processors_are_seen() -> None:
    first = idle_seconds()
    if first is None:
        pytest.skip("this system does not say")
    again = idle_seconds()
    assert again is not None and again >= first >= 0
