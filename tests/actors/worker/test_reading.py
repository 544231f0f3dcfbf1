"""When a source that is cut by arrival closes its epochs, on a clock of the test's own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import raystream as rs
from raystream.actors.worker import reading
from raystream.actors.worker.driving import pauses
from raystream.actors.worker.driving.pauses import work_alone
from raystream.actors.worker.reading import SourceReader
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.register import Boundary, HeldBoundary
from raystream.testing import Collect
from tests.flows import Line
from tests.gates import LIMIT_SECONDS

SECONDS = 0.5


@dataclass
class Silent:
    """A source that has nothing to say until it is let go."""

    gate: threading.Event = field(default_factory=threading.Event)
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        self.gate.wait()
        yield from ()


class Clock:
    """Stands in for the module `time`; sleeping moves it. set_back: seconds, of Unix time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set_back = 0.0

    def time(self) -> float:
        return self.now - self.set_back

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Claiming:
    """A register in which each claim is answered by itself, as `of` says."""

    row_bytes = 0

    def __init__(self, of: Callable[[int, Boundary], HeldBoundary]) -> None:
        self.of = of

    def __call__(self, split: str, epoch: int, wanted: Boundary, /) -> HeldBoundary:
        return self.of(epoch, wanted)

    def all(self, epoch: int, wanted: Mapping[str, Boundary], /) -> dict[str, HeldBoundary]:
        return {name: self.of(epoch, one) for name, one in wanted.items()}

    def find(
        self, epoch: int, names: Sequence[str], among: Sequence[str] = ()
    ) -> dict[str, Boundary] | None:
        return None


class Waiting:
    """Time passes while a source waits for its readers, unless something is said to come.

    Args:
        comes: at which time what is done so that something comes.
    """

    def __init__(self, clock: Clock, comes: dict[float, Callable[[], None]] | None = None) -> None:
        self.clock, self.comes, self.rung = clock, comes or {}, threading.Event()

    def put(self, item: None, /) -> None:
        self.rung.set()

    def take(self, seconds: float, /) -> object:
        at = min(self.comes, default=float("inf"))
        if at > self.clock.now + seconds:
            self.clock.sleep(seconds)
            return None
        self.clock.now = max(at, self.clock.now)
        self.rung.clear()
        self.comes.pop(at)()
        assert self.rung.wait(LIMIT_SECONDS), "the reader has not rung"
        return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reading, "time", made)
    monkeypatch.setattr(pauses, "time", made)
    return made


@pytest.fixture
def newest() -> dict[str, int]:
    """The newest epoch that the register says others have closed."""
    return {"epoch": 0}


@pytest.fixture
def reader(newest: dict[str, int], clock: Clock) -> Iterator[SourceReader]:
    source = Silent()
    flow = rs.Flow("silent")
    flow.source(source, epochs=rs.by_arrival(seconds=SECONDS)).to(Collect())
    plan = make_plan(flow)

    def claim(epoch: int, wanted: Boundary) -> HeldBoundary:
        return HeldBoundary(wanted, max(newest["epoch"], epoch))

    yield SourceReader(plan, plan.vertices[0], rs.KeyRange(0, 256), Claiming(claim), Waiting(clock))
    source.gate.set()


def take(reader: SourceReader, epoch: int) -> Any:
    taken = work_alone(reader.take(epoch, lambda: False))
    assert taken is not None
    return taken


def test_epochs_are_cut_at_their_pace(reader: SourceReader, clock: Clock) -> None:
    take(reader, 1)
    begun = clock.now
    for epoch in range(2, 12):
        take(reader, epoch)
    assert clock.now - begun == pytest.approx(10 * SECONDS)


def test_a_source_that_has_caught_up_waits_no_longer_than_any_other(
    reader: SourceReader, clock: Clock, newest: dict[str, int]
) -> None:
    """What the register holds is closed at once; that must not be owed afterwards."""
    newest["epoch"] = 500
    take(reader, 1)
    begun = clock.now
    for epoch in range(2, 501):
        take(reader, epoch)
    assert clock.now == begun
    take(reader, 501)
    assert clock.now - begun == pytest.approx(2 * SECONDS)  # one of them for what may come
    take(reader, 502)
    assert clock.now - begun == pytest.approx(3 * SECONDS)


