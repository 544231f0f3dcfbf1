"""What queries for rows of state cost the instance that owns them.

A client asks for random keys over a socket, 100 in a query, as fast as it gets answers. The thread
of the instance that answers is measured by its processor time: parsing, the look-up under the lock
of the steps, the rows as Arrow, sending. `at a pace` is what that makes of one core at 5,000 keys a
second; `lock` is for how long a step of the instance waits for one query at most. Every row is
checked.
"""

from __future__ import annotations

import random
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.actors.network.frames import QUERY, Reader, send
from raystream.actors.network.lookups import LookUp, serve_queries
from raystream.actors.worker.driving.fair_lock import Turns
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.instances.making import make_instance
from raystream.dataflow.queries.looking import KEYS_MAX, Looked, NotYet, StateQuery, look_up
from raystream.dataflow.tenure import Tenure
from raystream.schema.types import KeyRange
from raystream.state.tables.object_table import ObjectTable
from raystream.state.tables.structured_table import StructuredTable
from raystream.testing import Collect

PACE = 5_000
"""Keys a second."""
EPOCH = 7


class Visit(NamedTuple):
    time: int
    user: str
    page: int


class Visits(rs.State):
    n: int = 0
    last: int = 0
    seconds: float = 0.0


@rs.operator(key="user")
def by_text(visits: rs.Batch[Visit], rows: rs.Rows[Visits]) -> rs.Batch[Visit]:
    return visits


@rs.operator(key="page")
def by_number(visits: rs.Batch[Visit], rows: rs.Rows[Visits]) -> rs.Batch[Visit]:
    return visits


@rs.operator(key="user")
def one_by_one(visit: Visit, row: Visits) -> Iterator[Visit]:
    yield visit


FORMS: dict[str, Any] = {
    "structured rows, numbers": by_number,
    "structured rows, text": by_text,
    "Python rows, text": one_by_one,
}


class Cost(NamedTuple):
    """Of one run: keys a second, processor microseconds of the instance and microseconds under the
    lock, both for one query."""

    keys_s: float
    cpu_us: float
    lock_us: float


def main(
    rows: Annotated[int, typer.Option(min=100, help="Of the table.")] = 200_000,
    queries: Annotated[int, typer.Option(min=1, help="Of each run.")] = 1_000,
    runs: Annotated[int, typer.Option(min=1, help="The median is shown.")] = 3,
) -> None:
    """Queries for state: what they cost the instance that answers."""
    shown = Table("", "keys/s", "CPU of a query", "lock", f"a core at {PACE:,} keys/s",
                  title=f"{KEYS_MAX} keys a query, {rows:,} rows")  # fmt: skip
    for name, operator in FORMS.items():
        tenure, keys = owner(operator, rows)
        measured(tenure, keys, 50)  # what else is compiled
        costs = [measured(tenure, keys, queries) for _ in range(runs)]
        speed, cpu, lock = (statistics.median(c[i] for c in costs) for i in range(3))
        share = cpu / 1e6 / KEYS_MAX * PACE
        shown.add_row(name, f"{speed:,.0f}", f"{cpu:,.0f} µs", f"{lock:,.0f} µs", f"{share:.2%}")
    Console().print(shown)


def owner(operator: Any, rows: int) -> tuple[Tenure[Any], Any]:
    """An instance that owns all keys, with rows, and an Arrow array of its keys."""
    flow = rs.Flow("visits")
    empty = rs.io.iterable([Visit(0, "", 0)], Visit)
    flow.source(empty, epochs=rs.by_time(seconds=1)).through(operator, name="op").to(Collect())
    plan = make_plan(flow)
    vertex = plan.vertex("op")
    whole = KeyRange(0, plan.groups)
    machine = make_instance(plan, vertex, whole)
    machine.open()
    tenure: Tenure[Any] = Tenure(machine, "op/0")
    tenure.assign(Assignment(1, (Serving(vertex.id, whole, "op/0", ""),)))
    table = machine.table
    assert table is not None
    numbers = range(rows)
    text = table.shape.keys[0].kind == "text"
    keys: list[Any] = [f"user-{i}" for i in numbers] if text else list(numbers)
    if isinstance(table, ObjectTable):
        for i, key in enumerate(keys):
            row: Any = table.touch(key, 1)[0]
            row.n = i
    else:
        assert isinstance(table, StructuredTable)
        slots, _ = table.slots_of([pa.array(keys) if text else np.array(keys)], 1)
        table.write(slots, {"n": np.array(numbers)}, 1)
    machine.position = EPOCH
    return tenure, pa.array(keys, table.shape.gone.types[0])


def measured(tenure: Tenure[Any], keys: Any, queries: int) -> Cost:
    """Ask, and check all that comes."""
    table = tenure.machine.table
    assert table is not None
    here, there = socket.socketpair()
    spent: list[float] = []
    held: list[float] = []
    turns = Turns()

    def answer(query: StateQuery, seconds: float) -> Looked | NotYet:
        with turns:
            began = time.perf_counter()
            found = look_up(tenure, query)
            held.append(time.perf_counter() - began)
        return found

    def serve() -> None:
        before = time.thread_time()
        with Reader(there) as reader:
            serve_queries(there, reader, LookUp(table.shape.gone, answer))
        spent.append(time.thread_time() - before)

    serving = threading.Thread(target=serve)
    serving.start()
    rng = random.Random(1)
    asked = [[rng.randrange(len(keys)) for _ in range(KEYS_MAX)] for _ in range(queries)]
    began = time.perf_counter()
    with here, Reader(here) as reader:
        for at in asked:
            batch = pa.RecordBatch.from_arrays([keys.take(pa.array(at))], schema=table.shape.gone)
            send(here, QUERY, _head(tenure), [memoryview(batch.serialize())])
            frame = reader.read()
            assert frame is not None
            found = pa.ipc.read_record_batch(pa.py_buffer(frame.body), table.shape.rows)
            assert found.column("n").to_pylist() == at
        seconds = time.perf_counter() - began
        here.shutdown(socket.SHUT_RDWR)
        serving.join()
    there.close()
    return Cost(
        queries * KEYS_MAX / seconds, spent[0] / queries * 1e6, statistics.median(held) * 1e6
    )


def _head(tenure: Tenure[Any]) -> bytes:
    import msgpack

    packed: bytes = msgpack.packb([tenure.machine.vertex.id, EPOCH, 0.0])
    return packed
