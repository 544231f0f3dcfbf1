"""Jobs of shells in one process: threads and sockets, no Ray."""

from __future__ import annotations

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import raystream as rs
from raystream.actors import server, subscription
from raystream.actors import shell as shells_module
from raystream.actors.server import BURST
from raystream.actors.shell import AHEAD, Shell
from raystream.actors.subscription import RECONNECT_SECONDS
from raystream.errors import InputError, JobError, OperatorError, notes
from raystream.testing import Collect, run_local
from tests.actors.shells import Shells, error_of, run_in_shells, shells_of
from tests.flows import (
    CountWords,
    Line,
    Order,
    Rows,
    Running,
    SessionCount,
    Word,
    ledger_flow,
    lines,
    running,
    running_batch,
    split,
    word_flow,
)

FLOWS = {
    "per record": lambda sink: word_flow(sink, running),
    "per batch": lambda sink: word_flow(sink, running_batch),
    "windows": lambda sink: word_flow(sink, CountWords()),
    "sessions, disorder": lambda sink: word_flow(sink, SessionCount(), disorder=9),
    "join and timers": ledger_flow,
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("n", [1, 3])
def test_shells_give_the_same_bits_as_one_loop(name: str, n: int) -> None:
    expected, found = Collect(), Collect()
    run_local(FLOWS[name](expected))
    flow = FLOWS[name](found)
    keyed = next(node.name for node in flow.nodes if getattr(node, "spec", None) and node.spec.key)
    run_in_shells(flow, instances={keyed: n, flow.nodes[0].name: min(n, 2)})
    assert found.by_epoch() == expected.by_epoch()
    assert len(found.records()) > 0


def test_an_instance_says_what_it_spent_its_time_with_and_where_its_load_is() -> None:
    sink = Collect()
    with shells_of(word_flow(sink, running), instances={"running": 2}, cut_every=2) as job:
        job.start()
        job.watch()
        said = [s.progress() for s in job.shells]
    for p, shell in zip(said, job.shells, strict=True):
        load = np.frombuffer(p.load, np.int64)
        assert len(load) == len(shell.keys) and load.sum() == p.records_in > 0
        assert p.busy > 0 and p.busy + p.blocked <= p.seconds and p.waiting == 0
    counts = [p for p in said if p.vertex == "running"]
    assert all(p.state_bytes > p.state_rows > 0 for p in counts)
    assert {p.state_bytes for p in said if p.vertex != "running"} == {0}


def test_logs_that_spill_give_the_same_bits(tmp_path: Path) -> None:
    expected, found = Collect(), Collect()
    run_local(word_flow(expected, running))
    run_in_shells(
        word_flow(found, running),
        instances={"running": 2},
        log_bytes=100,
        folder=tmp_path,
        cut_every=1000,
    )
    assert found.by_epoch() == expected.by_epoch()
    assert any(tmp_path.rglob("*"))


# ---------------------------------------------------------------------- arrival


def arrival_flow(sink: Collect, source: Any, op: Any = running) -> rs.Flow:
    flow = rs.Flow("arrival")
    flow.source(source, epochs=rs.by_arrival(seconds=0.001)).through(split).through(op).to(sink)
    return flow


def words_of(parts: tuple[tuple[Line, ...], ...]) -> list[str]:
    return sorted(w for part in parts for line in part for w in line.text.split())


def test_arrival_cuts_lose_nothing() -> None:
    parts = lines(3, splits=3)
    found = Collect()
    with shells_of(
        arrival_flow(found, Rows(Line, parts)), instances={"rows": 2}, cut_every=5
    ) as shells:
        shells.start()
        shells.watch()
        content = shells.claims.register.hand(1)
    assert content is not None
    for i, part in enumerate(parts):
        _, last = max((e, b) for (split, e), b in content.held.items() if split == f"0:split-{i}")
        assert last.ended and last.position == len(part)
    assert sorted(r.word for r in found.records(Running)) == words_of(parts)


@dataclass(frozen=True)
class Breaks:
    """A source that yields a batch and then cannot read on."""

    error: Exception
    after: int = 1
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for t in range(self.after):
            yield t + 1, rs.Batch(Line, {"time": [t], "text": ["to be"]})
        raise self.error


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_source_that_breaks_while_arriving_stops_the_job(after: int) -> None:
    error = error_of(arrival_flow(Collect(), Breaks(FileNotFoundError("gone"), after)))
    assert isinstance(error, InputError)
    assert "breaks: cannot read a: FileNotFoundError: gone" in str(error)
    assert error.where is not None and error.where.text == "raise self.error"


def test_a_source_that_raises_is_told_with_its_line() -> None:
    flow = rs.Flow("breaks")
    source = Breaks(ValueError("odd"), 3)
    flow.source(source, epochs=rs.by_time(seconds=1)).through(split).to(Collect())
    error = error_of(flow)
    assert isinstance(error, OperatorError)
    assert error.message == "breaks.read('a') raised ValueError: odd"
    assert error.where is not None and error.where.text == "raise self.error"


# ---------------------------------------------------------------------- errors


@rs.operator(key="word")
def fails(word: Word, tally: Any) -> Iterator[Running]:
    yield Running(word.word, tally.n)


def _helper(word: str) -> int:
    return int(word)  # not a number


@rs.operator(key="word")
def parses(word: Word) -> Iterator[Running]:
    yield Running(word.word, _helper(word.word))


def test_an_operator_that_raises() -> None:
    error = error_of(word_flow(Collect(), parses), instances={"parses": 2})
    assert isinstance(error, OperatorError)
    assert error.message.startswith("parses raised ValueError: invalid literal for int()")
    assert error.where is not None and error.where.text == "return int(word)  # not a number"
    assert error.hint.startswith("at key ")
    (note,) = notes(error)
    assert note.startswith("Traceback") and "raystream/" not in note.replace(str(Path.cwd()), "")


@dataclass
class Sulks(Collect):
    """A sink that raises in one of its methods."""

    method: str = "write"

    def __post_init__(self) -> None:
        super().__init__()

    def _do(self, method: str) -> None:
        if method == self.method:
            raise PermissionError("no")

    def open(self, context: rs.SinkContext) -> None:
        self._do("open")

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        self._do("write")

    def commit(self, epoch: int) -> None:
        self._do("commit")

    def close(self) -> None:
        self._do("close")


@pytest.mark.parametrize("method", ["open", "write", "commit", "close"])
def test_a_sink_that_raises_is_named(method: str) -> None:
    error = error_of(word_flow(Sulks(method), running))
    assert isinstance(error, JobError)
    assert error.message == f"sink sulks could not {method}: PermissionError: no"
    assert "in _do" in notes(error)[0]
    assert "Empty" not in "".join(traceback.format_exception(error))
    assert error.where is not None and error.where.text == 'raise PermissionError("no")'


# ---------------------------------------------------------------------- flow control


@dataclass
class Slow(Collect):
    """A sink that waits until it is let go."""

    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__()

    def __copy__(self) -> Slow:
        return self

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        assert self.gate.wait(60)
        super().write(epoch, keys, batch)


SOCKET_BYTES = 32 << 20
"""More than the system keeps under way in a connection: on Linux some megabytes of who sends and of
who reads, unless somebody has allowed far more."""


def standing(shell: Shell) -> int:
    """Where a shell is that does not move any more."""
    still, before = 0, -1
    while still < 20:
        shell.done.wait(0.01)
        still = still + 1 if shell.machine.position == before else 0
        before = shell.machine.position
    return before


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
    with shells_of(flow, cut_every=5) as shells:
        shells.start()
        source, reader = shells.of("rows")[0], shells.of("collect")[0]
        shells.until(lambda: reader.machine.position > 20)
        reader.stop()
        at = standing(source)
        most = reader.machine.position + AHEAD + SOCKET_BYTES // len(line) + BURST + AHEAD
        assert at <= most < 500 and held(source) == at - shells.committed
        shells.kill(reader)
        shells.watch()
    assert len(sink.records()) == 500


@pytest.mark.parametrize("most", [1, 150_000])
def test_a_source_stops_reading_when_nothing_is_committed(tmp_path: Path, most: int) -> None:
    """Its consumers have all that it sent, and its log must keep it: up to a limit, or a cut if
    that is more."""
    flow, sink = rs.Flow("full"), Collect()
    parts = (tuple(Line(t, "to be or not " * 100) for t in range(400)),)
    flow.source(Rows(Line, parts, batch=1), epochs=rs.by_time(seconds=1)).to(sink)
    options = {"folder": tmp_path, "log_bytes": 1000, "held_bytes": most}
    with shells_of(flow, cut_every=30, **options) as shells:
        shells.start()
        source = shells.of("rows")[0]
        shells.until(lambda: source.machine.position >= 30)
        at = standing(source)
        (log,) = source.machine.outlets.logs.values()
        assert held(source) == at and any(tmp_path.rglob("*.rows"))
        assert at == 30 if most == 1 else most < log.held < 2 * most
        shells.watch()
    assert len(sink.records()) == 400


@pytest.mark.parametrize("at_once", [1, 1000])
def test_logs_are_trimmed_at_commits(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raystream.actors.shell.TRIM_EPOCHS", at_once)
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
    with shells_of(flow, cut_every=5) as shells:
        shells.start()
        shells.watch(look)
        assert shells.committed == 1000
    assert 0 < most < 1000


def test_who_has_ended_keeps_nothing_and_hears_of_commits() -> None:
    with shells_of(word_flow(Collect(), running), cut_every=50) as shells:
        shells.start()
        shells.watch()
        for shell in shells.shells:
            assert not any(log.entries for log in shell.machine.outlets.logs.values())
            shell.commit(shells.committed + 50, 0)
            shells.until(lambda s=shell: s.progress().floor == shells.committed + 50)


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
        assert first.done.wait(10.0) and first.machine.ended
        shells.images.chains.clear()
        first.store_with_others(whole=False)
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
    with shells_of(flow, cut_every=5) as shells:
        shells.start(time.time())
        shells.watch()
        assert shells.committed >= 200
    assert Closing.told[-1] == "close" and Closing.told.count("close") == 1


def test_a_source_that_had_ended_is_not_read_again() -> None:
    """What it read may be gone; its successor says once more that it ended."""
    read = list[str]()

    class Once(Rows):
        def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
            read.append(split.name)
            return super().read(split, position)

    short, long = (tuple(Order(t, 1, 1) for t in range(n)) for n in (5, 200))
    flow, sink = rs.Flow("unequal"), Collect()
    epochs = rs.by_time(seconds=1, speed=100.0)
    flow.source(Once(Order, (short, long)), epochs=epochs, name="rows").to(sink)
    new: list[Shell] = []

    def kill(shells: Shells) -> None:
        first = next(s for s in shells.of("rows") if s.keys.lo == 0)
        if not new and first.machine.ended and shells.committed > first.machine.position:
            read.clear()
            new.append(shells.kill(first))

    with shells_of(flow, cut_every=5, instances={"rows": 2}) as shells:
        shells.start(time.time())
        shells.watch(kill)
        assert new and new[0].machine.ended and read == []
    assert len(list(sink.records())) == 205


def test_who_has_ended_misses_nothing_that_was_trimmed() -> None:
    """A range that was moved at its end says that once more, and it is trimmed before all wake."""
    refused = JobError("refused: the epoch was trimmed")
    with shells_of(word_flow(Collect(), running)) as shells:
        shells.shells[1]._missed(refused)
        assert shells.shells[1].error is refused
    with shells_of(word_flow(Collect(), running)) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        shells.shells[1]._missed(refused)
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
    connect = subscription.frames.connect
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
            subscription.frames, "connect", lambda to: asked.append(to) or connect(to)
        )
        source.stop()
        shells.until(lambda: len(asked) > 2)
        assert not sink.done.wait(0.2), sink.error
    assert len(asked) < 200  # not as often as it can


# ---------------------------------------------------------------------- pace


def test_garbage_that_grew_old_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    monkeypatch.setattr(shells_module, "GC_SECONDS", 0.0)
    monkeypatch.setattr(shells_module, "GC_ALL_SECONDS", 0.05)
    gc.disable()
    try:
        tidy = shells_module._Tidy()
        ring = Ring()
        gc.collect(1)
        there = weakref.ref(ring)
        del ring
        time.sleep(0.1)
        tidy()
        assert there() is None
    finally:
        gc.unfreeze()
        gc.enable()


def test_a_paced_source_keeps_to_the_clock() -> None:
    found: list[tuple[int, float]] = []

    class Stamps(Collect):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
            found.append((epoch, time.time()))

    flow = rs.Flow("paced")
    parts = (tuple(Order(t, 1, 1) for t in range(40)),)
    epochs = rs.by_time(seconds=1, speed=100.0)
    flow.source(Rows(Order, parts), epochs=epochs).to(Stamps())
    with shells_of(flow) as shells:
        started = time.time()
        shells.start(paced_from=started)
        shells.watch()
    assert len(found) == 40
    assert all(at >= started + epoch / 100 for epoch, at in found)


def test_a_stopped_job_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    flow = word_flow(Collect(), running)
    with shells_of(flow, instances={"running": 2}) as shells:
        shells.start()
        shells.watch()
    left = [t for t in threading.enumerate() if t not in before]
    for thread in left:
        thread.join(10.0)
    assert not [t for t in left if t.is_alive()]


def test_cpu_counts_from_the_start_of_the_job() -> None:
    with shells_of(word_flow(Collect(), running)) as shells:
        begun = time.process_time()
        shells.start()
        shells.watch()
        used = [s.progress().cpu for s in shells.shells]
        assert all(0 <= u <= time.process_time() - begun + 0.05 for u in used)
        assert time.process_time() > max(used)
