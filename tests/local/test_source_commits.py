"""A source is told after each commit which positions are never read again; it never stops a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.actors.worker.reading import CommitTeller
from raystream.testing import Collect


class Event(NamedTuple):
    time: int


TOLD: list[dict[str, int]] = []


class Broker(rs.Source[Event]):
    """Two partitions that want to know."""

    record = Event

    def __init__(self, rows: int = 20) -> None:
        self.rows = rows

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a"), rs.Split("b")]

    def read(self, split: rs.Split, position: int, /) -> Iterator[tuple[int, rs.Batch[Event]]]:
        for n in range(position, self.rows):
            yield n + 1, rs.Batch(Event, {"time": [n]})

    def commit(self, positions: Mapping[str, int], /) -> None:
        TOLD.append(dict(positions))


class Plainly:
    """The same without deriving from `Source`, and it fails."""

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Event]]]:
        yield from Broker(3).read(split, position)

    def commit(self, positions: Mapping[str, int]) -> None:
        TOLD.append(dict(positions))
        raise OSError("the broker is gone")


@pytest.fixture(autouse=True)
def _forget() -> None:
    TOLD.clear()


def run(source: Any, epochs: Any = None, **options: Any) -> list[Any]:
    sink, flow = Collect(), rs.Flow("told")
    flow.source(source, epochs=epochs, name="broker").to(sink)
    flow.run(**options)
    return list(sink.records())


@pytest.mark.parametrize("epochs", [None, rs.by_time(seconds=3)], ids=["by arrival", "by time"])
def test_a_source_is_told_after_each_commit(epochs: Any) -> None:
    assert len(run(Broker(), epochs, checkpoint_every=2)) == 40
    assert len(TOLD) > 2
    assert all(set(positions) == {"a", "b"} for positions in TOLD)
    for split in ("a", "b"):
        at = [positions[split] for positions in TOLD]
        assert at == sorted(at)
        assert at[-1] == 20


def test_what_it_raises_is_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"broker\.commit raised OSError: the broker is gone"):
        assert len(run(Plainly(), checkpoint_every=1)) == 3
    assert TOLD


def test_with_a_durable_tier_it_is_told_what_is_saved(tmp_path: Any) -> None:
    run(Broker(), checkpoint_every=2, durable=str(tmp_path / "saved"))
    assert TOLD
    assert TOLD[-1] == {"a": 20, "b": 20}


def test_a_source_that_hangs_is_waited_for_only_so_long() -> None:
    gate, told = threading.Event(), list[Mapping[str, int]]()

    class Hangs(Broker):
        def commit(self, positions: Mapping[str, int], /) -> None:
            gate.wait()
            told.append(positions)

    teller = CommitTeller(Hangs(), "broker")
    for n in range(5):
        teller({"a": (0, n)})
    began = time.monotonic()
    with pytest.warns(RuntimeWarning, match=r"broker\.commit has not returned within 0.05 s"):
        assert not teller.drain(0.05)
    assert time.monotonic() - began < 5
    gate.set()
    assert teller.drain()
    assert told == [{"a": n} for n in range(5)]


def test_what_a_checkpoint_holds_of_senders_is_told_after_the_commit() -> None:
    told: list[Any] = []

    class Log(Broker):
        def commit(self, positions: Mapping[str, int], /) -> None:
            told.append(dict(positions))

        def stored(self, split: rs.Split, sequences: Mapping[str, int], /) -> None:
            told.append((split.name, dict(sequences)))

    teller = CommitTeller(Log(), "log")
    teller({"a": (0, 5, 7, (("wal", 9, 0), ("other", 2, 0))), "b": (1, 6, 7)})
    assert teller.drain()
    assert told == [{"a": 5, "b": 6}, ("a", {"wal": 9, "other": 2})]


def test_no_thread_for_a_source_that_does_not_ask() -> None:
    before = threading.active_count()
    assert len(run(rs.io.iterable([Event(1)], Event))) == 1
    assert threading.active_count() == before
