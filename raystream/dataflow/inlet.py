"""Inlets: an input epoch is complete when pieces tile the producer's key space (law L2).

Pieces may come from owners and candidates of any range, twice, and out of order between senders. A
piece that is wholly covered is dropped; pieces that overlap in part are kept until some choice of
them tiles exactly. The end of a range is remembered of all pieces, also of those that are dropped:
later the pieces of their sender may be the ones that are taken. If the end of a range is announced
twice, the earlier epoch wins: an instance that replaces one at the end of its range announces the
end again one epoch later.

A piece for a run of empty epochs is kept under the first epoch that it is still needed for. Runs of
different senders begin and end at different epochs: what is left of one after a step is kept for
the next.

While a job is upgraded, an instance that was replaced and does not know it may send epochs that the
new version of the code has to make. Their pieces never count: when the consumer goes over to the
new version (`go_over`), they are dropped, and before that a piece of a newer version takes their
place.
"""

from __future__ import annotations

from itertools import pairwise

from raystream.dataflow.pieces import Piece, silence
from raystream.errors import InternalError
from raystream.schema.types import NEVER, KeyRange


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
    """The pieces that have come on one edge and were not applied yet."""

    def __init__(self, groups: int, position: int = 0, code: int = 0) -> None:
        self.groups = groups
        self.position = position
        self.code = code
        """The number of the version of the code that makes the next epoch. Pieces of older versions
        do not count."""
        self.pieces: dict[int, list[Piece]] = {}
        """The pieces that are held, by the first epoch for which they are still needed."""
        self.tiled: dict[int, list[Piece]] = {}
        """The pieces that were chosen for the next epoch, by that epoch."""
        self.ended: list[Piece] = []
        self.rows = 0

    def receive(self, piece: Piece) -> bool:
        """Take a piece. Returns whether it was new (False: applied already, or covered)."""
        header = piece.header
        if header.ended:
            self._end(piece)
        epoch = header.epoch
        if epoch <= self.position:
            return False
        first = epoch if header.epochs == 1 else max(header.first, self.position + 1)
        chosen = self.tiled.get(first)
        if chosen is not None and header.code > min([p.header.code for p in chosen]):
            del self.tiled[first]  # they may have to go
        elif chosen is not None:
            first = self._upto(chosen, first) + 1
            if epoch < first:
                return False
        return self._keep(piece, first)

    def _keep(self, piece: Piece, first: int) -> bool:
        """Keep a piece that is needed from the epoch `first` on, unless it is covered."""
        if piece.header.code < self.code:
            return False
        have = self.pieces.get(first)
        if have is None:
            self.pieces[first] = [piece]
        else:
            keys = piece.header.keys
            same = [i for i, p in enumerate(have) if p.header.keys == keys]
            if not same:
                have.append(piece)
            elif have[same[0]].header.code < piece.header.code:
                self.rows -= have[same[0]].rows.length
                have[same[0]] = piece
            elif (known := have[same[0]].header.epoch) < piece.header.epoch:
                return self._keep(piece, known + 1)  # it is of a run, and reaches further
            else:
                return False
        self.rows += piece.rows.length
        return True

    def go_over(self, code: int) -> None:
        """All epochs that were not applied yet are made by this version of the code, or by a newer
        one."""
        self.code = code
        held, self.pieces, self.tiled, self.rows = self.pieces, {}, {}, 0
        for first, pieces in held.items():
            for piece in pieces:
                self._keep(piece, first)

    @staticmethod
    def _upto(chosen: list[Piece], epoch: int) -> int:
        """The last epoch up to which all of the pieces chosen for `epoch` reach."""
        if chosen[0].header.epoch == epoch:
            return epoch
        return min([p.header.epoch for p in chosen if p.header.epoch >= epoch], default=NEVER)

    def _end(self, piece: Piece) -> None:
        epoch, keys = piece.header.epoch, piece.header.keys
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

    def reach(self, epoch: int) -> int:
        """The last epoch of a step that begins with the epoch `epoch`, which is ready: all epochs
        before the last are known to be empty."""
        if epoch not in self.tiled and not self.ready(epoch):
            raise self._out_of_turn(epoch)
        return self._upto(self.tiled[epoch], epoch)

    def apply(self, epoch: int, upto: int = 0) -> list[Piece]:
        """The pieces of the next epoch in the order of their ranges; they are given up.

        Args:
            upto: the last epoch of the step, if that is of a run of epochs; see `reach`.
        """
        if epoch != self.position + 1 or not self.ready(epoch):
            raise self._out_of_turn(epoch)
        pieces = self.tiled.pop(epoch)
        if upto > epoch:
            given_up = [
                p for e in [e for e in self.pieces if e <= upto] for p in self.pieces.pop(e)
            ]
            for e in [e for e in self.tiled if e <= upto]:  # somebody has looked ahead
                del self.tiled[e]
        else:
            upto, given_up = epoch, self.pieces.pop(epoch, [])
        self.position = upto
        for piece in given_up:
            self.rows -= piece.rows.length
            if piece.header.epoch > upto:  # it is of a run, and reaches further
                self._keep(piece, upto + 1)
        return pieces

    def apply_only(self, epoch: int) -> Piece | None:
        """As `apply` of one epoch, if one piece of that epoch alone is all there is of it; None,
        and nothing is given up, if not."""
        if not self.ready(epoch):
            return None
        chosen, came = self.tiled[epoch], self.pieces.get(epoch)
        if came is None or not len(chosen) == len(came) == 1:
            return None
        piece = came[0]
        if piece is not chosen[0] or piece.header.epochs != 1 or epoch != self.position + 1:
            return None
        del self.tiled[epoch], self.pieces[epoch]
        self.position = epoch
        self.rows -= piece.rows.length
        return piece

    def _out_of_turn(self, epoch: int) -> InternalError:
        return InternalError(f"epoch {epoch} was applied out of turn, after {self.position}")

    @property
    def finished(self) -> bool:
        """Whether every range of the producer has ended."""
        if not self.ended:
            return False
        over = [p.header.keys for p in self.ended if p.header.epoch <= self.position]
        return bool(over) and tile(over, self.groups) is not None
