"""SIGTERM while this process is connected to Ray."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from raystream.actors.cluster.sigterm import sigterm_leaves

HEARD: list[int] = []


def of_the_user(number: int, frame: object) -> None:
    HEARD.append(number)


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what Ray does with it
    HEARD.clear()
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("before", [signal.SIG_DFL, None])
def test_it_ends_the_process_on_the_usual_way(before: Any) -> None:
    with pytest.raises(SystemExit) as left, sigterm_leaves(before):
        signal.raise_signal(signal.SIGTERM)
    assert left.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_exit_that_nobody_signalled_is_left_as_it_is() -> None:
    with pytest.raises(SystemExit) as left, sigterm_leaves(None):
        sys.exit(3)
    assert left.value.code == 3


def test_ray_may_make_another_exit_of_it() -> None:
    def waits() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            sys.exit(1)

    with pytest.raises(SystemExit) as left, sigterm_leaves(None):
        waits()
    assert left.value.code == 143


def test_the_handler_of_a_user_stays() -> None:
    with sigterm_leaves(of_the_user):
        signal.raise_signal(signal.SIGTERM)
    assert HEARD == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is of_the_user


def test_another_thread_leaves_it_alone() -> None:
    def connected() -> None:
        with sigterm_leaves(of_the_user):
            HEARD.append(0)

    thread = threading.Thread(target=connected)
    thread.start()
    thread.join()
    assert HEARD == [0] and signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
