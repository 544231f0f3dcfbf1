"""python -m benchmarks restore: a range's state from encoded images into a new instance.

For rows of numbers and for rows with text keys: the rows and bytes of the image, and the seconds to
fetch it (map shared memory, as the object store hands it out), to decode it with its checksum, and
to put its rows into the table. In the table stands every row of the image, which is checked by
asking for some. With `--parts` the range comes as that many images, as after a merge; with
`--chain` each of them as the images of N checkpoints of which none is full.

The first run also pays for memory that no process of this machine has touched before; it is shown
apart. The median of the others is what counts.
"""

from __future__ import annotations

import mmap
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.api.row_shapes import shape_of
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import install
from raystream.schema.types import KeyRange
from raystream.state.images.image import SLOT, Image, ImageHeader, InputPosition, decode
from raystream.state.images.partition import key_order, partition
from raystream.state.keys import even_ranges

CHECKPOINT = 7
SHARED = Path("/dev/shm")
WIDTH = 120
OLDER = 0.55
"""A restore reads about so much beside the state, see `state.chain`."""


class Trade(NamedTuple):
    time: int
    account: int
    amount: float


class Click(NamedTuple):
    time: int
    page: str
    amount: float


class Totals(rs.State):
    n: int = 0
    amount: float = 0.0
    last: int = 0


@rs.operator(key="account", compiled=True)
def accounts(trade: Trade, totals: Totals) -> Iterator[Trade]:
    totals.n += 1
    totals.amount += trade.amount
    totals.last = trade.time
    yield Trade(trade.time, trade.account, totals.amount)


@rs.operator(key="page")
def pages(clicks: rs.Batch[Click], totals: rs.Rows[Totals]) -> rs.Batch[Click]:
    amounts = np.bincount(totals.index, clicks["amount"], minlength=len(totals["n"]))
    totals["amount"] += amounts
    return clicks


FORMS: dict[str, tuple[Any, Any]] = {"numbers": (accounts, Trade), "text keys": (pages, Click)}


