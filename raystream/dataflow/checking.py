"""Checking mode: two copies of one piece must be the same (law L1). Otherwise the job fails, and
the error names the operator.

A consumer remembers a checksum of every piece that it was sent since the committed checkpoint, and
compares each further copy with it, even of a piece that it has applied. Further copies come from
instances that were restored from a checkpoint.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge, Plan, Vertex
from raystream.errors import JobError
from raystream.schema.types import KeyRange


class Checksums:
    """Checksums of what an instance was sent since the committed checkpoint, by epoch, edge and
    producer range. Only runs of empty epochs are kept as such."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.committed = 0
        self.sums: dict[int, dict[tuple[int, KeyRange], int]] = {}
        self.runs: dict[tuple[int, KeyRange], list[range]] = {}
        """By edge and producer range the epochs of each run."""

    def compare(self, edge: int, piece: Piece) -> None:
        """Remember the checksum of a piece, or compare it with that of the copy that came before.

        Raises:
            JobError: the copies differ; the error names the operator that sent them.
        """
        epoch, keys = piece.header.epoch, piece.header.keys
        if epoch <= self.committed:
            return
        at = edge, keys
        if piece.header.epochs > 1:
            self._compare_run(at, range(piece.header.first, epoch + 1))
            return
        found = checksum(piece)
        was_empty = any(epoch in run for run in self.runs.get(at, ()))
        if self.sums.setdefault(epoch, {}).setdefault(at, found) != found or (found and was_empty):
            raise differing(self.plan, self.plan.edges[edge], epoch, keys)

    def _compare_run(self, at: tuple[int, KeyRange], run: range) -> None:
        runs = self.runs.setdefault(at, [])
        if run in runs:
            return
        runs.append(run)
        for epoch in sorted(self.sums):
            if epoch in run and self.sums[epoch].get(at):
                raise differing(self.plan, self.plan.edges[at[0]], epoch, at[1])

    def forget(self, committed: int) -> None:
        """Forget the epochs up to the committed checkpoint: none of them will come again."""
        self.committed = max(self.committed, committed)
        for epoch in [e for e in self.sums if e <= committed]:
            del self.sums[epoch]
        self.runs = {
            at: kept
            for at, runs in self.runs.items()
            if (kept := [run for run in runs if run[-1] > committed])
        }


def checksum(piece: Piece) -> int:
    """A CRC-32 of the rows, their offsets by key group, and whether the range ends.

    It is the same for the same values, wherever their memory is and however they travelled.
    """
    total = int(piece.header.ended)
    if not len(piece.rows):
        return total
    rank = () if piece.rows.rank is None else (piece.rows.rank,)
    for column in (piece.offsets.astype(np.int64, copy=False), *piece.rows.arrays, *rank):
        for part in _plain(column):
            total = zlib.crc32(part, total)
    return total


def _plain(column: Any) -> Iterator[Any]:
    """The bytes of a column's values, and of nothing else: a slice lies somewhere in a larger
    buffer, and behind a None there are bytes that mean nothing."""
    if isinstance(column, np.ndarray):
        yield np.ascontiguousarray(column)
        return
    if pa.types.is_decimal(column.type):
        yield column.is_valid().to_numpy(zero_copy_only=False)
        shown = column.drop_null()
        yield memoryview(shown.buffers()[1])[16 * shown.offset :][: 16 * len(shown)]
        return
    import pyarrow.compute as pc  # takes a while, and only checking mode needs it

    yield pc.fill_null(pc.binary_length(column), -1).to_numpy()
    shown = column.drop_null()
    _, offsets, data = shown.buffers()
    if data is not None and len(shown):
        at = np.frombuffer(offsets, np.int32)[shown.offset : shown.offset + len(shown) + 1]
        yield memoryview(data)[at[0] : at[-1]]


def differing(plan: Plan, edge: Edge, epoch: int, keys: KeyRange) -> JobError:
    """What is raised when two copies of a piece differ."""
    vertex = plan.vertices[edge.producer]
    inside = fused_on_the_way(vertex, edge.port)
    told = vertex.name
    if inside:
        told += f" (or {' or '.join(inside)}, which {_runs(inside)} inside it)"
    hints = [_OF_SOURCES] if vertex.kind == "source" else []
    if vertex.kind != "source" or inside:
        hints += _OF_OPERATORS
    if vertex.kind != "source":
        hints.append(_OF_SEVERAL)
    return JobError(
        f"{told} is not deterministic: key groups {keys} were made again from a checkpoint, and"
        f" sent other records of {edge.schema.name} for epoch {epoch} than before",
        where=vertex.where,
        hint="\n  ".join(hints),
    )


def _runs(names: list[str]) -> str:
    return "runs" if len(names) == 1 else "run"


_OF_SOURCES = "A source that reads a split again from a position must find the same records."
_OF_OPERATORS = [
    "Usually it is the clock, `random`, the order of a set, or what is kept outside of the"
    " rs.State row.",
    "Take the time from records, and seed what is drawn with what they hold.",
    "rs.testing.check_operator finds it in a test.",
]
_OF_SEVERAL = "If what feeds it was made again at the same time, look there first."


def fused_on_the_way(vertex: Vertex, port: int) -> list[str]:
    """The operators inside a vertex through which the records of a port went, in order."""
    wanted, found = {port}, []
    for fused in reversed(vertex.fused):
        if wanted & set(fused.outputs):
            found.append(fused.name)
            wanted.update(at for ports in fused.inputs for at in ports)
    return found[::-1]