def test_epochs_go_on_when_the_clock_of_the_machine_is_set_back(
    reader: SourceReader, clock: Clock
) -> None:
    take(reader, 1)
    begun, clock.set_back = clock.now, 3600.0
    take(reader, 2)
    assert clock.now - begun == pytest.approx(SECONDS)


def test_a_silent_split_is_idle_after_a_while(clock: Clock) -> None:
    """And stays so, however often it is claimed."""
    source, wanted = Silent(), list[Boundary]()
    flow = rs.Flow("silent")
    epochs = rs.by_arrival(seconds=SECONDS, idle=2)
    flow.source(source, epochs=epochs).to(Collect())
    plan = make_plan(flow)

    def claim(epoch: int, boundary: Boundary) -> HeldBoundary:
        wanted.append(boundary)
        return HeldBoundary(boundary, epoch)

    reader = SourceReader(
        plan, plan.vertices[0], rs.KeyRange(0, 256), Claiming(claim), Waiting(clock)
    )
    taken = [take(reader, epoch) for epoch in range(1, 9)]
    source.gate.set()
    # each is cut half a second later than it could be: something might come
    assert [b.idle for b in wanted] == [False] * 3 + [True] * 5
    assert [t.idle for t in taken] == [b.idle for b in wanted]
    assert not any(t.ended for t in taken)


@dataclass
class Spoken:
    """A source of what is put into its queue; None ends it."""

    said: queue.SimpleQueue[int | None] = field(default_factory=queue.SimpleQueue)
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        while (time := self.said.get()) is not None:
            position += 1
            yield position, rs.Batch(Line, {"time": [time], "text": ["to be"]})


@pytest.mark.parametrize(
    ("keys", "parted", "cut_at"),
    [(256, False, [0.2, 0.7, 1.3, 2.0]), (128, False, [0.0, 0.5, 1.0, 1.5]),
     (256, True, [0.0, 0.5, 1.0, 1.5])],
)  # fmt: skip
def test_an_epoch_that_nobody_waits_for_ends_with_what_comes(
    clock: Clock, keys: int, parted: bool, cut_at: list[float]
) -> None:
    """Where others cut epochs too, they might wait for it."""
    source, flow = Spoken(), rs.Flow("spoken")
    epochs = rs.by_arrival(seconds=SECONDS)
    flow.source(source, epochs=epochs).to(Collect())
    if parted:
        flow.source(Silent(), name="other", epochs=epochs).to(Collect())
    plan = make_plan(flow)
    begun = clock.now
    said = {begun + at: lambda: source.said.put(1) for at in (0.2, 0.7, 1.3)}
    bell = Waiting(clock, said if keys == 256 and not parted else {})
    claiming = Claiming(lambda epoch, wanted: HeldBoundary(wanted, epoch))
    reader = SourceReader(plan, plan.vertices[0], rs.KeyRange(0, keys), claiming, bell)
    found = []
    for epoch in range(1, 5):
        take(reader, epoch)
        found.append(clock.now - begun)
    source.said.put(None)
    assert found == pytest.approx(cut_at)


@dataclass
class Endless:
    """A source that always has more. closed: when its reading was given up."""

    closed: threading.Event = field(default_factory=threading.Event)
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        try:
            while True:
                position += 1
                yield position, rs.Batch(Line, {"time": [position], "text": ["to be"]})
        finally:
            self.closed.set()


def test_reading_ends_with_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WAIT_SECONDS", 0.01)
    source = Endless()
    flow = rs.Flow("endless")
    flow.source(source, epochs=rs.by_arrival(seconds=0.001)).to(Collect())
    plan = make_plan(flow)
    source.closed.clear()  # planning had a look at the first rows
    claiming = Claiming(lambda e, w: HeldBoundary(w, e))
    reader = SourceReader(plan, plan.vertices[0], rs.KeyRange(0, 256), claiming, Waiting(Clock()))
    take(reader, 1)
    reader.stop()
    for ahead in reader.readers:
        ahead.thread.join(30.0)
        assert not ahead.thread.is_alive()
        assert not ahead.done
    assert source.closed.is_set()
