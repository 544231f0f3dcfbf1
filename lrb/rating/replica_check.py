"""Weighs the answers to many replicas, part by part: there are too many of them to hold at once.

Of the original all answers are kept, for the oracle to judge. Of a replica there are the number of
its answers and their checksum, with its cars renamed to those of the original: it is right if both
are those of an original that is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import raystream as rs
from lrb.oracle import answers as answer_files
from lrb.oracle.answers import Kind
from lrb.query.replicas import Replicas
from lrb.query.sink import KIND, LATENCY, STAMPED
from raystream.errors import JobError

BINS = 60_000
"""Latencies are counted by the millisecond, up to a minute; what is longer is in the last bin."""
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass
class Latencies:
    """How long answers took. late: how many were not there by the deadline of their kind."""

    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    late: int = 0
    longest: float = 0.0

    def add(self, kind: Kind, seconds: npt.NDArray[Any]) -> None:
        """Answers of one kind."""
        measured = seconds >= 0
        self.late += kind.missed(seconds)
        bins = np.minimum(seconds[measured] * 1000, BINS - 1).astype(np.int64)
        self.counts += np.bincount(bins, minlength=BINS)
        self.longest = max(self.longest, float(seconds[measured].max(initial=0.0)))

    def summary(self) -> dict[str, float] | None:
        """Percentiles in seconds, rounded up to a millisecond, and the longest; None without any
        answer."""
        total = int(self.counts.sum())
        if total == 0:
            return None
        upto = np.cumsum(self.counts)
        found = {
            name: (int(np.searchsorted(upto, share * total)) + 1) / 1000
            for name, share in PERCENTILES.items()
        }
        return {**found, "max": self.longest}


@dataclass(frozen=True)
class Weighed:
    """The answers of a run. original: those to the prepared rows; sums, numbers: of each replica,
    the original first, the checksum and the number of its answers, as uint64 and int64 [count]."""

    original: dict[Kind, pa.Table]
    sums: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int64]
    latencies: Latencies

    @property
    def differing(self) -> list[int]:
        """Replicas whose answers are not those to the original."""
        other = (self.sums != self.sums[0]) | (self.numbers != self.numbers[0])
        return np.flatnonzero(other).tolist()


def weigh(
    folder: Path, replicas: Replicas, *, groups: int, expected: Mapping[Kind, int]
) -> Weighed:
    """Weigh what the sink of a finished run wrote.

    Args:
        groups: the number of key groups of the flow.
        expected: how many answers the job has handed to its sink.

    Raises JobError if anything of it is not there.
    """
    sums = np.zeros(replicas.count, np.uint64)
    numbers = np.zeros(replicas.count, np.int64)
    latencies, original = Latencies(), {}
    for record, kind in KIND.items():
        kept = [answer_files.table(kind)]
        read = 0
        for batch in rs.io.read_parts(folder, STAMPED[record], key_groups=groups):
            read += len(batch)
            latencies.add(kind, batch[LATENCY])
            kept.append(_add(kind, batch, replicas, sums, numbers))
        if read != expected[kind]:
            raise JobError(
                f"{folder} has {read:,} of {expected[kind]:,} answers of kind {kind.name}",
                hint="With several nodes, --out must be a folder that all of them share.",
            )
        original[kind] = pa.concat_tables(kept)
    return Weighed(original, sums, numbers, latencies)


def _add(
    kind: Kind,
    batch: rs.Batch[Any],
    replicas: Replicas,
    sums: npt.NDArray[np.uint64],
    numbers: npt.NDArray[np.int64],
) -> pa.Table:
    """Count a batch among its replicas; the answers to the original."""
    number = replicas.number(batch["vid"])
    columns = {name: batch[name] for name in kind.columns}
    if "vid" in columns:
        columns["vid"] = replicas.original(columns["vid"])
    numbers += np.bincount(number, minlength=replicas.count)
    np.add.at(sums, number, answer_files.hashes(kind, columns))
    mine = number == 0
    return answer_files.table(kind, **{name: column[mine] for name, column in columns.items()})
