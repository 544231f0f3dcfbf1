"""What flows on Ray are made of: importable by the processes of a cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import raystream as rs
from tests.flows import (
    CompiledLedger,
    Line,
    Order,
    Payment,
    Rows,
    Running,
    SessionCount,
    Tally,
    Word,
    events,
    lines,
    running,
    split,
)
from tests.gates import Cycle, Gate, Slow


@dataclass(frozen=True)
class Files:
    """A sink that writes a file for each epoch, range and type: what `records` reads."""

    folder: Path

    def open(self, context: rs.SinkContext) -> None:
        (self.folder / f"opened-{context.keys.lo}").write_text(json.dumps(context))

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        part = self.folder / f"{epoch:08d}.{batch.record.__name__}.{keys.lo:03d}"
        part.write_text("".join(f"{json.dumps(r)}\n" for r in batch.records()))

    def commit(self, epoch: int) -> None:
        pass

    def close(self) -> None:
        (self.folder / "closed").touch()


def records(folder: Path) -> list[tuple[int, str, list[Any]]]:
    """(epoch, type, fields) in canonical order."""
    found = []
    for part in sorted(folder.glob("*.*.*")):
        epoch, kind, _ = part.name.split(".")
        found += [(int(epoch), kind, json.loads(line)) for line in part.read_text().splitlines()]
    return found


class Killer:
    """Kills processes of a job one after the other, each when everybody has stored again what came
    after the one before: there is one copy of everything. killed: their ids.

    Args:
        gate: opened when that is so after the last one, too. samples: in so many in a row nothing
            must be lacking. after: an epoch that is committed.
    """

    def __init__(self, gate: Gate, *victims: str, samples: int = 1, after: int = 0) -> None:
        self.gate = gate
        self.samples = samples
        self.victims = [*victims]
        self.killed: list[int] = []
        self._committed = after
        self._whole = 0  # samples in a row in which nothing was lacking

    def __call__(self, sample: Any) -> None:
        whole = sample.committed.epoch > self._committed and not sample.committed.under_replicated
        self._whole = self._whole + 1 if whole else 0
        if self._whole < self.samples:
            return
        if not self.victims:
            self.gate.open()
        elif pid := self._pid(sample.processes):
            with suppress(ProcessLookupError):  # a sample may be late
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)
                self.victims.pop(0)
                self._committed = max(o.position for o in sample.operators.values())
                self._whole = 0

    def _pid(self, processes: Mapping[str, int]) -> int | None:
        """Of the next victim. On a busy machine a keeper may be replaced while the job starts: then
        it is one of the others."""
        victim = self.victims[0]
        keepers = [n for n in processes if n.startswith("keeper/") and victim.startswith("keeper/")]
        return next((processes[n] for n in (victim, *keepers) if n in processes), None)


def many(folder: Path, speed: float | None = None, gate: Gate | None = None) -> rs.Flow:
    """Sessions of words with late records, and a compiled join with timers. With a gate they go on
    until it is open."""

    def read(name: str, record: type, rows: tuple[Any, ...]) -> rs.Stream[Any]:
        source = Rows(record, rows)
        until = source if gate is None else Cycle(source, 150, gate, name)
        return flow.source(until, epochs=epochs, name=name)

    flow = rs.Flow("many")
    epochs = rs.by_time(seconds=1, disorder=1, speed=speed)
    first, *others = lines(1)
    first = (*first[:20], Line(0, "too late"), *first[20:])
    words = read("lines", Line, (first, *others)).through(split)
    sessions, late = words.through(SessionCount(), name="sessions", late=True)
    orders = read("orders", Order, events(1, Order))
    paid = read("payments", Payment, events(2, Payment))
    ledger = (orders | paid).through(CompiledLedger(), name="ledger")
    (sessions | late | ledger).to(Files(folder), name="files")
    return flow


def unequal(folder: Path, gate: Gate, speed: float | None = None) -> rs.Flow:
    """Two branches, one of which ends after ten epochs, and the other when the gate is open."""
    flow = rs.Flow("unequal")
    for name in ("short", "long"):
        rows = Rows(Line, (tuple(Line(t, f"{name} w{t % 3}") for t in range(10)),))
        epochs = rs.by_time(seconds=1, speed=speed)
        source = rows if name == "short" else Cycle(rows, 10, gate)
        words = flow.source(source, epochs=epochs, name=f"{name}_lines").through(split)
        (folder / name).mkdir()
        words.through(running, name=f"{name}_count").to(Files(folder / name), name=f"{name}_files")
    return flow


@rs.operator(key="word")
def parses(word: Word, tally: Tally) -> Iterator[Running]:
    tally.n += int(word.word)  # not a number
    yield Running(word.word, tally.n)


@dataclass(frozen=True)
class Shelf:
    """A source over files, one line a second."""

    folder: Path

    def splits(self) -> list[rs.Split]:
        return [rs.Split(p.name) for p in sorted(self.folder.iterdir())]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        text = (self.folder / split.name).read_text().splitlines()
        for t in range(position, len(text)):
            yield t + 1, rs.Batch(Line, {"time": [t], "text": [text[t]]})


@dataclass(frozen=True)
class Endless:
    """A source that never ends."""

    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        while True:
            time.sleep(0.005)
            yield position + 1, rs.Batch(Line, {"time": [position], "text": ["to be"]})
            position += 1


@rs.operator(key="word")
@dataclass(frozen=True)
class Named:
    """Writes down in which process it runs."""

    folder: Path

    def process(self, word: Word, tally: Tally) -> Iterator[Running]:
        (self.folder / f"pid-{os.getpid()}").touch()
        tally.n += 1
        yield Running(word.word, tally.n)


@dataclass(frozen=True)
class Full:
    """A sink that has no room."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        raise OSError(28, "No space left on device")  # the sink's line

    def commit(self, epoch: int) -> None:
        pass


