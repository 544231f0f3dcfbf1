"""Shells that wait for each other, that end, and what is trimmed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import raystream as rs
from raystream.actors.network import server, subscription
from raystream.actors.network.connections import Joining
from raystream.actors.network.flow_control import AHEAD, ARRIVED_AHEAD
from raystream.actors.network.server import BURST, LogServer
from raystream.actors.network.subscription import RECONNECT_SECONDS
from raystream.actors.worker import compute_loop
from raystream.actors.worker.compute_loop import ComputeLoop
from raystream.actors.worker.reading import SourceReader
from raystream.actors.worker.shell import Shell
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.sink import SinkInstance
from raystream.dataflow.pieces import Header
from raystream.errors import JobError
from raystream.testing import Collect
from tests.actors.helpers.shells import Shells, error_of, shells_of
from tests.flows import (
    Line,
    Order,
    Rows,
    running,
    split,
    word_flow,
)
from tests.gates import LIMIT_SECONDS, Cycle, Gate


@dataclass
class Slow(Collect):
    """A sink that waits until it is let go."""

    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__()

    def __copy__(self) -> Slow:
        return self

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        assert self.gate.wait(LIMIT_SECONDS)
        super().write(epoch, keys, batch)


SOCKET_BYTES = 32 << 20
"""More than the system keeps under way in a connection: on Linux some megabytes of who sends and of
who reads, unless somebody has allowed far more."""


def standing(shell: Shell) -> int:
    """Where a shell is that does not move any more: it may be taken for one that does, where all
    else takes long."""
    still, before = 0, -1
    while still < 20:
        shell.done.wait(0.01)
        still = still + 1 if shell.machine.position == before else 0
        before = shell.machine.position
    return before


def minute(sink: rs.Sink) -> tuple[rs.Flow, list[Order]]:
    """A flow of 60 epochs of one second, each with one order; and the orders."""
    orders, flow = tuple(Order(t, t % 3, 1) for t in range(60)), rs.Flow("minute")
    flow.source(Rows(Order, (orders,)), epochs=rs.by_time(seconds=1)).to(sink)
    return flow, list(orders)


@dataclass(frozen=True)
class Drip(rs.Source[Line]):
    """Lines that come one after the other, each in a batch of its own."""

    record: ClassVar[type[Line]] = Line
    read_ahead: ClassVar[int] = 1000
    rows: int = 300
    all_read: threading.Event = field(default_factory=threading.Event)

    def splits(self) -> list[rs.Split]:
        return [rs.Split("drip")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for at in range(position, self.rows):
            time.sleep(0.0005)
            yield at + 1, rs.Batch(Line, {"time": [at], "text": [f"{at}"]})
        self.all_read.set()


def drip_flow(sink: rs.Sink, drip: Drip | None = None) -> rs.Flow:
    flow = rs.Flow("dripping")
    epochs = rs.by_arrival(seconds=0.001)
    flow.source(drip or Drip(), epochs=epochs, name="drip").to(sink, name="out")
    return flow


def test_what_comes_while_a_sink_is_slow_is_one_epoch_by_arrival() -> None:
    sink, drip = Slow(), Drip()
    with shells_of(drip_flow(sink, drip)) as shells:
        shells.start()
        (source,), (out,) = shells.of("drip"), shells.of("out")
        at = standing(source)
        assert at - out.machine.position == ARRIVED_AHEAD + 1
        assert drip.all_read.wait(LIMIT_SECONDS)
        sink.gate.set()
        shells.watch()
    assert [line.text for line in sink.records()] == [f"{at}" for at in range(300)]
    assert max(epoch for epoch, *_ in sink.parts) <= at + 1


@pytest.mark.parametrize("most", [1, 16])
def test_ready_epochs_are_a_batch_of_work_up_to_a_checkpoint(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[tuple[int, list[int]]] = []
    step_ready, step = ComputeLoop._step_ready, SinkInstance.step
    steps: list[int] = []

    def stepped(self: SinkInstance, rows: None = None) -> Header:
        header = step(self, rows)
        steps.append(header.epoch)
        return header

    def batch(self: ComputeLoop, machine: Instance) -> Header:
        header = step_ready(self, machine)
        if machine.vertex.kind == "sink":
            batches.append((header.epoch, [*steps]))
            steps.clear()
        return header

    monkeypatch.setattr(ComputeLoop, "_step_ready", batch)
    monkeypatch.setattr(SinkInstance, "step", stepped)
    monkeypatch.setattr(compute_loop, "BATCH", most)
    monkeypatch.setattr(compute_loop, "BATCH_SECONDS", LIMIT_SECONDS)
    sink = Slow()
    flow, orders = minute(sink)
    with shells_of(flow, checkpoint_every=7) as shells:
        shells.start()
        source = shells.of("rows")[0].machine
        shells.until(lambda: source.position >= 30)
        sink.gate.set()
        shells.watch()
    assert sorted(sink.records()) == orders
    assert [epoch for _, each in batches for epoch in each] == list(range(1, 61))
    assert all(last == each[-1] and len(each) <= most for last, each in batches)
    assert not any(epoch % 7 == 0 for _, each in batches for epoch in each[:-1])
    assert any(len(each) > 1 for _, each in batches) == (most > 1)


@pytest.mark.parametrize("behind", [False, True])
def test_a_source_behind_its_pace_sends_epochs_together(
    behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[int] = []
    push = LogServer.push

    def counted(self: LogServer, at_leisure: bool) -> bool:
        pushed.extend(log.next - 1 for log in self.outlets.logs.values())
        return push(self, at_leisure)

    monkeypatch.setattr(LogServer, "push", counted)
    monkeypatch.setattr(SourceReader, "is_due", lambda self, epoch, now: behind)
    monkeypatch.setattr(compute_loop, "BATCH_SECONDS", LIMIT_SECONDS)
    sink = Collect()
    flow, orders = minute(sink)
    with shells_of(flow, checkpoint_every=20) as shells:
        shells.start()
        shells.watch()
    assert sorted(sink.records()) == orders
    together = [16, 20, 36, 40, 56, 60]  # a batch has 16 epochs, and ends at a checkpoint
    assert pushed == (together if behind else [*range(1, 61)])


def test_a_slow_sink_holds_its_producers_back() -> None:
    sink = Slow()
    line = "word " * 20_000
    parts = (tuple(Line(t, line) for t in range(500)),)
    flow = rs.Flow("slow")
    flow.source(Rows(Line, parts, batch=1), epochs=rs.by_time(seconds=1)).to(sink)
    with shells_of(flow) as shells:
        shells.start()
        source, reader = shells.of("rows")[0], shells.of("slow")[0]
        before = standing(source)
        assert reader.machine.position == 0
        # What is under way: what was delivered and not applied, what sockets buffer, the burst
        # that is being served, and what the source may be ahead of that.
        assert before <= AHEAD + SOCKET_BYTES // len(line) + BURST + AHEAD
        sink.gate.set()
        shells.watch()
    assert len(sink.records()) == 500


def held(shell: Shell) -> int:
    (log,) = shell.machine.outlets.logs.values()
    return len(log.entries)


def test_large_pieces_come_by_threads_and_small_ones_by_who_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways: dict[str, list[int]] = {"edge": [], "compute": []}
    items = subscription.Subscription._items

    def seen(*given: Any) -> Any:
        for edge, piece in items(*given):
            ways[threading.current_thread().name.partition("-")[0]].append(len(piece.rows))
            yield edge, piece

    monkeypatch.setattr(subscription.Subscription, "_items", seen)
    sizes = [10 if t % 7 else 20_000 for t in range(70)]
    flow, sink = rs.Flow("mixed"), Collect()
    rows = tuple(Order(t, i, 1) for t, n in enumerate(sizes) for i in range(n))
    flow.source(Rows(Order, (rows,)), epochs=rs.by_time(seconds=1)).to(sink)
    with shells_of(flow) as shells:
        shells.start()
        shells.watch()
    assert sorted(sink.records()) == list(rows)
    assert sorted(ways["edge"] + ways["compute"]) == sorted(sizes)
    assert ways["edge"].count(20_000) == 10 and 10 in ways["compute"]


def test_a_consumer_that_is_gone_holds_its_producers_back() -> None:
    """However long nobody takes its place: logs hold what came after the floor, and no more."""
    line = "word " * 20_000
    flow, sink = rs.Flow("gone"), Collect()
    lines = flow.source(
        Rows(Line, (tuple(Line(t, line) for t in range(500)),), batch=1),
        epochs=rs.by_time(seconds=1),
    )
    lines.to(sink)
    with shells_of(flow, checkpoint_every=5) as shells:
        shells.start()
        source, reader = shells.of("rows")[0], shells.of("collect")[0]
        shells.until(lambda: reader.machine.position > 20)
        reader.stop()
        standing(source)
        shells.until(lambda: held(source) == source.machine.position - shells.committed)
        at = source.machine.position
        most = reader.machine.position + AHEAD + SOCKET_BYTES // len(line) + BURST + AHEAD
        assert at <= most < 500
        shells.kill(reader)
        shells.watch()
    assert len(sink.records()) == 500


@pytest.mark.parametrize("most", [1, 150_000])
def test_a_source_stops_reading_when_nothing_is_committed(tmp_path: Path, most: int) -> None:
    """Its consumers have all that it sent, and its log must keep it: up to a limit, or a checkpoint
    if that is more."""
    flow, sink = rs.Flow("full"), Collect()
    parts = (tuple(Line(t, "to be or not " * 100) for t in range(400)),)
    flow.source(Rows(Line, parts, batch=1), epochs=rs.by_time(seconds=1)).to(sink)
    options = {"folder": tmp_path, "log_bytes": 1000, "held_bytes": most}
    with shells_of(flow, checkpoint_every=30, **options) as shells:
        shells.start()
        source = shells.of("rows")[0]
        (log,) = source.machine.outlets.logs.values()
        shells.until(lambda: source.machine.position >= 30 and log.held > most)
        at = standing(source)
        shells.until(lambda: held(source) == source.machine.position)
        assert any(tmp_path.rglob("*.rows"))
        assert at == 30 if most == 1 else log.held < 2 * most
        shells.watch()
    assert len(sink.records()) == 400


@pytest.mark.parametrize("at_once", [1, 1000])
def test_logs_are_trimmed_at_commits(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raystream.actors.worker.compute_loop.TRIM_EPOCHS", at_once)
    most = 0

    def look(shells: Any) -> None:
        nonlocal most
        for shell in shells.shells:
            for log in shell.machine.outlets.logs.values():
                most = max(most, len(log.entries))

    parts = (tuple(Line(t, "a b") for t in range(1000)),)
    flow = rs.Flow("long")
    source = flow.source(Rows(Line, parts, batch=50), epochs=rs.by_time(seconds=1))
    source.through(split).through(running).to(Collect())
    with shells_of(flow, checkpoint_every=5) as shells:
        shells.start()
        shells.watch(look)
        assert shells.committed == 1000
    assert 0 < most < 1000


def test_who_has_ended_keeps_nothing_and_hears_of_commits() -> None:
    with shells_of(word_flow(Collect(), running), checkpoint_every=50) as shells:
        shells.start()
        shells.watch()
        for shell in shells.shells:
            assert not any(log.entries for log in shell.machine.outlets.logs.values())
            shell.commit(shells.committed + 50, 0)
            shells.until(lambda s=shell: s.progress().committed == shells.committed + 50)


def test_who_has_ended_stores_its_last_checkpoint_again_with_other_keepers() -> None:
    """Also when its end is committed long ago: the job may go on for hours."""
    short, long = (tuple(Order(t, 1, 1) for t in range(n)) for n in (5, 4000))
    flow = rs.Flow("unequal")
    source = flow.source(Rows(Order, (short, long)), epochs=rs.by_time(seconds=1, speed=50.0))
    source.to(Collect())
    with shells_of(flow, instances={"rows": 2}) as shells:
        shells.start(time.time())
        first = next(s for s in shells.of("rows") if s.keys.lo == 0)
        shells.until(
            lambda: all(s.machine.position >= 10 or s.machine.ended for s in shells.shells)
        )
        for shell in shells.shells:
            shell.commit(10, 10)
        assert first.done.wait(LIMIT_SECONDS) and first.machine.ended
        shells.images.chains.clear()
        first.kept_by((), 1)
        held = lambda: shells.images.holds(0, first.keys, first.machine.position)  # noqa: E731
        shells.until(held)


@dataclass
class Closing:
    """A sink that notes what it is told."""

    told: ClassVar[list[str]] = []

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any], /) -> None:
        pass

    def commit(self, epoch: int, /) -> None:
        self.told.append(f"commit {epoch}")

    def close(self) -> None:
        self.told.append("close")


def test_a_sink_that_was_closed_is_told_of_no_commit() -> None:
    flow = rs.Flow("branches")
    for name, n, sink in (("long", 200, Collect()), ("short", 5, Closing())):
        rows = (tuple(Order(t, 1, 1) for t in range(n)),)
        epochs = rs.by_time(seconds=1, speed=200.0)
        flow.source(Rows(Order, rows), epochs=epochs, name=name).to(sink, name=f"to-{name}")
    Closing.told.clear()
    with shells_of(flow, checkpoint_every=5) as shells:
        shells.start(time.time())
        shells.watch()
        assert shells.committed >= 200
    assert Closing.told[-1] == "close" and Closing.told.count("close") == 1


def test_a_source_that_had_ended_is_not_read_again(tmp_path: Path) -> None:
    """What it read may be gone; its successor says once more that it ended."""
    read = list[str]()
    short, long = (tuple(Order(t, 1, 1) for t in range(n)) for n in (5, 200))
    gate = Gate(tmp_path)

    class Once(Rows):
        def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
            read.append(split.name)
            if split.name == "split-0":
                return super().read(split, position)
            return Cycle(self, 200, gate).read(split, position)

    flow, sink = rs.Flow("unequal"), Collect()
    epochs = rs.by_time(seconds=1, speed=100.0)
    flow.source(Once(Order, (short, long)), epochs=epochs, name="rows").to(sink)
    new: list[Shell] = []

    def kill(shells: Shells) -> None:
        first = next(s for s in shells.of("rows") if s.keys.lo == 0)
        if not new and first.machine.ended and shells.committed > first.machine.position:
            read.clear()
            new.append(shells.kill(first))
            gate.open()

    with shells_of(flow, checkpoint_every=5, instances={"rows": 2}) as shells:
        shells.start(time.time())
        shells.watch(kill)
        assert new and new[0].machine.ended and read == []
    assert len(list(sink.records())) == 5 + (gate.end("cycle-split-1") or 0)


def test_who_has_ended_misses_nothing_that_was_trimmed() -> None:
    """A range that was moved at its end says that once more, and it is trimmed before all wake."""
    refused = JobError("refused: the epoch was trimmed")
    with shells_of(word_flow(Collect(), running)) as shells:
        shells.shells[1]._subscriptions.failed(refused)
        assert shells.shells[1].error is refused
    with shells_of(word_flow(Collect(), running)) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        shells.shells[1]._subscriptions.failed(refused)
        assert shells.shells[1].error is None


def test_what_breaks_while_serving_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not taken for a broken connection, which is tried again for minutes."""

    def messages(*given: Any) -> Any:
        raise KeyError("rows")

    monkeypatch.setattr(server, "messages", messages)
    error = error_of(word_flow(Collect(), running))
    assert "KeyError: 'rows'" in str(error)


