"""python -m benchmarks compiled: the inner loop of compiled operators alone, in one process.

Keyed running count (W1's inner loop), its windowed form, and a flat map: millions of records a
second of CPU with all outputs written, and the microseconds that an epoch costs beside its records.
The records are in canonical order when the clock starts; the last count of every key is checked.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled.operator import CompiledOperator, compile_operator
from raystream.schema.blocks import Input
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.state.kernels import key_groups, sort_by_group

GROUPS = 256


class Event(NamedTuple):
    time: int
    key: int


class Running(NamedTuple):
    key: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key", compiled=True)
def count(event: Event, tally: Tally) -> Iterator[Running]:
    tally.n += 1
    yield Running(event.key, tally.n)


@rs.operator(key="key", window=rs.tumbling(seconds=10), compiled=True)
class Windows:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: int, window: rs.Window, tally: Tally) -> Iterator[Running]:
        yield Running(key, tally.n)


@rs.operator(compiled=True)
def twice(event: Event) -> Iterator[Running]:
    yield Running(event.key, event.time)
    yield Running(event.time, event.key)


def epochs(records: int, keys: int, epoch: int) -> list[Input]:
    """Epochs of random keys, one time unit each, in canonical order."""
    rng = np.random.default_rng(1)
    out = []
    for e in range(records // epoch):
        key = rng.integers(0, keys, epoch)
        order, offsets = sort_by_group(key_groups([key], GROUPS), GROUPS)
        columns = Columns(record_schema(Event), [np.full(epoch, e), key[order]], epoch)
        out.append(Input((columns,), None, None, offsets, 0))
    return out


def run(operator: CompiledOperator, batches: list[Input], keys: int) -> tuple[float, int]:
    """Seconds that all epochs took, and rows emitted."""
    table = operator.new_table()
    everything = rs.KeyRange(0, GROUPS)
    emitted = 0
    began = time.thread_time()
    for e, batch in enumerate(batches, start=1):
        outputs = [operator.process(batch, table, e, e - 1)]
        if table is not None and table.timers.next_due <= e:
            outputs.append(operator.fire(table, everything, e, e, last=False))
        emitted += sum(len(o.emitted[0].rows) for o in outputs)
    seconds = time.thread_time() - began
    if operator.spec.target is count and table is not None:
        counted = np.bincount(np.concatenate([b.columns[0].column("key") for b in batches]))
        rows = table.ordered()
        assert np.array_equal(counted[rows["_key"][:, 0]], rows["n"])
    return seconds, emitted


def compare(name: str, operator: Any, records: int, keys: int, epoch: int, repeat: int) -> None:
    compiled = compile_operator(spec_of(operator), groups=GROUPS)
    batches = epochs(records, keys, epoch)
    empty = Input(
        tuple(c.slice(0, 0) for c in batches[0].columns),
        None,
        None,
        np.zeros(GROUPS + 1, np.int64),
        0,
    )
    table = compiled.new_table()
    beside = _median(lambda: [compiled.process(empty, table, e, 0) for e in range(500)]) / 500
    times = sorted(run(compiled, batches, keys)[0] for _ in range(repeat))
    speed = records / statistics.median(times) / 1e6
    print(
        f"{name:10} {speed:6.1f} M records/s ({records / times[-1] / 1e6:.1f} to"
        f" {records / times[0] / 1e6:.1f}); an empty epoch {beside * 1e6:.0f} µs"
    )


def _median(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return statistics.median(times)


def main(
    records: Annotated[int, typer.Option(min=1, help="Records of a run.")] = 4_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys.")] = 100_000,
    epoch: Annotated[int, typer.Option(min=1, help="Records of an epoch.")] = 20_000,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; the median is shown.")] = 5,
) -> None:
    """The inner loop of compiled operators alone, in one process."""
    for name, operator in (("count", count), ("windows", Windows()), ("flat map", twice)):
        compare(name, operator, records, keys, epoch, repeat)