@rs.operator(key="word")
@dataclass(frozen=True)
class Suicidal:
    """Ends its process at the first record."""

    def process(self, word: Word, tally: Tally) -> Iterator[Running]:
        os._exit(1)
        yield Running(word.word, tally.n)


def endless(folder: Path, op: Any = None) -> rs.Flow:
    flow = rs.Flow("endless")
    words = flow.source(Endless(), epochs=rs.by_arrival(seconds=0.02)).through(split)
    words.through(op or Named(folder)).to(Files(folder))
    return flow


def small(folder: Path, op: Any = running) -> rs.Flow:
    flow = rs.Flow("small")
    first, *others = lines(1)
    first = (*first[:20], Line(0, "too late"), *first[20:])
    words = flow.source(Rows(Line, (first, *others)), epochs=rs.by_time(seconds=30)).through(split)
    words.through(op).to(Files(folder))
    return flow


class Grown(rs.State):
    """What `Tally` became in the next version of a flow."""

    total: int = 0
    seen: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Grown:
        return cls(total=old["n"])


@rs.operator(key="word")
def grown(word: Word, tally: Grown) -> Iterator[Running]:
    tally.total += 1
    tally.seen += 1
    yield Running(word.word, tally.total)


def slow(
    folder: Path,
    op: Any = running,
    lines: int = 2000,
    paced: float | None = 0.0,
    gate: Gate | None = None,
) -> rs.Flow:
    """Words counted into files. paced: 0 cuts by arrival, None and a speed by time."""
    flow = rs.Flow("slow")
    epochs = rs.by_arrival(seconds=0.05) if paced == 0.0 else rs.by_time(seconds=10, speed=paced)
    words = flow.source(Slow(lines, gate), epochs=epochs, name="lines").through(split)
    words.through(op, name="count").to(rs.io.parquet(folder), name="files")
    return flow


def changed(folder: Path, copy: Path, lines: int, gate: Gate) -> rs.Flow:
    """The next version of `slow`: another name, another state class, and one more sink before."""
    flow = rs.Flow("slow")
    epochs = rs.by_time(seconds=10)
    words = flow.source(Slow(lines, gate), epochs=epochs, name="lines").through(split)
    counted = words.through(grown, name="tally")
    counted.to(rs.io.parquet(copy), name="copy")
    counted.to(rs.io.parquet(folder), name="files")
    return flow
