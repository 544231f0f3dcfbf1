"""Moves rows through Spark as whole Arrow tables, to the part of the output that they belong to.

A *part* is one split for one span of time, and becomes one file. Spark's own row format costs a
microsecond or two for each row and direction. A cell that holds a few thousand rows as Arrow bytes
costs nothing to speak of, so that is what is shuffled: Spark spreads, moves and groups the cells,
NumPy and Arrow do what has to be done with every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

_TASKS_MAX = 2_000

CELLS = "part long, rows binary"
_CELLS = pa.schema([pa.field("part", pa.int64()), pa.field("rows", pa.binary())])
_RESULT = pa.schema([pa.field("result", pa.binary())])


@dataclass(frozen=True, slots=True)
class Parts:
    """How output is cut: spans of time that begin with `begins`, each of them into `splits`."""

    begins: tuple[int, ...]
    """First second of each span, ascending, whole minutes; the first is 0."""
    splits: int

    @classmethod
    def cut(cls, per_minute: Sequence[float], splits: int, rows_max: int) -> Parts:
        """Spans of whole minutes with about `rows_max` rows or fewer in each part.

        `per_minute` says how many rows (expected or counted) minutes 0, 1, ... have. A single
        minute with more than that is a span of its own.
        """
        begins, rows = [0], 0.0
        for minute, count in enumerate(per_minute):
            if rows and rows + count > rows_max * splits:
                begins.append(60 * minute)
                rows = 0.0
            rows += count
        return cls(tuple(begins), splits)

    def __len__(self) -> int:
        return len(self.begins) * self.splits

    def number(
        self, time: npt.NDArray[np.int64], split: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """The part of each row."""
        span = np.searchsorted(np.array(self.begins), time, side="right") - 1
        return span * self.splits + split

    def span_and_split(self, part: int) -> tuple[int, int]:
        """Number of the span, and split."""
        return divmod(part, self.splits)


def cells(table: pa.Table, part: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows of `table` as cells, one for each part that occurs in `part`."""
    order = np.argsort(part, kind="stable")
    sorted_parts, table = part[order], table.take(pa.array(order)).combine_chunks()
    begins = np.flatnonzero(np.diff(sorted_parts, prepend=-1))
    ends = np.append(begins[1:], len(part))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        rows = _pack(table.slice(begin, end - begin))
        yield pa.RecordBatch.from_arrays([[int(sorted_parts[begin])], [rows]], schema=_CELLS)


def gather(frame: DataFrame, parts: int, finish: Callable[[int, pa.Table], bytes]) -> list[bytes]:
    """Run the job: bring the cells of each part together, call `finish(part, rows)` there.

    `frame` has the columns `CELLS`; `parts` says about how many parts there are. Returns what the
    calls returned, in any order.
    """

    def whole_part(key: tuple[pa.Scalar, ...], group: pa.Table) -> pa.Table:
        rows = pa.concat_tables([_unpack(cell) for cell in _buffers(group.column("rows"))])
        return pa.table([[finish(key[0].as_py(), rows)]], schema=_RESULT)

    spread_out = frame.repartition(min(parts, _TASKS_MAX), "part")
    results = spread_out.groupBy("part").applyInArrow(whole_part, "result binary")
    return [bytes(row.result) for row in results.collect()]


def each(frame: DataFrame, task: Callable[[int], bytes]) -> list[bytes]:
    """Run the job: call `task(id)` for each row of `frame`, which has a column `id`."""

    def batches(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for number in batch.column("id").to_pylist():
                yield pa.RecordBatch.from_arrays([[task(number)]], schema=_RESULT)

    return [bytes(row.result) for row in frame.mapInArrow(batches, "result binary").collect()]


def spread(frame: DataFrame, task: Callable[[int], Iterator[pa.RecordBatch]]) -> DataFrame:
    """The cells that `task(id)` yields for each row of `frame`, which has a column `id`."""

    def batches(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for number in batch.column("id").to_pylist():
                yield from task(number)

    return frame.mapInArrow(batches, CELLS)


def _pack(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpack(cell: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(cell).read_all()


def _buffers(cells: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    for cell in cells:
        yield cell.as_buffer()
