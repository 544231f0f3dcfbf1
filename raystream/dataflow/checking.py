"""Checking mode: two copies of one piece must be the same (law L1), or somebody is named.

A consumer remembers a checksum of every piece that it was sent since the floor, and compares each
further copy: of what it has applied, too. Copies come from whoever was made again from a
checkpoint.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge, Plan, Vertex
from raystream.errors import JobError
from raystream.schema.types import KeyRange


class Checksums:
    """What an instance was sent since the floor, by epoch, edge and producer range."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.floor = 0
        self.sums: dict[int, dict[tuple[int, KeyRange], int]] = {}

    def compare(self, edge: int, piece: Piece) -> None:
        """Remember a piece, or hold it against the copy that came before.

        Raises:
            JobError: they differ; it names who sent them.
        """
        epoch, keys = piece.header.epoch, piece.header.keys
        if epoch <= self.floor:
            return
        found = checksum(piece)
        if self.sums.setdefault(epoch, {}).setdefault((edge, keys), found) != found:
            raise differing(self.plan, self.plan.edges[edge], epoch, keys)

    def forget(self, floor: int) -> None:
        """Nothing up to the floor will come again."""
        self.floor = max(self.floor, floor)
        for epoch in [e for e in self.sums if e <= floor]:
            del self.sums[epoch]


def checksum(piece: Piece) -> int:
    """A CRC-32 of the rows, their offsets by key group, and whether the range ends.

    The same for the same values, wherever their memory is and however they travelled.
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
    buffer, and what is None hides bytes that mean nothing."""
    if isinstance(column, np.ndarray):
        yield np.ascontiguousarray(column)
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
    """The operators inside a vertex that what comes out of a port went through, in order."""
    wanted, found = {port}, []
    for fused in reversed(vertex.fused):
        if wanted & set(fused.outputs):
            found.append(fused.name)
            wanted.update(at for ports in fused.inputs for at in ports)
    return found[::-1]
