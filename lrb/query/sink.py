"""Where answers go: stamped, and written as parts while the job runs; read back when it has ended.

The parts are those of `rs.io.parquet`: by range and checkpoint, with manifests that make up all key
groups or are refused. So it does not matter how many instances wrote them, in which order, or how
often.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import raystream as rs
from lrb.oracle.answers import ALERT, BALANCE, EXPENDITURE, TOLL, Kind
from lrb.query.expenditure import Spent
from lrb.query.fed import Clock, Due, clock_of, released
from lrb.query.flow import Answer
from lrb.query.records import Alert, Balance, Toll
from raystream.errors import InputError, JobError
from raystream.io import parquet
from spark_ingest.layout import slot

LATENCY = "latency"
NOT_DEFINED = -1.0
"""Emit and latency of a run at full speed."""


class StampedToll(NamedTuple):
    """An answer 0 as it is kept. emit: simulated seconds. latency: real seconds from the release of
    the input row to the sink."""

    vid: rs.Int32
    time: rs.Int32
    lav: rs.Int16
    toll: int
    emit: rs.Float64
    latency: rs.Float32


class StampedAlert(NamedTuple):
    """An answer 1 as it is kept."""

    time: rs.Int32
    vid: rs.Int32
    seg: rs.Int16
    emit: rs.Float64
    latency: rs.Float32


class StampedBalance(NamedTuple):
    """An answer 2 as it is kept, with the car that asked."""

    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32
    result_time: rs.Int32
    bal: int
    emit: rs.Float64
    latency: rs.Float32


class StampedSpent(NamedTuple):
    """An answer 3 as it is kept, with the car that asked."""

    time: rs.Int32
    vid: rs.Int32
    qid: rs.Int32
    bal: int
    emit: rs.Float64
    latency: rs.Float32


STAMPED: dict[type[Any], type[Any]] = {
    Due: Due,
    Toll: StampedToll,
    Alert: StampedAlert,
    Balance: StampedBalance,
    Spent: StampedSpent,
}
KIND: dict[type[Any], Kind] = {Toll: TOLL, Alert: ALERT, Balance: BALANCE, Spent: EXPENDITURE}


@dataclass
class AnswerParts(rs.Sink[Answer | Due]):
    """The sink of one run. folder: a new one, which all nodes with a sink instance see. vehicles:
    those of the original where there are replicas, whose rows are due when the original's are.
    fed: rows are pushed. Then `emit` is Unix time, until `by_clock` is told what it means."""

    folder: Path
    vehicles: int | None = None
    fed: bool = False
    kind: ClassVar[str] = "epoch-addressed"
    _parts: Any = field(default=None, init=False)
    _context: rs.SinkContext | None = field(default=None, init=False)

    def open(self, context: rs.SinkContext) -> None:
        """Take note of the run's clock, and open the parts of this range."""
        self._context = context
        self._parts = parquet(self.folder)
        self._parts.open(context)

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Answer | Due]) -> None:
        """Keep answers with the moment at which they came."""
        self._parts.write(epoch, keys, self._stamped(batch, time.time()))

    def _stamped(self, batch: rs.Batch[Any], now: float) -> rs.Batch[Any]:
        context, n = self._context, len(batch)
        if batch.record is Due:
            return batch
        emit = latency = np.full(n, NOT_DEFINED)
        if self.fed:
            emit = np.full(n, now)
        elif context is not None and context.started is not None and context.speed is not None:
            emit = np.full(n, context.origin + (now - context.started) * context.speed)
            vid = batch["vid"].astype(np.int64)
            original = vid if self.vehicles is None else vid % self.vehicles
            latency = (emit - released(batch["time"], slot(original))) / context.speed
        stamps = {"emit": emit, LATENCY: latency.astype(np.float32)}
        record = STAMPED[batch.record]
        answer = {name: batch[name] for name in record._fields if name not in stamps}
        return rs.Batch(record, answer | stamps)

    def prepare(self, epoch: int) -> None:
        """What came up to this checkpoint is kept: a successor goes on from there."""
        self._parts.prepare(epoch)

    def commit(self, epoch: int) -> None:
        """What came up to this epoch is whole."""
        self._parts.commit(epoch)

    def close(self) -> None:
        """No more answers will come."""
        self._parts.close()


# ---- after the run ----------------------------------------------------------------------------


def handed_over(by_port: Mapping[str, int]) -> dict[Kind, int]:
    """How many answers of each kind a sink was given, from what its report says of its inputs."""
    return {
        kind: sum(n for port, n in by_port.items() if port.endswith(f".{record.__name__}"))
        for record, kind in KIND.items()
    }


def collect(folder: Path, *, groups: int, expected: Mapping[Kind, int]) -> dict[Kind, pa.Table]:
    """The answers of a finished run: one table per kind, in order of time and question.

    Args:
        groups: the number of key groups of the flow.
        expected: how many answers the job has handed to its sink.

    Raises JobError if anything of it is not there.
    """
    answers = {}
    for record, kind in KIND.items():
        table = _table(folder, STAMPED[record], groups)
        if table.num_rows != expected[kind]:
            found = f"{table.num_rows:,} of {expected[kind]:,} answers of kind {kind.name}"
            raise JobError(
                f"{folder} has {found}",
                hint="With several nodes, --out must be a folder that all of them share.",
            )
        keys = dict.fromkeys(("time", *kind.keys))
        answers[kind] = table.sort_by([(name, "ascending") for name in keys])
    return answers


def _table(folder: Path, record: type[Any], groups: int) -> pa.Table:
    empty = rs.Batch(record, {name: [] for name in record._fields})
    batches = [empty, *rs.io.read_parts(folder, record, key_groups=groups)]
    return pa.concat_tables(
        [pa.table({name: batch[name] for name in record._fields}) for batch in batches]
    )


def marks(folder: Path, *, groups: int) -> Clock | None:
    """The clock of a finished run whose rows were pushed; None if they came without a pace."""
    table = _table(folder, Due, groups)
    return clock_of(table["time"].to_numpy(), table["due"].to_numpy())


def by_clock(answers: Mapping[Kind, pa.Table], clock: Clock | None) -> dict[Kind, pa.Table]:
    """Answers with `emit` in event time and with latencies, which were stamped with Unix time."""
    return {kind: _by_clock(table, clock) for kind, table in answers.items()}


def _by_clock(table: pa.Table, clock: Clock | None) -> pa.Table:
    emit = latency = np.full(table.num_rows, NOT_DEFINED)
    if clock is not None:
        emit = clock.simulated(table["emit"].to_numpy())
        vid = table["vid"].to_numpy().astype(np.int64)
        latency = (emit - released(table["time"].to_numpy(), slot(vid))) / clock.speed
    for name, column in (("emit", emit), (LATENCY, latency.astype(np.float32))):
        table = table.set_column(table.column_names.index(name), name, pa.array(column))
    return table


def latency_p99(folder: Path, *, groups: int) -> float | None:
    """The 99th percentile of the latencies since the checkpoint before the newest; None if not
    known."""
    try:
        parts = rs.io.parts(folder, key_groups=groups, partial=True)
    except (InputError, JobError):
        return None  # no instance, or not all of them, have begun
    newest = max((part.upto for part in parts), default=0)
    columns = [
        pq.read_table(part.path, columns=[LATENCY], partitioning=None)[LATENCY].to_numpy()
        for part in parts
        if part.upto == newest
    ]
    latency = np.concatenate([np.zeros(0), *columns])
    return float(np.percentile(latency, 99)) if len(latency) and latency.min() >= 0 else None