@pytest.mark.parametrize("age", [0.0, 2 * RECONNECT_SECONDS])
def test_a_stream_that_its_producer_ends_is_no_lost_connection(
    monkeypatch: pytest.MonkeyPatch, age: float
) -> None:
    """A range was moved, and who read of it for an hour hears of the new owner a little later."""
    passed = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed, sleep=time.sleep)
    monkeypatch.setattr(subscription, "time", clock)
    asked: list[str] = []
    connect = Joining.connect
    flow = rs.Flow("moved")
    parts = (tuple(Order(t, 1, 1) for t in range(4000)),)
    flow.source(Rows(Order, parts), epochs=rs.by_time(seconds=1, speed=50.0)).to(Collect())
    with shells_of(flow) as shells:
        shells.start(time.time())
        (source,), (sink,) = shells.of("rows"), shells.of("collect")
        shells.until(lambda: sink.machine.position > 10)
        passed = age
        at = sink.machine.position
        shells.until(lambda: sink.machine.position > at + 5)
        monkeypatch.setattr(
            Joining, "connect", lambda joining, to: asked.append(to) or connect(joining, to)
        )
        source.stop()
        shells.until(lambda: len(asked) > 2)
        assert not sink.done.wait(0.2), sink.error
    assert len(asked) < 200  # not as often as it can
