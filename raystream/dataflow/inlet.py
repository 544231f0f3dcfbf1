"""Inlets: an input epoch is complete when pieces tile the producer's key space (law L2).

Pieces may come from owners and candidates of any range, twice, and out of order between senders. A
piece that is wholly covered is dropped; pieces that overlap in part are kept until some choice of
them tiles exactly. That a range ended is remembered of all pieces, also of those that are dropped:
who sent it may be the one whose pieces are taken later. Of several that say so of one range the
first end counts: who took a place at the end of its range says it again an epoch later.
"""

from __future__ import annotations

from itertools import pairwise

from raystream.dataflow.pieces import Piece, silence
from raystream.errors import InternalError
from raystream.schema.types import KeyRange


def tile(ranges: list[KeyRange], groups: int) -> list[int] | None:
    """Which of `ranges` (indices, ascending) tile [0, groups) exactly; None if none do.

    Ranges are arcs from `lo` to `hi`; a tiling is a path from 0 to `groups`. The path through the
    widest ranges is found first. Ranges that were given earlier win over equal later ones.
    """
    if sum([hi - lo for lo, hi in ranges]) < groups:
        return None
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    if ranges[order[-1]].hi == groups and all(
        ranges[i].hi == ranges[j].lo for i, j in pairwise(order)
    ):
        return order if ranges[order[0]].lo == 0 else None
    at: dict[int, list[int]] = {}
    for i, r in enumerate(ranges):
        at.setdefault(r.lo, []).append(i)
    dead: set[int] = set()

    def walk(lo: int, path: list[int]) -> list[int] | None:
        if lo == groups:
            return path
        if lo in dead:
            return None
        for i in sorted(at.get(lo, ()), key=lambda i: (-ranges[i].hi, i)):
            found = walk(ranges[i].hi, [*path, i])
            if found is not None:
                return found
        dead.add(lo)
        return None

    return walk(0, [])


class Inlet:
    """What has come in on one edge and was not applied yet."""

    def __init__(self, groups: int, position: int = 0) -> None:
        self.groups = groups
        self.position = position
        self.pieces: dict[int, list[Piece]] = {}
        self.tiled: dict[int, list[Piece]] = {}
        self.ended: list[Piece] = []
        self.rows = 0

    def receive(self, piece: Piece) -> bool:
        """Take a piece; whether it was new (False: applied already, or covered)."""
        epoch = piece.header.epoch
        if piece.header.ended:
            self._end(piece)
        if epoch <= self.position or epoch in self.tiled:
            return False
        have = self.pieces.setdefault(epoch, [])
        keys = piece.header.keys
        if have and keys in [p.header.keys for p in have]:
            return False
        have.append(piece)
        self.rows += piece.rows.length
        return True

    def _end(self, piece: Piece) -> None:
        epoch, keys, *_ = piece.header
        known = [p for p in self.ended if p.header.keys == keys]
        if not known or epoch < known[0].header.epoch:
            silent = silence(epoch, keys, piece.rows.schema, len(piece.offsets) - 1)
            self.ended = [*(p for p in self.ended if p.header.keys != keys), silent]

    def ready(self, epoch: int) -> bool:
        """Whether the pieces of `epoch` tile."""
        if epoch in self.tiled:
            return True
        candidates = self.pieces.get(epoch, [])
        if self.ended:
            candidates = [*candidates, *(p for p in self.ended if p.header.epoch < epoch)]
        if not candidates:
            return False
        if len(candidates) == 1 and len(candidates[0].header.keys) == self.groups:
            chosen: list[int] | None = [0]
        else:
            chosen = tile([p.header.keys for p in candidates], self.groups)
        if chosen is None:
            return False
        self.tiled[epoch] = [candidates[i] for i in chosen]
        return True

    def apply(self, epoch: int) -> list[Piece]:
        """The pieces of the next epoch in the order of their ranges; they are given up."""
        if epoch != self.position + 1 or not self.ready(epoch):
            raise InternalError(f"epoch {epoch} was applied out of turn, after {self.position}")
        self.position = epoch
        self.rows -= sum(len(p.rows) for p in self.pieces.pop(epoch, ()))
        return self.tiled.pop(epoch)

    @property
    def finished(self) -> bool:
        """Whether every range of the producer has ended."""
        over = [p.header.keys for p in self.ended if p.header.epoch <= self.position]
        return bool(over) and tile(over, self.groups) is not None
