"""Jobs of shells in one process: threads and sockets, no Ray."""

from __future__ import annotations

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raystream as rs
from raystream.actors.worker.driving import tidy as tidy_module
from raystream.actors.worker.driving.tidy import Tidy
from raystream.errors import InputError, JobError, OperatorError, notes
from raystream.testing import Collect, run_local
from tests.actors.helpers.shells import error_of, run_in_shells, shells_of
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
from tests.gates import LIMIT_SECONDS

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
    with shells_of(word_flow(sink, running), instances={"running": 2}, checkpoint_every=2) as job:
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
        checkpoint_every=1000,
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
        arrival_flow(found, Rows(Line, parts)), instances={"rows": 2}, checkpoint_every=5
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


# ---------------------------------------------------------------------- pace


def test_garbage_that_grew_old_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    monkeypatch.setattr(tidy_module, "GC_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(tidy_module, "GC_ALL_SECONDS", 0.05)
    gc.disable()
    try:
        tidy = Tidy()
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


@pytest.mark.parametrize(
    ("since", "took", "after"),
    [
        (2.0, 0.002, 0.5),  # four times as long as it is to take
        (0.1, 0.0001, 0.2),  # nothing to do: twice as seldom, and not ten seconds at once
        (10.0, 0.0001, 10.0),
        (0.05, 0.1, 0.05),
        (0.1, 0.0, 0.2),
    ],
)
def test_the_more_a_look_finds_the_sooner_the_next_comes(
    since: float, took: float, after: float
) -> None:
    assert tidy_module.next_look(since, took) == pytest.approx(after)


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_paced_source_keeps_to_the_clock(seconds: int) -> None:
    """An epoch comes when its last record can be due, and not before."""
    found: list[tuple[int, float]] = []

    class Stamps(Collect):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
            found.append((epoch, time.time()))

    flow = rs.Flow("paced")
    parts = (tuple(Order(t, 1, 1) for t in range(40)),)
    epochs = rs.by_time(seconds=seconds, speed=100.0)
    flow.source(Rows(Order, parts), epochs=epochs).to(Stamps())
    with shells_of(flow) as shells:
        started = time.time()
        shells.start(paced_from=started)
        shells.watch()
    assert len(found) == 40 / seconds
    assert all(at >= started + (epoch * seconds - 1) / 100 for epoch, at in found)


def test_a_stopped_job_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    flow = word_flow(Collect(), running)
    with shells_of(flow, instances={"running": 2}) as shells:
        shells.start()
        shells.watch()
    left = [t for t in threading.enumerate() if t not in before]
    for thread in left:
        thread.join(LIMIT_SECONDS)
    assert not [t for t in left if t.is_alive()]


def test_cpu_counts_from_the_start_of_the_job() -> None:
    with shells_of(word_flow(Collect(), running)) as shells:
        begun = time.process_time()
        shells.start()
        shells.watch()
        used = [s.progress().cpu for s in shells.shells]
        assert all(0 <= u <= time.process_time() - begun + 0.05 for u in used)
        assert time.process_time() > max(used)