class Nothing:
    """A sink that keeps nothing."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        pass

    def commit(self, epoch: int) -> None:
        pass


def planned(form: str) -> Plan:
    operator, record = FORMS[form]
    flow = rs.Flow("restore")
    source = rs.io.iterable([], record)
    flow.source(source).through(operator, name="work").to(Nothing())
    return make_plan(flow)


def keys_of(form: str, numbers: np.ndarray) -> Any:
    """The keys of some rows: the numbers themselves, or text of 16 bytes."""
    if form == "numbers":
        return pa.array(numbers)
    digits = (numbers[:, None] // 10 ** np.arange(10, -1, -1)) % 10 + ord("0")
    text = np.empty((len(numbers), 16), np.uint8)
    text[:, :5] = np.frombuffer(b"page/", np.uint8)
    text[:, 5:] = digits
    offsets = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text))


def state(plan: Plan, form: str, rows: int) -> Image:
    """A full image of `rows` rows."""
    spec = plan.vertex("work").spec
    shape = shape_of(spec) if spec is not None else None
    assert shape is not None
    named = pa.field(SLOT, pa.int32(), nullable=False)
    numbers = np.arange(rows)
    columns = [keys_of(form, numbers), pa.array(numbers % 7 + 1), pa.array(numbers * 0.5)]
    columns += [pa.array(numbers), pa.array(numbers, pa.int32())]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.rows.append(named))
    order = pa.array(key_order(batch, plan.groups)[0])
    keys = KeyRange(0, plan.groups)
    stands = InputPosition(CHECKPOINT)
    header = ImageHeader(
        operator="work",
        shape=shape.fingerprint,
        groups=plan.groups,
        keys=keys,
        base=0,
        checkpoint=CHECKPOINT,
        input_position=stands,
        table="another",
    )
    gone = pa.RecordBatch.from_pylist([], schema=shape.gone.append(named))
    return Image(header, batch.take(order), gone)


def refreshed(whole: Image, images: int) -> list[Image]:
    """The same state as `images` images of which none is full, each with as many rows again, by
    `OLDER`, that changed once more later."""
    rows, rng = len(whole), np.random.default_rng(1)
    last = rng.integers(images, size=rows)
    chain = []
    for i in range(images):
        mine, later = last == i, np.flatnonzero(last > i)
        older = rng.choice(later, int(min(OLDER * mine.sum(), len(later))), replace=False)
        mine[older] = True
        batch = whole.rows.take(pa.array(np.flatnonzero(mine)))
        stale = pa.array(np.where(last[mine] == i, batch["last"], -1))
        batch = batch.set_column(
            batch.schema.get_field_index("last"), batch.schema.field("last"), stale
        )
        header = replace(
            whole.header, base=CHECKPOINT + i - 1, checkpoint=CHECKPOINT + i, oldest=CHECKPOINT
        )
        chain.append(Image(header, batch, whole.gone))
    return chain


class Shared:
    """Encoded images in shared memory, as other processes would have put them there."""

    def __init__(self, images: list[memoryview]) -> None:
        folder = SHARED if SHARED.is_dir() else None
        self._files = []
        for data in images:
            file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it lives as long as this
            file.write(data)
            file.flush()
            self._files.append(file)

    def fetch(self) -> list[Any]:
        """A new mapping of them."""
        return [mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) for f in self._files]

    def close(self) -> None:
        """Free the memory, as soon as no process maps it any more."""
        for file in self._files:
            file.close()


class Took(NamedTuple):
    """Seconds; `cpu` of all of it."""

    fetch: float
    decode: float
    put: float
    cpu: float

    @property
    def total(self) -> float:
        return self.fetch + self.decode + self.put


def restore(plan: Plan, shared: Shared, parts: int) -> tuple[Took, KeyedInstance]:
    """A new instance with the state; what it took to put it there."""
    instance = KeyedInstance(plan, plan.vertex("work"), KeyRange(0, plan.groups))
    cpu, at = time.process_time(), [time.perf_counter()]
    data = shared.fetch()
    at.append(time.perf_counter())
    images = [decode(each) for each in data]
    at.append(time.perf_counter())
    install(instance, [images[part::parts] for part in range(parts)])
    at.append(time.perf_counter())
    spent = time.process_time() - cpu
    return Took(at[1] - at[0], at[2] - at[1], at[3] - at[2], spent), instance


def check(instance: KeyedInstance, form: str, rows: int) -> None:
    """All rows are there, and some are asked for."""
    logic: Any = instance.logic
    table = logic.table
    assert len(table) == rows
    some = np.linspace(0, rows - 1, 1000).astype(np.int64)
    keys = keys_of(form, some)
    numbered = keys.to_numpy() if form == "numbers" else logic.table.texts[0].number(keys)
    found = table.find([numbered])
    assert np.array_equal(table.read(found, "last"), some)
    assert np.array_equal(table.read(found, "amount"), some * 0.5)


def measure(form: str, megabytes: float, parts: int, chain: int, repeat: int) -> dict[str, Any]:
    """Restore `megabytes` megabytes of encoded state, `repeat` times."""
    plan = planned(form)
    sample = 10_000
    size = len(state(plan, form, sample).encode()) / sample
    rows = int(megabytes * 1e6 / size)
    whole = state(plan, form, rows)
    ranges = even_ranges(plan.groups, parts)
    chained = [whole] if chain == 1 else refreshed(whole, chain)
    images = [part.encode() for image in chained for part in partition(image, ranges)]
    shared, nbytes = Shared(images), sum(map(len, images))
    del whole, chained, images
    took = []
    for _ in range(repeat + 1):
        each, instance = restore(plan, shared, parts)
        check(instance, form, rows)
        took.append(each)
        del instance
    shared.close()
    return {
        "rows": rows,
        "bytes": nbytes,
        "first": took[0].total,
        "runs": [t.total for t in took[1:]],
        **{k: statistics.median(getattr(t, k) for t in took[1:]) for k in Took._fields},
    }


def main(
    megabytes: Annotated[float, typer.Option(help="Encoded state in MB.")] = 1000,
    form: Annotated[str, typer.Option(help="numbers, text keys, or all.")] = "all",
    parts: Annotated[int, typer.Option(min=1, help="Images that bring the range.")] = 1,
    chain: Annotated[int, typer.Option(min=1, help="Checkpoints that hold it together.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, help="Restores after the first.")] = 3,
) -> None:
    """Restore state from encoded images into one new instance."""
    forms = list(FORMS) if form == "all" else [form]
    if unknown := [f for f in forms if f not in FORMS]:
        raise typer.BadParameter(f"{unknown[0]!r}: one of {', '.join(FORMS)}, all")
    table = Table("state", "rows", "MB", "images", "fetch s", "decode s", "put s", "all s",
                  "least to most", "CPU s", "first run")  # fmt: skip
    for each in forms:
        r = measure(each, megabytes, parts, chain, repeat)
        runs = r["runs"]
        table.add_row(
            each, f"{r['rows']:,}", f"{r['bytes'] / 1e6:,.0f}", str(parts * chain),
            *(f"{r[k]:.3f}" for k in ("fetch", "decode", "put")),
            f"{statistics.median(runs):.2f}", f"{min(runs):.2f} to {max(runs):.2f}",
            f"{r['cpu']:.2f}", f"{r['first']:.2f}",
        )  # fmt: skip
    Console(width=WIDTH).print(table)
