"""python -m benchmarks small-epochs: what a small epoch costs in each instance of a chain.

A source, a keyed running count and a sink in one process and on one thread. Between them epochs
travel as they do between processes, as frames, but through memory. The parts of an instance
are timed apart, and of each the least mean over runs of a hundred epochs is shown: what the code
takes in warm caches, whatever else the machine does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import raystream as rs
from benchmarks.shared.w1 import Tally
from raystream.actors.network.epoch_frame import EpochDecoder, epoch_frame
from raystream.actors.network.frames import BEGINNING
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.base import Instance
from raystream.local.job import LocalJob
from raystream.local.source import LocalSource

RUN = 100
"""Epochs over which a mean is taken."""


class Event(NamedTuple):
    time: rs.Int64
    key: rs.Int32


class Counted(NamedTuple):
    time: rs.Int64
    key: rs.Int32
    n: rs.Int32


@dataclass(frozen=True)
class Events:
    """Epochs of one time unit, each with as many records as asked."""

    rows: int
    epochs: int

    record = Event

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("events")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Event]]]:
        n = self.rows * self.epochs
        keys = np.random.default_rng(1).integers(0, 100_000, n, np.int32)
        yield n, rs.Batch(Event, {"time": np.arange(n) // self.rows, "key": keys})


@rs.operator(key="key", compiled=True)
def compiled_count(event: Event, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(event.time, event.key, tally.n)


@rs.operator(key="key")
def count(event: Event, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(event.time, event.key, tally.n)


TOTAL = {"rows": 0, "n": 0, "size": 0}
"""What has come to the sink; the sink itself is copied into the job."""


class Total(rs.Sink[Counted]):
    """A sink that adds up."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        assert len(batch) == TOTAL["size"], (epoch, len(batch))
        TOTAL["rows"] += len(batch)
        TOTAL["n"] += int(batch["n"].sum())

    def commit(self, epoch: int) -> None:
        pass


class Timing:
    """The seconds of each part, and the least mean over RUN epochs."""

    def __init__(self) -> None:
        self.least: dict[str, float] = {}
        self._now: dict[str, float] = {}

    def part(self, name: str, what: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = what()
        self._now[name] = self._now.get(name, 0.0) + time.perf_counter() - begun
        return result

    def end_run(self) -> None:
        for name, seconds in self._now.items():
            self.least[name] = min(self.least.get(name, seconds), seconds)
        self._now = {}


def run(*, rows: int, epochs: int, compiled: bool) -> dict[str, float]:
    """Microseconds of an epoch by part."""
    TOTAL["size"] = rows
    flow, before = rs.Flow("small", time_unit="ms"), TOTAL["rows"]
    events = flow.source(Events(rows, epochs), epochs=rs.by_time(seconds=0.001), name="source")
    events.through(compiled_count if compiled else count, name="count").to(Total(), name="sink")
    job = LocalJob(make_plan(flow, checkpoint_every=1000))
    timing = Timing()
    (source,) = job.sources
    for epoch in range(1, epochs + 1):
        _epoch(job, source, epoch, timing)
        if not epoch % RUN:
            timing.end_run()
    assert TOTAL["rows"] - before == rows * epochs, TOTAL
    return {name: seconds / RUN * 1e6 for name, seconds in timing.least.items()}


def _epoch(job: LocalJob, source: LocalSource, epoch: int, timing: Timing) -> None:
    machine: Instance = source.machine
    timing.part("source: step", source.step)
    while job.out[id(machine)]:
        name = machine.vertex.name
        (link,) = job.out[id(machine)]
        log, keys = machine.outlets.logs[link.edge], link.consumer.keys
        decoder = _decoder(link, log.entry(epoch).rows.schema)

        def send(log: Any = log, keys: rs.KeyRange = keys) -> bytes:
            (entry,) = log.since(epoch, 1)
            frame = epoch_frame(entry, keys)
            assert frame is not None
            return frame

        frame = timing.part(f"{name}: send", send)

        def receive(link: Any = link, frame: Any = frame, decoder: EpochDecoder = decoder) -> None:
            _, head, _ = BEGINNING.unpack_from(frame)
            begin = BEGINNING.size + head
            body = np.frombuffer(frame[begin:], np.uint8)
            link.consumer.receive(link.edge, decoder.piece(frame[BEGINNING.size : begin], body))

        timing.part(f"{link.consumer.vertex.name}: receive", receive)
        link.next = epoch + 1
        timing.part(f"{name}: trim", partial(machine.outlets.trim, epoch - 8))
        machine = link.consumer
        timing.part(f"{machine.vertex.name}: step", machine.step)


_DECODERS: dict[int, EpochDecoder] = {}


def _decoder(link: Any, schema: Any) -> EpochDecoder:
    if id(link) not in _DECODERS:
        _DECODERS[id(link)] = EpochDecoder(schema, link.consumer.keys)
    return _DECODERS[id(link)]


def main(
    rows: Annotated[int, typer.Option(min=1, help="Records of an epoch.")] = 15,
    epochs: Annotated[int, typer.Option(min=RUN, help="Epochs.")] = 10_000,
    interpreted: Annotated[bool, typer.Option(help="The count is not compiled.")] = False,
) -> None:
    """The microseconds of an epoch of a few records, instance by instance."""
    found = run(rows=rows, epochs=epochs, compiled=not interpreted)
    for name, microseconds in found.items():
        typer.echo(f"{name:18} {microseconds:8.1f} us")
    typer.echo(f"{'together':18} {sum(found.values()):8.1f} us")
