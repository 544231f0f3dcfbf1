"""One thread that works for several instances in turn."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import raystream as rs
from raystream.actors.worker import shipping
from raystream.actors.worker.driving.pauses import TURN, Pause, Work, pause_for, work_alone
from raystream.actors.worker.driving.shared_thread import IDLE_SECONDS, SharedThread
from raystream.errors import JobError
from raystream.testing import Collect, run_local
from tests.actors.helpers.shells import shells_of
from tests.actors.worker.test_shell import FLOWS
from tests.flows import Line, Rows, Word, running, word_flow
from tests.gates import LIMIT_SECONDS, until


@contextmanager
def shared_thread() -> Iterator[SharedThread]:
    """The garbage collector is as it was before."""
    made = SharedThread()
    try:
        yield made
        until(lambda: not made.works)
    finally:
        made.close()
        gc.unfreeze()
        gc.enable()


def test_works_take_turns() -> None:
    said: list[str] = []
    here, begins = set[str](), threading.Event()

    def work(name: str) -> Work[None]:
        while not begins.is_set():
            here.add(name)
            yield TURN
        for _ in range(3):
            said.append(name)
            yield TURN

    with shared_thread() as thread:
        for name in "abc":
            thread.add(work(name), thread.inbox())
        until(lambda: len(here) == 3)
        begins.set()
    assert said[:3] * 3 == said and {*said} == {*"abc"}


def test_what_comes_ends_a_pause_and_so_does_time() -> None:
    found: list[Any] = []

    def waits(take: Any) -> Work[None]:
        while len(found) < 2:
            items = yield Pause(10 * LIMIT_SECONDS, take, "by input")
            found.extend(items or ())

    def sleeps(at: list[float]) -> Work[None]:
        for _ in range(20):
            before = time.monotonic()
            yield pause_for(0.002)
            at.append(time.monotonic() - before)

    slept: list[float] = []
    with shared_thread() as thread:
        inbox = thread.inbox()
        thread.add(waits(inbox.take), inbox)
        thread.add(sleeps(slept), thread.inbox())
        until(lambda: len(slept) == 20)
        for item in (1, 2):
            inbox.put((item, None))  # type: ignore[arg-type]
            until(lambda item=item: len(found) == item)
        until(lambda: not thread.works)
    assert min(slept) >= 0.002


def test_what_a_pause_raises_is_raised_in_the_work_and_the_others_go_on() -> None:
    """Both ways to do work agree."""
    caught: list[str] = []

    def breaks(seconds: float) -> None:
        raise ValueError("no more")

    def fails(sleeps: float) -> Work[int]:
        try:
            yield Pause(0.0, breaks)
        except ValueError as error:
            caught.append(str(error))
        yield pause_for(sleeps)
        return 3

    def ignores() -> Work[None]:
        yield from fails(0.01)

    assert work_alone(fails(0.0)) == 3
    with shared_thread() as thread:
        for _ in range(2):
            thread.add(ignores(), thread.inbox())
        until(lambda: not thread.works)
        thread.add(ignores(), thread.inbox())  # after its end it begins again
        until(lambda: not thread.works)
    assert caught == ["no more"] * 4


def test_a_thread_without_anything_to_do_sleeps() -> None:
    taken: list[float] = []

    def waits() -> Work[None]:
        for _ in range(3):
            taken.append((yield Pause(IDLE_SECONDS / 10, lambda _: time.thread_time(), "by input")))

    with shared_thread() as thread:
        thread.add(waits(), thread.inbox())
        until(lambda: not thread.works)
    assert taken[-1] - taken[0] < IDLE_SECONDS / 10


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("n", [1, 3])
def test_instances_on_one_thread_give_the_same_bits_as_one_loop(name: str, n: int) -> None:
    """Without a connection between them, whoever is killed meanwhile."""
    expected, found = Collect(), Collect()
    run_local(FLOWS[name](expected))
    flow = FLOWS[name](found)
    keyed = next(node.name for node in flow.nodes if getattr(node, "spec", None) and node.spec.key)
    instances = {keyed: n, flow.nodes[0].name: min(n, 2)}
    with shared_thread() as thread, shells_of(flow, instances=instances, shared=thread) as job:
        job.start()
        job.watch()
        assert not any(shell.server._port._open for shell in job.shells)
    assert found.by_epoch() == expected.by_epoch()
    assert len(found.records()) > 0


def test_one_that_is_replaced_reads_on_and_is_read_on() -> None:
    expected, found = Collect(), Collect()
    run_local(word_flow(expected, running))
    flow = word_flow(found, running)
    with (
        shared_thread() as thread,
        shells_of(flow, instances={"running": 2}, checkpoint_every=2, shared=thread) as job,
    ):
        job.start()
        for name in ("running", "lines"):
            for shell in job.of(name):
                job.kill(shell)
        job.watch()
    assert found.by_epoch() == expected.by_epoch()


def test_one_whose_keeper_is_slow_holds_up_nobody_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shipping, "WAITING_BYTES", 0)
    counted, sound, go_on = Collect(), Collect(), threading.Event()
    flow = rs.Flow("slow")
    rows = tuple(Word(t, "a") for t in range(1, 121))
    words = flow.source(Rows(Word, (rows,)), epochs=rs.by_time(seconds=1))
    words.through(running).to(counted, name="counted")
    words.to(sound, name="sound")
    with shared_thread() as thread, shells_of(flow, checkpoint_every=2, shared=thread) as job:
        (slow,) = job.of("running")
        assert slow._loop.shipper is not None
        ship = slow._loop.shipper._ship

        def wait_and_ship(*image: Any) -> bool:
            return go_on.wait(LIMIT_SECONDS) and ship(*image)

        slow._loop.shipper._ship = wait_and_ship
        job.start()
        job.until(lambda: len(sound.records()) == len(rows))
        assert slow.machine.position < len(rows) // 2
        go_on.set()
        job.watch()
    assert len(counted.records()) == len(rows)


def test_an_error_of_one_is_told_and_leaves_the_others_alone() -> None:
    sound = Collect()
    flow = rs.Flow("breaks")
    lines = flow.source(Rows(Line, ((Line(1, "a"),),)), epochs=rs.by_time(seconds=1))
    lines.to(rs.io.callable(lambda batch: 1 // 0), name="broken")
    lines.to(sound, name="sound")
    with shared_thread() as thread, shells_of(flow, shared=thread) as job:
        job.start()
        job.until(lambda: len(sound.records()) == 1)
        (error,) = [s.error for s in job.shells if s.error is not None]
    assert isinstance(error, JobError) and "sink broken could not write" in str(error)
